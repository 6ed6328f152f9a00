//! What a prober reads and writes in the cluster: the NodePodProbe of its node, and the Lease by which it says that it is there.
//! Nothing else.

use std::time::Duration;

use dapple_api::marker::{NodePodProbe, NodePodProbeStatus, PROBER_NAMESPACE};
use dapple_control::writes::client::in_words;
use dapple_control::writes::outcome::{Outcome, Writer, version_of};
use dapple_plan::marker::probers::HEARD;
use dapple_plan::marker::reporting::pause;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use kube::Client;
use kube::api::{Api, Patch};
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

/// Which version of the node's object was seen last.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    pub(super) uid: String,
    pub(super) version: u64,
    /// The Node that owns it.
    pub(super) owners: Vec<OwnerReference>,
}

impl Seen {
    pub(super) fn of(object: &NodePodProbe) -> Self {
        Self {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            version: version_of(&object.metadata),
            owners: object.metadata.owner_references.clone().unwrap_or_default(),
        }
    }
}

/// The cluster, as a prober uses it.
#[derive(Clone)]
pub(super) struct Cluster {
    node: String,
    results: Writer,
    leases: Writer,
    lease: Api<Lease>,
}

impl Cluster {
    pub(super) fn new(client: &Client, node: &str) -> Self {
        let lease: Api<Lease> = Api::namespaced(client.clone(), PROBER_NAMESPACE);
        Self {
            node: node.to_owned(),
            results: Writer::new(client, &Api::<NodePodProbe>::all(client.clone())),
            leases: Writer::new(client, &lease),
            lease,
        }
    }

    /// When the prober before this one last said that it was there.
    pub(super) async fn renewed(&self) -> Result<Option<Timestamp>, kube::Error> {
        let lease = self.lease.get_opt(&self.node).await?;
        Ok(lease.and_then(|lease| lease.spec?.renew_time).map(|time| time.0))
    }

    /// Stores results, if the object is what was seen. Returns its new version.
    pub(super) async fn store(&self, seen: &Seen, status: &NodePodProbeStatus) -> Result<u64, String> {
        let patch = json!({
            "metadata": {"uid": seen.uid, "resourceVersion": seen.version.to_string()},
            "status": replacing(status),
        });
        done(self.results.patch(&self.node, Some("status"), &Patch::Merge(patch)).await)
    }

    /// Says that the prober is there.
    pub(super) async fn renew(&self, owners: &[OwnerReference], now: Timestamp) -> Result<u64, String> {
        let spec = lease(&self.node, now);
        match self.leases.patch(&self.node, None, &Patch::Merge(json!({"spec": spec}))).await {
            Outcome::Missing => {
                let metadata = json!({"name": self.node, "namespace": PROBER_NAMESPACE, "ownerReferences": owners});
                let whole = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
                done(self.leases.create(whole.to_string().into_bytes()).await)
            }
            outcome => done(outcome),
        }
    }
}

/// The status as a merge patch that replaces the whole.
fn replacing(status: &NodePodProbeStatus) -> Value {
    json!({"podProbeStatuses": status.pod_probe_statuses, "message": status.message})
}

fn lease(node: &str, now: Timestamp) -> Value {
    json!({"holderIdentity": node, "leaseDurationSeconds": HEARD.as_secs(), "renewTime": MicroTime(now)})
}

fn done(outcome: Outcome) -> Result<u64, String> {
    match outcome {
        Outcome::Written(version) => Ok(version),
        Outcome::Refused(error) | Outcome::Unknown(error) => Err(in_words(&error)),
        Outcome::Conflict => Err("it has changed meanwhile".to_owned()),
        Outcome::Missing | Outcome::Gone => Err("it is gone".to_owned()),
        Outcome::NameTaken => Err("it has been made meanwhile".to_owned()),
    }
}

/// The object of a node, as it changes.
pub(super) struct Watch {
    events: BoxStream<'static, Result<Event<NodePodProbe>, watcher::Error>>,
    /// What a list has told so far.
    listed: Option<NodePodProbe>,
    failures: u32,
    /// Not asked again before.
    until: Option<Instant>,
}

