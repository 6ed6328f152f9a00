//! From the fuzzer's bytes to templates, patches and edits.
//!
//! Bytes that begin with `---` are YAML, so that seeds can be read and written by people. Others steer a walk through
//! Kubernetes' schema: nearly every input is then a template that gets far, and a small change of the bytes is a small
//! change of the template.

use dapple_api::manifest;
use dapple_edit::document::Document;
use dapple_edit::edit::Edit;
use dapple_edit::render::{changes, render, render_plain};
use dapple_edit::schema::{Field, Merge, POD_TEMPLATE, Shape};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};

/// Few words, so that templates and patches speak of the same things; some are hard to get right.
const WORDS: [&str; 12] = [
    "a",
    "b",
    "c",
    "",
    "$patch",
    "0",
    "-",
    "a/b~1",
    "registry.example.com:5000/team/agent:v1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "localhost/x",
    "é\u{0}\n",
    "metadata",
];

/// Deep enough for `spec.containers[].env[].valueFrom.configMapKeyRef.name`.
const DEPTH: u32 = 9;

/// The objects that bytes stand for, two or more and `count` if they are generated: the first a template, the others
/// patches.
pub fn templates(bytes: &[u8], count: usize) -> Option<Vec<Value>> {
    if bytes.starts_with(b"---") {
        let manifests = manifest::read("seed", bytes).ok()?;
        let values: Vec<Value> = manifests.iter().map(|manifest| manifest.value().clone()).collect();
        return (values.len() > 1).then_some(values);
    }
    let mut bytes = Unstructured::new(bytes);
    (0..count).map(|number| template(&mut bytes, number > 0)).collect::<Result<_>>().ok()
}

/// A template, or a patch of one.
pub fn template(bytes: &mut Unstructured<'_>, is_patch: bool) -> Result<Value> {
    Walk { bytes, is_patch }.value(POD_TEMPLATE, DEPTH, Merge { lists: false, key: None })
}

/// Any word.
pub fn word(bytes: &mut Unstructured<'_>) -> Result<String> {
    if bytes.ratio(1, 16)? { bytes.arbitrary() } else { Ok((*bytes.choose(&WORDS)?).to_owned()) }
}

/// Anything.
pub fn anything(bytes: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    Ok(match bytes.int_in_range(0..=7)? {
        0 if depth > 0 => {
            Value::Array((0..bytes.int_in_range(0..=2)?).map(|_| anything(bytes, depth - 1)).collect::<Result<_>>()?)
        }
        1 if depth > 0 => {
            let fields = (0..bytes.int_in_range(0..=2)?).map(|_| Ok((word(bytes)?, anything(bytes, depth - 1)?)));
            Value::Object(fields.collect::<Result<_>>()?)
        }
        2 => Value::Null,
        3 => json!(bytes.arbitrary::<i64>()?),
        4 => json!(bytes.arbitrary::<f64>()?),
        5 => json!(bytes.arbitrary::<bool>()?),
        _ => json!(word(bytes)?),
    })
}

/// What holds of every rendering: the same steps give the same template, and provenance names exactly what differs.
pub fn check(kind: Document, base: &Value, edits: &[&Edit]) {
    let plain = render_plain(kind, base, edits);
    match render(kind, base, edits) {
        Ok(rendered) => {
            let told: Vec<_> = rendered.origins.iter().map(|origin| origin.path.clone()).collect();
            let changed = changes(kind, base, &rendered.document).into_iter().map(|change| change.path);
            assert_eq!(told, changed.collect::<Vec<_>>(), "provenance");
            assert_eq!(told.is_empty(), &rendered.document == base, "provenance");
            for origin in rendered.origins.iter().filter(|origin| origin.after.is_some()) {
                assert!(origin.path.pointer_in(&rendered.document).is_some(), "{} is not there", origin.path);
            }
            assert_eq!(plain, Ok((rendered.document, rendered.hash)));
        }
        Err(error) => {
            let _ = error.to_string();
            assert_eq!(plain, Err(error));
        }
    }
}

struct Walk<'a, 'b> {
    bytes: &'a mut Unstructured<'b>,
    /// Whether directives and nulls are strewn in.
    is_patch: bool,
}

