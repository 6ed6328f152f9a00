//! Whatever is sent, there is an answer, and no panic.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use dapple_admit::ask::Asker;
use dapple_admit::hooks::{HOOKS, Job};
use dapple_admit::review::converted;
use dapple_admit::routes::Judges;
use dapple_admit::surroundings::Surroundings;
use dapple_control::metrics::Metrics;
use kube::Client;
use kube::client::Body;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::caches;

/// A cluster that answers nothing, or always the same.
fn client(says: Option<(u16, Vec<u8>)>) -> Client {
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let says = says.clone();
        async move {
            let (code, body) = says.ok_or_else(|| std::io::Error::other("nobody answers"))?;
            http::Response::builder().status(code).body(Body::from(body)).map_err(std::io::Error::other)
        }
    });
    Client::new(service, "default")
}

fn judges(client: Client) -> Judges {
    let (metrics, stop) = (Arc::new(Metrics::new()), CancellationToken::new());
    let known = Surroundings::start(&caches(client.clone(), &stop), &stop);
    let asker = Arc::new(Asker::new(client, "dapple-system".to_owned()));
    Judges::new(asker, Arc::new(known), None, metrics)
}

static OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(objects);

/// Every object of the tables that webhooks are tested with.
fn objects() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../edit/tests/admission");
    let mut objects = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        objects.extend(documents.into_iter().filter(|document| !document.is_null()));
    }
    assert!(objects.len() > 10);
    objects
}

fn review(object: &Value, old: &Value) -> Value {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = version.split('/').next().unwrap_or_default();
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": group, "kind": object["kind"]}, "name": object["metadata"]["name"],
        "namespace": "default", "operation": "CREATE", "object": object, "oldObject": old}})
}

/// Any JSON, not too deep.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9%/.$-]{0,12}".prop_map(Value::from),
        Just(json!("{{nodepool}}")),
        Just(json!("-1%")),
        Just(json!(u64::MAX)),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z$/]{1,10}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// Puts something at some place of a document.
fn spoil(document: &mut Value, mut place: usize, with: Value) {
    let mut at = document;
    loop {
        let count = match &*at {
            Value::Object(map) => map.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        if count == 0 || place % 7 == 6 {
            *at = with;
            return;
        }
        let next = place % count;
        place /= 7;
        at = match at {
            Value::Object(map) => map.values_mut().nth(next).unwrap(),
            Value::Array(items) => &mut items[next],
            _ => return,
        };
    }
}

fn answered(body: &[u8], says: Option<(u16, Vec<u8>)>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let _inside = runtime.enter();
    let judges = judges(client(says));
    for job in [Job::Validate, Job::Delete, Job::Default] {
        match runtime.block_on(judges.answer(job, body)) {
            Ok(answer) => prop_assert!(answer["response"]["allowed"].is_boolean(), "{answer}"),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
    if let Ok(answer) = converted(body) {
        prop_assert!(answer["response"]["result"]["status"].is_string(), "{answer}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn spoiled_reviews_are_answered(
        number in any::<prop::sample::Index>(),
        old in any::<prop::sample::Index>(),
        has_old in any::<bool>(),
        spoilt in prop::collection::vec((any::<usize>(), any_json()), 0..4),
        converts in any::<bool>(),
    ) {
        let objects = &*OBJECTS;
        let old = if has_old { old.get(objects).clone() } else { Value::Null };
        let mut review = review(number.get(objects), &old);
        if converts {
            review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
                "uid": "u", "desiredAPIVersion": "apps.kruise.io/v1alpha1", "objects": [review["request"]["object"]]}});
        }
        for (place, with) in spoilt {
            spoil(&mut review, place, with);
        }
        answered(review.to_string().as_bytes(), None)?;
    }

    #[test]
    fn torn_bytes_are_answered(
        number in any::<prop::sample::Index>(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        end in any::<prop::sample::Index>(),
    ) {
        let objects = &*OBJECTS;
        let mut bytes = review(number.get(objects), &Value::Null).to_string().into_bytes();
        for (place, byte) in cuts {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(end.index(bytes.len()) + 1);
        answered(&bytes, None)?;
    }

    #[test]
    fn whatever_the_api_server_says_there_is_an_answer(
        number in any::<prop::sample::Index>(),
        code in prop::sample::select(vec![200_u16, 201, 400, 403, 404, 409, 422, 429, 500, 503]),
        message in "(PodTemplate in version \"v1\" cannot be handled as a PodTemplate: )?((unknown|duplicate) field \"[a-z.\\[\\]0-9=\"é]{0,20}|.{0,30}){0,3}",
        fields in prop::collection::vec("(template|template\\.)?[a-zA-Z.\\[\\]0-9=é]{0,20}", 0..3),
        spoilt in prop::collection::vec((any::<usize>(), any_json()), 0..2),
    ) {
        let causes: Vec<Value> = fields.iter().map(|field| json!({"field": field, "message": message})).collect();
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "reason": "Invalid", "message": message, "details": {"causes": causes}});
        for (place, with) in spoilt {
            spoil(&mut status, place, with);
        }
        let review = review(number.get(&OBJECTS), &Value::Null);
        answered(review.to_string().as_bytes(), Some((code, status.to_string().into_bytes())))?;
    }
}

#[test]
fn every_hook_answers_every_object() {
    assert!(HOOKS.len() > 10);
    for object in objects() {
        answered(review(&object, &object).to_string().as_bytes(), None).unwrap();
    }
}
