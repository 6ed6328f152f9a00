//! One look at a marker: what is known of its pods is brought up to date, then pods are patched, and then it is told how that stands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::kinds::{POD, POD_MARKER};
use dapple_api::marker::{PodMarker, PodMarkerStatus};
use dapple_plan::marker::allowance::Limit;
use dapple_plan::marker::rule::Rule;
use dapple_plan::marker::status::waits;
use dapple_plan::mutant::{Mutant, is_on};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Api;
use kube::{Client, ResourceExt};
use tokio::time::Instant;
use tracing::{info, warn};

use super::cache::{Marker, NodeResults, ProberLease};
use super::metrics::MarkerMetrics;
use super::send::Sender;
use super::site::{Site, Sites, locked};
use super::status::{ECHO, news, replacing, told, unusable};
use super::subscribe::Teller;
use super::view::View;
use crate::caches::Subscription;
use crate::env::Backoff;
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::observed::Observed;
use crate::pacer::Pacer;
use crate::queue::{Ended, Queue};
use crate::slim::{Key, Node, Pod};
use crate::worker::Reconcile;
use crate::writes::events::{EventType, Recorder, Report};
use crate::writes::outcome::{Outcome, Writer};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(60) };

/// The controller. Its keys are markers.
pub(super) struct Markers {
    client: Client,
    recorder: Arc<Recorder>,
    counted: Arc<MarkerMetrics>,
    markers: Subscription<Marker>,
    pods: Subscription<Pod>,
    nodes: Subscription<Node>,
    results: Subscription<NodeResults>,
    leases: Subscription<ProberLease>,
    view: Arc<View>,
    sites: Arc<Sites>,
    teller: Teller,
    sender: Sender,
    limit: Limit,
    /// When the status of each was last written.
    written: Mutex<BTreeMap<Key, Instant>>,
}

impl Markers {
    /// Subscribes to all that marks follow from. Returns the controller and the queue of markers to look at.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let (markers, nodes) = (context.caches.open::<Marker>(), context.caches.open::<Node>());
        let pods = context.caches.open::<Pod>().indexed_by([Pod::BY_OWNER, Pod::BY_NODE]);
        let (results, leases) = (context.caches.open::<NodeResults>(), context.caches.open::<ProberLease>());
        let view = Arc::new(View::new(context.env.clone(), pods.store(), nodes.store(), results.store()));
        let sites = Arc::<Sites>::default();
        let teller = Teller {
            controller: Self::NAME,
            queue: queue.clone(),
            metrics: context.metrics.clone(),
            view: view.clone(),
            sites: sites.clone(),
        };
        let (to_markers, to_pods, to_nodes) = (teller.clone(), teller.clone(), teller.clone());
        let (to_results, to_leases, known) = (teller.clone(), teller.clone(), markers.store());
        let stop = &context.stop;
        let markers = markers.subscribe(stop, move |change| to_markers.on_marker(&known, change));
        let pods = pods.subscribe(stop, move |change| to_pods.on_pod(change));
        let nodes = nodes.subscribe(stop, move |change| to_nodes.on_node(change));
        let results = results.subscribe(stop, move |change| to_results.on_results(change));
        let leases = leases.subscribe(stop, move |change| to_leases.on_lease(change));
        let counted = context.metrics.of_family::<MarkerMetrics>();
        let between = Duration::from_secs(1) / u32::from(context.marker.patches_per_second.max(1));
        let sender = Sender {
            client: context.client.clone(),
            counted: counted.clone(),
            view: view.clone(),
            pacer: Pacer::new(if is_on(Mutant::MarksUnpaced) { Duration::ZERO } else { between }),
            limit: context.marker.in_a_minute,
        };
        let controller = Self {
            client: context.client.clone(),
            recorder: context.recorder.clone(),
            counted,
            markers,
            pods,
            nodes,
            results,
            leases,
            view,
            sites,
            teller,
            sender,
            limit: context.marker.in_a_minute,
            written: Mutex::default(),
        };
        (Arc::new(controller), queue)
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<Key, Instant>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is kept of a marker any more. Its marks stay.
    fn forget(&self, key: &Key) {
        if let Some(site) = self.sites.get(&key.namespace) {
            locked(&site).forget(&key.name);
        }
        self.counted.note(key, None);
        self.written().remove(key);
        self.recorder.forget(POD_MARKER.at, key);
    }

