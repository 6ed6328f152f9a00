//! The templates that pods were made of: read when an edition is carried over to a pod, and kept for a while. A pod's owner is
//! watched as metadata only, since most pods of a cluster have no edition.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use dapple_api::kinds::{CONTROLLER_REVISION, KindInfo, NATIVE_STATEFUL_SET};
use dapple_edit::render::hash;
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};

use super::application::Applications;
use super::owner::{Owner, OwnerKey};
use crate::observed::Observed;

/// So many are kept: one for each revision that pods are made of at the same time.
const MOST_KEPT: usize = 256;

/// What names a template: an owner's revision, at a generation of the owner.
type TemplateKey = (OwnerKey, Option<i64>);

/// What pods of an owner's revision are made of.
pub(super) struct Template {
    /// The template.
    pub(super) value: Arc<Value>,
    /// What names it. Pods of some owners are of no revision: nothing else tells their template from the one before.
    pub(super) hash: Arc<str>,
    /// The number of its first pod, if it numbers them by ordinals.
    pub(super) start: usize,
    /// A pod is available once it has been ready for so many seconds.
    pub(super) min_ready: i64,
    /// The names of the volumes that its owner adds to each pod, for claims of its own.
    claims: Vec<String>,
}

impl Template {
    /// What is made of the template, with the volumes that its owner adds: without them the API server refuses what mounts them.
    pub(super) fn with_claims(&self, mut rendering: Value) -> Value {
        if !rendering["spec"].is_object() {
            return rendering;
        }
        for name in &self.claims {
            let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
            match rendering["spec"]["volumes"].as_array_mut() {
                Some(volumes) => {
                    volumes.retain(|known| known["name"] != name.as_str());
                    volumes.push(volume);
                }
                None => rendering["spec"]["volumes"] = json!([volume]),
            }
        }
        rendering
    }
}

/// Templates, the last used last.
#[derive(Default)]
pub(super) struct Templates {
    kept: Mutex<VecDeque<(TemplateKey, Arc<Template>)>>,
}

impl Templates {
    /// The template of an owner's revision; none if there is no such owner or revision, or it is not known here yet.
    pub(super) async fn get(
        &self,
        client: &Client,
        applications: &Applications,
        at: &OwnerKey,
    ) -> Result<Option<Arc<Template>>, kube::Error> {
        let Owner::Revision { uid, hash: revision } = &at.owner else { return Ok(None) };
        let Some((kind, owner)) = applications.by_uid(&at.namespace, uid) else { return Ok(None) };
        let key = (at.clone(), owner.generation);
        if let Some(found) = self.find(&key) {
            return Ok(Some(found));
        }
        let read = async |kind: KindInfo, name: &str| {
            let api = Api::<Observed<Value>>::namespaced_with(client.clone(), &at.namespace, &kind);
            Ok::<_, kube::Error>(api.get_opt(name).await?.and_then(|found| found.object.ok()))
        };
        let found = read(kind, &owner.meta.key.name).await?.filter(|found| found["metadata"]["uid"] == **uid);
        let Some(found) = found else { return Ok(None) };
        let start = found.pointer("/spec/ordinals/start").and_then(Value::as_u64);
        let start = start.and_then(|start| usize::try_from(start).ok()).unwrap_or(0);
        let min_ready = found.pointer("/spec/minReadySeconds").and_then(Value::as_i64).unwrap_or(0);
        let mut claims = Vec::new();
        let template = if kind == NATIVE_STATEFUL_SET.at {
            let own = found.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array).into_iter().flatten();
            claims.extend(own.filter_map(|claim| claim["metadata"]["name"].as_str()).map(str::to_owned));
            // Its pods may be of another revision than its own template is.
            let found = read(CONTROLLER_REVISION, revision).await?;
            found.and_then(|found| found.pointer("/data/spec/template").cloned()).map(without_directive)
        } else {
            let field = applications.template_field(kind);
            found.pointer(&format!("/{}", field.replace('.', "/"))).cloned()
        };
        let kept = |template: Value| {
            let hash = Arc::from(hash(&template));
            self.keep(key, Template { value: Arc::new(template), hash, start, min_ready, claims })
        };
        Ok(template.map(kept))
    }

    fn find(&self, key: &TemplateKey) -> Option<Arc<Template>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let index = kept.iter().position(|(known, _)| known == key)?;
        let found = kept.remove(index)?;
        kept.push_back(found.clone());
        Some(found.1)
    }

    fn keep(&self, key: TemplateKey, template: Template) -> Arc<Template> {
        let template = Arc::new(template);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((key, template.clone()));
        while kept.len() > MOST_KEPT {
            kept.pop_front();
        }
        template
    }
}

/// A revision holds a patch, which says that the template is to be replaced as a whole.
fn without_directive(mut template: Value) -> Value {
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    template
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stateful_set_adds_for_claims_is_there_when_a_rendering_is_proved() {
        let claims = vec!["data".to_owned(), "log".to_owned()];
        let template = Template { value: Arc::default(), hash: Arc::from("a"), start: 0, min_ready: 0, claims };
        let added = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        let bare = template.with_claims(json!({"spec": {"containers": []}}));
        assert_eq!(bare, json!({"spec": {"containers": [], "volumes": [added("data"), added("log")]}}));
        // In place of the template's own of this name.
        let (other, log) = (json!({"name": "other"}), json!({"name": "log", "emptyDir": {}}));
        let volumes = template.with_claims(json!({"spec": {"volumes": [log, other]}}))["spec"]["volumes"].clone();
        assert_eq!(volumes, json!([other, added("data"), added("log")]));
        assert_eq!(template.with_claims(json!({"spec": "none"})), json!({"spec": "none"}));
    }
}
