//! Names of ConfigMaps, Secrets and claims in a template, wherever it can refer to one.
//!
//! Rules name what the template referred to before the first of them: one that a rule put there is no other rule's source. So two
//! rules can swap names, and of several rules for one source the last wins.

use serde_json::{Value, json};

use crate::container::LISTS;
use crate::document::Document;
use crate::edit::{EditError, EditProblem, ReferenceKind, Source};

/// What a template refers to, from the first rule about it on.
#[derive(Debug, Default)]
pub(crate) struct References {
    known: Option<Vec<Reference>>,
}

#[derive(Debug)]
struct Reference {
    kind: ReferenceKind,
    /// Where it is in the template.
    pointer: String,
    /// The name that was there first.
    source: String,
    /// The name that is there now, and the rule that put it there.
    replaced: Option<(String, Source)>,
}

impl References {
    /// Puts one name in the place of another everywhere, and says what is odd about that.
    pub(crate) fn replace(
        &mut self,
        template: &mut Value,
        (kind, from, to): (ReferenceKind, &str, &str),
        by: &Source,
    ) -> Option<String> {
        let known = self.known.get_or_insert_with(|| all(template));
        let mut count = 0;
        for reference in known.iter_mut().filter(|known| known.kind == kind && known.source == from) {
            // Something else may have taken the reference away since, such as a variable that got a value.
            if let Some(name) = reference.find(template) {
                *name = json!(to);
                reference.replaced = Some((to.to_owned(), by.clone()));
                count += 1;
            }
        }
        (count == 0).then(|| format!("nothing refers to the {kind:?} {from:?}, so nothing was replaced"))
    }

    /// Refuses names that no object can have, of those that are left in the end.
    pub(crate) fn check(self, kind: Document, document: &mut Value) -> Result<(), EditError> {
        let Some(known) = self.known else { return Ok(()) };
        let Ok(template) = kind.template_mut(document) else { return Ok(()) };
        for reference in known {
            let is_there = reference.find(template).is_some();
            if let Some((name, source_of_edit)) =
                reference.replaced.filter(|(name, _)| is_there && !can_be_a_name(name))
            {
                let problem = EditProblem::ObjectName { kind: reference.kind, name };
                return Err(EditError { source_of_edit, problem });
            }
        }
        Ok(())
    }
}

impl Reference {
    /// The name in the template, if it is what we know.
    fn find<'a>(&self, template: &'a mut Value) -> Option<&'a mut Value> {
        let now = self.replaced.as_ref().map_or(&self.source, |(name, _)| name);
        template.pointer_mut(&self.pointer).filter(|name| **name == **now)
    }
}

/// ConfigMaps and claims without which the pods of a template do not start: all that it refers to but what is `optional`.
pub(crate) fn needed(template: &Value) -> Vec<(ReferenceKind, String)> {
    let is_needed = |reference: &Reference| {
        let beside = reference.pointer.rsplit_once('/').and_then(|(parent, _)| template.pointer(parent));
        reference.kind != ReferenceKind::Secret && beside.is_none_or(|beside| beside["optional"] != true)
    };
    all(template).into_iter().filter(is_needed).map(|reference| (reference.kind, reference.source)).collect()
}

