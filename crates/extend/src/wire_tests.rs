//! What is read and written.

use serde_json::{Value, json};

use super::*;

fn read(text: &str) -> Question<'_> {
    Question::read(text.as_bytes()).unwrap()
}

fn names(text: &str) -> Option<Vec<String>> {
    let question = Question::read(text.as_bytes()).ok()?;
    question.nodes.names().ok().map(|names| names.into_iter().map(Cow::into_owned).collect())
}

#[test]
fn a_pod_is_read_as_far_as_it_matters() {
    let body = json!({"Pod": {"metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b"}, "ownerReferences": [
        {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "o"},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]},
        "spec": {"containers": []}}, "Nodes": null, "NodeNames": ["a"]})
    .to_string();
    let controller = Controller { api_version: "apps/v1".into(), kind: "ReplicaSet".into(), uid: "r".into() };
    let pod = AskedPod {
        namespace: "n".into(),
        name: "p".into(),
        uid: "u".into(),
        labels: BTreeMap::from([("a".into(), "b".into())]),
        controller: Some(controller),
    };
    assert_eq!(read(&body).pod, Some(pod));
    let bare = read(r#"{"Pod": {"metadata": {"labels": null, "ownerReferences": null}}, "NodeNames": []}"#).pod;
    assert_eq!(bare, Some(AskedPod::default()));
}

#[test]
fn nodes_are_read_by_name_however_they_come() {
    let expected = |list: &[&str]| Some(list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    for (body, wanted) in [
        (r#"{"NodeNames":["a","b.c-1"]}"#, expected(&["a", "b.c-1"])),
        (r#"{"NodeNames": [ "a" , "b" ]}"#, expected(&["a", "b"])),
        (r#"{"NodeNames":["a\",\"b","c"]}"#, expected(&["a\",\"b", "c"])),
        (r#"{"NodeNames":["\u0061"]}"#, expected(&["a"])),
        (
            r#"{"Pod":{},"Nodes":null,"NodeNames":["ip-10-0-0-1.eu-west-1","b"]}"#,
            expected(&["ip-10-0-0-1.eu-west-1", "b"]),
        ),
        (r#"{"Pod":{},"NodeNames":["a"],"Later":[1]}"#, expected(&["a"])),
        (r#"{"Pod":{"metadata":{},"NodeNames":["x"]},"NodeNames":["a"]}"#, expected(&["a"])),
        (r#"{"Pod":{"metadata":{"name":",\"NodeNames\":"}},"NodeNames":["a"]}"#, expected(&["a"])),
        (r#"{"NodeNames":[]}"#, expected(&[])),
        (r#"{"Pod":{},"Nodes":null,"NodeNames":null}"#, expected(&[])),
        (
            r#"{"Nodes":{"items":[{"metadata":{"name":"a"},"spec":{}},{"metadata":{"name":"b"}}]}}"#,
            expected(&["a", "b"]),
        ),
        (r#"{"Nodes":{"items":null}}"#, expected(&[])),
        (r#"{"NodeNames":["a",1,"b"]}"#, None),
        (r#"{"NodeNames":"a"}"#, None),
        (r#"{"NodeNames":{"a":"b"}}"#, None),
        (r#"{"Nodes":{"items":[{}]}}"#, None),
    ] {
        assert_eq!(names(body), wanted, "{body}");
    }
}

#[test]
fn answers_are_what_a_scheduler_reads() {
    let filtered = Filtered {
        nodes: vec![None, Some(0), Some(1), None],
        reasons: vec![
            Reason::Outside { policy: "s".into() },
            Reason::Full { group: "g".into(), desired: 2, policy: "s".into() },
        ],
        group: Some("h".into()),
    };
    let failed =
        json!({"b": "in no group of PropagationPolicy \"s\"", "c": "group g has its 2 of PropagationPolicy \"s\""});
    let body = json!({"NodeNames": ["a", "b", "c", "d\"e"]}).to_string();
    let question = read(&body);
    let known = question.nodes.names().unwrap();
    let told: Value = serde_json::from_str(&question.nodes.filtered(&known, &filtered)).unwrap();
    assert_eq!(told, json!({"NodeNames": ["a", "d\"e"], "FailedAndUnresolvableNodes": failed}));
    let told: Value = serde_json::from_str(&priorities(&known[..2], &[10, 0])).unwrap();
    assert_eq!(told, json!([{"Host": "a", "Score": 10}, {"Host": "b", "Score": 0}]));

    // One that sends objects gets them back as they came.
    let node = |name: &str| json!({"metadata": {"name": name}, "status": {"more": [1, 2.50]}});
    let objects = ["a", "b", "c", "d"].map(node);
    let body = json!({"Nodes": {"items": objects}}).to_string();
    let question = read(&body);
    let known = question.nodes.names().unwrap();
    let told: Value = serde_json::from_str(&question.nodes.filtered(&known, &filtered)).unwrap();
    assert_eq!(told["Nodes"]["items"], json!([node("a"), node("d")]));
    assert_eq!(told["FailedAndUnresolvableNodes"], failed);
    let told: Value = serde_json::from_str(&question.nodes.all_pass()).unwrap();
    assert_eq!(told["Nodes"]["items"], json!(objects));
}

#[test]
fn names_are_copied_as_they_stand_whichever_pass() {
    let all = ["a", "node-b", "c\"", "d\\", "ip-10-0-0-1.eu-west-1.compute", "f"];
    for (text, known) in [
        (json!({"Pod": {}, "NodeNames": all}).to_string(), all.len()),
        (r#"{"Pod":{},"NodeNames":["a", "node-b" ,"c","d"]}"#.to_owned(), 4),
        (r#"{"Pod":{},"NodeNames":["a","node-b","c","d","e"]}"#.to_owned(), 5),
    ] {
        let question = read(&text);
        let names = question.nodes.names().unwrap();
        assert_eq!(names.len(), known);
        for passing in 0..1_usize << known {
            let nodes: Vec<Option<usize>> =
                (0..known).map(|number| (passing & (1 << number) == 0).then_some(0)).collect();
            let filtered = Filtered { nodes, reasons: vec![Reason::Outside { policy: "s".into() }], group: None };
            let told: Value = serde_json::from_str(&question.nodes.filtered(&names, &filtered)).unwrap();
            let expected: Vec<&str> =
                (0..known).filter(|number| passing & (1 << number) != 0).map(|number| &*names[number]).collect();
            assert_eq!(told["NodeNames"], json!(expected), "{text}");
        }
        let scores: Value = serde_json::from_str(&priorities(&names, &vec![7; known])).unwrap();
        assert!(scores.as_array().unwrap().iter().zip(&names).all(|(score, name)| score["Host"] == **name));
    }
    assert_eq!(priorities(&[], &[]), "[]");
}
