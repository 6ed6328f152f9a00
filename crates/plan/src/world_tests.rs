//! Worlds of a few objects, and what is told about them.

use serde_json::{Value, json};

use super::*;

fn world(objects: &[Value]) -> World {
    let mut world = World::default();
    for object in objects {
        assert_eq!(world.add(object), Ok(true), "{object}");
    }
    world
}

fn node(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

fn group(name: &str) -> Value {
    let metadata = json!({"name": name});
    let spec = json!({"matchLabels": {"site": name}});
    json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup", "metadata": metadata, "spec": spec})
}

fn policy(kind: &str, spec: Value) -> Value {
    json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": kind, "metadata": {"name": "p"}, "spec": spec})
}

fn workload(kind: &str, labels: &[&str]) -> Value {
    let labels: Map = labels.iter().map(|label| ((*label).to_owned(), "p".to_owned())).collect();
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", "labels": labels},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "r.io/c:1"}]}}},
    })
}

type Map = BTreeMap<String, String>;

const SITES: [&str; 2] = ["north", "south"];

fn sites() -> Vec<Value> {
    let mut objects: Vec<Value> = SITES.iter().map(|site| group(site)).collect();
    objects.extend(SITES.iter().map(|site| node(&format!("in-{site}"), json!({"site": site}))));
    objects.push(node("nowhere", json!({})));
    objects
}

/// A rule that gives images of these groups another registry.
fn registry(targets: Value, registry: &str) -> Value {
    let image = json!([{"component": "Registry", "operator": "replace", "value": registry}]);
    json!({"targetNodeGroup": targets, "imageOverrider": image})
}

fn only_plan(objects: Vec<Value>) -> Plan {
    let mut plans = world(&objects).plans();
    assert_eq!(plans.len(), 1);
    plans.remove(0)
}

fn shown(plan: &Plan) -> Vec<(String, String, String)> {
    let image = |variant: &crate::variant::Variant| {
        let rendering = variant.rendering.as_ref().unwrap();
        rendering.document.pointer("/spec/containers/0/image").unwrap().as_str().unwrap().to_owned()
    };
    plan.variants.iter().map(|known| (known.places.join(","), known.nodes.join(","), image(known))).collect()
}

fn told(plan: &Plan) -> Vec<(Reason, String)> {
    plan.warnings.iter().map(|warning| (warning.reason, warning.to_string())).collect()
}

#[test]
fn groups_with_the_same_rules_share_a_variant_and_nodes_of_no_group_keep_the_template() {
    let rules = json!({"overrideRules": [registry(json!(["NORTH", "south"]), "edge.io")]});
    let mut objects = sites();
    objects.extend([policy("OverridePolicy", rules), workload("Deployment", &[REQUIRED_OVERRIDE_LABEL])]);
    let plan = only_plan(objects);
    let expected =
        [("group north,group south", "in-north,in-south", "edge.io/c:1"), ("no group", "nowhere", "r.io/c:1")];
    let expected: Vec<_> =
        expected.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect();
    assert_eq!(shown(&plan), expected);
    assert_eq!(told(&plan), []);
}

#[test]
fn a_propagation_policy_says_which_groups_get_pods() {
    let weights = json!({"staticWeightList": [{"nodeGroupNames": ["South", "Mars"], "weight": 1}]});
    let rules = json!({"overrideRules": [registry(json!(["north"]), "a.io"), registry(json!(["south"]), "b.io")]});
    let mut objects = sites();
    objects.extend([policy("PropagationPolicy", weights), policy("OverridePolicy", rules)]);
    objects.push(workload("Deployment", &[REQUIRED_OVERRIDE_LABEL, REQUIRED_PROPAGATION_LABEL]));
    let plan = only_plan(objects);
    assert_eq!(shown(&plan), [("group south".to_owned(), "in-south".to_owned(), "b.io/c:1".to_owned())]);
    let expected = [
        (Reason::Missing, "PropagationPolicy default/p spec.staticWeightList[0]: there is no NodeGroup \"Mars\""),
        (Reason::Unused, "OverridePolicy default/p spec.overrideRules[0]: it targets no group that gets pods"),
    ];
    assert_eq!(told(&plan), expected.map(|(reason, text)| (reason, text.to_owned())));
}

