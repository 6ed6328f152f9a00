//! In-place changes, as properties.

use dapple_edit::merge::patch_template;
use proptest::prelude::*;

use super::tests::{images, running, state_of, target};
use super::*;
use crate::fate::{Fate, Pod, fates};
use crate::world::World;

/// Templates that differ in what may change, and now and then in something else.
fn any_template() -> impl Strategy<Value = Value> {
    let some = |values: &[Value]| prop::sample::select(values.to_vec());
    let cpu = || some(&[Value::Null, json!("1"), json!("1000m"), json!(2)]);
    let memory = || some(&[Value::Null, json!("1Gi"), json!("2Gi")]);
    let amounts = || (cpu(), memory()).prop_map(|(cpu, memory)| json!({"cpu": cpu, "memory": memory}));
    let reference = |path: &str| json!([{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": path}}}]);
    let env =
        some(&[Value::Null, Value::Null, reference("metadata.labels['a']"), reference("metadata.annotations['b']")]);
    let image = || some(&[json!("x:1"), json!("x:2"), json!("x"), json!("y:latest")]);
    let policy = some(&[Value::Null, Value::Null, json!("Always")]);
    let keyed = || prop::collection::btree_map("[ab]", "[xy]", 0..3);
    let rest = prop::sample::select(vec![false, false, false, true]);
    ((keyed(), keyed()), (image(), image()), amounts(), amounts(), (env, policy, rest)).prop_map(
        |((labels, annotations), (one, other), requests, limits, (env, policy, rest))| {
            let resources = json!({"requests": requests, "limits": limits});
            let first =
                json!({"name": "one", "image": one, "resources": resources, "env": env, "imagePullPolicy": policy});
            let whole = json!({"limits": {"cpu": 1, "memory": "1Gi"}});
            let second = json!({"name": "other", "image": other, "resources": whole});
            let metadata = json!({"labels": labels, "annotations": annotations});
            json!({"metadata": metadata, "spec": {"containers": [first, second], "hostNetwork": rest}})
        },
    )
}

/// Two templates that differ in few things.
fn two_templates() -> impl Strategy<Value = (Value, Value)> {
    (any_template(), any_template(), any::<[u8; 7]>()).prop_map(|(before, other, takes)| {
        let mut after = before.clone();
        let container =
            ["image", "resources", "env", "imagePullPolicy"].map(|field| format!("/spec/containers/0/{field}"));
        let places = ["/metadata/labels", "/metadata/annotations", "/spec/hostNetwork"].map(str::to_owned);
        for (place, take) in places.into_iter().chain(container).zip(takes) {
            if take % 3 == 0 {
                *after.pointer_mut(&place).unwrap() = other.pointer(&place).unwrap().clone();
            }
        }
        (before, after)
    })
}

/// A pod of the template as the API server keeps it, amounts as numbers, so that equal ones are equal.
fn filled(template: &Value) -> Value {
    let mut pod = template.clone();
    for container in pod["spec"]["containers"].as_array_mut().unwrap() {
        container["imagePullPolicy"] = json!(pull_policy(container));
        for name in ["cpu", "memory"] {
            for kind in ["limits", "requests"] {
                let written = container["resources"][kind][name].clone();
                let value = if written.is_null() { container["resources"]["limits"][name].clone() } else { written };
                let is_default = kind == "requests" || !container["resources"]["limits"][name].is_null();
                if is_default && !value.is_null() {
                    container["resources"][kind][name] = json!(amounts::nanos(&value).unwrap().to_string() + "n");
                }
            }
        }
    }
    pod
}

fn made(template: &Value) -> Value {
    meaning(Document::PodTemplate, &filled(template))
}

/// Whether the rules let the one become the other, said once more.
fn is_allowed(before: &Value, after: &Value) -> bool {
    let (old, new) = (made(before), made(after));
    let same = |pointer: &str| old.pointer(pointer) == new.pointer(pointer);
    let one = |pod: &Value, field: &str| pod["spec"]["containers"][0][field].clone();
    // Of pods, where what follows from something else is written out.
    let (had, has) = (one(&filled(before), "resources"), one(&filled(after), "resources"));
    let kept =
        |kind: &str| ["cpu", "memory"].iter().all(|name| had[kind][name].is_null() || !has[kind][name].is_null());
    let policies = |template: &Value| -> Vec<String> {
        containers(template, "containers").map(|container| pull_policy(container).to_owned()).collect()
    };
    let read = one(&new, "env")[0]["valueFrom"]["fieldRef"]["fieldPath"].clone();
    let is_missed = (read == "metadata.labels['a']" && !same("/metadata/labels/a"))
        || (read == "metadata.annotations['b']" && !same("/metadata/annotations/b"));
    same("/spec/hostNetwork")
        && one(&old, "env") == one(&new, "env")
        && policies(before) == policies(after)
        && kept("limits")
        && kept("requests")
        && (one(&old, "resources") == one(&new, "resources") || qos(&old) == qos(&new))
        && !is_missed
}

fn fate_of(before: &Value, after: &Value) -> Fate {
    let planned = |template: &Value| {
        let strategy = json!({"rollingUpdate": {"rollingUpdateType": "InPlaceIfPossible"}});
        let spec = json!({"selector": {"matchLabels": {}}, "updateStrategy": strategy, "template": template});
        let set = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": spec});
        let mut world = World::default();
        world.add(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})).unwrap();
        world.add(&set).unwrap();
        world.plans().remove(0)
    };
    let pod = Pod { name: "p".to_owned(), node: "n".to_owned(), group: None };
    fates(&planned(before), &planned(after), &[pod]).pods["p"].1
}

proptest! {
    /// A pod with the patches is as a new one; what is no change in place breaks a rule; and the forecast says the same.
    #[test]
    fn a_changed_pod_is_as_a_new_one((before, after) in two_templates()) {
        let found = difference(&before, &after);
        prop_assert_eq!(found.is_some(), is_allowed(&before, &after), "{} {}", before, after);
        let is_same = meaning(Document::PodTemplate, &before) == meaning(Document::PodTemplate, &after);
        let expected = match &found {
            _ if is_same => Fate::LeftAlone,
            Some(_) => Fate::InPlace,
            None => Fate::Recreated,
        };
        prop_assert_eq!(fate_of(&before, &after), expected);
        let Some(found) = found else { return Ok(()) };
        let mut pod = filled(&before);
        let containers = [running("one", "x:1", "x:1", "id")];
        let patches = [Some(edit(&found, &target(None, &containers))), resize(&found, "u", 8)];
        for patch in patches.iter().flatten() {
            patch_template(&mut pod, patch).unwrap();
        }
        let metadata = pod["metadata"].as_object_mut().unwrap();
        prop_assert_eq!(metadata.remove("uid"), Some(json!("u")));
        metadata.remove("resourceVersion");
        for (map, key) in [("labels", HASH_LABEL), ("annotations", REVISION_ANNOTATION), ("annotations", STATE_ANNOTATION)] {
            prop_assert!(metadata[map].as_object_mut().unwrap().remove(key).is_some());
        }
        prop_assert_eq!(made(&pod), made(&after));
    }

    /// However often a pod is changed and however far its node has come, what is not done is waited for, and by the
    /// image that ran before the first change.
    #[test]
    fn no_container_is_forgotten(steps in prop::collection::vec((0..2_usize, 1..4_u8, any::<[bool; 2]>()), 1..6)) {
        let names = ["one", "other"];
        // What is wanted and what runs, of each; and what ran when it was last seen to be done.
        let (mut wanted, mut runs, mut settled) = ([0_u8; 2], [0_u8; 2], [0_u8; 2]);
        let mut state: Option<String> = None;
        for (which, image, restarts) in steps {
            let text = |number: u8| (format!("x:{number}"), format!("x@{number}"));
            let (specs, lives): (Vec<_>, Vec<_>) = (wanted.map(text).into(), runs.map(text).into());
            let containers: Vec<Running<'_>> =
                (0..2).map(|i| running(names[i], &specs[i].0, &lives[i].0, &lives[i].1)).collect();
            let patch = edit(&images(&[(names[which], &format!("x:{image}"))]), &target(state.as_deref(), &containers));
            state = Some(state_of(&patch).to_owned());
            let told: Value = serde_json::from_str(state_of(&patch)).unwrap();
            for i in 0..2 {
                if wanted[i] == runs[i] || runs[i] != settled[i] {
                    settled[i] = runs[i];
                }
                let recorded = &told["lastContainerStatuses"][names[i]];
                prop_assert_eq!(!recorded.is_null(), i == which || wanted[i] != runs[i]);
                let expected = text(settled[i]).1;
                prop_assert!(recorded.is_null() || recorded["imageID"] == expected);
            }
            wanted[which] = image;
            for i in 0..2 {
                if restarts[i] {
                    runs[i] = wanted[i];
                }
            }
            let (specs, lives): (Vec<_>, Vec<_>) = (wanted.map(text).into(), runs.map(text).into());
            let containers: Vec<Running<'_>> =
                (0..2).map(|i| running(names[i], &specs[i].0, &lives[i].0, &lives[i].1)).collect();
            let expected = if wanted == runs { Progress::Done } else { Progress::Waiting };
            prop_assert_eq!(progress(state.as_deref(), &containers, Resize::None, 0), expected);
        }
    }
}
