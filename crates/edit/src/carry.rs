//! Carries what edits made of a template over to a pod that was made of the same template.
//!
//! Between the template and the pod, others have had their say: defaults were filled in, a token's volume and a mesh's sidecar
//! added. Where the rendering is as the template, the pod keeps what it has; where they differ, the rendering wins. Items of
//! lists are told apart by their keys, so that `/spec/volumes/0` means the template's volume wherever it stands in the pod.

use serde_json::{Map, Value};

use crate::document::Document;
use crate::leaves::{At, Parts};
use crate::lookup::Lookup;
use crate::path::{Path, Trail};

/// A rule changes what the pod does not have any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a rule changes {path}, which the template has and the pod has not: something else took it out")]
pub struct Missing {
    /// What it is.
    pub path: Path,
}

/// The pod with what the rendering changes of the template.
pub fn carry(template: &Value, rendering: &Value, pod: &Value) -> Result<Value, Missing> {
    let at = At::start(Document::PodTemplate.shape());
    let carried = merged(Some(template), Some(rendering), Some(pod), at, &Trail::Start)?;
    Ok(carried.unwrap_or_else(|| pod.clone()))
}

fn merged(
    base: Option<&Value>,
    made: Option<&Value>,
    pod: Option<&Value>,
    at: At,
    trail: &Trail<'_>,
) -> Result<Option<Value>, Missing> {
    if base == made {
        return Ok(pod.cloned());
    }
    if pod == base {
        return Ok(made.cloned());
    }
    let (no_fields, no_items) = (Map::new(), Vec::new());
    // What is taken out as a whole goes as far as it is the template's: what others added to it stays.
    match (base, made, pod) {
        (Some(Value::Object(base)), None | Some(Value::Object(_)), Some(Value::Object(pod))) => {
            let left = fields(base, made.and_then(Value::as_object).unwrap_or(&no_fields), pod, at, trail)?;
            Ok(if made.is_none() && left.is_empty() { None } else { Some(Value::Object(left)) })
        }
        (None, Some(Value::Object(made)), Some(Value::Object(pod))) => {
            Ok(Some(Value::Object(fields(&no_fields, made, pod, at, trail)?)))
        }
        (Some(Value::Array(base)), None | Some(Value::Array(_)), Some(Value::Array(pod))) => {
            let left = items(base, made.and_then(Value::as_array).unwrap_or(&no_items), pod, at, trail)?;
            Ok(if made.is_none() && left.is_empty() { None } else { Some(Value::Array(left)) })
        }
        (None, Some(Value::Array(made)), Some(Value::Array(pod))) => {
            Ok(Some(Value::Array(items(&no_items, made, pod, at, trail)?)))
        }
        _ => Ok(made.cloned()),
    }
}

fn fields(
    base: &Map<String, Value>,
    made: &Map<String, Value>,
    pod: &Map<String, Value>,
    at: At,
    trail: &Trail<'_>,
) -> Result<Map<String, Value>, Missing> {
    let mut result = pod.clone();
    let names = base.keys().chain(made.keys().filter(|name| !base.contains_key(*name)));
    for name in names.filter(|name| base.get(*name) != made.get(*name)) {
        let field = merged(base.get(name), made.get(name), pod.get(name), at.field(name), &trail.field(name))?;
        match field {
            Some(value) => _ = result.insert(name.clone(), value),
            None => _ = result.remove(name),
        }
    }
    Ok(result)
}

fn items(base: &[Value], made: &[Value], pod: &[Value], at: At, trail: &Trail<'_>) -> Result<Vec<Value>, Missing> {
    let parts = [base, made, pod].map(|list| Keyed::of(list, at));
    if let [Some(base), Some(made), Some(pod)] = &parts
        && let Some(key) = base.key.or(made.key).or(pod.key)
    {
        return keyed_items(key, base, made, pod, at, trail);
    }
    let [in_base, in_made, in_pod] = [base, made, pod].map(|list| Lookup::of(list.iter()));
    let has = |lookup: &Lookup<'_>, item: &Value| lookup.position(item).is_some();
    let kept = pod.iter().filter(|item| !has(&in_base, item) || has(&in_made, item));
    let new = made.iter().filter(|item| !has(&in_base, item) && !has(&in_pod, item));
    Ok(kept.chain(new).cloned().collect())
}