/// What a watch tells.
#[derive(Debug)]
pub(super) enum News {
    /// The object is so.
    There(Box<NodePodProbe>),
    /// There is none.
    Gone,
}

impl Watch {
    pub(super) fn new(client: &Client, node: &str) -> Self {
        let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
        let events = watcher::watcher(Api::<NodePodProbe>::all(client.clone()), config).boxed();
        Self { events, listed: None, failures: 0, until: None }
    }

    /// The next that it tells. Nothing is lost where this is dropped. `fraction` gives numbers at random, from 0 to 1.
    pub(super) async fn next(&mut self, fraction: impl Fn() -> f64) -> News {
        loop {
            if let Some(until) = self.until {
                sleep_until(until).await;
                self.until = None;
            }
            let news = match self.events.next().await {
                Some(Ok(event)) => {
                    // An `Init` only says that a list is about to be tried.
                    if !matches!(event, Event::Init) {
                        self.failures = 0;
                    }
                    self.take_in(event)
                }
                Some(Err(error)) => {
                    self.failures = self.failures.saturating_add(1);
                    let pause = pause(self.failures, fraction());
                    warn!(error = in_words(&error), ?pause, "the watch broke; trying again");
                    self.until = Some(Instant::now() + pause);
                    None
                }
                // It has no end.
                None => {
                    self.until = Some(Instant::now() + Duration::from_secs(1));
                    None
                }
            };
            if let Some(news) = news {
                return news;
            }
        }
    }

    fn take_in(&mut self, event: Event<NodePodProbe>) -> Option<News> {
        match event {
            Event::Init => self.listed = None,
            Event::InitApply(object) => self.listed = Some(object),
            Event::InitDone => {
                return Some(self.listed.take().map_or(News::Gone, |object| News::There(Box::new(object))));
            }
            Event::Apply(object) => return Some(News::There(Box::new(object))),
            Event::Delete(_) => return Some(News::Gone),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use dapple_api::marker::PodProbeStatus;

    use super::*;

    #[test]
    fn what_is_empty_is_taken_out() {
        let status = NodePodProbeStatus::default();
        assert_eq!(replacing(&status), json!({"podProbeStatuses": [], "message": null}));
        let pod = PodProbeStatus { name: "p".into(), namespace: "n".into(), uid: "u".into(), probe_states: vec![] };
        let status = NodePodProbeStatus { pod_probe_statuses: vec![pod], message: Some("said".into()) };
        let pod = json!({"name": "p", "namespace": "n", "uid": "u"});
        assert_eq!(replacing(&status), json!({"podProbeStatuses": [pod], "message": "said"}));
    }

    #[test]
    fn a_lease_says_who_and_when_and_for_how_long() {
        let now = Timestamp::from_second(100).expect("a time");
        let said = lease("node-1", now);
        assert_eq!((&said["holderIdentity"], &said["leaseDurationSeconds"]), (&json!("node-1"), &json!(180)));
        assert!(said["renewTime"].as_str().is_some_and(|time| time.starts_with("1970-01-01T00:01:40")), "{said}");
    }

    #[test]
    fn a_list_is_told_when_it_is_whole() {
        let mut watch = Watch { events: futures::stream::pending().boxed(), listed: None, failures: 0, until: None };
        let object =
            || serde_json::from_value::<NodePodProbe>(json!({"metadata": {"name": "n"}, "spec": {}})).expect("one");
        assert!(watch.take_in(Event::Init).is_none() && watch.take_in(Event::InitApply(object())).is_none());
        assert!(matches!(watch.take_in(Event::InitDone), Some(News::There(_))));
        assert!(watch.take_in(Event::Init).is_none());
        assert!(matches!(watch.take_in(Event::InitDone), Some(News::Gone)), "it is gone while nobody watched");
        assert!(matches!(watch.take_in(Event::Apply(object())), Some(News::There(_))));
        assert!(matches!(watch.take_in(Event::Delete(object())), Some(News::Gone)));
    }
}