impl Walk<'_, '_> {
    fn value(&mut self, shape: Shape, depth: u32, merge: Merge) -> Result<Value> {
        if self.bytes.ratio(1, 100)? {
            return anything(self.bytes, 2);
        }
        Ok(match shape {
            Shape::String => json!(word(self.bytes)?),
            Shape::Integer => json!(self.bytes.int_in_range(0..=2)?),
            Shape::Boolean => json!(self.bytes.arbitrary::<bool>()?),
            Shape::IntOrString | Shape::Quantity | Shape::Any => anything(self.bytes, 1)?,
            Shape::Map(value) => {
                let mut map = Map::new();
                for _ in 0..self.bytes.int_in_range(0..=2)? {
                    map.insert(word(self.bytes)?, self.value(*value, depth.saturating_sub(1), merge)?);
                }
                self.strew(&mut map, &[])?;
                Value::Object(map)
            }
            Shape::List(item) => self.list(*item, depth, merge)?,
            Shape::Object(id) => self.object(id.get().fields, depth)?,
        })
    }

    fn object(&mut self, fields: &'static [Field], depth: u32) -> Result<Value> {
        let mut map = Map::new();
        let most = if depth == 0 { 0 } else { 4 };
        for _ in 0..self.bytes.int_in_range(0..=most)? {
            // What leads to containers, and what merges, is what the rules are about.
            let telling = |field: &&Field| field.merge.lists || ["spec", "metadata", "name"].contains(&field.name);
            let telling: Vec<&Field> = fields.iter().filter(telling).collect();
            let field = if !telling.is_empty() && self.bytes.ratio(3, 4)? {
                *self.bytes.choose(&telling)?
            } else if let Some(last) = fields.len().checked_sub(1) {
                &fields[self.bytes.int_in_range(0..=last)?]
            } else {
                break;
            };
            map.insert(field.name.to_owned(), self.value(field.shape, depth - 1, field.merge)?);
        }
        self.strew(&mut map, fields)?;
        Ok(Value::Object(map))
    }

    fn list(&mut self, item: Shape, depth: u32, merge: Merge) -> Result<Value> {
        let mut items = Vec::new();
        for _ in 0..self.bytes.int_in_range(0..=3)? {
            let mut value = self.value(item, depth.saturating_sub(1), Merge { lists: false, key: None })?;
            if let (Some(key), Value::Object(map)) = (merge.key, &mut value)
                && !map.contains_key(key)
                && !self.bytes.ratio(1, 50)?
            {
                let name = if key == "containerPort" {
                    json!(self.bytes.int_in_range(0..=2)?)
                } else {
                    json!(word(self.bytes)?)
                };
                map.insert(key.to_owned(), name);
            }
            items.push(value);
        }
        Ok(Value::Array(items))
    }

    /// Nulls, directives and fields that nobody knows.
    fn strew(&mut self, map: &mut Map<String, Value>, fields: &'static [Field]) -> Result<()> {
        if !self.is_patch || !self.bytes.ratio(1, 4)? {
            return Ok(());
        }
        let names: Vec<String> = map.keys().cloned().collect();
        let lists: Vec<&Field> = fields.iter().filter(|field| matches!(field.shape, Shape::List(_))).collect();
        match self.bytes.int_in_range(0..=5)? {
            0 if !names.is_empty() => {
                map.insert(self.bytes.choose(&names)?.clone(), Value::Null);
            }
            1 => {
                let directive = *self.bytes.choose(&["delete", "replace", "merge", "x"])?;
                map.insert("$patch".to_owned(), json!(directive));
            }
            2 => {
                let kept = if self.bytes.ratio(1, 8)? { anything(self.bytes, 2)? } else { json!(names) };
                map.insert("$retainKeys".to_owned(), kept);
            }
            3 if !lists.is_empty() => {
                let field = *self.bytes.choose(&lists)?;
                let order = self.order(map.get(field.name), field.merge.key)?;
                map.insert(format!("$setElementOrder/{}", field.name), order);
            }
            4 if !lists.is_empty() => {
                let field = *self.bytes.choose(&lists)?;
                let gone = anything(self.bytes, 2)?;
                map.insert(format!("$deleteFromPrimitiveList/{}", field.name), json!([word(self.bytes)?, gone]));
            }
            _ => {
                map.insert(word(self.bytes)?, anything(self.bytes, 2)?);
            }
        }
        Ok(())
    }

    /// An order that mostly fits the patch's list.
    fn order(&mut self, list: Option<&Value>, key: Option<&'static str>) -> Result<Value> {
        let mut order = Vec::new();
        for item in list.and_then(Value::as_array).into_iter().flatten() {
            if self.bytes.ratio(1, 4)? {
                let other = json!(word(self.bytes)?);
                order.push(key.map_or_else(|| other.clone(), |key| json!({key: other})));
            }
            order.push(key.map_or_else(|| item.clone(), |key| json!({key: item.get(key)})));
        }
        if self.bytes.ratio(1, 16)? { anything(self.bytes, 2) } else { Ok(Value::Array(order)) }
    }
}
