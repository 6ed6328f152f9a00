//! Rendering: order, provenance, hashes, and what holds whatever the edits are.

use dapple_edit::check::check_patch;
use dapple_edit::document::Document;
use dapple_edit::edit::{Change, Edit, ImageOperator, PlainOperator, ReferenceKind, Source, WordList, WordOperator};
use dapple_edit::image::Component;
use dapple_edit::render::{changes, hash, render, render_plain};
use serde_json::{Value, json};

use crate::generate::pair;

fn edit(rule: &str, change: Change) -> Edit {
    Edit { source: Source { object: "DaemonSet default/agent".into(), rule: rule.into() }, change }
}

fn merge(rule: &str, patch: Value) -> Edit {
    edit(rule, Change::Merge(patch))
}

fn base() -> Value {
    json!({
        "metadata": {"labels": {"app": "agent"}},
        "spec": {
            "containers": [
                {"name": "agent", "image": "r.io/agent:1", "args": ["-v"], "env": [{"name": "CACHE", "value": "500Gi"}],
                 "envFrom": [{"configMapRef": {"name": "settings"}}]},
                {"name": "side", "image": "side:1", "env": [{"name": "CONF", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}}]},
            ],
            "initContainers": [{"name": "init", "image": "init:1"}],
            "volumes": [
                {"name": "conf", "configMap": {"name": "settings"}},
                {"name": "all", "projected": {"sources": [{"configMap": {"name": "settings"}}, {"secret": {"name": "token"}}]}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}},
            ],
            "imagePullSecrets": [{"name": "token"}],
        },
    })
}

/// Origins as lines: path, before, after, who, and who was overruled.
fn told(base: &Value, edits: &[Edit]) -> Vec<String> {
    let rendering = render(Document::PodTemplate, base, &edits.iter().collect::<Vec<_>>()).unwrap();
    let show = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), ToString::to_string);
    let line = |origin: &dapple_edit::render::Origin| {
        let overruled: Vec<String> =
            origin.overruled.iter().map(|(by, value)| format!("{}={}", by.rule, show(value))).collect();
        format!(
            "{}: {} -> {} by {} over [{}]",
            origin.path,
            show(&origin.before),
            show(&origin.after),
            origin.set_by.rule,
            overruled.join(", ")
        )
    };
    rendering.origins.iter().map(line).collect()
}

#[test]
fn every_changed_field_names_who_set_it_and_who_was_overruled() {
    let low = merge(
        "spec.patches[0]",
        json!({"spec": {"containers": [{"name": "agent", "env": [{"name": "CACHE", "value": "1Ti"}, {"name": "NEW", "value": "x"}]}]}}),
    );
    let high = merge(
        "spec.patches[1]",
        json!({"spec": {"containers": [{"name": "agent", "env": [{"name": "CACHE", "value": "2Ti"}]}], "hostNetwork": true}}),
    );
    assert_eq!(
        told(&base(), &[low, high]),
        [
            r#"spec.containers[name=agent].env[name=CACHE].value: "500Gi" -> "2Ti" by spec.patches[1] over [spec.patches[0]="1Ti"]"#,
            r#"spec.containers[name=agent].env[name=NEW].name: - -> "NEW" by spec.patches[0] over []"#,
            r#"spec.containers[name=agent].env[name=NEW].value: - -> "x" by spec.patches[0] over []"#,
            r#"spec.hostNetwork: - -> true by spec.patches[1] over []"#,
        ]
    );
}

#[test]
fn what_is_put_back_is_no_difference() {
    let there = merge(
        "spec.patches[0]",
        json!({"spec": {"hostNetwork": true, "containers": [{"name": "agent", "image": "x:2"}]}}),
    );
    let back = merge(
        "spec.patches[1]",
        json!({"spec": {"hostNetwork": null, "containers": [{"name": "agent", "image": "r.io/agent:1"}]}}),
    );
    assert_eq!(told(&base(), &[there, back]), Vec::<String>::new());
}

