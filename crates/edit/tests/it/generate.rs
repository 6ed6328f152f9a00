//! Random pod templates and patches, guided by the schema. A seed repeats them.

use dapple_edit::schema::{Field, Merge, Shape};
use fastrand::Rng;
use serde_json::{Map, Value, json};

/// Few words, so that templates and patches often speak of the same things.
const WORDS: [&str; 4] = ["a", "b", "c", "d"];
/// Deep enough for `spec.containers[].env[].valueFrom.configMapKeyRef.name`.
const DEPTH: u32 = 9;

pub(crate) struct Generator {
    rng: Rng,
    /// Whether directives, nulls and mistakes are strewn in.
    patch: bool,
}

/// A template and a patch for it.
pub(crate) fn pair(seed: u64) -> (Value, Value) {
    let mut generator = Generator { rng: Rng::with_seed(seed), patch: false };
    let template = generator.value(dapple_edit::schema::POD_TEMPLATE, DEPTH, Merge { lists: false, key: None });
    generator.patch = true;
    let mut patch = generator.value(dapple_edit::schema::POD_TEMPLATE, DEPTH, Merge { lists: false, key: None });
    if patch.is_object() && patch.get("spec").is_none() {
        let Shape::Object(id) = dapple_edit::schema::POD_TEMPLATE else { unreachable!("it is an object") };
        let spec = id.get().field("spec").unwrap();
        patch["spec"] = generator.value(spec.shape, DEPTH - 1, spec.merge);
    }
    (template, patch)
}

impl Generator {
    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    fn mistake(&mut self, per_thousand: u32) -> bool {
        self.patch && self.rng.u32(0..1000) < per_thousand
    }

    fn word(&mut self) -> String {
        (*self.rng.choice(WORDS.iter()).unwrap()).to_owned()
    }

    fn plain(&mut self) -> Value {
        match self.rng.u32(0..4) {
            0 => json!(self.rng.u32(0..3)),
            1 => json!(self.rng.bool()),
            _ => json!(self.word()),
        }
    }

    fn value(&mut self, shape: Shape, depth: u32, merge: Merge) -> Value {
        if self.mistake(4) {
            return self.anything(2);
        }
        match shape {
            Shape::String => json!(self.word()),
            Shape::Integer => json!(self.rng.u32(0..3)),
            Shape::Boolean => json!(self.rng.bool()),
            Shape::IntOrString | Shape::Quantity => self.plain(),
            Shape::Any => self.anything(1),
            Shape::Map(value) => {
                let entries = (0..self.rng.u32(0..3)).map(|_| (self.word(), self.value(*value, 0, merge)));
                let mut map: Map<String, Value> = entries.collect();
                self.strew(&mut map);
                Value::Object(map)
            }
            Shape::List(item) => self.list(*item, depth, merge),
            Shape::Object(id) => self.object(id.get().fields, depth),
        }
    }

    fn object(&mut self, fields: &'static [Field], depth: u32) -> Value {
        let mut map = Map::new();
        if depth == 0 {
            return Value::Object(map);
        }
        for field in fields {
            // Lists that merge and what leads to containers are what the rules are about.
            let telling = field.merge.lists
                || matches!(field.name, "name" | "spec" | "metadata" | "containers" | "env" | "volumes");
            if self.chance(if telling { 55 } else { 60 / u32::try_from(fields.len()).unwrap().max(4) }) {
                map.insert(field.name.to_owned(), self.value(field.shape, depth - 1, field.merge));
            }
        }
        self.strew(&mut map);
        if self.patch {
            self.strew_list_directives(&mut map, fields);
        }
        Value::Object(map)
    }

