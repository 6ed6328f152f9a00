//! What a pool is to get of an application, as far as scripts have pools differ: read off the objects themselves, item after item.

use std::collections::BTreeMap;

use dapple_api::pool::POOL_PLACEHOLDER;
use serde_json::Value;

use crate::object::{list, text};

/// What the container of a pool's pods is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rendered {
    image: String,
    env: BTreeMap<String, String>,
}

impl Rendered {
    /// As a container says.
    fn take(&mut self, container: &Value) {
        if let Some(image) = container["image"].as_str() {
            image.clone_into(&mut self.image);
        }
        for variable in list(&container["env"]) {
            self.env.insert(text(&variable["name"]).to_owned(), text(&variable["value"]).to_owned());
        }
    }
}

/// What a pool is to get: of the template, then of what the application says of the pool, then of each item in order.
pub(super) fn rendered(app: &Value, replacement: Option<&Value>, pool: &str) -> Rendered {
    let container = |workload: &Value| workload["spec"]["template"]["spec"]["containers"][0].clone();
    let mut rendered = Rendered::default();
    rendered.take(&container(base(app)));
    if let Some(said) = said_of(app, pool) {
        rendered.take(&container(&said["patch"]));
    }
    let named = |value: &Value| text(value).replace(POOL_PLACEHOLDER, pool);
    for item in items(replacement, pool) {
        if item["image"].is_object() {
            rendered.image = named(&item["image"]["imageClaim"]);
        }
        for (variable, value) in item["env"]["envClaim"].as_object().into_iter().flatten() {
            rendered.env.insert(variable.clone(), named(value));
        }
    }
    rendered
}

/// How many pods a pool is declared to have.
pub(super) fn declared(app: &Value, replacement: Option<&Value>, pool: &str) -> i64 {
    let own = base(app)["spec"]["replicas"].as_i64();
    let of_pool = said_of(app, pool).and_then(|said| said["replicas"].as_i64());
    let replaced = items(replacement, pool).filter_map(|item| item["replicas"].as_i64()).next_back();
    replaced.or(of_pool).or(own).unwrap_or(1)
}

/// What a workload has.
pub(super) fn stored(workload: &Value) -> Rendered {
    let mut rendered = Rendered::default();
    rendered.take(&workload["spec"]["template"]["spec"]["containers"][0]);
    rendered
}

/// Whether a replacement is for an application.
pub(super) fn is_for(replacement: &Value, app: &Value) -> bool {
    let subject = &replacement["subject"];
    subject["kind"] == app["kind"] && subject["name"] == app["metadata"]["name"]
}

/// The workload that every pool starts from.
pub(super) fn base(app: &Value) -> &Value {
    let template = &app["spec"]["workloadTemplate"];
    let kinds = ["deploymentTemplate", "statefulSetTemplate"].map(|field| &template[field]);
    kinds.into_iter().find(|base| base.is_object()).unwrap_or(&Value::Null)
}

/// What a set says of a pool.
fn said_of<'a>(app: &'a Value, pool: &str) -> Option<&'a Value> {
    list(&app["spec"]["topology"]["pools"]).iter().find(|known| known["name"] == pool)
}

/// The items for a pool.
fn items<'r>(replacement: Option<&'r Value>, pool: &str) -> impl DoubleEndedIterator<Item = &'r Value> + use<'r> {
    let is_meant = |one: &&Value| {
        let names: Vec<&str> = match &one["pools"] {
            Value::String(names) => names.split([' ', ',']).collect(),
            names => list(names).iter().map(text).collect(),
        };
        names.contains(&"*") || names.contains(&pool)
    };
    let all = replacement.map_or(&[][..], |replacement| list(&replacement["replacements"])).iter();
    let meant: Vec<&'r Value> = all.filter(is_meant).collect();
    meant.into_iter().flat_map(|one| list(&one["items"]))
}