#[test]
fn a_changed_order_is_told() {
    let order = merge("r", json!({"spec": {"$setElementOrder/containers": [{"name": "side"}, {"name": "agent"}]}}));
    assert_eq!(told(&base(), &[order]), [r#"spec.containers: ["agent","side"] -> ["side","agent"] by r over []"#]);
}

#[test]
fn overriders_do_what_they_say() {
    let image = |only_at: Option<&str>| Change::Image {
        only_at: only_at.map(str::to_owned),
        component: Component::Registry,
        operator: ImageOperator::Replace("beijing.registry.io".into()),
    };
    let words = |operator, words: &[&str]| Change::Words {
        container: "agent".into(),
        list: WordList::Args,
        operator,
        words: words.iter().map(|word| word.to_string()).collect(),
    };
    let edits = [
        edit("image", image(None)),
        edit("init", image(Some("/spec/initContainers/0/image"))),
        edit("add", words(WordOperator::Add, &["--edge", "-v"])),
        edit("remove", words(WordOperator::Remove, &["-v"])),
        edit("plain", Change::Plain { path: "spec/priority".into(), operator: PlainOperator::Add, value: json!(7) }),
        edit(
            "env",
            Change::SetEnv {
                container: "side".into(),
                variables: vec![("ADD".into(), "1".into()), ("CONF".into(), "2".into())],
            },
        ),
        edit("set", Change::SetImage { container: "side".into(), image: "side:2".into() }),
    ];
    let (rendered, _) = render_plain(Document::PodTemplate, &base(), &edits.iter().collect::<Vec<_>>()).unwrap();
    let spec = &rendered["spec"];
    assert_eq!(spec["containers"][0]["image"], "beijing.registry.io/agent:1");
    assert_eq!(spec["initContainers"][0]["image"], "beijing.registry.io/init:1");
    assert_eq!(spec["containers"][0]["args"], json!(["--edge"]));
    assert_eq!(spec["priority"], 7);
    assert_eq!(spec["containers"][1]["env"], json!([{"name": "CONF", "value": "2"}, {"name": "ADD", "value": "1"}]));
    assert_eq!(spec["containers"][1]["image"], "side:2");
}

#[test]
fn references_are_replaced_wherever_they_are() {
    let refer = |kind, from: &str, to: &str| edit("refer", Change::Refer { kind, from: from.into(), to: to.into() });
    let edits = [
        refer(ReferenceKind::ConfigMap, "settings", "settings-beijing"),
        refer(ReferenceKind::Secret, "token", "token-beijing"),
        refer(ReferenceKind::PersistentVolumeClaim, "disk", "disk-beijing"),
    ];
    let rendering = render(Document::PodTemplate, &base(), &edits.iter().collect::<Vec<_>>()).unwrap();
    let text = rendering.document.to_string();
    assert_eq!(text.matches("settings-beijing").count(), 4, "{text}");
    assert_eq!(text.matches("token-beijing").count(), 2, "{text}");
    assert_eq!(text.matches("disk-beijing").count(), 1, "{text}");
    assert!(rendering.warnings.is_empty());
    let nothing = refer(ReferenceKind::Secret, "none", "other");
    let warned = render(Document::PodTemplate, &base(), &[&nothing]).unwrap();
    assert_eq!(warned.warnings[0].text, "nothing refers to the Secret \"none\", so nothing was replaced");
}

#[test]
fn errors_name_the_rule_and_the_field() {
    for (change, part) in [
        (Change::Merge(json!({"spec": {"containers": [{"image": "x"}]}})), r#"spec.containers: an item has no "name""#),
        (
            Change::SetImage { container: "none".into(), image: "x".into() },
            r#"no container "none"; it has: agent, side, init"#,
        ),
        (Change::Plain { path: "/spec/none".into(), operator: PlainOperator::Replace, value: json!(1) }, "/spec/none"),
        (
            Change::Image {
                only_at: Some("/spec/none".into()),
                component: Component::Tag,
                operator: ImageOperator::Remove,
            },
            "no image at /spec/none",
        ),
    ] {
        let message =
            render(Document::PodTemplate, &base(), &[&edit("spec.rules[3]", change)]).expect_err(part).to_string();
        assert!(message.starts_with("DaemonSet default/agent spec.rules[3]: ") && message.contains(part), "{message}");
    }
}

/// Golden: these must never change, or every pod of every user restarts.
#[test]
fn hashes_are_stable_across_versions() {
    assert_eq!(hash(&json!({})), "44136fa355b3678a");
    assert_eq!(hash(&json!({"b": [1, 2.5, "x\n\u{e4}", null, true], "a": {"d": {}, "c": []}})), "e9a8382f97ea2b7b");
    assert_eq!(hash(&base()), hash(&serde_json::from_str(&base().to_string()).unwrap()));
}

const SEEDS: u64 = 3_000;

/// An empty patch is the identity.
#[test]
fn an_empty_patch_is_the_identity() {
    for seed in 0..SEEDS {
        let (template, _) = pair(seed);
        let rendering = render(Document::PodTemplate, &template, &[&merge("r", json!({}))]).unwrap();
        assert_eq!(rendering.document, template);
        assert!(rendering.origins.is_empty());
    }
}

/// Edits in order compose: rendering all is rendering the first, and then the others on that.
#[test]
fn edits_compose() {
    let mut compared = 0;
    for seed in 0..SEEDS {
        let ((template, first), (_, second)) = (pair(seed), pair(seed + 1_000_000));
        let (first, second) = (merge("a", first), merge("b", second));
        let Ok(both) = render(Document::PodTemplate, &template, &[&first, &second]) else { continue };
        let (step, _) = render_plain(Document::PodTemplate, &template, &[&first]).unwrap();
        assert_eq!(both.document, render_plain(Document::PodTemplate, &step, &[&second]).unwrap().0, "seed {seed}");
        assert_eq!(
            (both.document, both.hash),
            render_plain(Document::PodTemplate, &template, &[&first, &second]).unwrap(),
            "seed {seed}"
        );
        compared += 1;
    }
    assert!(compared > SEEDS / 5, "only {compared}");
}

/// Provenance names a field exactly if it differs from the base: there are origins if and only if the templates differ,
/// each has two different values, and what the base and the rendering say there are these values.
#[test]
fn provenance_names_exactly_what_differs() {
    let mut compared = 0;
    for seed in 0..SEEDS {
        let ((template, first), (_, second)) = (pair(seed), pair(seed + 2_000_000));
        let Ok(rendering) = render(Document::PodTemplate, &template, &[&merge("a", first), &merge("b", second)]) else {
            continue;
        };
        assert_eq!(rendering.origins.is_empty(), rendering.document == template, "seed {seed}");
        let direct = changes(Document::PodTemplate, &template, &rendering.document);
        let direct: Vec<_> = direct.into_iter().map(|change| change.path).collect();
        let told: Vec<_> = rendering.origins.iter().map(|origin| origin.path.clone()).collect();
        assert_eq!(told, direct, "seed {seed}");
        compared += 1;
    }
    assert!(compared > SEEDS / 5, "only {compared}");
}

/// Whether a list has an item twice, or two items of one key.
fn says_twice(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().any(says_twice),
        Value::Array(items) => {
            let keys = ["name", "mountPath", "containerPort", "devicePath", "ip", "topologyKey", "type", "uid"];
            let same = |one: &Value, other: &Value| {
                one == other || keys.iter().any(|key| one.get(key).is_some() && one.get(key) == other.get(key))
            };
            let is_twice = |(number, item): (usize, &Value)| items[..number].iter().any(|known| same(known, item));
            items.iter().enumerate().any(is_twice) || items.iter().any(says_twice)
        }
        _ => false,
    }
}

/// What only says how things should be gives the same when it is said twice: patches that only set, images,
/// variables, other names for objects, places, replicas. (Parts that are added behind others are added again: that is what
/// they say. So rendering always starts from the owner's template.)
#[test]
fn saying_it_twice_changes_nothing_more() {
    let mut compared = 0;
    for seed in 0..SEEDS * 10 {
        let (template, patch) = pair(seed);
        // As in Kubernetes: a list that says something twice is copied as it is where there was none, and made distinct
        // where there was one; nulls in the items of a list are kept in the one case and dropped in the other.
        let text = patch.to_string();
        let is_plain = !text.contains("\"$") && !text.contains("null") && !says_twice(&patch);
        if !is_plain || !check_patch(Document::PodTemplate, &patch).is_empty() {
            continue;
        }
        let edit = merge("r", patch);
        let Ok((once, hash)) = render_plain(Document::PodTemplate, &template, &[&edit]) else { continue };
        assert_eq!(render_plain(Document::PodTemplate, &once, &[&edit]).unwrap(), (once, hash), "seed {seed}");
        compared += 1;
    }
    assert!(compared > 100, "only {compared}");

    let workload = json!({"spec": {"template": base()}});
    let term = json!({"matchExpressions": [{"key": "pool", "operator": "Exists"}]});
    for change in [
        Change::SetImage { container: "side".into(), image: "side:2".into() },
        Change::SetEnv {
            container: "side".into(),
            variables: vec![("CONF".into(), "1".into()), ("NEW".into(), "2".into())],
        },
        Change::Refer { kind: ReferenceKind::ConfigMap, from: "settings".into(), to: "others".into() },
        Change::Place { term: Some(term), tolerations: vec![json!({"operator": "Exists"})] },
        Change::Replicas(3),
        Change::Strategy(dapple_edit::edit::UpgradeStrategy::Recreate),
    ] {
        let edit = edit("r", change.clone());
        let (once, _) = render_plain(Document::Deployment, &workload, &[&edit]).unwrap();
        let (twice, _) = render_plain(Document::Deployment, &workload, &[&edit, &edit]).unwrap();
        assert_ne!(once, workload, "{change:?}");
        assert_eq!(once, twice, "{change:?}");
    }
}

/// Who still has a part in a field is not overruled, who changed it back is not forgotten, and an order is credited to who
/// made it.
#[test]
fn parts_are_told_from_what_is_overruled() {
    let words = |rule: &str, word: &str| {
        let (list, operator) = (WordList::Args, WordOperator::Add);
        edit(rule, Change::Words { container: "side".into(), list, operator, words: vec![word.into()] })
    };
    let rendered = |edits: &[Edit]| render(Document::PodTemplate, &base(), &edits.iter().collect::<Vec<_>>()).unwrap();
    let added = rendered(&[words("first", "--one"), words("second", "--two")]);
    let args = &added.origins[0];
    assert_eq!(args.after, Some(json!(["--one", "--two"])));
    assert_eq!((args.set_by.rule.as_str(), args.built_on[0].rule.as_str()), ("second", "first"));
    assert!(args.overruled.is_empty());

    let image =
        |rule: &str, image: &str| merge(rule, json!({"spec": {"containers": [{"name": "side", "image": image}]}}));
    let back = rendered(&[image("first", "side:2"), image("second", "side:1")]);
    assert!(back.origins.is_empty());
    let undone = &back.undone[0];
    assert_eq!((undone.set_by.rule.as_str(), undone.overruled[0].0.rule.as_str()), ("second", "first"));
    assert_eq!((&undone.before, &undone.after), (&Some(json!("side:1")), &Some(json!("side:1"))));

    let three = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}});
    let gone = merge("first", json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}));
    let again = merge(
        "second",
        json!({"spec": {"containers": [{"name": "a"}], "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}, {"name": "c"}]}}),
    );
    let moved = render(Document::PodTemplate, &three, &[&gone, &again]).unwrap();
    let order = moved.origins.iter().find(|origin| origin.path.to_string() == "spec.containers").unwrap();
    assert_eq!(order.set_by.rule, "second");
}

/// Kubernetes reads null as absent.
#[test]
fn a_null_list_is_an_empty_one() {
    let template = json!({"spec": {"containers": [{"name": "c", "args": null, "env": null}], "tolerations": null, "affinity": null}});
    let (list, operator) = (WordList::Args, WordOperator::Add);
    let remove = Change::Words { container: "c".into(), list, operator: WordOperator::Remove, words: vec!["x".into()] };
    let add = Change::Words { container: "c".into(), list, operator, words: vec!["x".into()] };
    let env = Change::SetEnv { container: "c".into(), variables: vec![("A".into(), "1".into())] };
    let nothing = Change::SetEnv { container: "c".into(), variables: vec![] };
    let place = Change::Place {
        term: Some(json!({"matchExpressions": [{"key": "k"}]})),
        tolerations: vec![json!({"key": "t"})],
    };
    let edits: Vec<Edit> = [nothing, remove, add, env, place].into_iter().map(|change| edit("r", change)).collect();
    let (rendered, _) = render_plain(Document::PodTemplate, &template, &edits.iter().collect::<Vec<_>>()).unwrap();
    let container = &rendered["spec"]["containers"][0];
    assert_eq!((&container["args"], &container["env"][0]["value"]), (&json!(["x"]), &json!("1")));
    assert_eq!(rendered["spec"]["tolerations"], json!([{"key": "t"}]));
}

/// Ten thousand containers, every one patched, some moved: the work grows with the list, not with its square.
#[test]
fn long_lists_are_rendered_like_short_ones() {
    let containers = |image: &str| -> Vec<Value> {
        (0..10_000).map(|number| json!({"name": format!("c{number}"), "image": image})).collect()
    };
    let template = json!({"spec": {"containers": containers("a")}});
    let mut patch = containers("b");
    patch.reverse();
    let order: Vec<Value> = patch.iter().map(|container| json!({"name": container["name"]})).collect();
    let edits = [
        merge("all", json!({"spec": {"containers": patch, "$setElementOrder/containers": order}})),
        merge("one", json!({"spec": {"containers": [{"name": "c7", "image": "c"}]}})),
        merge(
            "words",
            json!({"metadata": {"finalizers": (0..10_000).map(|number| number.to_string()).collect::<Vec<_>>()}}),
        ),
    ];
    let rendering = render(Document::PodTemplate, &template, &edits.iter().collect::<Vec<_>>()).unwrap();
    let rendered = rendering.document["spec"]["containers"].as_array().unwrap();
    assert_eq!(
        (rendered.len(), &rendered[0]["name"], &rendered[9_992]["image"]),
        (10_000, &json!("c9999"), &json!("c"))
    );
    assert_eq!(rendering.origins.len(), 1 + 10_000 + 1, "finalizers, images, and the order");
}
