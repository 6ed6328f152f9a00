//! Groups have the newest edition that is any good, or keep an earlier one until their turn comes.

use serde_json::json;

use super::*;
use crate::group::edition::EDITION;

fn spec(rules: Value) -> Arc<OverridePolicySpec> {
    Arc::new(serde_json::from_value(json!({"overrideRules": rules})).expect("a policy"))
}

fn registry(group: &str, value: &str) -> Value {
    json!({"targetNodeGroup": [group], "overriders": {
        "imageOverrider": [{"component": "Registry", "operator": "replace", "value": value}]}})
}

fn argument(group: &str, word: &str) -> Value {
    json!({"targetNodeGroup": [group], "overriders": {
        "argsOverrider": [{"containerName": "web", "operator": "add", "value": [word]}]}})
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "old.io/nginx:1"}]}})
}

/// The pod as it comes, with a sidecar of somebody else's before the template's container.
fn pod() -> Value {
    let mut pod = template();
    pod["spec"]["containers"] = json!([{"name": "mesh", "image": "old.io/mesh:1"}, pod["spec"]["containers"][0]]);
    pod["spec"]["tolerations"] = json!([{"key": "a"}]);
    pod
}

#[test]
fn editions_say_how_a_pod_suits_each_group() {
    let policy = spec(json!([registry("beijing", "b.io"), registry("hangzhou", "h.io"), argument("jinan", "--edge")]));
    let groups = ["beijing", "hangzhou", "jinan", "elsewhere"].map(Arc::<str>::from);
    let editions = Editions::of("p", std::slice::from_ref(&policy), &groups, Some(Arc::new(template())));
    assert!(editions.unrendered.is_empty());
    let name = |group: &str| editions.of_group(group).name.clone();
    let suits = |name: Option<String>| editions.suits(&groups, name.as_deref());
    use Suits::{AsItIs, Corrected, Never};
    assert_eq!(suits(None), [Corrected, Corrected, Never, AsItIs], "it is as its template");
    assert_eq!(suits(name("beijing")), [AsItIs, Corrected, Never, Corrected]);
    assert_eq!(suits(name("jinan")), [Never, Never, AsItIs, Never]);
    assert_eq!(suits(Some("of-before".to_owned())), [Never; 4], "what it was made by is not known");
    let made = editions.make(&pod(), "beijing").expect("it renders");
    assert_eq!(made["spec"]["containers"][1]["image"], "b.io/nginx:1");
    let corrected = editions.correct(&made, name("beijing").as_deref(), "hangzhou").expect("it renders");
    let Correction::Patch(patch) = corrected else { panic!("images can be corrected") };
    assert_eq!(patch["spec"]["containers"], json!([{"name": "web", "image": "h.io/nginx:1"}]));

    // A pod that nothing owns is its own template, until a rule has changed it.
    let own = Editions::of("p", std::slice::from_ref(&policy), &groups, None);
    assert_eq!(own.suits(&groups, None), [Corrected, Corrected, Corrected, AsItIs]);
    assert_eq!(own.suits(&groups, name("beijing").as_deref()), [AsItIs, Never, Never, Never]);

    let wrong = spec(json!([{"targetNodeGroup": ["jinan"], "overriders": {"argsOverrider": [
        {"containerName": "nobody", "operator": "add", "value": ["x"]}]}}]));
    let editions = Editions::of("p", &[wrong], &groups, Some(Arc::new(template())));
    assert_eq!(editions.unrendered.keys().map(|group| &**group).collect::<Vec<_>>(), ["jinan"]);
}

