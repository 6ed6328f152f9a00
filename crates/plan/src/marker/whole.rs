//! Pods and nodes that are read whole, as commands read them: what markers look at, off objects as the API server has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::marker::MARKS_ANNOTATION;
use dapple_api::metadata::SEAT_ANNOTATION;
use dapple_edit::marker::{OwnerKeys, Record};
use jiff::Timestamp;
use serde_json::Value;

use super::result::{Container, Run};
use super::standing::{NodeOf, Pod};
use crate::health::Health;

/// What markers look at of a pod.
#[derive(Debug, Clone)]
pub struct WholePod {
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Arc<str>,
    /// The node that it is bound to.
    pub node: Option<Arc<str>>,
    /// Whether it has ended, or is about to: such a pod does not count.
    pub has_ended: bool,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    record: Record,
    owner: OwnerKeys,
    is_divided: bool,
    is_ready: bool,
    created: i64,
    containers: Vec<Container>,
}

/// What markers look at of a node.
#[derive(Debug, Clone)]
pub struct WholeNode {
    pub(super) labels: BTreeMap<String, String>,
    /// Whether it does not answer.
    pub(super) is_unknown: bool,
}

impl WholePod {
    /// Of a pod with such an owner.
    #[must_use]
    pub fn of(pod: &Value, owner: OwnerKeys) -> Self {
        let (metadata, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
        let annotations = texts(&metadata["annotations"]);
        let phase = status["phase"].as_str().unwrap_or_default();
        Self {
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            node: spec["nodeName"].as_str().filter(|node| !node.is_empty()).map(Arc::from),
            has_ended: !metadata["deletionTimestamp"].is_null() || ["Succeeded", "Failed"].contains(&phase),
            labels: texts(&metadata["labels"]),
            record: Record::read(annotations.get(MARKS_ANNOTATION).map(String::as_str), &owner),
            is_divided: annotations.contains_key(SEAT_ANNOTATION),
            annotations,
            owner,
            is_ready: ready(pod) == Some("True"),
            created: second(&metadata["creationTimestamp"]),
            containers: containers(spec, status),
        }
    }

    /// As markers look at it, on such a node.
    pub(super) fn on<'a>(&'a self, node: NodeOf<'a>) -> Pod<'a> {
        Pod {
            labels: &self.labels,
            annotations: &self.annotations,
            record: &self.record,
            owner: &self.owner,
            is_divided: self.is_divided,
            is_ready: self.is_ready,
            created: self.created,
            node,
            containers: &self.containers,
        }
    }
}

impl WholeNode {
    /// Of a node.
    #[must_use]
    pub fn of(node: &Value) -> Self {
        Self { labels: texts(&node["metadata"]["labels"]), is_unknown: Health::read(ready(node), 0).is_unknown() }
    }
}

/// What the condition Ready of a pod or a node says.
fn ready(object: &Value) -> Option<&str> {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|known| known["type"] == "Ready")?["status"].as_str()
}

/// The containers, and init containers that run as long as these do.
fn containers(spec: &Value, status: &Value) -> Vec<Container> {
    let mut found = Vec::new();
    for (given, told) in [("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")] {
        let is_init = given == "initContainers";
        for container in spec[given].as_array().into_iter().flatten() {
            if is_init && container["restartPolicy"] != "Always" {
                continue;
            }
            let mut statuses = status[told].as_array().into_iter().flatten();
            let status = statuses.find(|known| known["name"] == container["name"]);
            found.push(Container {
                name: text(&container["name"]),
                ports: ports(container),
                run: status.map_or(Run::NotYet, run),
            });
        }
    }
    found
}

fn ports(container: &Value) -> Vec<(Arc<str>, u16)> {
    let named = |port: &Value| {
        let number = port["containerPort"].as_u64().and_then(|number| u16::try_from(number).ok())?;
        Some((Arc::from(port["name"].as_str()?), number))
    };
    container["ports"].as_array().into_iter().flatten().filter_map(named).collect()
}

/// Whether a container runs, by its status.
fn run(status: &Value) -> Run {
    let running = &status["state"]["running"];
    if running.is_object() {
        // One whose run has no name yet has nothing that a result could be of.
        return match status["containerID"].as_str().filter(|id| !id.is_empty()) {
            Some(id) => Run::Runs { id: Arc::from(id), since: second(&running["startedAt"]) },
            None => Run::NotYet,
        };
    }
    let has_run = [&status["state"], &status["lastState"]].iter().any(|state| state["terminated"].is_object());
    if has_run || status["restartCount"].as_u64().is_some_and(|count| count > 0) { Run::Stopped } else { Run::NotYet }
}