    /// Whether some objects are newer in the view than others.
    fn is_listing(&self) -> bool {
        self.markers.is_listing() || self.pods.is_listing() || self.nodes.is_listing() || self.results.is_listing()
    }

    async fn look(&self, key: &Key) -> Result<Ended, kube::Error> {
        let Some(marker) = self.markers.get(key) else {
            self.forget(key);
            return Ok(Ended::Done);
        };
        if self.markers.is_malformed(key) {
            return Ok(Ended::Done);
        }
        if !self.markers.caught_up(key) || self.is_listing() {
            return Ok(Ended::Again(ECHO));
        }
        let site = self.sites.of(&key.namespace);
        let rule = match Rule::of(&marker.object) {
            Ok(rule) => rule,
            Err(why) => {
                locked(&site).forget(&key.name);
                self.counted.note(key, None);
                let status = unusable(&marker, &why, &Time(self.view.env.now()));
                return self.tell(&marker, &status, None).await;
            }
        };
        self.hear();
        self.ask(&site, &marker, rule);
        self.read_owners(&site).await?;
        self.clear_doubts(&site, key).await?;
        if !self.is_complete(&site, &marker) {
            return Ok(Ended::Again(ECHO));
        }
        // Before a change of its spec is carried out, the status says so: whoever leads next must not take it for a new one.
        let observed = marker.object.status.as_ref().and_then(|status| status.observed_generation);
        let is_observed = observed == Some(marker.generation());
        let sent = if is_observed { self.sender.send(&site, &marker).await } else { Ok(()) };
        let told = told(&mut locked(&site), &self.view, &marker, self.limit);
        let Some(told) = told else { return Ok(Ended::Again(ECHO)) };
        self.counted.note(key, Some(told.numbers));
        let news = locked(&site).take_news();
        self.teller.add_all(&key.namespace, news.into_iter().filter(|name| *name != key.name));
        let ended = self.tell(&marker, &told.status, told.wake).await?;
        sent.map(|()| ended)
    }

    /// Probers that are not heard any more make what is known of their pods unknown.
    fn hear(&self) {
        let silent = self.view.probers().fallen_silent(self.view.now());
        self.teller.tell_probed(&silent);
    }

    /// Has the site know what the marker asks for.
    fn ask(&self, site: &Mutex<Site>, marker: &Marker, rule: Rule) {
        let key = &marker.meta.key;
        let others = {
            let mut site = locked(site);
            let others = if site.ask(&key.name, Some(rule)) { site.names() } else { Vec::new() };
            site.prepare(&self.view, marker);
            others
        };
        self.teller.add_all(&key.namespace, others.into_iter().filter(|name| *name != key.name));
    }

    /// Whether all that the marker depends on is known; then what its spec asks for is begun with, if that is new.
    fn is_complete(&self, site: &Mutex<Site>, marker: &Marker) -> bool {
        let mut site = locked(site);
        let Some(rule) = site.rule(&marker.meta.key.name) else { return false };
        let has_unread = !site.unread().is_empty();
        let Some(memory) = site.memory(&marker.meta.key.name) else { return false };
        if has_unread || memory.told.is_none() {
            return false;
        }
        memory.look_back(marker, self.view.second(), self.view.now());
        memory.carry(marker, &rule, self.view.now());
        memory.forget_refusals(self.view.now());
        true
    }

    /// Reads owners of pods that were not read yet, each once.
    async fn read_owners(&self, site: &Mutex<Site>) -> Result<(), kube::Error> {
        let unread = locked(site).unread();
        for (uid, owner) in unread {
            self.view.owners.read(&self.client, &uid, &owner).await?;
            let pods = self.view.pods.find(Pod::BY_OWNER, &uid);
            let names: Vec<Arc<str>> = pods.iter().map(|pod| pod.meta.key.name.clone()).collect();
            let mut site = locked(site);
            site.is_read(&uid);
            site.tell_again(&self.view, &names);
        }
        Ok(())
    }

