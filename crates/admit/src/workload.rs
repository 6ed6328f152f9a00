//! Applications in pools: what the API server says of every kind of pod that would come of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::verdict::Verdict;
use dapple_edit::blame::{Blame, blame, within};
use dapple_edit::document::Document;
use dapple_edit::edit::{Change, Edit, Source};
use dapple_edit::render::{Rendering, hash, render, render_unnamed};
use serde_json::Value;

use crate::ask::{Asker, Told};
use crate::memory::Key;
use crate::prove::{Complaint, Proof};

/// The templates that an application can have.
const TEMPLATES: [(&str, Document); 2] =
    [("deploymentTemplate", Document::Deployment), ("statefulSetTemplate", Document::StatefulSet)];

/// A kind of pod: of the template as it is, or with the patch of a pool.
struct Pods<'o> {
    /// The template's name in `workloadTemplate`.
    name: &'static str,
    kind: Document,
    document: &'o Value,
    /// Where the patch of a pool stands, and what it says.
    patch: Option<(String, &'o Value)>,
    /// Names them. Pools with the same patch have the same pods.
    key: Key,
}

impl Pods<'_> {
    fn edit(&self) -> Option<Edit> {
        let (rule, patch) = self.patch.as_ref()?;
        let source = Source { object: String::new(), rule: rule.clone() };
        Some(Edit { source, change: Change::Merge((*patch).clone()) })
    }

    fn template(&self) -> Option<Value> {
        // What does not apply is told of by the rules.
        let document = render_unnamed(self.kind, self.document, &self.edit().iter().collect::<Vec<_>>()).ok()?;
        self.kind.template(&document).cloned()
    }

    fn rendering(&self) -> Option<Rendering> {
        render(self.kind, self.document, &[&self.edit()?]).ok()
    }

    /// The field of the application that a field of the pods came from.
    fn blame(&self, rendering: Option<&Rendering>, field: &str) -> String {
        let field = if field.is_empty() { "spec.template".to_owned() } else { format!("spec.template.{field}") };
        match (rendering.map(|rendering| blame(rendering, &field)), &self.patch) {
            (Some(Blame::Edit { rule, path }), _) => within(&rule, &path),
            (Some(Blame::Nobody), Some((rule, _))) => rule.clone(),
            _ => format!("spec.workloadTemplate.{}.{field}", self.name),
        }
    }
}

/// Every kind of pod of an application, those of the template first.
fn pods_of(object: &Value) -> Vec<Pods<'_>> {
    let spec = &object["spec"];
    let of_template = |(name, kind): (&'static str, Document)| {
        let document = &spec["workloadTemplate"][name];
        let template = kind.template(document).filter(|template| template.is_object())?;
        Some(Pods { name, kind, document, patch: None, key: vec![hash(template).into()] })
    };
    let mut all: Vec<Pods<'_>> = TEMPLATES.into_iter().filter_map(of_template).collect();
    if let [Pods { name, kind, document, .. }] = all[..] {
        let base: Arc<str> = hash(document).into();
        let pools = spec["topology"]["pools"].as_array().into_iter().flatten().enumerate();
        all.extend(pools.filter(|(_, pool)| !pool["patch"].is_null()).map(|(index, pool)| {
            let (place, patch) = (format!("spec.topology.pools[{index}].patch"), &pool["patch"]);
            let key = vec![name.into(), base.clone(), hash(patch).into()];
            Pods { name, kind, document, patch: Some((place, patch)), key }
        }));
    }
    all
}

/// Has the API server look at every kind of pod that `old` did not have, except those of patches that the verdict has
/// something against already.
pub async fn ask(asker: &Asker, object: &Value, old: Option<&Value>, verdict: &mut Verdict) {
    // Too many pools are one mistake, and nobody looks at each.
    let are_too_many = verdict.errors.iter().any(|error| error.field == "spec.topology.pools");
    let is_sound = |pods: &Pods<'_>| match &pods.patch {
        None => true,
        Some((rule, _)) => !are_too_many && !verdict.errors.iter().any(|error| error.field.starts_with(rule)),
    };
    let mut known: BTreeSet<Key> = old.into_iter().flat_map(pods_of).map(|pods| pods.key).collect();
    let new = pods_of(object).into_iter().filter(is_sound).filter(|pods| known.insert(pods.key.clone()));
    let new: Vec<Pods<'_>> = new.collect();
    let keys: Vec<Key> = new.iter().map(|pods| pods.key.clone()).collect();
    let mut answers = asker.ask(&keys, |number| new[number].template()).await;
    if answers.unasked > 0 {
        let text = format!("there are too many kinds of pods: {} were not looked at", answers.unasked);
        verdict.warn("spec.topology.pools", text);
    }
    if let Some(why) = answers.unsaid {
        verdict.warn("spec.workloadTemplate", format!("the API server did not say whether it takes such pods: {why}"));
    }
    // Those of the template come first.
    answers.proofs.sort_by_key(|(number, _)| *number);
    let mut told = Told::of(verdict);
    for (number, proof) in answers.proofs {
        let (Proof::Refused(complaints), pods) = (proof, &new[number]) else { continue };
        let rendering = pods.rendering();
        for Complaint { field, reason, text } in complaints {
            let field = pods.blame(rendering.as_ref(), &field);
            if !told.is_new(&field, &text) {
                continue;
            }
            // It takes the place of what the rules only suspect.
            let suspicion = format!("{field}: ");
            verdict.warnings.retain(|known| !known.starts_with(&suspicion));
            verdict.refuse(field, reason.reason(), text);
        }
    }
}