fn text(value: &Value) -> Arc<str> {
    Arc::from(value.as_str().unwrap_or_default())
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// In seconds since 1970.
fn second(time: &Value) -> i64 {
    time.as_str().and_then(|text| text.parse::<Timestamp>().ok()).map_or(0, Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn runs(status: Value) -> Run {
        let spec = json!({"containers": [{"name": "c"}]});
        let status = json!({"containerStatuses": [status]});
        containers(&spec, &status).remove(0).run
    }

    #[test]
    fn a_container_runs_has_run_or_has_not_yet() {
        let with = |more: Value| {
            let mut status = json!({"name": "c", "containerID": "containerd://1", "restartCount": 0});
            for (field, value) in more.as_object().into_iter().flatten() {
                status[field] = value.clone();
            }
            runs(status)
        };
        let running = json!({"running": {"startedAt": "1970-01-01T00:01:40Z"}});
        assert_eq!(with(json!({"state": running})), Run::Runs { id: Arc::from("containerd://1"), since: 100 });
        assert_eq!(with(json!({"state": running, "containerID": ""})), Run::NotYet);
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(with(json!({"state": waiting})), Run::NotYet);
        assert_eq!(with(json!({"state": {"terminated": {}}})), Run::Stopped);
        assert_eq!(with(json!({"state": waiting, "lastState": {"terminated": {}}})), Run::Stopped);
        assert_eq!(with(json!({"state": waiting, "restartCount": 2})), Run::Stopped, "it crashed and waits");
        assert_eq!(runs(json!({"name": "other", "state": running})), Run::NotYet);
    }

    #[test]
    fn of_init_containers_only_those_count_that_go_on() {
        let spec = json!({
            "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 80}, {"containerPort": 81}]}],
            "initContainers": [{"name": "once"}, {"name": "beside", "restartPolicy": "Always"}],
        });
        let found = containers(&spec, &json!({}));
        let names: Vec<&str> = found.iter().map(|container| &*container.name).collect();
        assert_eq!(names, ["c", "beside"]);
        let web: (Arc<str>, u16) = (Arc::from("web"), 80);
        assert_eq!(found[0].ports, [web]);
    }

    #[test]
    fn a_pod_is_read_with_what_markers_have_set() {
        let marks = json!([{"marker": "m", "label": "k", "set": "1", "at": 7}]).to_string();
        let metadata = json!({"name": "p", "uid": "u", "creationTimestamp": "1970-01-01T00:01:40Z",
            "labels": {"k": "1"}, "annotations": {"dapple.dev/marks": marks}});
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"conditions": conditions}});
        let read = WholePod::of(&pod, OwnerKeys::None);
        assert_eq!((&*read.name, &*read.uid, read.node.as_deref(), read.has_ended), ("p", "u", Some("n"), false));
        let seen = read.on(NodeOf::Gone);
        assert_eq!((seen.is_ready, seen.created, seen.record.set_at("m")), (true, 100, Some(7)));
        for (field, value) in [("metadata", json!({"deletionTimestamp": "x"})), ("status", json!({"phase": "Failed"}))]
        {
            let mut ended = pod.clone();
            ended[field] = value;
            assert!(WholePod::of(&ended, OwnerKeys::None).has_ended, "{field}");
        }
        let unbound = json!({"metadata": {"name": "p"}, "spec": {"nodeName": ""}});
        assert_eq!(WholePod::of(&unbound, OwnerKeys::None).node, None);
        let mut divided = pod.clone();
        divided["metadata"]["annotations"] = json!({"dapple.dev/seat": "3"});
        assert!(WholePod::of(&divided, OwnerKeys::None).is_divided && !read.is_divided);
    }

    #[test]
    fn a_node_answers_or_does_not() {
        let node = |status: &str| {
            let conditions = json!([{"type": "Ready", "status": status}]);
            WholeNode::of(&json!({"metadata": {"labels": {"a": "b"}}, "status": {"conditions": conditions}}))
        };
        assert!(!node("True").is_unknown && !node("False").is_unknown && node("Unknown").is_unknown);
        assert_eq!(node("True").labels["a"], "b");
    }
}