    /// Asks the API server what came of patches of which nobody knows.
    async fn clear_doubts(&self, site: &Mutex<Site>, key: &Key) -> Result<(), kube::Error> {
        let doubts = locked(site).memory(&key.name).map(|memory| memory.doubts()).unwrap_or_default();
        for (name, uid, version) in doubts {
            let api = Api::<Observed<serde_json::Value>>::namespaced_with(self.client.clone(), &key.namespace, &POD);
            let found = api.get_opt(&name).await?.filter(|found| found.uid().as_deref() == Some(&*uid));
            let now = found.and_then(|found| found.resource_version()?.parse::<u64>().ok());
            let is_done = now.is_some_and(|now| now != version);
            if let Some(now) = now.filter(|_| is_done) {
                // What came of it is told by the view.
                self.pods.wrote(&Key { namespace: key.namespace.clone(), name: name.clone() }, now);
            }
            let mut site = locked(site);
            if let Some(memory) = site.memory(&key.name) {
                memory.cleared(&name, is_done);
            }
            site.tell_again(&self.view, &[name]);
        }
        Ok(())
    }

    /// Tells how a marker stands, if that is news, at most once a second: onto the very version that was looked at.
    async fn tell(
        &self,
        marker: &Marker,
        status: &PodMarkerStatus,
        wake: Option<Duration>,
    ) -> Result<Ended, kube::Error> {
        let key = &marker.meta.key;
        let ended = wake.map_or(Ended::Done, Ended::Again);
        let before = marker.object.status.clone().unwrap_or_default();
        let since = self.written().get(key).map(Instant::elapsed);
        match waits(status, &before, since) {
            None => return Ok(ended),
            Some(wait) if !wait.is_zero() => return Ok(Ended::Again(wake.map_or(wait, |wake| wake.min(wait)))),
            Some(_) => {}
        }
        let api = Api::<PodMarker>::namespaced(self.client.clone(), &key.namespace);
        match Writer::new(&self.client, &api).write_status(&marker.meta, &replacing(status)).await {
            Outcome::Written(version) => self.markers.wrote(key, version),
            Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
            // It is another one by now: look again.
            Outcome::Missing | Outcome::Conflict | Outcome::Gone | Outcome::NameTaken => return Ok(Ended::Failed),
        }
        self.written().insert(key.clone(), Instant::now());
        info!(marker = %key, succeeded = status.succeeded, waiting = status.waiting, "status written");
        if let Some(report) = news(marker, status) {
            self.recorder.report(report);
        }
        Ok(ended)
    }
}

impl Reconcile for Markers {
    type Key = Key;
    const NAME: &'static str = "marker";

    async fn ready(&self, term: u64) {
        self.markers.synced(term).await;
        self.nodes.synced(term).await;
        self.pods.synced(term).await;
        self.results.synced(term).await;
        self.leases.synced(term).await;
        let forget = || {
            self.counted.forget_all();
            let mut probers = self.view.probers();
            *probers = Default::default();
            self.leases.for_each(|lease| probers.listed(lease.node(), &lease.renewal));
        };
        self.sites.begin(term, (self.view.second(), self.view.now()), &self.markers, forget);
    }

    async fn reconcile(&self, key: &Key) -> Result<Ended, kube::Error> {
        self.look(key).await
    }

    async fn tell_failure(&self, key: &Key, failure: &Failure) {
        let Some(marker) = self.markers.get(key) else { return };
        warn!(marker = %key, why = failure.text, "a marker cannot do its work");
        self.recorder.report(Report {
            about: POD_MARKER.at,
            key: key.clone(),
            uid: marker.meta.uid.to_string(),
            event_type: EventType::Warning,
            action: "Marking",
            reason: "FailedMarking",
            note: format!("pods cannot be marked, or its status not be written: {}", failure.text),
        });
    }
}
