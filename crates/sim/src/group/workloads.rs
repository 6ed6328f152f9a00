//! Workloads whose pods are divided: they come, grow, shrink and are rolled out, while policies and labels change.

use std::time::Duration;

use dapple_plan::group::binding::Pair;
use http::Method;
use serde_json::{Value, json};

use super::binding::path as policy_path;
use super::script::NAMES;
use crate::kubelet::BAD_IMAGE;
use crate::nodes::{DISK, DISKS};
use crate::script::{Edit, Event, Script};

/// The policies of this script, which no other touches.
const POLICIES: [&str; 2] = ["spread", "range"];
/// The OverridePolicy of this script.
const TAGS: &str = "tags";

/// Kinds of workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    Job,
}

const KINDS: [Kind; 4] = [Kind::Deployment, Kind::ReplicaSet, Kind::StatefulSet, Kind::Job];

impl Kind {
    fn path(self) -> String {
        let (group, plural) = match self {
            Self::Deployment => ("apps", "deployments"),
            Self::ReplicaSet => ("apps", "replicasets"),
            Self::StatefulSet => ("apps", "statefulsets"),
            Self::Job => ("batch", "jobs"),
        };
        format!("/apis/{group}/v1/namespaces/default/{plural}")
    }
}

/// What is drawn for a script, and when.
struct Plan<'r> {
    random: &'r mut fastrand::Rng,
    last: u64,
    managers: usize,
    /// Whether workloads only grow, under policies that stay, so that it is known how their pods are divided in the end.
    is_steady: bool,
    /// Whether the webhook makes pods by the editions of groups.
    makes_pods: bool,
    events: Vec<(u64, Event)>,
}

/// Workloads come and change, and with them what they ask for.
pub(super) fn run_workloads(script: &mut Script, random: &mut fastrand::Rng) {
    let last = script.calm_at.as_millis() as u64;
    let is_steady = random.u8(0..3) == 0;
    script.habits.has_webhook = true;
    script.habits.controllers = [20, 500, 5_000][random.usize(0..3)];
    script.weather.calls = if is_steady { 0.0 } else { [0.0, 0.05, 0.3][random.usize(0..3)] };
    let managers = script.managers;
    let mut plan = Plan { random, last, managers, is_steady, makes_pods: false, events: Vec::new() };
    for name in POLICIES {
        plan.policy(name);
    }
    let has_tags = plan.random.bool();
    if has_tags {
        if plan.random.bool() {
            // What rules change besides images only pods get that are made so, sooner or later.
            let from = [0, plan.random.u64(0..last)][plan.random.usize(0..2)];
            script.habits.makes_pods_from = Some(Duration::from_millis(from));
            plan.makes_pods = true;
        }
        plan.tags();
    }
    for number in 0..plan.random.usize(1..4) {
        let kind = KINDS[plan.random.usize(0..KINDS.len())];
        plan.workload(kind, &format!("{kind:?}-{number}").to_lowercase());
    }
    let events = std::mem::take(&mut plan.events);
    let has_policies = plan.is_steady || plan.random.bool();
    let finish: Vec<Event> = POLICIES.iter().map(|name| Event::User(plan.policy_comes(name))).collect();
    if has_tags {
        // In the end it does no harm.
        let rules = plan.rules(false);
        script.finish.push(Event::User(tags_change(&rules)));
    }
    if has_policies && !is_steady {
        script.finish.extend(finish);
    }
    for (at, event) in events {
        let at = Duration::from_millis(at);
        let place = script.events.partition_point(|(other, _)| *other <= at);
        script.events.insert(place, (at, event));
    }
}

fn tags_change(rules: &Value) -> Edit {
    let what = format!("changes the OverridePolicy {TAGS}: {rules}");
    let path = format!("{}/{TAGS}", policy_path(Pair::Override));
    Edit { what, method: Method::PATCH, path, body: Some(json!({"spec": {"overrideRules": rules}})) }
}

