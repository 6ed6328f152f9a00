//! The pods of an application as repair looks at them: all of one revision, or several while their workload rolls out.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::group::CONFIG;
use dapple_api::kinds::{KindInfo, NATIVE_DAEMON_SET, find_native};
use dapple_plan::group::division::Division;
use dapple_plan::group::repair::{MOVED, PodState};
use kube::api::Api;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::application::{ApplicationKey, Asking};
use super::gates::whole;
use super::owner::OwnerKey;
use super::repair::{HELD, Repairs, SELDOM};
use super::standing::{
    Standing, is_rolling_out, live_pods_of, owners_of_pods, pods_of_application, state_of, stranded,
};
use super::template::Template;
use super::turns::Availability;
use crate::observed::Observed;
use crate::queue::Ended;
use crate::slim::Pod;

/// One revision of an application's pods, and what is around it.
pub(super) struct View {
    pub(super) owner: OwnerKey,
    pub(super) template: Arc<Template>,
    /// All pods of the application that live.
    pub(super) pods: Vec<Arc<Pod>>,
    /// How many revisions they are of.
    pub(super) revisions: usize,
    /// What kind controls those of this one.
    pub(super) kind: KindInfo,
    pub(super) available: Availability,
    /// How many are leaving nodes that are not well.
    pub(super) stranded: usize,
    settled: OnceCell<Settled>,
}

/// How the workload of an application stands with its pods.
#[derive(Clone, Copy)]
pub(super) enum Settled {
    /// It is gone, or another by now.
    Gone,
    /// It rolls out or scales: its pods are not what they will be.
    Changing,
    /// It should have so many pods, and so many are available.
    As {
        /// How many it should have.
        desired: usize,
        /// How many are available.
        available: usize,
    },
}

impl View {
    /// Whether pods belong to their nodes.
    pub(super) fn is_daemon(&self) -> bool {
        self.kind == NATIVE_DAEMON_SET.at
    }

    /// Whether a pod is of this revision.
    pub(super) fn has(&self, pod: &Pod) -> bool {
        self.revisions == 1 || OwnerKey::of(pod) == self.owner
    }

    /// Whether the template is what pods of this revision are made of while others are made. Of DaemonSets, and of kinds that users
    /// have listed, only the newest template is known.
    pub(super) fn has_own_template(&self) -> bool {
        MOVED.contains(&self.kind.kind) && find_native(self.kind.group, self.kind.kind).is_some()
    }
}

impl Repairs {
    /// An application's pods, by revision. If nothing is to be done about them, how the look ends: if there are none, they are of
    /// several workloads, or not known well enough, or no others are made for those that are evicted.
    pub(super) async fn views(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
    ) -> Result<Result<Vec<View>, Ended>, kube::Error> {
        let pods = pods_of_application(&self.applications, &self.stores.pods, &at.key.namespace, asking);
        let owners: BTreeSet<OwnerKey> = pods.iter().map(|pod| OwnerKey::of(pod)).collect();
        if owners.is_empty() {
            return Ok(Err(Ended::Again(SELDOM)));
        }
        self.settle_doubts(&pods).await?;
        if self.are_several(at, asking, &owners) || self.budget.is_behind(&pods, &self.stores.pods) {
            return Ok(Err(Ended::Again(HELD)));
        }
        let stranded = stranded(&self.stores, &owners_of_pods(&self.applications, asking));
        let revisions = owners.len();
        let (mut views, mut kept) = (Vec::new(), 0);
        for owner in owners {
            let known = owner.uid().and_then(|uid| self.applications.by_uid(&at.key.namespace, uid));
            let Some((kind, _)) = known else { continue };
            if !self.has_running_pods_changed(kind) {
                let own: Vec<Arc<Pod>> = pods.iter().filter(|pod| OwnerKey::of(pod) == owner).cloned().collect();
                self.tell_stale(at, asking, &own);
                kept += 1;
                continue;
            }
            let found = self.editions.templates.get(&self.client, &self.applications, &owner).await?;
            let Some(template) = found else {
                self.tell_no_template(at, asking, kind);
                continue;
            };
            let available = Availability { min_ready: template.min_ready, now: self.env.now().as_second() };
            let (pods, settled) = (pods.clone(), OnceCell::new());
            views.push(View { owner, template, pods, revisions, kind, available, stranded, settled });
        }
        match views.is_empty() {
            false => Ok(Ok(views)),
            true if kept == revisions => Ok(Err(Ended::Done)),
            true => Ok(Err(Ended::Again(HELD))),
        }
    }