/// Whether an object can have this name: a DNS subdomain (RFC 1123).
fn can_be_a_name(name: &str) -> bool {
    let label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
            && bytes.first().is_some_and(|byte| plain(*byte))
            && bytes.last().is_some_and(|byte| plain(*byte))
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// Every reference of a template.
fn all(template: &Value) -> Vec<Reference> {
    use ReferenceKind::{ConfigMap, PersistentVolumeClaim, Secret};
    let mut found = Vec::new();
    let mut add = |kind, pointer: String| {
        if let Some(name) = template.pointer(&pointer).and_then(Value::as_str) {
            found.push(Reference { kind, source: name.to_owned(), pointer, replaced: None });
        }
    };
    for volume in items(template, "/spec/volumes") {
        add(ConfigMap, format!("{volume}/configMap/name"));
        add(Secret, format!("{volume}/secret/secretName"));
        add(PersistentVolumeClaim, format!("{volume}/persistentVolumeClaim/claimName"));
        for source in items(template, &format!("{volume}/projected/sources")) {
            add(ConfigMap, format!("{source}/configMap/name"));
            add(Secret, format!("{source}/secret/name"));
        }
    }
    for container in LISTS.iter().flat_map(|list| items(template, &format!("/spec/{list}"))) {
        for variable in items(template, &format!("{container}/env")) {
            add(ConfigMap, format!("{variable}/valueFrom/configMapKeyRef/name"));
            add(Secret, format!("{variable}/valueFrom/secretKeyRef/name"));
        }
        for source in items(template, &format!("{container}/envFrom")) {
            add(ConfigMap, format!("{source}/configMapRef/name"));
            add(Secret, format!("{source}/secretRef/name"));
        }
    }
    for secret in items(template, "/spec/imagePullSecrets") {
        add(Secret, format!("{secret}/name"));
    }
    found
}

/// Where the items of a list are.
fn items(template: &Value, list: &str) -> Vec<String> {
    let count = template.pointer(list).and_then(Value::as_array).map_or(0, Vec::len);
    (0..count).map(|number| format!("{list}/{number}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(rule: &str) -> Source {
        Source { object: "o".to_owned(), rule: rule.to_owned() }
    }

    fn volumes(names: &[&str]) -> Value {
        let volumes = names.iter().map(|name| json!({"name": name, "configMap": {"name": name}}));
        json!({"spec": {"volumes": volumes.collect::<Vec<_>>()}})
    }

    fn names(template: &Value) -> Vec<&str> {
        let volumes = template["spec"]["volumes"].as_array().into_iter().flatten();
        volumes.filter_map(|volume| volume["configMap"]["name"].as_str()).collect()
    }

    fn replaced(template: &mut Value, rules: &[(&str, &str)]) -> Result<Vec<String>, EditError> {
        let mut references = References::default();
        let kind = ReferenceKind::ConfigMap;
        let rules = rules.iter().enumerate();
        let told = rules.filter_map(|(number, (from, to))| {
            references.replace(template, (kind, from, to), &by(&format!("rules[{number}]")))
        });
        let told = told.collect();
        references.check(Document::PodTemplate, template).map(|()| told)
    }

    #[test]
    fn names_that_no_object_can_have_are_refused_where_they_stay() {
        for (name, can_be) in [("a", true), ("a-1.b", true), ("", false), ("A", false), ("a..b", false), ("-a", false)]
        {
            assert_eq!(can_be_a_name(name), can_be, "{name}");
        }
        let error = replaced(&mut volumes(&["old"]), &[("old", "configMap-new")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "o rules[0]: no ConfigMap can have the name \"configMap-new\": lower-case letters, digits, - and . only"
        );
        assert_eq!(replaced(&mut volumes(&["old"]), &[("other", "No")]).unwrap().len(), 1, "nothing has it");
        assert_eq!(replaced(&mut volumes(&["old"]), &[("old", "No"), ("old", "yes")]), Ok(vec![]), "nothing keeps it");
    }

    #[test]
    fn pods_do_not_start_without_what_is_not_optional() {
        let map = |name: &str, optional: bool| json!({"name": name, "optional": optional});
        let template = json!({"spec": {
            "volumes": [
                {"configMap": {"name": "plain"}}, {"configMap": map("optional-volume", true)},
                {"persistentVolumeClaim": {"claimName": "data"}}, {"secret": {"secretName": "key"}},
                {"projected": {"sources": [
                    {"configMap": map("projected", false)}, {"configMap": map("optional-source", true)}]}}],
            "containers": [{
                "env": [{"valueFrom": {"configMapKeyRef": map("one", false)}},
                    {"valueFrom": {"configMapKeyRef": map("optional-key", true)}}],
                "envFrom": [{"configMapRef": {"name": "all"}}, {"configMapRef": map("optional-all", true)}]}]}});
        let names: Vec<String> = needed(&template).into_iter().map(|(kind, name)| format!("{kind:?} {name}")).collect();
        let expected =
            ["ConfigMap plain", "PersistentVolumeClaim data", "ConfigMap projected", "ConfigMap one", "ConfigMap all"];
        assert_eq!(names, expected);
    }

    #[test]
    fn rules_name_what_the_template_refers_to_and_the_last_one_wins() {
        let mut swapped = volumes(&["a", "b"]);
        assert_eq!(replaced(&mut swapped, &[("a", "b"), ("b", "a")]), Ok(vec![]));
        assert_eq!(names(&swapped), ["b", "a"]);
        let mut last = volumes(&["a", "c"]);
        assert_eq!(replaced(&mut last, &[("a", "for-all"), ("c", "a"), ("a", "for-one")]), Ok(vec![]));
        assert_eq!(names(&last), ["for-one", "a"]);
        let told = replaced(&mut volumes(&["a"]), &[("a", "b"), ("b", "c")]).unwrap();
        assert_eq!(told, ["nothing refers to the ConfigMap \"b\", so nothing was replaced"]);
    }
}
