use serde_json::json;

use super::*;
use crate::slim::{Cached, Interner, read};

fn slim<T: Cached>(object: &Value) -> T {
    read(object, &mut Interner::default()).unwrap()
}

/// A pod whose container runs, with changes by a merge.
fn pod(name: &str, changes: &[(&str, Value)]) -> Value {
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let status = json!({"name": "c", "containerID": format!("containerd://{name}"), "state": running});
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [status]},
    });
    for (path, value) in changes {
        *pod.pointer_mut(path).unwrap() = value.clone();
    }
    pod
}

fn node() -> Node {
    slim(&json!({"metadata": {"name": "n", "uid": "node-uid", "resourceVersion": "1"}}))
}

fn askers(probe: Value) -> Askers {
    let requirement = json!({"containers": [{"name": "c"}], "probe": probe});
    let requirements = json!({"podSelector": {"matchLabels": {"app": "web"}}, "podProbes": [requirement]});
    let marker = json!({"metadata": {"name": "m", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"markItems": {"labels": {"k": "1"}}, "matchRequirements": requirements}});
    let askers = Askers::default();
    askers.ask(&Key::new("default", "m"), Some(Rule::of(&serde_json::from_value(marker).unwrap()).unwrap()));
    askers
}

fn exec() -> Value {
    json!({"exec": {"command": ["cat", "/tmp/healthy"]}})
}

fn of(pods: &[Value], askers: &Askers) -> Wanted {
    let pods: Vec<Arc<Pod>> = pods.iter().map(|pod| Arc::new(slim(pod))).collect();
    wanted(&pods, &node(), askers, None)
}

#[test]
fn all_that_the_prober_needs_is_taken_from_the_pod() {
    let wanted = of(&[pod("p", &[])], &askers(json!({"httpGet": {"port": "web"}})));
    let [told] = &wanted.spec.pod_probes[..] else { panic!("{:?}", wanted.spec) };
    assert_eq!(
        (&*told.name, &*told.namespace, &*told.uid, told.ip.as_deref()),
        ("p", "default", "p", Some("10.0.0.1"))
    );
    let probe = serde_json::to_value(&told.probes[0]).unwrap();
    assert_eq!(
        (&probe["containerID"], &probe["startedAt"]),
        (&json!("containerd://p"), &json!("2026-01-01T00:00:00Z"))
    );
    assert_eq!(probe["probe"]["httpGet"], json!({"port": 8080, "path": "/", "scheme": "HTTP"}));
    assert!(wanted.is_asked && wanted.beyond == 0);
}

#[test]
fn pods_that_have_ended_and_those_that_nobody_asks_about_are_not_probed() {
    let asked = askers(exec());
    for changes in [
        [("/status/phase", json!("Succeeded"))],
        [("/metadata/labels/app", json!("db"))],
        [("/metadata/namespace", json!("other"))],
    ] {
        let wanted = of(&[pod("p", &changes)], &asked);
        assert!(!wanted.is_asked && wanted.spec == NodePodProbeSpec::default(), "{changes:?}");
    }
    // Its object stays while the container is started anew: it has results of before.
    let stopped = [("/status/containerStatuses/0/state", json!({"waiting": {"reason": "CrashLoopBackOff"}}))];
    let wanted = of(&[pod("p", &stopped)], &asked);
    assert!(wanted.is_asked && wanted.spec.pod_probes.is_empty());
}

#[test]
fn what_is_written_is_what_is_seen_afterwards() {
    let wanted = of(&[pod("p", &[]), pod("q", &[])], &askers(exec()));
    let mut object = made(&node(), &wanted.spec);
    object["metadata"]["resourceVersion"] = json!("1");
    object["metadata"]["uid"] = json!("u");
    let seen: NodeResults = slim(&object);
    assert_eq!(seen.asked, AskedProbes::of(&wanted.spec), "so it is not written again");
    assert_eq!(&*seen.owners, [Arc::<str>::from("node-uid")]);
    object["spec"] = replacing(&wanted.spec);
    object["spec"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
    assert_eq!(slim::<NodeResults>(&object).asked, seen.asked);
}

#[test]
fn only_what_matters_for_probes_is_news() {
    let news = |changes: &[(&str, Value)]| is_news(Some(&slim(&pod("p", &[]))), Some(&slim(&pod("p", changes))));
    assert!(!news(&[]) && !news(&[("/metadata/resourceVersion", json!("2"))]));
    for change in [
        ("/status/podIP", json!("10.0.0.2")),
        ("/status/phase", json!("Failed")),
        ("/status/containerStatuses/0/containerID", json!("containerd://x")),
        ("/metadata/labels/app", json!("db")),
        ("/metadata/uid", json!("x")),
        ("/spec/nodeName", json!("o")),
    ] {
        assert!(news(std::slice::from_ref(&change)), "{change:?}");
    }
    assert!(is_news(None, Some(&slim(&pod("p", &[])))) && is_news(Some(&slim(&pod("p", &[]))), None));
}
