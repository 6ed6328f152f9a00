//! What a node gets of a DaemonSet is the same whoever asks: a plan, admission, or the controller. As properties.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::daemonset::DaemonSetPatch;
use dapple_edit::edit::EditError;
use dapple_edit::meaning::{NEWEST_FORM, hash_in_form};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::desired::{Unrendered, Variants};
use super::kinds::{Kind, Parts, kinds, selectors};
use super::*;
use crate::census::Census;
use crate::fit::{Misfit, Taint};

type Labels = BTreeMap<String, String>;

/// Nodes by name, with their labels, and whether a taint is on them.
type Nodes = BTreeMap<String, (Labels, bool)>;

fn some_patch() -> impl Strategy<Value = DaemonSetPatch> {
    let expression =
        |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    let expressions = [
        expression("zone", "In", &["e", "w"]),
        expression("zone", "NotIn", &["e"]),
        expression("zone", "Exists", &[]),
        expression("disk", "DoesNotExist", &[]),
        // One that cannot be used.
        expression("disk", "Near", &["large"]),
    ];
    let labels = [json!({}), json!({"disk": "large"}), json!({"disk": "small"}), json!({"disk": "small", "zone": "e"})];
    let by_labels = labels.into_iter().map(|labels| json!({"matchLabels": labels}));
    let all: Vec<Value> = by_labels.chain(expressions.map(|one| json!({"matchExpressions": [one]}))).collect();
    let container = |mut container: Value| {
        container["name"] = json!("c");
        json!({"spec": {"containers": [container]}})
    };
    let patches = vec![
        container(json!({"image": "c:2"})),
        container(json!({"image": "c:3", "env": [{"name": "A", "value": "2"}]})),
        container(json!({"env": [{"name": "A", "$patch": "delete"}, {"name": "B", "value": "3"}]})),
        // What says nothing, and what takes something away.
        container(json!({"terminationMessagePath": "/dev/termination-log"})),
        json!({"metadata": {"labels": {"a": null}, "annotations": {"b": "c"}}}),
        json!({"spec": {"tolerations": [{"operator": "Exists"}]}}),
        json!({"spec": {"nodeSelector": {"zone": "e"}}}),
        // What does not apply, and what would make pods that nobody knows.
        json!({"spec": {"containers": [{"image": "x"}]}}),
        json!({"metadata": {"labels": {"app": "b"}}}),
    ];
    let priority = prop::sample::select(vec![Value::Null, json!(0), json!(5), json!(-1)]);
    (prop::sample::select(all), prop::sample::select(patches), priority).prop_map(|(selector, patch, priority)| {
        serde_json::from_value(json!({"selector": selector, "patch": patch, "priority": priority})).unwrap()
    })
}

fn some_nodes() -> impl Strategy<Value = Nodes> {
    let labels = ("(large|small)?", "[ew]?").prop_map(|(disk, zone)| -> Labels {
        let all = [("disk", disk), ("zone", zone)].into_iter().filter(|(_, value)| !value.is_empty());
        all.map(|(key, value)| (key.to_owned(), value)).collect()
    });
    prop::collection::btree_map("[a-h]", (labels, any::<bool>()), 0..8)
}

fn some_set() -> impl Strategy<Value = DaemonSetSpec> {
    prop::collection::vec(some_patch(), 0..6).prop_map(|patches| {
        let containers = json!([{"name": "c", "image": "c:1", "env": [{"name": "A", "value": "1"}]}]);
        let template =
            json!({"metadata": {"labels": {"app": "a", "a": "1"}}, "spec": {"containers": containers, "dnsPolicy": "Default"}});
        let set = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
        DaemonSetSpec { patches, ..serde_json::from_value(set).unwrap() }
    })
}

/// What a node gets.
#[derive(Debug, PartialEq)]
enum Gets {
    Template(Value),
    /// The patch that does not apply.
    Nothing(String),
    /// What the DaemonSet would not know as its own.
    Unselected,
}

fn gets(spec: &DaemonSetSpec, rendered: Result<&Value, &EditError>) -> Gets {
    let selector = Selector::new(&spec.selector).unwrap();
    match rendered {
        Ok(template) if selector.matches(|key| template["metadata"]["labels"][key].as_str()) => {
            Gets::Template(template.clone())
        }
        Ok(_) => Gets::Unselected,
        Err(error) => Gets::Nothing(error.source_of_edit.rule.clone()),
    }
}

fn taints(is_tainted: bool) -> Vec<Taint> {
    let taint = Taint { key: "full".into(), value: String::new(), effect: "NoSchedule".into() };
    if is_tainted { vec![taint] } else { Vec::new() }
}