impl Plan<'_> {
    fn at(&mut self, at: u64, edit: Edit) {
        self.events.push((at.min(self.last), Event::User(edit)));
    }

    /// A policy comes; if nothing is to stay as it is, it changes, goes and comes back.
    fn policy(&mut self, name: &str) {
        let came_at = if self.random.bool() { 0 } else { self.random.u64(0..self.last) };
        let comes = self.policy_comes(name);
        self.at(came_at, comes);
        let changes = if self.is_steady { 0 } else { self.random.usize(0..4) };
        for _ in 0..changes {
            let at = self.random.u64(came_at..self.last);
            let edit = match self.random.u8(0..4) {
                0 => Edit {
                    what: format!("deletes the PropagationPolicy {name}"),
                    method: Method::DELETE,
                    path: format!("{}/{name}", policy_path(Pair::Propagation)),
                    body: None,
                },
                1 => self.policy_comes(name),
                _ => {
                    let spec = self.spec();
                    let what = format!("changes the PropagationPolicy {name}: {spec}");
                    let path = format!("{}/{name}", policy_path(Pair::Propagation));
                    Edit { what, method: Method::PATCH, path, body: Some(json!({"spec": spec})) }
                }
            };
            self.at(at, edit);
        }
    }

    /// An OverridePolicy comes, and changes: now and then it breaks the pods that get it.
    fn tags(&mut self) {
        let kind = Pair::Override.kind();
        let rules = self.rules(false);
        let body = json!({"apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": {"name": TAGS, "namespace": "default"}, "spec": {"overrideRules": rules}});
        let what = format!("creates the OverridePolicy {TAGS}: {rules}");
        let came_at = if self.random.bool() { 0 } else { self.random.u64(0..self.last) };
        self.at(came_at, Edit { what, method: Method::POST, path: policy_path(Pair::Override), body: Some(body) });
        for _ in 0..self.random.usize(0..4) {
            let at = self.random.u64(came_at..self.last);
            let rules = self.rules(true);
            self.at(at, tags_change(&rules));
            self.kill(at);
        }
    }

    /// Another tag for the pods of some groups.
    fn rules(&mut self, may_break: bool) -> Value {
        let (random, makes_pods) = (&mut *self.random, self.makes_pods);
        let groups = NAMES.iter().filter(|_| makes_pods || random.u8(0..4) > 0).copied().collect::<Vec<_>>();
        let rule = |group: &str| {
            let tag =
                if may_break && random.u8(0..6) == 0 { BAD_IMAGE.to_owned() } else { random.u8(1..4).to_string() };
            let mut overriders = json!({"imageOverrider": [
                {"component": "Tag", "operator": "replace", "value": format!("{group}-{tag}")}]});
            // Always the same: which version of a policy counts for a new pod, the webhook here does not know.
            if makes_pods {
                let flag = format!("--{group}");
                overriders["argsOverrider"] = json!([{"containerName": "c", "operator": "add", "value": [flag]}]);
            }
            json!({"targetNodeGroup": [group], "overriders": overriders})
        };
        groups.into_iter().map(rule).collect::<Vec<_>>().into()
    }

    fn policy_comes(&mut self, name: &str) -> Edit {
        let kind = Pair::Propagation.kind();
        let mut spec = self.spec();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|_, list| !list.is_null());
        }
        let what = format!("creates the PropagationPolicy {name}: {spec}");
        let body = json!({"apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": {"name": name, "namespace": "default"}, "spec": spec});
        Edit { what, method: Method::POST, path: policy_path(Pair::Propagation), body: Some(body) }
    }

    /// Weights or ranges of some groups.
    fn spec(&mut self) -> Value {
        let random = &mut *self.random;
        let mut groups: Vec<&str> = NAMES.iter().copied().filter(|_| random.u8(0..4) > 0).collect();
        if groups.is_empty() {
            groups.push(NAMES[random.usize(0..NAMES.len())]);
        }
        if random.bool() {
            let weights = groups.iter().map(|group| json!({"nodeGroupNames": [group], "weight": random.u8(1..5)}));
            return json!({"staticWeightList": weights.collect::<Vec<_>>(), "numRange": null});
        }
        let ranges = groups.iter().map(|group| {
            let min = random.u8(0..3);
            match random.bool() {
                true => json!({"nodeGroupNames": [group], "min": min, "max": min + random.u8(0..4)}),
                false => json!({"nodeGroupNames": [group], "min": min}),
            }
        });
        json!({"staticWeightList": null, "numRange": ranges.collect::<Vec<_>>()})
    }

    /// A workload comes, and something happens to it.
    fn workload(&mut self, kind: Kind, name: &str) {
        let came_at = self.random.u64(0..self.last);
        let mut replicas = self.random.usize(1..6);
        let comes = self.comes(kind, name, replicas);
        self.at(came_at, comes);
        self.kill(came_at);
        let mut at = came_at;
        for _ in 0..self.random.usize(0..5) {
            at = self.random.u64(at..self.last);
            let path = format!("{}/{name}", kind.path());
            let (what, body) = match self.random.u8(0..9) {
                5 if !self.is_steady => {
                    let asked = Some(TAGS).filter(|_| self.random.bool());
                    let labels = json!({Pair::Override.required(): asked});
                    (
                        format!("has {name} ask for the OverridePolicy {asked:?}"),
                        json!({"metadata": {"labels": labels}}),
                    )
                }
                0 if !self.is_steady => {
                    let asked = POLICIES.get(self.random.usize(0..POLICIES.len() + 1));
                    let labels = json!({Pair::Propagation.required(): asked});
                    (format!("has {name} ask for {asked:?}"), json!({"metadata": {"labels": labels}}))
                }
                1 | 2 if kind != Kind::Job => {
                    let image = format!("c:{}", self.random.u8(1..4));
                    let template = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
                    (format!("rolls {name} out to {image}"), json!({"spec": {"template": template}}))
                }
                3 if kind == Kind::StatefulSet && !self.is_steady => {
                    let start = self.random.u8(0..3);
                    (format!("has {name} count from {start}"), json!({"spec": {"ordinals": {"start": start}}}))
                }
                4 => {
                    self.strike(at);
                    continue;
                }
                _ => {
                    let more = replicas + self.random.usize(0..4);
                    replicas = if self.is_steady { more } else { self.random.usize(0..8) };
                    let field = if kind == Kind::Job { "parallelism" } else { "replicas" };
                    (format!("scales {name} to {replicas}"), json!({"spec": {field: replicas}}))
                }
            };
            self.at(at, Edit { what, method: Method::PATCH, path, body: Some(body) });
            self.kill(at);
        }
    }

    /// Something happens to the pods of a node.
    fn strike(&mut self, at: u64) {
        let node = format!("node-{}", self.random.u8(0..4));
        let event = match self.random.u8(0..3) {
            0 => Event::DeletePods { node },
            1 => Event::Fail { node },
            _ => Event::Unready { node, lasts: Duration::from_millis(self.random.u64(0..60_000)) },
        };
        self.events.push((at, event));
    }

    /// By chance, a manager dies in the middle of what follows.
    fn kill(&mut self, after: u64) {
        if self.random.u8(0..4) == 0 {
            let at = (after + self.random.u64(0..1_000)).min(self.last);
            let slot = self.random.usize(0..self.managers);
            let back_after = Duration::from_millis(self.random.u64(0..20_000));
            self.events.push((at, Event::Kill { slot, back_after }));
        }
    }

    fn comes(&mut self, kind: Kind, name: &str, replicas: usize) -> Edit {
        let mut labels = json!({"app": name});
        if let Some(policy) = POLICIES.get(self.random.usize(0..POLICIES.len() + 1)) {
            labels[Pair::Propagation.required()] = json!(policy);
            if self.random.bool() {
                labels[Pair::Override.required()] = json!(TAGS);
            }
        }
        let mut template = json!({"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
        if self.random.u8(0..8) == 0 {
            // What a pod with an owner asks for itself counts for nothing.
            template["metadata"]["labels"][Pair::Propagation.required()] = json!(POLICIES[0]);
        }
        if self.random.u8(0..8) == 0 {
            template["spec"]["nodeSelector"] = json!({DISK: DISKS[self.random.usize(0..DISKS.len())]});
        }
        let selector = json!({"matchLabels": {"app": name}});
        let (api_version, spec) = match kind {
            Kind::Deployment | Kind::ReplicaSet => {
                ("apps/v1", json!({"replicas": replicas, "selector": selector, "template": template}))
            }
            Kind::StatefulSet => {
                let order = if self.random.bool() { "Parallel" } else { "OrderedReady" };
                let spec = json!({"replicas": replicas, "selector": selector, "template": template,
                    "ordinals": {"start": self.random.u8(0..3)}, "podManagementPolicy": order});
                ("apps/v1", spec)
            }
            Kind::Job => {
                template["spec"]["restartPolicy"] = json!("Never");
                let mode = if self.random.bool() { "Indexed" } else { "NonIndexed" };
                let completions = replicas + self.random.usize(0..4);
                let spec = json!({"parallelism": replicas, "completions": completions, "completionMode": mode,
                    "backoffLimit": 4, "template": template});
                ("batch/v1", spec)
            }
        };
        let what = format!("creates {name} with {replicas}: {labels}");
        let body = json!({"apiVersion": api_version, "kind": format!("{kind:?}"),
            "metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": spec});
        Edit { what, method: Method::POST, path: kind.path(), body: Some(body) }
    }
}