/// A group, its pods, and whether it is there.
type Pods = (String, usize, bool);

/// Pods of each group and those without a place, of a workload whose spec has this too.
fn spread(kind: &str, policy_spec: Value, more: &Value) -> Option<(Vec<Pods>, usize)> {
    let mut objects = sites();
    let mut object = workload(kind, &[REQUIRED_PROPAGATION_LABEL]);
    for (field, value) in more.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    objects.extend([policy("PropagationPolicy", policy_spec), object]);
    let spread = only_plan(objects).spread?;
    let shares = spread.groups.into_iter().map(|share| (share.group, share.pods, share.is_there));
    Some((shares.collect(), spread.without_place))
}

#[test]
fn a_plan_says_how_many_pods_each_group_gets() {
    let shares = |shares: [(&str, usize, bool); 2], without| {
        Some((shares.map(|(group, pods, is_there)| (group.to_owned(), pods, is_there)).to_vec(), without))
    };
    let weights = json!({"staticWeightList": [{"nodeGroupNames": ["South"], "weight": 3},
        {"nodeGroupNames": ["Mars"], "weight": 2}]});
    let of = |kind: &str, more: Value| spread(kind, weights.clone(), &more);
    assert_eq!(of("Deployment", json!({"replicas": 5})), shares([("south", 3, true), ("mars", 2, false)], 0));
    assert_eq!(of("StatefulSet", json!({})), shares([("south", 1, true), ("mars", 0, false)], 0), "one by default");
    assert_eq!(of("Deployment", json!({"replicas": 0})), shares([("south", 0, true), ("mars", 0, false)], 0));
    assert_eq!(of("Deployment", json!({"replicas": 2_000_000_000})), None, "somebody mistyped it");
    let ranges = json!({"numRange": [{"nodeGroupNames": ["south", "north"], "max": 1}]});
    assert_eq!(
        spread("Deployment", ranges, &json!({"replicas": 5})),
        shares([("south", 1, true), ("north", 1, true)], 3)
    );
}

