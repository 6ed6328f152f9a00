//! Writes of others to a pool's workload, and what becomes of them.

use dapple_api::pool::{DECLARED_REPLICAS, POOL_NAME_LABEL};

use super::*;
use crate::pool::revision::data_of;
use crate::pool::version::InForce;
use crate::pool::workload::render;
use crate::pool::workload::tests::set;

const IMAGE: [&str; 4] = ["spec", "template", "spec", "containers"];

/// An application in the pool `edge`, as one replica knows it.
struct View {
    application: Application,
    version: Version,
    revisions: Vec<Revision>,
    status: ApplicationStatus,
}

impl View {
    /// Of an application that says this of the pool, with these replacements.
    fn new(pool: Value, replacements: Value) -> Self {
        let mut said = json!({"name": "edge"});
        for (field, value) in pool.as_object().into_iter().flatten() {
            said[field] = value.clone();
        }
        let (application, mut version) = set(json!([said]));
        if !replacements.is_null() {
            let replacements = serde_json::from_value(replacements).expect("replacements");
            version.replacements = Some(InForce { name: "far".to_owned(), replacements });
        }
        let revisions = vec![Revision { name: "r1".to_owned(), number: 1, data: data_of(&version) }];
        Self { application, version, revisions, status: ApplicationStatus::default() }
    }

    fn plain() -> Self {
        Self::new(json!({}), Value::Null)
    }

    /// The pool's workload as its controller makes it.
    fn workload(&self) -> Value {
        let rendered = render(&self.application, &self.version, "edge", &[]).expect("it renders");
        rendered.new_workload("demo-edge-xxxxx", "r1", &BTreeMap::new())
    }

    /// What becomes of a write: the object, and what is told.
    fn taken(&self, old: Option<&Value>, new: &Value, is_by_another: bool) -> (Value, Vec<String>) {
        let pool = AskedPool { name: "edge".to_owned(), taints: Vec::new() };
        let revision = |name: &str| self.revisions.iter().find(|known| known.name == name).cloned();
        let (version, renderings) = (Arc::new(self.version.clone()), Renderings::default());
        let known = Known {
            application: &self.application,
            version: &version,
            renderings: &renderings,
            status: &self.status,
            pool: &pool,
            revision: &revision,
        };
        let write = Write { kind: Document::Deployment, old, new, is_by_another };
        let PutBack { operations, warnings } = put_back(&known, write);
        let mut taken = new.clone();
        let patch: json_patch::Patch = serde_json::from_value(operations.into()).expect("a patch");
        json_patch::patch(&mut taken, &patch).expect("it applies");
        (taken, warnings)
    }

    fn changed(&self, old: &Value, new: &Value) -> (Value, Vec<String>) {
        self.taken(Some(old), new, true)
    }

    /// Asserts that a change is taken as it is.
    fn passes(&self, old: &Value, new: &Value, why: &str) {
        for is_by_another in [true, false] {
            assert_eq!(self.taken(Some(old), new, is_by_another), (new.clone(), Vec::new()), "{why}");
        }
    }
}

fn with(workload: &Value, path: &[&str], value: Value) -> Value {
    let mut changed = workload.clone();
    put(&mut changed, path, value);
    changed
}

fn image(workload: &Value, image: &str) -> Value {
    with(workload, &IMAGE, json!([{"name": "c", "image": image}]))
}

#[test]
fn a_stray_edit_is_put_back_and_whoever_did_it_is_told_what_to_edit() {
    let view = View::plain();
    let old = view.workload();
    for is_by_another in [true, false] {
        let (taken, warnings) = view.taken(Some(&old), &image(&old, "stray:1"), is_by_another);
        assert_eq!(taken, old, "nothing is left of it, so nothing restarts");
        let wanted = "edit YurtAppSet default/demo instead; put back here: spec.template.spec.containers[name=c].image";
        assert_eq!(warnings, [wanted]);
    }
    for (path, value) in [
        (&["spec", "template", "metadata", "annotations"][..], json!({"mine": "x"})),
        (&["spec", "template", "spec", "hostNetwork"][..], json!(true)),
        (&["spec", "strategy"][..], json!({"type": "Recreate"})),
        (&["spec", "minReadySeconds"][..], json!(5)),
        (&["spec", "selector", "matchLabels", "app"][..], json!("other")),
        (&["metadata", "labels", POOL_NAME_LABEL][..], json!("core")),
        (&["metadata", "labels", "app"][..], json!("other")),
        (&["metadata", "annotations", "apps.openyurt.io/patch"][..], json!("{}")),
    ] {
        let (taken, warnings) = view.changed(&old, &with(&old, path, value));
        assert_eq!(taken, old, "{path:?}");
        assert!(warnings.len() == 1 && warnings[0].starts_with("edit YurtAppSet default/demo "), "{warnings:?}");
    }
    let mut bare = old.clone();
    bare["metadata"]["labels"].as_object_mut().expect("labels").remove(POOL_NAME_LABEL);
    bare["metadata"]["annotations"].as_object_mut().expect("annotations").remove(RENDERED);
    bare["spec"].as_object_mut().expect("a spec").remove("revisionHistoryLimit");
    assert_eq!(view.changed(&old, &bare).0, old, "what is taken away comes back");
}