    fn list(&mut self, item: Shape, depth: u32, merge: Merge) -> Value {
        let count = self.rng.usize(0..4);
        let mut items: Vec<Value> = Vec::new();
        for _ in 0..count {
            let mut value = self.value(item, depth.saturating_sub(1), Merge { lists: false, key: None });
            if let (Some(key), Value::Object(map)) = (merge.key, &mut value) {
                let missing = self.rng.u32(0..1000) < 4;
                if missing {
                    map.remove(key);
                } else if !map.contains_key(key) || map[key].is_null() {
                    let word = if key == "containerPort" { json!(self.rng.u32(0..3)) } else { json!(self.word()) };
                    map.insert(key.to_owned(), word);
                }
                if self.mistake(80) {
                    let directive = *self
                        .rng
                        .choice(["delete", "delete", "delete", "replace", "merge", "nonsense"].iter())
                        .unwrap();
                    map.insert("$patch".into(), json!(directive));
                }
            }
            let key = merge.key.and_then(|key| value.get(key)).cloned();
            // The API server has no two items with one key, but a patch may.
            let twice =
                key.is_some() && items.iter().any(|known| merge.key.and_then(|name| known.get(name)) == key.as_ref());
            // Plain values twice in the template's own set: upstream's answer depends on the capacity of a Go slice.
            let spoilt_set = !self.patch && merge.lists && merge.key.is_none() && items.contains(&value);
            if !spoilt_set && (!twice || self.rng.u32(0..100) < 3) {
                items.push(value);
            }
        }
        Value::Array(items)
    }

    /// Nulls, `$patch`, `$retainKeys` and fields nobody knows.
    fn strew(&mut self, map: &mut Map<String, Value>) {
        if self.mistake(30) || (!self.patch && self.chance(1)) {
            map.insert("unknownField".into(), self.anything(2));
        }
        if !self.patch {
            return;
        }
        let names: Vec<String> = map.keys().cloned().collect();
        for name in &names {
            if self.mistake(60) {
                map.insert(name.clone(), Value::Null);
            }
        }
        if self.mistake(25) {
            let directive = *self.rng.choice(["replace", "delete", "replace", "delete", "merge", "x"].iter()).unwrap();
            map.insert("$patch".into(), json!(directive));
        }
        if self.mistake(30) {
            let mut kept: Vec<String> = names.into_iter().filter(|_| self.rng.u32(0..20) > 0).collect();
            kept.push(self.word());
            let value = if self.mistake(30) { json!("x") } else { json!(kept) };
            map.insert("$retainKeys".into(), value);
        }
    }

    /// `$deleteFromPrimitiveList` and `$setElementOrder`.
    fn strew_list_directives(&mut self, map: &mut Map<String, Value>, fields: &'static [Field]) {
        for field in fields.iter().filter(|field| matches!(field.shape, Shape::List(_))) {
            let is_plain = matches!(field.shape, Shape::List(Shape::String | Shape::Integer));
            // Both at once is a race in upstream, whose maps have no order.
            if is_plain && !map.contains_key(field.name) && self.mistake(100) {
                let gone: Vec<String> = (0..self.rng.u32(0..3)).map(|_| self.word()).collect();
                map.insert(format!("$deleteFromPrimitiveList/{}", field.name), json!(gone));
            } else if self.mistake(if field.merge.lists { 150 } else { 10 }) {
                let order = self.order(map.get(field.name), field.merge.key);
                map.insert(format!("$setElementOrder/{}", field.name), order);
            }
        }
        if self.mistake(3) {
            map.insert("$setElementOrder".into(), json!([]));
        }
        if self.mistake(3) {
            map.insert("$deleteFromPrimitiveListX/finalizers".into(), json!([]));
        }
    }

    /// An order that mostly fits the patch's list, with others strewn in.
    fn order(&mut self, list: Option<&Value>, key: Option<&'static str>) -> Value {
        let items = list.and_then(Value::as_array).cloned().unwrap_or_default();
        let mut order = Vec::new();
        for item in items {
            if self.chance(25) {
                let other = json!(self.word());
                order.push(key.map_or_else(|| other.clone(), |key| json!({key: other})));
            }
            if self.chance(96) && item.get("$patch").is_none() {
                order.push(key.map_or_else(|| item.clone(), |key| json!({key: item.get(key)})));
            }
        }
        if self.chance(3) { json!({}) } else { Value::Array(order) }
    }

    fn anything(&mut self, depth: u32) -> Value {
        match self.rng.u32(0..8) {
            0 if depth > 0 => Value::Array((0..self.rng.u32(0..3)).map(|_| self.anything(depth - 1)).collect()),
            1 if depth > 0 => {
                Value::Object((0..self.rng.u32(0..3)).map(|_| (self.word(), self.anything(depth - 1))).collect())
            }
            2 => Value::Null,
            _ => self.plain(),
        }
    }
}
