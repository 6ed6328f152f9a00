//! What going back comes to, by whatever has happened to the two objects since.

use super::super::object::Spec;
use super::super::object::tests::{replacement, set};
use super::*;

/// An application with this image in these pools.
fn web(image: &str, pools: &[&str]) -> ApplicationObject {
    let mut object = set(pools, json!({}), json!({}));
    let Spec::Set(spec) = &mut object.spec else { panic!("it is a YurtAppSet") };
    let template = spec.workload_template.deployment_template.as_mut().unwrap();
    template.spec.0["template"]["spec"]["containers"][0]["image"] = json!(image);
    object
}

/// Replacements that give all pools so many pods.
fn replicas(name: &str, replicas: i32) -> YurtAppConfigurationReplacement {
    replacement(name, None, json!({"replacements": [{"pools": "*", "items": [{"replicas": replicas}]}]}))
}

fn of(number: i64, object: &ApplicationObject, replacements: &[YurtAppConfigurationReplacement]) -> Revision {
    let version = object.version(counting(replacements, object).map(in_force));
    Revision { name: format!("web-{number}"), number, data: data_of(&version) }
}

fn back(found: Result<Undo, UndoError>) -> Restored {
    match found {
        Ok(Undo::Back(restored)) => *restored,
        other => panic!("it goes back: {other:?}"),
    }
}

#[test]
fn both_objects_come_back_as_they_were() {
    let (before, now) = (web("c:1", &["a", "b"]), web("c:2", &["a", "c"]));
    let all = [of(1, &before, &[replicas("r", 1)]), of(2, &now, &[replicas("r", 2)])];
    let restored = back(undo(&now, &[replicas("r", 2)], &all, None));
    assert_eq!((restored.number, restored.changes_application), (1, true));
    let Replacing::Changed { name, replacements } = &restored.replacements else { panic!("they were others") };
    assert_eq!((name.as_str(), replacements.len(), replacements[0].items[0].replicas), ("r", 1, Some(1)));
    assert_eq!((restored.joining.clone(), restored.leaving.clone()), (vec!["b".to_owned()], vec!["c".to_owned()]));
    let mut object = json!({"metadata": {"name": "web"}, "spec": {"selector": {}, "revisionHistoryLimit": 3,
        "workloadTemplate": {"statefulSetTemplate": {}}, "topology": {"pools": []}}});
    restored.put_into(&mut object);
    let template = &object["spec"]["workloadTemplate"];
    assert_eq!(template["deploymentTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"], "c:1");
    assert!(template.get("statefulSetTemplate").is_none() && template.get("$patch").is_none(), "{template}");
    assert_eq!(object["spec"]["topology"]["pools"], json!([{"name": "a"}, {"name": "b"}]));
    assert_eq!(object["spec"]["revisionHistoryLimit"], 3, "all else is left alone");
}

#[test]
fn only_what_differs_is_written() {
    let (before, now) = (web("c:1", &["a"]), web("c:2", &["a"]));
    let same = [replicas("r", 1)];
    let all = [of(1, &before, &same), of(2, &now, &same)];
    assert_eq!(back(undo(&now, &same, &all, None)).replacements, Replacing::Kept);
    let all = [of(1, &now, &[replicas("r", 1)]), of(2, &now, &[replicas("r", 2)])];
    let restored = back(undo(&now, &[replicas("r", 2)], &all, None));
    assert!(!restored.changes_application && restored.replacements != Replacing::Kept);
    assert_eq!(undo(&now, &[replicas("r", 2)], &all, Some(2)), Ok(Undo::Skipped { number: 2 }));
}

#[test]
fn replacements_come_back_into_the_object_that_counts_now() {
    let now = web("c:1", &["a"]);
    let all = [of(1, &now, &[replicas("old", 1)]), of(2, &now, &[replicas("new", 2)])];
    let restored = back(undo(&now, &[replicas("new", 2)], &all, None));
    assert!(matches!(&restored.replacements, Replacing::Changed { name, .. } if name == "new"), "{restored:?}");

    // It was deleted: it is made again, unless something else has its name.
    let all = [of(1, &now, &[replicas("old", 1)]), of(2, &now, &[])];
    let restored = back(undo(&now, &[], &all, None));
    assert!(matches!(&restored.replacements, Replacing::Made { name, .. } if name == "old"), "{restored:?}");
    let other = replacement("old", None, json!({"subject": {"kind": "YurtAppDaemon", "name": "logs"}}));
    let error = undo(&now, &[other], &all, None).unwrap_err();
    assert_eq!(error, UndoError::Taken { name: "old".to_owned(), subject: "YurtAppDaemon logs".to_owned() });

    // There was none: the one that counts says nothing from then on.
    let all = [of(1, &now, &[]), of(2, &now, &[replicas("r", 2)])];
    let restored = back(undo(&now, &[replicas("r", 2)], &all, None));
    assert_eq!(restored.replacements, Replacing::Changed { name: "r".to_owned(), replacements: Vec::new() });
}

#[test]
fn a_revision_that_openyurt_left_brings_the_template_back_and_nothing_else() {
    let (before, now) = (web("c:1", &["a"]), web("c:2", &["a", "b"]));
    let mut left = of(1, &before, &[]);
    left.data["spec"].as_object_mut().unwrap().remove("topology");
    left.data.as_object_mut().unwrap().remove("replacements");
    let there = [replicas("r", 2)];
    let restored = back(undo(&now, &there, &[left.clone(), of(2, &now, &there)], None));
    assert_eq!((&restored.replacements, restored.leaving.len()), (&Replacing::Kept, 0));
    // As the newest it is what there is, if the template is.
    let newest = Revision { number: 3, ..left };
    assert_eq!(back(undo(&before, &[], &[of(2, &now, &there), newest], None)).number, 2);
}

#[test]
fn no_going_back_names_what_is_missing() {
    let now = web("c:2", &["a"]);
    assert_eq!(undo(&now, &[], &[], None), Err(UndoError::NoRevisions));
    let only = [of(4, &now, &[])];
    assert_eq!(undo(&now, &[], &only, None), Err(UndoError::NoneBefore(4)));
    let two = [of(4, &web("c:1", &["a"]), &[]), of(5, &now, &[])];
    assert_eq!(undo(&now, &[], &two, Some(3)).unwrap_err().to_string(), "has no revision 3; it has 4, 5");
    assert_eq!(undo(&now, &[replicas("r", 1)], &two, None), Err(UndoError::Unsettled(5)), "the replacement is new");
    assert!(matches!(undo(&now, &[replicas("r", 1)], &two, Some(5)), Ok(Undo::Back(_))));
    for (field, data) in [
        ("data.more", json!({"spec": {"workloadTemplate": {"deploymentTemplate": {"spec": {}}}}, "more": 1})),
        ("data.spec.pace", json!({"spec": {"workloadTemplate": {"deploymentTemplate": {"spec": {}}}, "pace": 1}})),
        ("data.spec.workloadTemplate is no", json!({"spec": {"workloadTemplate": {}}})),
        ("data.spec.workloadTemplate is no", json!({})),
    ] {
        let error = read(&Revision { name: "web-9".to_owned(), number: 9, data }, &now.version(None)).unwrap_err();
        assert!(error.to_string().contains(field) && error.to_string().contains("revision 9"), "{error}");
    }
}