#[test]
fn the_object_that_says_a_field_is_named() {
    let patch = json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "hdd"}}}}});
    let items = json!([{"image": {"containerName": "c", "imageClaim": "c:9"}}]);
    let view = View::new(json!({"patch": patch}), json!([{"pools": "*", "items": items}]));
    let old = view.workload();
    assert_eq!(old.pointer("/spec/template/spec/containers/0/image"), Some(&json!("c:9")));
    let new = with(&image(&old, "stray:1"), &["spec", "template", "spec", "nodeSelector", "disk"], json!("none"));
    let (taken, warnings) = view.changed(&old, &new);
    assert_eq!(taken, old);
    assert_eq!(
        warnings,
        [
            "edit YurtAppConfigurationReplacement default/far replacements[0].items[0] instead; put back here: \
             spec.template.spec.containers[name=c].image",
            "edit YurtAppSet default/demo spec.topology.pools[0].patch instead; put back here: \
             spec.template.spec.nodeSelector.disk",
        ]
    );
}

#[test]
fn what_the_application_does_not_say_passes() {
    let view = View::plain();
    let old = view.workload();
    let restart = ["spec", "template", "metadata", "annotations", RESTARTED_AT];
    for (path, value) in [
        (&["metadata", "labels", "mine"][..], json!("x")),
        (&["metadata", "annotations", "mine"][..], json!("x")),
        (&["metadata", "annotations", "deployment.kubernetes.io/revision"][..], json!("2")),
        (&["spec", "replicas"][..], json!(7)),
        (&["spec", "paused"][..], json!(true)),
        (&restart[..], json!("2026-01-01T00:00:00Z")),
        (&["spec", "template", "spec", "dnsPolicy"][..], json!("ClusterFirst")),
        (&["status"][..], json!({"replicas": 1})),
    ] {
        view.passes(&old, &with(&old, path, value), &format!("{path:?}"));
    }
    // A restart with a stray edit in it is a restart.
    let restarted = with(&old, &restart, json!("2026-01-01T00:00:00Z"));
    assert_eq!(view.changed(&old, &image(&restarted, "stray:1")).0, restarted);
    // The number that an autoscaler keeps is not the declared one.
    let scaled =
        with(&with(&old, &["spec", "replicas"], json!(9)), &["metadata", "annotations", DECLARED_REPLICAS], json!("3"));
    view.passes(&scaled, &with(&scaled, &["spec", "replicas"], json!(8)), "an autoscaler's number");
    assert_eq!(view.changed(&scaled, &image(&scaled, "stray:1")).0, scaled);
}

#[test]
fn who_knows_another_version_leaves_the_write_alone() {
    let view = View::plain();
    let stray = |old: &Value| image(old, "stray:1");
    let mut lagging = View::new(json!({"replicas": 2}), Value::Null);
    lagging.revisions.clear();
    let old = view.workload();
    lagging.passes(&old, &stray(&old), "its own rendering is another");
    // A rollout that it has not heard of, and one that goes back.
    let newer = View::new(json!({"patch": {"spec": {"minReadySeconds": 3}}}), Value::Null).workload();
    view.passes(&old, &newer, "the write says what it was made of");
    view.passes(&newer, &old, "and so does this one");
    let mut adopted = old.clone();
    adopted["metadata"]["annotations"].as_object_mut().expect("annotations").remove(RENDERED);
    view.passes(&adopted, &stray(&adopted), "nobody has rendered it yet");
    view.passes(&adopted, &old, "that is being done");
}

#[test]
fn a_pool_that_waits_for_its_turn_is_kept_at_its_own_revision() {
    let old = View::plain().workload();
    let mut view = View::new(json!({"patch": {"spec": {"minReadySeconds": 3}}}), Value::Null);
    view.revisions = vec![
        Revision { name: "r1".to_owned(), number: 1, data: data_of(&View::plain().version) },
        Revision { name: "r2".to_owned(), number: 2, data: data_of(&view.version) },
    ];
    assert_eq!(view.changed(&old, &image(&old, "stray:1")).0, old);
    view.passes(&old, &with(&old, &["metadata", "labels", "mine"], json!("x")), "it does not jump the queue");
    view.passes(&old, &view.workload(), "its turn has come");
}

