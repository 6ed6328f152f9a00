//! A leader that is killed in the midst of a rollout, with 10,000 nodes and 20 DaemonSets: what the next one reads, and that
//! it writes nothing which the one before had written already. Both by the API server's own audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dapple_bench::audit::{Audit, Entry};
use dapple_bench::fleet::{Bench, LEASE, run_manager_if_asked, until};
use dapple_bench::goals::check;
use dapple_control::families;
use dapple_testbed::Fleet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const NODES: usize = 10_000;
const SETS: usize = 20;
/// Nodes that a set is for.
const NODES_OF_A_SET: usize = 100;
const PODS: usize = SETS * NODES_OF_A_SET;
/// Groups of nodes, as many in each as a set has.
const GROUPS: usize = 4;
/// The leader is killed once so many pods are said to be updated.
const KILLED_AT: usize = PODS * 2 / 5;
/// What a manager with all families reads.
const KINDS: [&str; 5] = [
    "nodes",
    "pods",
    "controllerrevisions.apps",
    "daemonsets.apps.kruise.io",
    "nodegroups.groupmanagement.kubeedge.io",
];
const BEFORE: &str = "agent:1";
const AFTER: &str = "agent:2";
/// What is written twice is written by then.
const AFTERMATH: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(900);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if run_manager_if_asked().await? {
        return Ok(());
    }
    let mut run = Run::start().await?;
    let old = run.bench.identity();
    until("the first manager leads", || run.is_led_by(&old)).await?;
    let standby = run.bench.start_another(&families::ALL)?;
    let new = standby.identity();
    println!("making {SETS} DaemonSets with {NODES_OF_A_SET} pods each, as nodes become ready ...");
    run.make().await?;
    run.reach("pods are there", |updated, available| updated + available == 2 * PODS).await?;
    println!("changing all of them ...");
    run.change_image().await?;
    run.reach("pods are updated", |updated, _| updated >= KILLED_AT).await?;
    println!("killing the leader ...");
    run.bench.replace_manager(standby);
    until("the other manager leads", || run.is_led_by(&new)).await?;
    run.reach("pods are updated", |updated, available| updated + available == 2 * PODS).await?;
    tokio::time::sleep(AFTERMATH).await;
    run.ensure_complete().await?;
    println!("reading the audit log ...");
    let entries = run.audit.entries(&[&old, &new])?;
    let mut missed = Vec::new();
    report(&entries, &new, &mut missed)?;
    run.bench.stop().await?;
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

struct Run {
    bench: Bench,
    audit: Audit,
    sets: Api<DynamicObject>,
    groups: Api<DynamicObject>,
}

fn template(image: &str, number: usize) -> Value {
    json!({"metadata": {"labels": {"app": name(number)}}, "spec": {
        "nodeSelector": {"slice": name(number)}, "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "agent", "image": image}]}})
}

/// The name of a set, and of the nodes that it is for.
fn name(number: usize) -> String {
    format!("s{number:03}")
}

fn set(number: usize) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": name(number)},
        "spec": {
            "selector": {"matchLabels": {"app": name(number)}}, "template": template(BEFORE, number),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
        },
    })
}

fn group(number: usize) -> Value {
    json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup", "metadata": {"name": name(number)},
        "spec": {"matchLabels": {"slice": name(number)}}})
}

impl Run {
    async fn start() -> anyhow::Result<Self> {
        println!("making {NODES} nodes ...");
        let slices: Vec<String> = (0..NODES / NODES_OF_A_SET).map(name).collect();
        let kinds = json!({"kinds": [{"name": "node", "count": NODES, "labels": {"slice": slices}}]});
        let audit = Audit::new()?;
        let fleet = Fleet::from_yaml(&kinds.to_string(), "fleet")?;
        let bench = Bench::start_with(&fleet, audit.api_args(), &families::ALL).await?;
        let client = bench.cluster.client().await?;
        let sets = ApiResource::from_gvk(&GroupVersionKind::gvk("apps.kruise.io", "v1beta1", "DaemonSet"));
        let groups =
            ApiResource::from_gvk(&GroupVersionKind::gvk("groupmanagement.kubeedge.io", "v1alpha1", "NodeGroup"));
        Ok(Self {
            audit,
            bench,
            sets: Api::namespaced_with(client.clone(), "default", &sets),
            groups: Api::all_with(client, &groups),
        })
    }

