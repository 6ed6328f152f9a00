//! What is rendered anew, and what is not.

use serde_json::json;

use super::*;
use crate::pool::revision::{data_of, version_for};
use crate::pool::version::InForce;
use crate::pool::workload::tests::set;

const POOLS: usize = 20;

fn name(number: usize) -> String {
    format!("p{number:02}")
}

fn pools(count: usize) -> Value {
    let patch = json!({"spec": {"minReadySeconds": 3}});
    (0..count).map(|number| json!({"name": name(number), "replicas": 0, "patch": patch})).collect()
}

/// Replacements that set a variable in all pools, and an image in those that are named.
fn in_force(object: &str, images: &[(&str, &str)]) -> InForce {
    let mut all = vec![json!({"pools": "*", "items": [
        {"env": {"containerName": "c", "envClaim": {"SITE": "{{nodepool}}"}}}]})];
    all.extend(images.iter().map(
        |(pool, image)| json!({"pools": [pool], "items": [{"image": {"containerName": "c", "imageClaim": image}}]}),
    ));
    InForce { name: object.to_owned(), replacements: serde_json::from_value(json!(all)).expect("replacements") }
}

fn version(count: usize, replacements: Option<InForce>) -> (Application, Arc<Version>) {
    let (application, mut version) = set(pools(count));
    version.replacements = replacements;
    (application, Arc::new(version))
}

/// Renders all pools as one look does. How many were rendered for it; each is as if it had been rendered alone.
fn look(renderings: &Renderings, (application, version): &(Application, Arc<Version>), taints: &[Taint]) -> u64 {
    let before = renderings.made();
    renderings.begin();
    for number in 0..POOLS {
        let made = renderings.render(application, version, &name(number), taints);
        assert_eq!(made, render(application, version, &name(number), taints), "{number}");
    }
    renderings.made() - before
}

#[test]
fn a_change_for_one_pool_renders_one_pool() {
    let renderings = Renderings::default();
    let said = |images: &[(&str, &str)]| version(POOLS, Some(in_force("far", images)));
    assert_eq!(look(&renderings, &said(&[]), &[]), 20);
    assert_eq!(look(&renderings, &said(&[]), &[]), 0, "nothing has changed");
    assert_eq!(look(&renderings, &said(&[("p07", "c:2")]), &[]), 1, "one pool has another image");
    assert_eq!(look(&renderings, &said(&[("p07", "c:2")]), &[]), 0);
    assert_eq!(look(&renderings, &said(&[("p07", "c:3")]), &[]), 1);
    assert_eq!(
        look(&renderings, &said(&[("p09", "c:4"), ("p07", "c:3")]), &[]),
        1,
        "the other one only stands elsewhere"
    );
    assert_eq!(look(&renderings, &version(POOLS, Some(in_force("near", &[("p07", "c:3")]))), &[]), 1);
    assert_eq!(look(&renderings, &version(POOLS, None), &[]), 20, "the variable is taken back");
}

#[test]
fn a_template_or_a_name_of_an_application_that_changes_renders_all() {
    let renderings = Renderings::default();
    let (mut application, plain) = version(POOLS, None);
    assert_eq!(look(&renderings, &(application.clone(), plain.clone()), &[]), 20);
    let mut other = Version::clone(&plain);
    let template = other.template.deployment_template.as_mut().expect("a template");
    template.metadata = None;
    assert_eq!(look(&renderings, &(application.clone(), Arc::new(other)), &[]), 20);
    let mut other = Version::clone(&plain);
    other.history_limit = Some(7);
    assert_eq!(look(&renderings, &(application.clone(), Arc::new(other)), &[]), 20);
    application.uid = "another".to_owned();
    assert_eq!(look(&renderings, &(application, plain), &[]), 20);
}

#[test]
fn of_a_pool_what_it_is_told_and_its_taints_count() {
    let renderings = Renderings::default();
    let (application, plain) = version(POOLS, None);
    look(&renderings, &(application.clone(), plain.clone()), &[]);
    let mut other = Version::clone(&plain);
    if let Pools::Named(topology) = &mut other.pools {
        topology.pools[4].replicas = Some(3);
        let first = topology.pools.remove(0);
        topology.pools.push(first);
    }
    assert_eq!(look(&renderings, &(application.clone(), Arc::new(other)), &[]), 1, "where they stand changes nothing");
    let daemon = Arc::new(Version { pools: Pools::Selected(None), ..Version::clone(&plain) });
    let application = Application { kind: dapple_api::pool::SubjectKind::YurtAppDaemon, ..application };
    let taint = |value: &str| Taint {
        key: "edge".to_owned(),
        value: Some(value.to_owned()),
        effect: TaintEffect::NoSchedule,
        time_added: None,
    };
    let of = (application, daemon);
    assert_eq!(look(&renderings, &of, &[]), 20);
    assert_eq!(look(&renderings, &of, &[taint("a")]), 20);
    assert_eq!(look(&renderings, &of, &[taint("b")]), 0, "nobody reads the value");
}