/// As the controller has it, of a revision with hashes of this form: what it gets, what its pod carries, and why it gets none.
fn controlled(spec: &DaemonSetSpec, form: u8, node: Node<'_>) -> (Gets, Option<Arc<str>>, Option<Misfit>) {
    let mut variants = Variants::new("", (spec.template.0.clone(), &spec.patches), spec, ("own", form));
    let number = variants.of(node);
    let misfit = variants.misfit(number, node);
    match &variants.all()[number].rendering {
        Ok(known) => {
            let template = Value::clone(&known.template);
            assert_eq!(*known.meaning, *hash_in_form(NEWEST_FORM, Document::PodTemplate, &template));
            (Gets::Template(template), Some(known.hash.clone()), misfit)
        }
        Err(Unrendered::Edit(error)) => (gets(spec, Err(error)), None, misfit),
        Err(Unrendered::Unselected | Unrendered::Waits(_)) => (Gets::Unselected, None, misfit),
    }
}

/// The kind of pod that admission makes of a node.
fn admitted<'k>(spec: &DaemonSetSpec, kinds: &'k [Kind], labels: &Labels) -> &'k Kind {
    let all = selectors(spec);
    let matches = |place: &usize| all[*place].matches(|key| labels.get(key).map(String::as_str));
    let matching: Vec<usize> = (0..all.len()).filter(matches).collect();
    let is_it = |kind: &&Kind| {
        let mut places = kind.patches.clone();
        places.sort_unstable();
        kind.nodes > 0 && places == matching
    };
    kinds.iter().find(is_it).expect("every node is of some kind")
}

proptest! {
    #[test]
    fn a_node_gets_the_same_whoever_asks(spec in some_set(), nodes in some_nodes()) {
        let tainted: BTreeMap<&String, Vec<Taint>> = nodes.iter().map(|(name, (_, is))| (name, taints(*is))).collect();
        let all = nodes.iter().map(|(name, (labels, _))| Node { name, labels, taints: &tainted[name] });
        let object = ObjectName { kind: "DaemonSet".into(), namespace: "default".into(), name: "a".into() };
        let plan = plan(object, &spec, all.clone(), &Overrides::default());
        let mut census = Census::default();
        for (name, (labels, _)) in &nodes {
            census.put(name, labels.iter().map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))));
        }
        let kinds = kinds(&spec, &census.classes(&selectors(&spec)));
        prop_assert_eq!(kinds.iter().map(|kind| kind.nodes).sum::<usize>(), nodes.len());
        for node in all {
            let (expected, hash, misfit) = controlled(&spec, 1, node);
            let has_it = |variant: &&crate::variant::Variant| {
                let misfits = variant.misfits.iter().map(|(name, _)| name.as_str());
                variant.nodes.iter().map(String::as_str).chain(misfits).any(|name| name == node.name)
            };
            let planned = plan.variants.iter().find(has_it).expect("every node is planned for");
            let rendered = planned.rendering.as_ref();
            prop_assert_eq!(&gets(&spec, rendered.map(|known| &known.document)), &expected);
            let kind = admitted(&spec, &kinds, &nodes[node.name].0);
            let template = Parts::of(&spec).rendered(&kind.patches);
            prop_assert_eq!(&gets(&spec, template.as_ref()), &expected);
            let (in_newest_form, of_newest_form, _) = controlled(&spec, NEWEST_FORM, node);
            prop_assert_eq!(&in_newest_form, &expected);
            if let Gets::Template(template) = &expected {
                let names = |form: u8| hash_in_form(form, Document::PodTemplate, template);
                // Where no patch is for the node, pods carry what the revision is named by.
                let own = "own".to_owned();
                let is_patched = !kind.patches.is_empty();
                let carried = [1, NEWEST_FORM].map(|form| if is_patched { names(form) } else { own.clone() });
                let carries = [hash, of_newest_form].map(|hash| hash.map(|hash| hash.to_string()).unwrap_or_default());
                prop_assert_eq!(carries, carried);
                prop_assert_eq!(rendered.map(|known| known.hash.clone()).ok(), Some(names(1)));
                let kept_out = planned.misfits.iter().find(|(name, _)| name == node.name).map(|(_, why)| why.clone());
                prop_assert_eq!(kept_out, misfit);
            }
            if expected == Gets::Unselected {
                let is_told = |warning: &Warning| warning.text.contains("not those that spec.selector selects");
                prop_assert!(plan.warnings.iter().any(is_told), "{:?}", plan.warnings);
            }
        }
    }
}