#[test]
fn a_job_has_as_many_pods_as_run_at_once() {
    let pods = |object: Value| native::pods_of(&object);
    assert_eq!(pods(json!({"kind": "Job", "spec": {}})), 1);
    assert_eq!(pods(json!({"kind": "Job", "spec": {"parallelism": 4, "completions": 3}})), 3);
    let job = json!({"parallelism": 4, "completions": 9});
    assert_eq!(pods(json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": job}}})), 4);
}

#[test]
fn a_policy_that_is_asked_for_and_not_there_is_told() {
    let mut objects = sites();
    objects.push(workload("StatefulSet", &[REQUIRED_OVERRIDE_LABEL, REQUIRED_PROPAGATION_LABEL]));
    let plan = only_plan(objects);
    let missing: Vec<String> = plan.warnings.iter().map(|warning| warning.text.clone()).collect();
    assert_eq!(missing, ["there is no OverridePolicy default/p", "there is no PropagationPolicy default/p"]);
}

#[test]
fn a_daemons_node_may_be_in_several_groups() {
    let rules = json!({"overrideRules": [registry(json!(["north"]), "a.io"), registry(json!(["all"]), "b.io")]});
    let mut objects = sites();
    let all = json!({"nodes": ["in-north", "in-south"]});
    let mut everything = group("all");
    everything["spec"] = all;
    objects.extend([everything, policy("OverridePolicy", rules), workload("DaemonSet", &[REQUIRED_OVERRIDE_LABEL])]);
    let plan = only_plan(objects);
    let images: Vec<(String, String)> = shown(&plan).into_iter().map(|(_, nodes, image)| (nodes, image)).collect();
    // Rules apply in the order of the policy, whatever the order of the groups.
    let expected = [("nowhere", "r.io/c:1"), ("in-north", "b.io/c:1"), ("in-south", "b.io/c:1")];
    assert_eq!(images, expected.map(|(nodes, image)| (nodes.to_owned(), image.to_owned())));
}

#[test]
fn a_workload_that_asks_for_nothing_is_not_planned() {
    let objects = sites();
    let mut world = world(&objects);
    assert_eq!(world.add(&workload("Deployment", &[])), Ok(false));
    assert!(world.plans().is_empty());
    // One that stops asking is planned no more.
    assert_eq!(world.add(&workload("Deployment", &[REQUIRED_OVERRIDE_LABEL])), Ok(true));
    assert_eq!(world.plans().len(), 1);
    assert_eq!(world.add(&workload("Deployment", &[])), Ok(true));
    assert!(world.plans().is_empty());
    assert_eq!(World::default().add(&json!({"apiVersion": "v1", "kind": "Secret"})), Ok(false));
}

fn app(kind: &str, more: Value) -> Value {
    let template =
        json!({"deploymentTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "c"}]}}}}});
    let mut spec = json!({"selector": {"matchLabels": {"app": "a"}}, "workloadTemplate": template});
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": spec})
}

fn replacement(name: &str, kind: &str, created: Option<&str>, replacements: Value) -> Value {
    json!({
        "apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigurationReplacement",
        "metadata": {"name": name, "creationTimestamp": created},
        "subject": {"kind": kind, "name": "a"}, "replacements": replacements,
    })
}

#[test]
fn of_two_replacement_objects_the_older_counts() {
    let replicas = |number: i32| json!([{"pools": ["x", "y"], "items": [{"replicas": number}]}]);
    let plan = only_plan(vec![
        node("n", json!({"apps.openyurt.io/nodepool": "x"})),
        app("YurtAppSet", json!({"topology": {"pools": [{"name": "x"}]}})),
        replacement("a-new", "YurtAppSet", None, replicas(1)),
        replacement("b-old", "YurtAppSet", Some("2026-01-01T00:00:00Z"), replicas(2)),
        replacement("c-later", "YurtAppSet", Some("2026-01-02T00:00:00Z"), replicas(3)),
    ]);
    let rendering = plan.variants[0].rendering.as_ref().unwrap();
    assert_eq!(rendering.document["spec"]["replicas"], 2);
    assert_eq!(plan.variants[0].nodes, ["n"]);
    let objects: Vec<&str> = plan.warnings.iter().map(|warning| warning.rule.object.as_str()).collect();
    let name = |name: &str| format!("YurtAppConfigurationReplacement default/{name}");
    assert_eq!(objects, [name("b-old"), name("c-later"), name("a-new")]);
    assert!(plan.warnings[0].text.contains("not in the pool \"y\""), "{}", plan.warnings[0]);
}

#[test]
fn a_daemon_is_in_every_pool_that_it_selects() {
    let pool = |name: &str, tier: &str| {
        let metadata = json!({"name": name, "labels": {"tier": tier}});
        json!({"apiVersion": "apps.openyurt.io/v1beta1", "kind": "NodePool", "metadata": metadata, "spec": {}})
    };
    let selector = json!({"nodepoolSelector": {"matchLabels": {"tier": "edge"}}});
    let strategy = json!([{"pools": "y", "items": [{"upgradeStrategy": "OnDelete"}]}]);
    let plan = only_plan(vec![
        node("n", json!({"apps.openyurt.io/nodepool": "y"})),
        pool("x", "cloud"),
        pool("y", "edge"),
        pool("z", "edge"),
        app("YurtAppDaemon", selector),
        replacement("r", "YurtAppDaemon", None, strategy),
    ]);
    let places: Vec<(&str, usize, bool)> = plan
        .variants
        .iter()
        .map(|variant| (variant.places[0].as_str(), variant.nodes.len(), variant.rendering.is_ok()))
        .collect();
    // A strategy that Deployments have not got is that pool's error alone.
    assert_eq!(places, [("pool y", 1, false), ("pool z", 0, true)]);
    let nothing = only_plan(vec![app("YurtAppDaemon", json!({"nodepoolSelector": {"matchLabels": {"tier": "moon"}}}))]);
    assert_eq!(nothing.warnings[0].text, "it selects no pool");
}

#[test]
fn a_pool_patch_that_a_replacement_overrules_is_told_and_its_typos_too() {
    let patch =
        json!({"spec": {"replicaz": 3, "template": {"spec": {"containers": [{"name": "c", "image": "mine"}]}}}});
    let image = json!([{"pools": "*", "items": [{"image": {"containerName": "c", "imageClaim": "theirs"}}]}]);
    let plan = only_plan(vec![
        app("YurtAppSet", json!({"topology": {"pools": [{"name": "x", "replicas": 1, "patch": patch}]}})),
        replacement("r", "YurtAppSet", None, image),
    ]);
    let reasons: Vec<Reason> = plan.warnings.iter().map(|warning| warning.reason).collect();
    assert_eq!(reasons, [Reason::Mistake, Reason::Unused, Reason::Fight]);
    assert_eq!(plan.warnings[1].to_string(), "YurtAppSet default/a pool x: it has no node");
    assert_eq!(plan.warnings[0].rule.rule, "spec.topology.pools[0].patch.spec.replicaz");
    assert_eq!(plan.warnings[0].text, "DeploymentSpec has no such field; did you mean \"replicas\"?");
}

#[test]
fn one_that_does_not_parse_names_the_field() {
    let broken = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet", "metadata": {"name": "a"}, "spec": {"selector": 7}});
    let error = World::default().add(&broken).unwrap_err();
    assert_eq!((error.object.as_str(), error.field.as_str()), ("YurtAppSet default/a", "spec.selector"));
}

#[test]
fn what_is_misspelt_or_asked_for_by_nobody_is_told() {
    let mut set = app("YurtAppSet", json!({"topolgy": {"pools": []}, "revisionHistoryLimit": 3}));
    set["spec"]["selector"]["matchLables"] = json!({"a": "b"});
    let policies = [policy("OverridePolicy", json!({})), policy("PropagationPolicy", json!({"numRange": []}))];
    let mut objects = vec![set, replacement("r", "YurtAppDaemon", None, json!([]))];
    objects.extend(policies);
    let told: Vec<(Reason, String)> =
        world(&objects).notices().into_iter().map(|known| (known.reason, known.to_string())).collect();
    let expected = [
        (Reason::Mistake, "YurtAppSet default/a spec.selector.matchLables: there is no such field"),
        (Reason::Mistake, "YurtAppSet default/a spec.topolgy: there is no such field"),
        (Reason::Unused, "OverridePolicy default/p metadata.name: no workload asks for it with the label"),
        (Reason::Unused, "PropagationPolicy default/p metadata.name: no workload asks for it with the label"),
        (Reason::Unused, "YurtAppConfigurationReplacement default/r subject: there is no YurtAppDaemon default/a"),
    ];
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for ((reason, text), (expected_reason, start)) in told.iter().zip(expected) {
        assert_eq!(*reason, expected_reason);
        assert!(text.starts_with(start), "{text}");
    }
    // What is laid over an object takes its mistakes with it.
    let mut world = world(&objects);
    world.add(&app("YurtAppSet", json!({}))).unwrap();
    assert!(world.notices().iter().all(|known| known.reason != Reason::Mistake));
}

#[test]
fn kubernetes_own_daemonsets_are_not_taken_for_ours() {
    let mut ours = workload("DaemonSet", &[]);
    ours["apiVersion"] = json!("apps.kruise.io/v1beta1");
    ours["spec"]["selector"] = json!({"matchLabels": {"app": "a"}});
    let mut objects = sites();
    objects.extend([ours, workload("DaemonSet", &[REQUIRED_OVERRIDE_LABEL]), policy("OverridePolicy", json!({}))]);
    let names: Vec<String> = world(&objects).plans().iter().map(|plan| plan.object.to_string()).collect();
    assert_eq!(names, ["DaemonSet default/web", "DaemonSet.apps default/web"]);
}

#[test]
fn a_workload_needs_a_template_and_the_same_node_counts_once() {
    let mut bare = workload("Deployment", &[REQUIRED_OVERRIDE_LABEL]);
    bare["spec"] = json!({});
    let error = World::default().add(&bare).unwrap_err();
    assert_eq!(error.to_string(), "Deployment default/web: spec.template: a workload needs a pod template");
    // A node in two groups that get the same.
    let mut both = group("both");
    both["spec"] = json!({"nodes": ["in-north"]});
    let mut objects = sites();
    objects.extend([both, policy("OverridePolicy", json!({})), workload("Deployment", &[REQUIRED_OVERRIDE_LABEL])]);
    assert_eq!(only_plan(objects).variants[0].nodes, ["in-north", "in-south", "nowhere"]);
}

#[test]
fn an_object_needs_a_name() {
    let nameless = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {}});
    let error = World::default().add(&nameless).unwrap_err();
    assert_eq!(error.to_string(), "DaemonSet: metadata.name: an object needs a name");
}

/// A workload of this kind that asks for a policy, with a selector and labels to match.
fn selecting(kind: &str, selector: Value) -> Value {
    let mut object = workload(kind, &[REQUIRED_OVERRIDE_LABEL]);
    if kind == "ReplicationController" {
        object["apiVersion"] = json!("v1");
    }
    object["spec"]["selector"] = selector;
    object["spec"]["template"]["metadata"] = json!({"labels": {"app": "web", "tier": "1"}});
    object
}

#[test]
fn a_rule_that_takes_pods_from_their_owner_fails_where_it_applies() {
    let by_label = json!({"matchLabels": {"app": "web"}});
    let by_expression = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]});
    let mut kruise = selecting("DaemonSet", by_label.clone());
    kruise["apiVersion"] = json!("apps.kruise.io/v1beta1");
    for (name, object) in [
        ("Deployment", selecting("Deployment", by_label.clone())),
        ("by expression", selecting("StatefulSet", by_expression)),
        ("native DaemonSet", selecting("DaemonSet", by_label)),
        ("ReplicationController", selecting("ReplicationController", json!({"app": "web"}))),
        ("DaemonSet with patches", kruise),
    ] {
        let plan = |label: &str, operator: &str| {
            let path = format!("/metadata/labels/{label}");
            let change = json!([
                {"path": path, "operator": operator, "value": "other"},
                {"path": "/metadata/annotations", "operator": "add", "value": {"a": "b"}},
            ]);
            let rule = json!({"targetNodeGroup": ["north"], "plaintext": change});
            let mut objects = sites();
            objects.extend([policy("OverridePolicy", json!({"overrideRules": [rule]})), object.clone()]);
            only_plan(objects)
        };
        for operator in ["replace", "remove"] {
            let plan = plan("app", operator);
            let failed: Vec<_> = plan.variants.iter().filter_map(|variant| variant.rendering.as_ref().err()).collect();
            assert_eq!(failed.len(), 1, "{name}, {operator}: in one group of two");
            assert_eq!(
                failed[0].to_string(),
                "OverridePolicy default/p spec.overrideRules[0].plaintext[0]: it changes the label app, which the \
                 selector of the pods' owner needs: leave that label as it is",
                "{name}"
            );
        }
        assert!(plan("tier", "replace").variants.iter().all(|variant| variant.rendering.is_ok()), "{name}");
    }
}

#[test]
fn a_misspelt_target_is_no_rule_for_all_groups() {
    let mut rule = registry(json!(["north"]), "edge.io");
    rule["targetNodegroup"] = rule["targetNodeGroup"].take();
    rule.as_object_mut().unwrap().remove("targetNodeGroup");
    let mut objects = sites();
    objects.push(policy("OverridePolicy", json!({"overrideRules": [rule]})));
    objects.push(workload("Deployment", &[REQUIRED_OVERRIDE_LABEL]));
    let plan = only_plan(objects);
    let failed = plan.variants.iter().find(|variant| variant.places.len() == 2).expect("both groups");
    let message = failed.rendering.as_ref().unwrap_err().to_string();
    assert!(message.contains("spec.overrideRules[0].targetNodegroup: there is no such field"), "{message}");
}