    /// Asks for pods that seem to be as they were long after they were evicted, or may have been changed. If they are, nothing has come
    /// of it, and the application goes on; if not, the view is behind, and it waits.
    async fn settle_doubts(&self, pods: &[Arc<Pod>]) -> Result<(), kube::Error> {
        for pod in self.budget.overdue(pods) {
            if whole(&self.client, &pod).await?.is_some() {
                self.budget.note_undone(&pod);
            }
        }
        Ok(())
    }

    /// Says that pods are left alone since the object of a listed kind that controls them has no template where the list says. Those of
    /// Kubernetes have one: theirs is not known yet, or they are gone.
    fn tell_no_template(&self, at: &ApplicationKey, asking: &Asking, kind: KindInfo) {
        if find_native(kind.group, kind.kind).is_none() {
            let note = format!(
                "{} have no pod template at {:?}, where ConfigMap {CONFIG} says that it is (podTemplatePath): pods of this one are neither \
                 moved nor changed",
                kind.plural,
                self.applications.template_field(kind)
            );
            self.report(at, asking, "TemplateMissing", note);
        }
    }

    /// Whether pods of an application are left alone since they are of several workloads, which is told: of a kind that users have
    /// listed, nobody knows what those are for. Those of Kubernetes have several while they roll out.
    fn are_several(&self, at: &ApplicationKey, asking: &Asking, owners: &BTreeSet<OwnerKey>) -> bool {
        if owners.len() == 1 || self.applications.replicas_field(at.kind).is_none() {
            return false;
        }
        let workloads = owners.iter().filter_map(|owner| owner.uid().cloned()).collect();
        let workloads = self.applications.branches(asking, &workloads).len();
        if workloads > 1 {
            let note = format!(
                "its pods are of {workloads} workloads below it, or revisions: none is moved or changed until all are of one"
            );
            self.report(at, asking, "SeveralWorkloads", note);
        }
        workloads > 1
    }

    /// How some pods of a view stand with a policy.
    pub(super) fn states(&self, view: &View, pods: &[Arc<Pod>], division: &Division) -> Vec<PodState> {
        let (start, available) = (view.template.start, view.available);
        let standing = Standing { stores: &self.stores, division, start, available };
        pods.iter().map(|pod| state_of(&standing, Some(view.kind), pod)).collect()
    }

    /// How the workload of an application stands. It is asked about once in a look, and only where that matters.
    pub(super) async fn settled(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        view: &View,
    ) -> Result<Settled, kube::Error> {
        if view.revisions > 1 {
            return Ok(Settled::Changing);
        }
        view.settled.get_or_try_init(|| self.read_settled(at, asking, view)).await.copied()
    }

    async fn read_settled(&self, at: &ApplicationKey, asking: &Asking, view: &View) -> Result<Settled, kube::Error> {
        let api = Api::<Observed<Value>>::namespaced_with(self.client.clone(), &at.key.namespace, &at.kind);
        let found = api.get_opt(&at.key.name).await?.and_then(|found| found.object.ok());
        let found = found.filter(|object| object["metadata"]["uid"] == *asking.meta.uid);
        let Some(whole) = found else { return Ok(Settled::Gone) };
        let Some(field) = self.applications.replicas_field(at.kind) else {
            let (desired, available) = (desired(&whole), count(&whole, "/status/availableReplicas").unwrap_or(0));
            return Ok(if is_rolling_out(&whole) { Settled::Changing } else { Settled::As { desired, available } });
        };
        // Of a kind that users have listed no more is known than how many pods there should be.
        let wanted = count(&whole, &format!("/{}", field.replace('.', "/")));
        // Pods of what is below it and asks by itself are of its number, though not its to change.
        let mut owners = self.applications.all_owned_by(asking);
        owners.push(asking.meta.uid.clone());
        let all = live_pods_of(&self.stores.pods, &at.key.namespace, &owners).len();
        let (desired, available) = (view.pods.len(), view.pods.iter().filter(|pod| view.available.has(pod)).count());
        Ok(if wanted.is_none_or(|wanted| wanted == all) {
            Settled::As { desired, available }
        } else {
            Settled::Changing
        })
    }
}

fn count(workload: &Value, path: &str) -> Option<usize> {
    workload.pointer(path).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok())
}

/// How many pods a workload should have.
fn desired(workload: &Value) -> usize {
    if workload["kind"] == NATIVE_DAEMON_SET.at.kind {
        return count(workload, "/status/desiredNumberScheduled").unwrap_or(0);
    }
    count(workload, "/spec/replicas").unwrap_or(1)
}
