//! In-place changes, as properties.

use std::sync::Arc;

use dapple_edit::merge::patch_template;
use proptest::prelude::*;

use super::tests::{images, running, state_of, target};
use super::*;
use crate::daemonset::cell::{Act, Class, Gate, Hold, Mode, NodeState, PodState, Rules};
use crate::daemonset::fleet::Fleet;
use crate::daemonset::inplace::edit;
use crate::daemonset::placement::Placement;
use crate::daemonset::pod::{HASH_LABEL, REVISION_ANNOTATION};
use crate::daemonset::renderings::Renderings;
use crate::fate::{Fate, Pod, fates};
use crate::health::Health;
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
        let first = edit(&found, &target(None, &containers));
        let note = first["metadata"]["annotations"][RESIZE_ANNOTATION].as_str();
        prop_assert_eq!(note.is_some(), !found.resources.is_empty());
        let patches = [Some(first.clone()), note.and_then(|note| resize(note, "u", 8)), note.map(|_| clear("u", 9))];
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
            prop_assert_eq!(progress(state.as_deref(), Intent::None, &containers, Resize::None, 0), expected);
        }
    }
}

/// A pod of a DaemonSet with one node, in a world where every write may be the last of whoever leads.
struct Changed {
    renderings: BTreeMap<Arc<str>, Arc<Value>>,
    /// As the API server has it; none while it is to be made.
    pod: Option<Value>,
    gate: Gate,
}

impl Changed {
    /// What whoever leads now decides.
    fn decided(&self, rules: &Rules, wanted: &Arc<str>, hold: Option<Hold>) -> (Option<Act>, Option<Arc<Difference>>) {
        let name: Arc<str> = Arc::from("n");
        let node = NodeState {
            name: name.clone(),
            can_start: true,
            can_stay: true,
            is_selected: true,
            is_barred_for_now: false,
            health: Health::Ready,
            is_out_of_service: false,
            wanted: wanted.clone(),
            newest: wanted.clone(),
            is_unproven: false,
            variant: 0,
            hold,
            is_left_without: false,
            is_partitioned: false,
            class: Class::Plain,
        };
        let mut renderings = Renderings::default();
        self.renderings.iter().for_each(|(hash, template)| renderings.add(hash, template));
        let mut fleet = Fleet::new(rules.clone(), Placement::default(), renderings);
        fleet.set_node(node);
        if let Some(pod) = &self.pod {
            fleet.observe(&name, Some((&name, self.state(pod))));
        }
        let act = fleet.decide(0).actions.pop().map(|action| action.act);
        (act, self.pod.as_ref().and_then(|pod| fleet.difference(label(pod), wanted)))
    }

    fn state(&self, pod: &Value) -> PodState {
        let told = intent(annotation(pod, RESIZE_ANNOTATION), label(pod), pod);
        let runs = running("one", "x", "x", "id");
        PodState {
            name: Arc::from("n"),
            hash: Arc::from(label(pod)),
            ready_since: (self.gate == Gate::Open).then_some(0),
            edit: progress(annotation(pod, STATE_ANNOTATION), told, &[runs], Resize::None, 0),
            intent: told,
            gate: self.gate,
            ..PodState::default()
        }
    }