    async fn is_led_by(&self, identity: &str) -> anyhow::Result<bool> {
        let leases: Api<Lease> = Api::namespaced(self.bench.cluster.client().await?, "default");
        let lease = leases.get_opt(LEASE).await?;
        Ok(lease.and_then(|lease| lease.spec?.holder_identity).is_some_and(|holder| holder == identity))
    }

    async fn make(&self) -> anyhow::Result<()> {
        for number in 0..GROUPS {
            self.groups.create(&PostParams::default(), &serde_json::from_value(group(number))?).await?;
        }
        for number in 0..SETS {
            self.sets.create(&PostParams::default(), &serde_json::from_value(set(number))?).await?;
        }
        Ok(())
    }

    async fn change_image(&self) -> anyhow::Result<()> {
        for number in 0..SETS {
            let change = json!({"spec": {"template": template(AFTER, number)}});
            self.sets.patch(&name(number), &PatchParams::default(), &Patch::Merge(&change)).await?;
        }
        Ok(())
    }

    /// Waits until so many pods are of the newest revision, and so many available, as the sets say.
    async fn reach(&self, what: &str, is_reached: impl Fn(usize, usize) -> bool) -> anyhow::Result<()> {
        let (begun, mut told) = (Instant::now(), Instant::now());
        loop {
            let (mut updated, mut available) = (0, 0);
            for set in self.sets.list(&ListParams::default()).await? {
                let status = &set.data["status"];
                if status["observedGeneration"].as_i64() == set.metadata.generation {
                    let count = |field: &str| status[field].as_u64().unwrap_or(0) as usize;
                    updated += count("updatedNumberScheduled");
                    available += count("numberAvailable");
                }
            }
            let is_reached = is_reached(updated, available);
            if is_reached || told.elapsed() > Duration::from_secs(5) {
                println!("  {updated} of {PODS} {what}, {available} available");
                told = Instant::now();
            }
            if is_reached {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "{what}: only {updated} after {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Looks at the pods themselves: one of the new revision on each node of each set, and no other.
    async fn ensure_complete(&self) -> anyhow::Result<()> {
        let pods = Api::<Pod>::namespaced(self.bench.cluster.client().await?, "default");
        let pods = pods.list(&ListParams::default()).await?;
        let mut places = BTreeSet::new();
        for pod in &pods {
            let spec = pod.spec.as_ref().context("a pod without a spec")?;
            let image = spec.containers.first().and_then(|container| container.image.as_deref());
            ensure!(image == Some(AFTER), "{} is still of the old revision", pod.name_any());
            ensure!(places.insert((pod.labels().get("app"), &spec.node_name)), "{} is not alone", pod.name_any());
        }
        ensure!(places.len() == PODS, "{} pods, not {PODS}", places.len());
        Ok(())
    }
}

/// What came of the change, by the requests of both managers.
fn report(entries: &[Entry], new: &str, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let by_new: Vec<&Entry> = entries.iter().filter(|entry| entry.user_agent == new).collect();
    let is_taken = |entry: &&&Entry| entry.kind().starts_with("leases") && entry.is_write() && entry.is_done();
    let taken = by_new.iter().find(is_taken).context("the lease was not taken")?;
    let is_after = |entry: &&&Entry| entry.request_received_timestamp > taken.request_received_timestamp;
    let story = Story::of(entries, new);
    println!(
        "\n{NODES} nodes, {SETS} DaemonSets, {PODS} pods, {GROUPS} NodeGroups; the leader was killed in a rollout"
    );
    println!("  pods updated by the old leader, by the new one: {}, {}", story.updated[0], story.updated[1]);
    ensure!(story.updated.iter().all(|count| *count > PODS / 10), "the leader was not killed in the midst");
    check_lists("as a standby", by_new.iter().filter(|entry| !is_after(entry)), missed);
    check_lists("after the change", by_new.iter().filter(is_after), missed);
    for (what, count, needed) in [
        ("pods made", story.pods_made, 2 * PODS),
        ("pods deleted", story.pods_deleted, PODS),
        ("ControllerRevisions made", story.revisions_made, 2 * SETS),
    ] {
        let text = format!("{what} in all / needed: {:.3} ({count} / {needed})", ratio(count, needed));
        check(missed, text, count == needed);
    }
    for what in FAULTS {
        let found = story.faults.get(what).map(Vec::as_slice).unwrap_or_default();
        let some = found[..found.len().min(5)].join(", ");
        check(missed, format!("{what}: {} {some}", found.len()).trim_end().to_owned(), found.is_empty());
    }
    for (who, counts) in ["old", "new"].iter().zip(&story.counts) {
        let counts: Vec<String> = counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
        println!("  what the {who} leader asked for: {}", counts.join(", "));
    }
    Ok(())
}

/// Each kind is listed once, and no other.
fn check_lists<'e>(when: &str, requests: impl Iterator<Item = &'e &'e Entry>, missed: &mut Vec<String>) {
    let (mut lists, mut pages) = (BTreeMap::<String, usize>::new(), 0);
    for entry in requests.filter(|entry| entry.verb == "list" && entry.is_done()) {
        pages += 1;
        *lists.entry(entry.kind()).or_default() += usize::from(entry.is_first_page());
    }
    let (count, kinds) = (lists.values().sum::<usize>(), KINDS.len());
    let is_once = lists.len() == kinds && KINDS.iter().all(|kind| lists.get(*kind) == Some(&1));
    let each = if is_once { "each kind once".to_owned() } else { format!("{lists:?}") };
    let ratio = ratio(count, kinds);
    check(missed, format!("lists {when} / kinds: {ratio:.2} ({count} / {kinds}, {each}, {pages} pages)"), is_once);
}

fn ratio(count: usize, to: usize) -> f64 {
    count as f64 / to as f64
}

const REPEATED: &str = "writes of the new leader that the old one had made";
const LATE: &str = "pods and revisions that the new leader found made or gone already when it wrote";
const SECOND: &str = "pods made beside a live one of the same set and node";
const NEW_DELETED: &str = "pods of the new revision that were deleted";
const IDLE: &str = "writes that changed nothing";
const BACK: &str = "statuses with fewer updated pods than said before";
/// What must not be.
const FAULTS: [&str; 6] = [REPEATED, LATE, SECOND, NEW_DELETED, IDLE, BACK];

/// What both managers wrote, in order.
#[derive(Default)]
struct Story {
    pods_made: usize,
    pods_deleted: usize,
    revisions_made: usize,
    /// Pods of the new revision, made by the old leader and by the new one.
    updated: [usize; 2],
    faults: BTreeMap<&'static str, Vec<String>>,
    /// Requests by what they are, of the old leader and of the new one.
    counts: [BTreeMap<String, usize>; 2],
    /// What the old leader has written.
    written: BTreeSet<String>,
    /// By name: set and node of a pod, and whether it is of the new revision.
    pods: BTreeMap<String, ((String, String), bool)>,
    /// By set and node: pods that nobody has deleted yet.
    live: BTreeMap<(String, String), usize>,
    /// By set: generation, and pods that are updated, as said last.
    told: BTreeMap<String, (i64, i64)>,
}

/// What a write is, whoever sends it. Names follow from what an object is; changes name the version that they replace.
fn key(entry: &Entry) -> String {
    match entry.verb.as_str() {
        "create" | "delete" => format!("{} {} {}", entry.verb, entry.kind(), entry.object_ref.name),
        verb => format!("{verb} {} {}", entry.uri, entry.request_object),
    }
}

impl Story {
    fn of(entries: &[Entry], new: &str) -> Self {
        let mut story = Self::default();
        let is_asked = |entry: &&Entry| (entry.is_write() || entry.is_dry()) && !entry.kind().starts_with("leases");
        let done: BTreeSet<String> =
            entries.iter().filter(|entry| entry.is_write() && entry.is_done()).map(key).collect();
        for entry in entries.iter().filter(is_asked) {
            let by = usize::from(entry.user_agent == new);
            // The old leader was killed while it waited for an answer: unless it was done later, it was done then.
            let is_cut_off = by == 0 && entry.is_failed() && !done.contains(&key(entry));
            let how = match () {
                () if entry.is_dry() => " (dry run)",
                () if entry.is_done() => "",
                () if is_cut_off => " (cut off)",
                () if entry.is_failed() => " (failed)",
                () => " (refused)",
            };
            *story.counts[by].entry(format!("{} {}{how}", entry.verb, entry.kind())).or_default() += 1;
            if entry.is_write() && (entry.is_done() || is_cut_off) {
                story.take_in(entry, by);
            } else if entry.is_write() && by == 1 {
                story.note_refusal(entry);
            }
        }
        story
    }

    fn fault(&mut self, what: &'static str, entry: &Entry) {
        let text = format!("{} {} {}", entry.verb, entry.kind(), entry.object_ref.name);
        self.faults.entry(what).or_default().push(text);
    }

    /// The name of an Event may be taken: one stands for all that is alike, and the new leader goes on counting in it. A
    /// status is written at a version, which may be replaced meanwhile.
    fn note_refusal(&mut self, entry: &Entry) {
        if ["pods", "controllerrevisions.apps"].contains(&entry.kind().as_str()) {
            self.fault(LATE, entry);
        }
    }

    fn take_in(&mut self, entry: &Entry, by: usize) {
        if by == 0 {
            self.written.insert(key(entry));
        } else if self.written.contains(&key(entry)) {
            self.fault(REPEATED, entry);
        }
        let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let replaced = version(&entry.request_object);
        if replaced.is_some() && replaced == version(&entry.response_object) {
            self.fault(IDLE, entry);
        }
        match (entry.verb.as_str(), entry.kind().as_str()) {
            ("create", "pods") => self.take_in_creation(entry, by),
            ("delete", "pods") => self.take_in_deletion(entry),
            ("create", "controllerrevisions.apps") => self.revisions_made += 1,
            ("patch", "daemonsets/status.apps.kruise.io") => self.take_in_status(entry),
            _ => {}
        }
    }

    fn take_in_creation(&mut self, entry: &Entry, by: usize) {
        let body = &entry.request_object;
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let affinity = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
        let node = text(&format!("{affinity}/nodeSelectorTerms/0/matchFields/0/values/0"));
        let place = (text("/metadata/ownerReferences/0/name"), node);
        let is_new = text("/spec/containers/0/image") == AFTER;
        self.pods_made += 1;
        self.updated[by] += usize::from(is_new);
        let live = self.live.entry(place.clone()).or_default();
        *live += 1;
        if *live > 1 {
            self.fault(SECOND, entry);
        }
        self.pods.insert(entry.object_ref.name.clone(), (place, is_new));
    }

    fn take_in_deletion(&mut self, entry: &Entry) {
        self.pods_deleted += 1;
        let Some((place, is_new)) = self.pods.get(&entry.object_ref.name).cloned() else { return };
        if is_new {
            self.fault(NEW_DELETED, entry);
        }
        if let Some(live) = self.live.get_mut(&place) {
            *live = live.saturating_sub(1);
        }
    }

    fn take_in_status(&mut self, entry: &Entry) {
        let status = &entry.request_object["status"];
        let count = |field: &str| status[field].as_i64().unwrap_or(0);
        let said = (count("observedGeneration"), count("updatedNumberScheduled"));
        let before = self.told.insert(entry.object_ref.name.clone(), said);
        if before.is_some_and(|before| before.0 == said.0 && before.1 > said.1) {
            self.fault(BACK, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(agent: &str, verb: &str, name: &str, image: &str, code: u16) -> Entry {
        let object = json!({"metadata": {"resourceVersion": "1"}, "spec": {"containers": [{"image": image}]}});
        let about = json!({"resource": "pods", "name": name});
        let entry = json!({"userAgent": agent, "verb": verb, "objectRef": about, "responseStatus": {"code": code},
            "requestObject": object, "responseObject": object});
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn what_must_not_be_is_found() {
        let old = [entry("old", "create", "a", BEFORE, 201), entry("old", "delete", "a", "", 504)];
        let found = |new: Entry| {
            let story = Story::of(&old.iter().cloned().chain([new]).collect::<Vec<_>>(), "new");
            FAULTS.into_iter().filter(|what| *what != IDLE && story.faults.contains_key(what)).collect::<Vec<_>>()
        };
        assert!(
            found(entry("new", "create", "b", AFTER, 201)).is_empty(),
            "the deletion was done though it was cut off"
        );
        assert_eq!(found(entry("new", "create", "a", BEFORE, 201)), [REPEATED]);
        assert_eq!(found(entry("new", "create", "b", AFTER, 409)), [LATE]);
        assert!(found(entry("new", "delete", "a", "", 200)).is_empty(), "the deletion had not been done");
        let twice = [entry("old", "create", "a", AFTER, 201), entry("new", "create", "b", AFTER, 201)];
        assert_eq!(Story::of(&twice, "new").faults.keys().copied().collect::<Vec<_>>(), [SECOND, IDLE]);
        let gone = [entry("old", "create", "a", AFTER, 201), entry("new", "delete", "a", "", 200)];
        assert!(Story::of(&gone, "new").faults.contains_key(NEW_DELETED));
    }
}