/// The items of a list with what tells them apart.
struct Keyed<'a> {
    /// The field that does; an empty list has none to show.
    key: Option<&'static str>,
    items: Vec<&'a Value>,
    keys: Lookup<'a>,
}

impl<'a> Keyed<'a> {
    /// None if its items cannot be told apart.
    fn of(list: &'a [Value], at: At) -> Option<Self> {
        match Parts::of_items(list, at) {
            Some((key, items)) => {
                let keys = Lookup::of(items.iter().map(|(key, _)| *key));
                Some(Self { key: Some(key), items: items.into_iter().map(|(_, item)| item).collect(), keys })
            }
            None if list.is_empty() => Some(Self { key: None, items: Vec::new(), keys: Lookup::with_capacity(0) }),
            None => None,
        }
    }

    fn get(&self, key: &Value) -> Option<&'a Value> {
        self.keys.position(key).map(|index| self.items[index])
    }
}

fn keyed_items(
    key: &'static str,
    base: &Keyed<'_>,
    made: &Keyed<'_>,
    pod: &Keyed<'_>,
    at: At,
    trail: &Trail<'_>,
) -> Result<Vec<Value>, Missing> {
    let mut result = Vec::with_capacity(pod.items.len());
    for (value, item) in pod.keys.values().iter().zip(&pod.items) {
        let (before, after) = (base.get(value), made.get(value));
        let is_taken_out = before.is_some() && after.is_none();
        if !is_taken_out {
            result.extend(merged(before, after, Some(*item), at.item(), &trail.keyed(key, value))?);
        }
    }
    for (index, (value, item)) in made.keys.values().iter().zip(&made.items).enumerate() {
        if pod.get(value).is_some() {
            continue;
        }
        match base.get(value) {
            Some(before) if before == *item => {}
            Some(_) => return Err(Missing { path: trail.keyed(key, value).path() }),
            None => {
                // Before what follows it in the rendering: init containers run in order.
                let mut following = made.keys.values()[index + 1..].iter();
                let place = following.find_map(|next| result.iter().position(|it| it.get(key) == Some(*next)));
                result.insert(place.unwrap_or(result.len()), (*item).clone());
            }
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template() -> Value {
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {
            "initContainers": [{"name": "first", "image": "first:1"}],
            "containers": [{"name": "web", "image": "web:1", "args": ["-v"], "env": [{"name": "A", "value": "1"}]}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "tolerations": [{"key": "edge", "operator": "Exists"}]}})
    }

    /// The template as a pod: with defaults, a token, a sidecar before everything else, and labels of its controller.
    fn pod() -> Value {
        let token = json!({"name": "kube-api-access", "mountPath": "/var/run/secrets"});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "labels": {"app": "web", "pod-name": "web-0"}},
            "spec": {
                "initContainers": [{"name": "mesh-init", "image": "mesh:1"}, {"name": "first", "image": "first:1"}],
                "containers": [{"name": "mesh", "image": "mesh:1"}, {"name": "web", "image": "web:1", "args": ["-v"],
                    "imagePullPolicy": "IfNotPresent", "env": [{"name": "MESH", "value": "on"}, {"name": "A", "value": "1"}],
                    "volumeMounts": [token]}],
                "volumes": [{"name": "kube-api-access", "projected": {}}, {"name": "data", "emptyDir": {}}],
                "tolerations": [{"key": "edge", "operator": "Exists"}, {"key": "not-ready", "operator": "Exists"}]}})
    }

    /// Changes the template by this, and carries that over to the pod; `expected` does the same to the pod itself.
    fn check(change: impl Fn(&mut Value), expected: impl Fn(&mut Value)) {
        let (mut rendering, mut wanted) = (template(), pod());
        change(&mut rendering);
        expected(&mut wanted);
        let carried = carry(&template(), &rendering, &pod());
        assert_eq!(carried.as_ref(), Ok(&wanted));
        assert_eq!(carry(&template(), &rendering, &template()), Ok(rendering.clone()), "a pod that is the template");
        assert_eq!(carry(&template(), &rendering, &wanted), Ok(wanted), "once more changes nothing");
    }

    #[test]
    fn what_is_not_changed_stays_as_the_pod_has_it() {
        check(|_| {}, |_| {});
    }

    #[test]
    fn fields_and_items_are_found_by_their_keys() {
        check(
            |template| {
                template["spec"]["containers"][0]["image"] = json!("web:2");
                template["spec"]["containers"][0]["args"] = json!(["-v", "-q"]);
                template["spec"]["containers"][0]["env"][0]["value"] = json!("2");
                template["spec"]["volumes"][0] = json!({"name": "data", "hostPath": {"path": "/data"}});
                template["metadata"]["labels"]["group"] = json!("north");
            },
            |pod| {
                pod["spec"]["containers"][1]["image"] = json!("web:2");
                pod["spec"]["containers"][1]["args"] = json!(["-v", "-q"]);
                pod["spec"]["containers"][1]["env"][1]["value"] = json!("2");
                pod["spec"]["volumes"][1] = json!({"name": "data", "hostPath": {"path": "/data"}});
                pod["metadata"]["labels"]["group"] = json!("north");
            },
        );
    }

    #[test]
    fn what_comes_new_comes_where_it_belongs() {
        let zero = json!({"name": "zero", "image": "zero:1"});
        let proxy = json!({"name": "proxy", "image": "proxy:1"});
        let gpu = json!({"key": "gpu", "operator": "Exists"});
        check(
            |template| {
                template["spec"]["initContainers"].as_array_mut().unwrap().insert(0, zero.clone());
                template["spec"]["containers"].as_array_mut().unwrap().push(proxy.clone());
                template["spec"]["tolerations"].as_array_mut().unwrap().push(gpu.clone());
                template["spec"]["hostNetwork"] = json!(true);
            },
            |pod| {
                pod["spec"]["initContainers"].as_array_mut().unwrap().insert(1, zero.clone());
                pod["spec"]["containers"].as_array_mut().unwrap().push(proxy.clone());
                pod["spec"]["tolerations"].as_array_mut().unwrap().push(gpu.clone());
                pod["spec"]["hostNetwork"] = json!(true);
            },
        );
    }

    #[test]
    fn what_goes_takes_nothing_of_others_along() {
        check(
            |template| {
                for field in ["initContainers", "volumes", "tolerations"] {
                    template["spec"].as_object_mut().unwrap().remove(field);
                }
                template["spec"]["containers"][0].as_object_mut().unwrap().remove("env");
                template["metadata"].as_object_mut().unwrap().remove("labels");
            },
            |pod| {
                pod["spec"]["initContainers"].as_array_mut().unwrap().remove(1);
                pod["spec"]["volumes"].as_array_mut().unwrap().remove(1);
                pod["spec"]["tolerations"].as_array_mut().unwrap().remove(0);
                pod["spec"]["containers"][1]["env"].as_array_mut().unwrap().remove(1);
                pod["metadata"]["labels"].as_object_mut().unwrap().remove("app");
            },
        );
    }

    #[test]
    fn what_somebody_took_out_cannot_be_changed() {
        let (mut rendering, mut pod) = (template(), pod());
        pod["spec"]["volumes"].as_array_mut().unwrap().remove(1);
        assert_eq!(carry(&template(), &rendering, &pod), Ok(pod.clone()), "nothing is to be changed");
        rendering["spec"]["volumes"][0]["emptyDir"] = json!({"medium": "Memory"});
        let missing = carry(&template(), &rendering, &pod).unwrap_err();
        assert!(missing.to_string().starts_with("a rule changes spec.volumes[name=data]"), "{missing}");
    }

    #[test]
    fn items_that_cannot_be_told_apart_are_compared_whole() {
        let template = json!({"spec": {"containers": [{"name": "c"}], "volumes": [{"name": "a"}, {"name": "a"}]}});
        let rendering = json!({"spec": {"containers": [{"name": "c"}], "volumes": [{"name": "a"}, {"name": "b"}]}});
        let pod =
            json!({"spec": {"containers": [{"name": "c"}], "volumes": [{"name": "t"}, {"name": "a"}, {"name": "a"}]}});
        let carried = carry(&template, &rendering, &pod).unwrap();
        assert_eq!(carried["spec"]["volumes"], json!([{"name": "t"}, {"name": "a"}, {"name": "a"}, {"name": "b"}]));
    }
}
