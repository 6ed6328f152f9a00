//! Revisions of applications, those that OpenYurt left among them.

use super::*;
use crate::pool::version::InForce;
use crate::pool::workload::tests::set;

fn revision(version: &Version, number: i64) -> Revision {
    let (application, _) = set(json!([]));
    match settle(&application, version, &[], 0) {
        Settled::Create(revision) => Revision { number, ..revision },
        other => panic!("there is none yet: {other:?}"),
    }
}

fn with_image(image: &str) -> Version {
    let (_, version) = set(
        json!([{"name": "edge", "patch": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}}]),
    );
    version
}

#[test]
fn a_revision_is_made_once_and_numbered_anew_when_it_returns() {
    let (application, _) = set(json!([]));
    let (first, second) = (with_image("1"), with_image("2"));
    let mut all = vec![revision(&first, 1)];
    assert_eq!(settle(&application, &first, &all, 0), Settled::Keep(all[0].name.clone()));
    let Settled::Create(made) = settle(&application, &second, &all, 0) else { panic!("another is made") };
    assert_eq!(made.number, 2);
    assert!(made.name.len() <= 63 && made.name != all[0].name);
    all.push(made);
    let back = Settled::Renumber { name: all[0].name.clone(), number: 3 };
    assert_eq!(settle(&application, &first, &all, 0), back);
    let replaced = Version { replacements: Some(InForce { name: "r".into(), replacements: Vec::new() }), ..second };
    assert!(matches!(settle(&application, &replaced, &all, 0), Settled::Create(_)), "replacements are a part of it");
    let taken = Revision { name: revision(&replaced, 0).name, number: 0, data: json!({}) };
    let Settled::Create(other) = settle(&application, &replaced, std::slice::from_ref(&taken), 0) else {
        panic!("another is made")
    };
    assert_ne!(other.name, taken.name);
}

#[test]
fn one_that_nobody_can_number_anew_is_replaced_by_one_that_says_the_same() {
    let (application, _) = set(json!([]));
    let (first, second) = (with_image("1"), with_image("2"));
    let mut all = vec![revision(&first, 1), revision(&second, 2)];
    let Settled::Renumber { name, number } = settle(&application, &first, &all, 0) else { panic!("it is back") };
    assert_eq!(name, all[0].name);
    let other = stand_in(&application, &first, &all, (number, 0));
    assert_eq!((other.number, &other.data), (3, &all[0].data));
    assert!(all.iter().all(|known| known.name != other.name));
    assert_eq!(stand_in(&application, &first, &all, (number, 0)).name, other.name, "made twice it is the same");
    all.push(other.clone());
    assert_eq!(settle(&application, &first, &all, 0), Settled::Keep(other.name));
}

#[test]
fn what_a_revision_holds_comes_back() {
    let version = with_image("1");
    let now = with_image("2");
    assert_eq!(version_of(&data_of(&version), &now), Some(version.clone()));
    let left =
        json!({"spec": {"workloadTemplate": {"$patch": "replace", "deploymentTemplate": {"spec": {"template": {}}}}}});
    let read = version_of(&left, &now).unwrap();
    assert_eq!(
        (read.pools, read.replacements),
        (now.pools.clone(), None),
        "what it does not hold is as it is said now"
    );
    for unreadable in
        [json!({}), json!({"spec": {"workloadTemplate": 7}}), json!({"spec": {"workloadTemplate": {}, "topology": 7}})]
    {
        assert_eq!(version_of(&unreadable, &now), None, "{unreadable}");
    }
    let (_, with_core) = set(json!([{"name": "core", "replicas": 7}]));
    let joined = version_for(&data_of(&version), &with_core, "core").unwrap();
    assert_eq!(
        joined.pool("core").map(|(_, pool)| pool.replicas()),
        Some(7),
        "one that joined since is as it is said now"
    );
    assert!(joined.pool("edge").is_some());
}

#[test]
fn spelling_makes_no_revision() {
    let (application, version) = set(json!([]));
    let mut known = revision(&version, 1);
    known.data["spec"]["workloadTemplate"]["deploymentTemplate"]["spec"]["template"]["metadata"]["creationTimestamp"] =
        Value::Null;
    known.data["spec"]["workloadTemplate"]["deploymentTemplate"]["spec"]["strategy"] = json!({});
    assert_eq!(settle(&application, &version, &[known.clone()], 0), Settled::Keep(known.name));
}

#[test]
fn the_oldest_go_but_none_that_is_needed() {
    let all: Vec<Revision> = (1..=5).map(|number| revision(&with_image(&number.to_string()), number)).collect();
    let gone = |limit| -> Vec<i64> {
        surplus(&all, limit, |revision| [1, 5].contains(&revision.number))
            .iter()
            .map(|revision| revision.number)
            .collect()
    };
    assert_eq!(gone(1), [2, 3]);
    assert!(gone(9).is_empty());
}

#[test]
fn a_name_is_the_value_of_a_label() {
    let (mut application, version) = set(json!([]));
    application.name = "a.".repeat(120);
    let Settled::Create(made) = settle(&application, &version, &[], 0) else { panic!("there is none yet") };
    assert!(dapple_api::syntax::label_value(&made.name).is_ok(), "{}", made.name);
}