#[test]
fn what_others_have_put_into_a_pod_that_nothing_owns_is_left_alone() {
    let first = json!({"targetNodeGroup": ["beijing"], "overriders": {"plaintext": [
        {"path": "/spec/containers/0/args", "operator": "add", "value": ["--edge"]}]}});
    let policy = spec(json!([registry("beijing", "b.io"), first, registry("hangzhou", "h.io")]));
    let groups = ["beijing", "hangzhou"].map(Arc::<str>::from);
    let editions = Editions::of("p", &[policy], &groups, None);
    let mut bare = pod();
    let brought = json!({"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}, "f:name": {}}}}});
    bare["metadata"]["managedFields"] = json!([{"manager": "kubectl", "operation": "Update", "fieldsV1": brought}]);
    let made = editions.make(&bare, "beijing").expect("it renders");
    let mesh = json!({"name": "mesh", "image": "old.io/mesh:1"});
    let web = json!({"name": "web", "image": "b.io/nginx:1", "args": ["--edge"]});
    assert_eq!(made["spec"]["containers"], json!([mesh, web]));
    let corrected = editions.correct(&bare, None, "hangzhou").expect("it renders");
    let Correction::Patch(patch) = corrected else { panic!("images can be corrected") };
    assert_eq!(patch["spec"]["containers"], json!([{"name": "web", "image": "h.io/nginx:1"}]));
}

#[test]
fn a_group_keeps_its_last_edition_that_is_any_good() {
    let wrong = json!({"targetNodeGroup": ["jinan"], "overriders": {"argsOverrider": [
        {"containerName": "nobody", "operator": "add", "value": ["x"]}]}});
    let first = spec(json!([registry("jinan", "j.io"), registry("beijing", "b.io")]));
    let second = spec(json!([wrong, registry("beijing", "c.io")]));
    let groups = ["beijing", "jinan"].map(Arc::<str>::from);
    let mut editions = Editions::of("p", &[second, first.clone()], &groups, Some(Arc::new(template())));
    assert_eq!(editions.of_group("jinan").name, Edition::of("p", &first, "jinan").name);
    assert_eq!(editions.passed_over.keys().map(|group| &**group).collect::<Vec<_>>(), ["jinan"]);
    assert!(editions.unrendered.is_empty());
    let image = |editions: &Editions| {
        editions.make(&pod(), "beijing").expect("it renders")["spec"]["containers"][1]["image"].clone()
    };
    assert_eq!(image(&editions), "c.io/nginx:1");

    // What the API server refuses is no good either; with nothing before it, a group has none.
    assert!(editions.pass_over(&groups[0], "refused".to_owned()));
    assert_eq!(image(&editions), "b.io/nginx:1");
    assert!(!editions.pass_over(&groups[0], "refused too".to_owned()));
    assert_eq!(editions.unrendered[&groups[0]], "refused", "of the newest");
    assert_eq!(image(&editions), "c.io/nginx:1");
}

#[test]
fn a_group_whose_turn_has_not_come_keeps_an_earlier_edition() {
    let (first, second) = (spec(json!([registry("beijing", "b.io")])), spec(json!([registry("beijing", "c.io")])));
    let groups = ["beijing"].map(Arc::<str>::from);
    let name = |spec: &OverridePolicySpec| Edition::of("p", spec, "beijing").name.as_deref().map(Arc::from);
    let mut editions = Editions::of("p", &[second.clone(), first.clone()], &groups, Some(Arc::new(template())));
    assert_eq!(editions.earlier("beijing"), [name(&first)]);
    editions.hold("beijing", &Some(Arc::from("unknown")));
    assert_eq!(editions.of_group("beijing").name.as_deref(), name(&second).as_deref(), "it is none of its own");
    editions.hold("beijing", &name(&first));
    assert_eq!(editions.of_group("beijing").name.as_deref(), name(&first).as_deref());
    let made = editions.make(&pod(), "beijing").expect("it renders");
    let carried = editions.carried(&made, name(&second).as_deref(), "beijing").expect("it renders");
    assert_eq!(carried.expect("it is known")["spec"]["containers"][1]["image"], "b.io/nginx:1");
    assert_eq!(editions.carried(&made, Some("unknown"), "beijing"), Ok(None));
}

#[test]
fn a_pod_of_an_unknown_edition_gets_what_the_rules_are_about_and_all_images() {
    let args = json!({"targetNodeGroup": ["beijing"], "overriders": {"argsOverrider": [
        {"containerName": "web", "operator": "add", "value": ["--edge"]}]}});
    let groups = ["beijing"].map(Arc::<str>::from);
    let approached = |rules: serde_json::Value| {
        let editions = Editions::of("p", &[spec(rules)], &groups, Some(Arc::new(template())));
        // Another policy, of which nothing is left, has given it this registry.
        let mut pod = pod();
        pod["spec"]["containers"][1]["image"] = json!("gone.io/nginx:1");
        pod["metadata"]["annotations"] = json!({EDITION: "unknown"});
        (editions.approached(&pod, "beijing").expect("it renders"), editions.of_group("beijing").name.clone())
    };
    let (pod, name) = approached(json!([args]));
    let web = &pod["spec"]["containers"][1];
    assert_eq!((&web["image"], &web["args"]), (&json!("old.io/nginx:1"), &json!(["--edge"])));
    assert_eq!(pod["metadata"]["annotations"][EDITION], json!(name));
    assert_eq!(pod["spec"]["containers"][0]["image"], "old.io/mesh:1", "what others have put in is left alone");
    let (pod, _) = approached(json!([]));
    assert_eq!(pod["spec"]["containers"][1]["image"], "old.io/nginx:1", "as the template says");
    assert!(pod["metadata"]["annotations"].get(EDITION).is_none());
}