#[test]
fn an_error_that_names_a_place_is_said_anew_once_it_stands_elsewhere() {
    let renderings = Renderings::default();
    let wrong = |before: usize| {
        let mut said = in_force("far", &[]);
        let item = json!({"image": {"containerName": "none", "imageClaim": "c:2"}});
        let one = |pool: &str| serde_json::from_value(json!({"pools": [pool], "items": [item]})).expect("one");
        said.replacements.extend((0..before).map(|_| one("elsewhere")));
        said.replacements.push(one("p03"));
        version(POOLS, Some(said))
    };
    assert_eq!(look(&renderings, &wrong(0), &[]), 20);
    assert_eq!(look(&renderings, &wrong(0), &[]), 0);
    assert_eq!(look(&renderings, &wrong(1), &[]), 1);
}

#[test]
fn what_is_not_asked_for_is_dropped() {
    let renderings = Renderings::default();
    let of = version(POOLS, None);
    look(&renderings, &of, &[]);
    renderings.begin();
    assert_eq!(renderings.kept().pools.len(), POOLS, "the last look asked for them");
    renderings.begin();
    let kept = renderings.kept();
    assert!(kept.pools.is_empty() && kept.versions.is_empty() && kept.older.is_empty());
}

#[test]
fn of_one_pool_few_are_kept() {
    let renderings = Renderings::default();
    for number in 0..2 * VERSIONS {
        let image = format!("c:{number}");
        let (application, version) = version(1, Some(in_force("far", &[("p00", &image)])));
        renderings.render(&application, &version, "p00", &[]).expect("it renders");
    }
    let kept = renderings.kept();
    assert_eq!((kept.pools["p00"].len(), kept.versions.len()), (OF_ONE_POOL, VERSIONS));
}

#[test]
fn a_revision_is_read_once_and_anew_when_it_says_something_else() {
    let (_, older) = version(2, None);
    let (_, now) = version(3, Some(in_force("far", &[])));
    let renderings = Renderings::default();
    let mut revision = Revision { name: "r1".to_owned(), number: 1, data: data_of(&older) };
    let read = |revision: &Revision| renderings.version_for(revision, &now).expect("it can be read");
    let first = read(&revision);
    assert!(Arc::ptr_eq(&first, &read(&revision)));
    for pool in ["p00", "p01"] {
        let alone = version_for(&revision.data, &now, pool).expect("it can be read");
        assert_eq!(first.pool(pool), alone.pool(pool));
    }
    let joined = version_for(&revision.data, &now, "p02").expect("it can be read");
    assert_eq!(first.pool("p02"), joined.pool("p02"), "it joined later");
    assert_eq!(renderings.version_of(&revision, &now).expect("it can be read").pool("p02"), None);
    revision.data = data_of(&now);
    assert_eq!(*read(&revision), *now);
}

#[test]
fn what_was_compared_counts_until_it_is_written_or_should_be_something_else() {
    let renderings = Renderings::default();
    let (application, version) = version(1, None);
    let rendered = renderings.render(&application, &version, "p00", &[]).expect("it renders");
    let stored = rendered.workload.clone();
    let is_known =
        |stored: &Arc<Value>, is_autoscaled| renderings.compared("p00", &rendered, (stored, is_autoscaled)).is_some();
    assert!(!is_known(&stored, false), "nobody has looked");
    let difference = Difference::default();
    let compared = Compared { stored: stored.clone(), is_autoscaled: false, difference, beside: None };
    renderings.note("p00", &rendered, compared);
    assert!(is_known(&stored, false));
    assert!(!is_known(&stored, true));
    assert!(!is_known(&Arc::new(Value::clone(&stored)), false), "it was written since");
    let other = render(&application, &version, "p00", &[]).expect("it renders");
    assert!(renderings.compared("p00", &other, (&stored, false)).is_none(), "it may be something else");
}