    /// Does the next thing; false if there is none.
    fn step(&mut self, rules: &Rules, wanted: &Arc<str>, hold: Option<Hold>) -> bool {
        let (Some(act), difference) = self.decided(rules, wanted, hold) else { return false };
        let patch = match (act, self.pod.as_ref()) {
            (Act::Create, None) => {
                let mut pod = filled(&self.renderings[wanted]);
                pod["metadata"]["labels"][HASH_LABEL] = json!(wanted.as_ref());
                (self.pod, self.gate) = (Some(pod), Gate::Unset);
                return true;
            }
            (Act::Delete(_), Some(_)) => {
                self.pod = None;
                return true;
            }
            (Act::Gate { opens, .. }, Some(_)) => {
                self.gate = if opens { Gate::Open } else { Gate::Closed };
                return true;
            }
            (Act::Edit, Some(pod)) => {
                let note = annotation(pod, RESIZE_ANNOTATION);
                let pending = note.filter(|note| intent(Some(note), label(pod), pod) == Intent::Pending);
                let containers = [running("one", "x", "x", "id")];
                let target = target(annotation(pod, STATE_ANNOTATION), &containers);
                edit(&difference.unwrap(), &Target { hash: wanted, pending, ..target })
            }
            (Act::Resize, Some(pod)) => resize(annotation(pod, RESIZE_ANNOTATION).unwrap(), "u", 7).unwrap(),
            (Act::ClearResize, Some(_)) => clear("u", 7),
            other => panic!("{other:?}"),
        };
        patch_template(self.pod.as_mut().unwrap(), &patch).unwrap();
        true
    }

    /// The pod's amounts, and those that its label stands for.
    fn amounts(&self) -> (Value, Value) {
        let pod = self.pod.as_ref().unwrap();
        let of = |pod: &Value| filled(pod)["spec"]["containers"][0]["resources"].clone();
        (meaning(Document::PodTemplate, &of(pod)), meaning(Document::PodTemplate, &of(&self.renderings[label(pod)])))
    }
}

fn label(pod: &Value) -> &str {
    pod["metadata"]["labels"][HASH_LABEL].as_str().unwrap()
}

fn annotation<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    pod["metadata"]["annotations"][key].as_str()
}

/// Templates of which most become one another in place.
fn sized_template() -> impl Strategy<Value = Arc<Value>> {
    let some = |values: &[Value]| prop::sample::select(values.to_vec());
    let requests = (some(&[json!("1"), json!("1000m"), json!(2)]), some(&[json!("1Gi"), json!("2Gi")]));
    let limits = (some(&[json!("4"), json!("5"), Value::Null]), some(&[json!("3Gi"), json!("4Gi")]));
    (requests, limits, some(&[json!("x:1"), json!("x:2")])).prop_map(|(requests, limits, image)| {
        let amounts = |(cpu, memory): (Value, Value)| json!({"cpu": cpu, "memory": memory});
        let resources = json!({"requests": amounts(requests), "limits": amounts(limits)});
        let container = json!({"name": "one", "image": image, "resources": resources});
        Arc::new(json!({"metadata": {}, "spec": {"containers": [container]}}))
    })
}

proptest! {
    /// Targets follow one another after any number of writes; then the last one is held back, or not. However that goes, the
    /// pod ends in service, with what its label says, and with nothing left to do.
    #[test]
    fn a_pod_ends_with_what_its_label_says(
        templates in prop::collection::vec(sized_template(), 2..5),
        targets in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..9), 1..8), is_held in any::<bool>(),
    ) {
        let hashes: Vec<Arc<str>> = (0..templates.len()).map(|number| Arc::from(format!("h{number}"))).collect();
        let rules = Rules { mode: Mode::InPlace, budget: 1, burst: 9, ..Rules::default() };
        let renderings = hashes.iter().cloned().zip(templates).collect();
        let mut world = Changed { renderings, pod: None, gate: Gate::Unset };
        let mut wanted = &hashes[0];
        while world.step(&rules, wanted, None) {}
        for (index, writes) in targets {
            wanted = index.get(&hashes);
            (0..writes).for_each(|_| _ = world.step(&rules, wanted, None));
        }
        let hold = is_held.then_some(Hold::Paused);
        let writes = (0..20).take_while(|_| world.step(&rules, wanted, hold)).count();
        prop_assert!(writes < 20, "it never ends");
        let (amounts, said) = world.amounts();
        prop_assert_eq!(amounts, said);
        let pod = world.pod.as_ref().unwrap();
        prop_assert!(is_held || label(pod) == wanted.as_ref());
        prop_assert_eq!((world.gate, annotation(pod, RESIZE_ANNOTATION)), (Gate::Open, None));
    }
}