#[test]
fn what_differed_before_is_put_right_by_the_manager_alone() {
    let view = View::plain();
    let right = view.workload();
    let drifted = image(&right, "drifted:1");
    view.passes(&drifted, &right, "it is as it should be");
    view.passes(&drifted, &with(&drifted, &["metadata", "labels", "mine"], json!("x")), "that restarts nothing");
    // Another webhook has its say in what the manager writes.
    let pinned = image(&right, "c:1@sha256:0123");
    assert_eq!(view.taken(Some(&drifted), &pinned, false), (pinned.clone(), Vec::new()));
    // Nobody else's write restarts anything.
    assert_eq!(view.changed(&pinned, &image(&right, "stray:1")).0, pinned);
    let restarted = with(&pinned, &["spec", "template", "metadata", "annotations", RESTARTED_AT], json!("now"));
    assert_eq!(view.changed(&pinned, &restarted), (restarted, Vec::new()));
}

#[test]
fn a_new_workload_that_does_not_say_what_it_was_made_of_is_made_by_its_revision() {
    let mut view = View::new(json!({"replicas": 2}), Value::Null);
    let made = view.workload();
    let mut bare = image(&made, "stray:1");
    for note in [RENDERED, DECLARED_REPLICAS] {
        bare["metadata"]["annotations"].as_object_mut().expect("annotations").remove(note);
    }
    bare["spec"]["replicas"] = json!(7);
    bare["metadata"]["labels"]["mine"] = json!("x");
    let (taken, warnings) = view.taken(None, &bare, true);
    assert_eq!(taken, with(&made, &["metadata", "labels", "mine"], json!("x")));
    assert_eq!(warnings.len(), 2, "the number of pods has a rule of its own: {warnings:?}");
    assert!(warnings[0].contains("spec.template.spec.containers[name=c].image"), "{warnings:?}");
    assert!(warnings[1].starts_with("edit YurtAppSet default/demo spec.topology.pools[0].replicas "), "{warnings:?}");
    let noted = image(&made, "stray:1");
    assert_eq!(view.taken(None, &noted, true), (noted.clone(), Vec::new()), "the controller sees to it");

    // Without a label the pool starts where the application is.
    bare["metadata"]["labels"].as_object_mut().expect("labels").remove(POOL_REVISION_LABEL);
    assert_eq!(view.taken(None, &bare, true).0, bare, "no revision is known");
    view.status.current_revision = Some("r1".to_owned());
    assert_eq!(view.taken(None, &bare, true).0["metadata"]["labels"][POOL_REVISION_LABEL], "r1");
    view.revisions.clear();
    assert_eq!(view.taken(None, &bare, true).0, bare, "nor is this one");
}

#[test]
fn what_was_rendered_for_one_write_is_not_rendered_for_the_next() {
    let view = View::new(json!({"patch": {"spec": {"minReadySeconds": 3}}}), Value::Null);
    // It waits for its turn: what is said now is not what it was made of.
    let old = View::plain().workload();
    let first = Revision { name: "r1".to_owned(), number: 1, data: data_of(&View::plain().version) };
    let pool = AskedPool { name: "edge".to_owned(), taints: Vec::new() };
    let (version, renderings) = (Arc::new(view.version.clone()), Renderings::default());
    let known = Known {
        application: &view.application,
        version: &version,
        renderings: &renderings,
        status: &view.status,
        pool: &pool,
        revision: &|name| Some(first.clone()).filter(|known| known.name == name),
    };
    for number in 0..5 {
        let new = image(&old, &format!("stray:{number}"));
        let write = Write { kind: Document::Deployment, old: Some(&old), new: &new, is_by_another: true };
        assert_eq!(put_back(&known, write).warnings.len(), 1);
    }
    assert_eq!(renderings.made(), 2, "what is said now, and what its own revision said");
}

#[test]
fn a_workload_of_another_kind_is_left_alone() {
    let view = View::plain();
    let old = view.workload();
    let pool = AskedPool { name: "edge".to_owned(), taints: Vec::new() };
    let (version, renderings) = (Arc::new(view.version.clone()), Renderings::default());
    let known = Known {
        application: &view.application,
        version: &version,
        renderings: &renderings,
        status: &view.status,
        pool: &pool,
        revision: &|_| None,
    };
    let new = image(&old, "stray:1");
    let write = Write { kind: Document::StatefulSet, old: Some(&old), new: &new, is_by_another: true };
    assert_eq!(put_back(&known, write), PutBack::default());
}
