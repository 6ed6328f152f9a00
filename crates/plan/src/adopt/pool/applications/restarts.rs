//! Whose pods would restart, and why, and what else is to be said of an application.

use std::collections::BTreeMap;

use dapple_api::kinds;
use dapple_api::pool::{SubjectKind, Taint};
use dapple_edit::document::Document;
use serde_json::Value;

use super::{Answer, Compared, Found, has_pods};
use crate::adopt::pool::{Told, uid};
use crate::adopt::{Refusal, name_of};
use crate::pool::stored::{Beside, difference, wanted};
use crate::pool::version::Version;
use crate::pool::workload::declared_replicas;

/// Why pods would restart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// This replacement changes what the pool gets.
    Replacement(String),
    /// The workload is of this revision, and the application says something else by now.
    Unfinished(String),
    /// OpenYurt has left it out.
    Dropped,
    /// It is not known.
    Unknown,
}

impl Found<'_> {
    /// What is to be said of it.
    pub(in crate::adopt::pool) fn look(&self, answers: &BTreeMap<String, Answer>, allow_restarts: bool) -> Told {
        let object = self.object();
        let mut told = Told::default();
        if let Some(other) = self.of_other_kind.first() {
            let name = name_of(other);
            told.notes
                .push(format!("{object}: its template is of another kind than {name}: dapple changes nothing of it"));
            return told;
        }
        let pools = match &self.pools {
            Ok(pools) => pools,
            Err(error) => {
                told.notes.push(format!("{object}: {error}; dapple changes nothing of it"));
                return told;
            }
        };
        let mut restarts: BTreeMap<(Cause, String), Vec<&str>> = BTreeMap::new();
        let mut missing = Vec::new();
        for pool in pools.keys() {
            let Some(workload) = self.first(pool) else {
                missing.push(pool.as_str());
                continue;
            };
            match self.judge(pool, workload, answers) {
                Ok(Some(cause)) => restarts.entry(cause).or_default().push(pool),
                Ok(None) => {}
                Err(problem) => told.notes.push(format!("{object}: the pool {pool} stays as it is: {problem}")),
            }
            told.notes.extend(self.kept_number(pool, workload).map(|note| format!("{object}: {note}")));
        }
        if !missing.is_empty() {
            told.notes
                .push(format!("{object}: {} without a workload: dapple makes what is missing", in_pools(&missing)));
        }
        told.notes.extend(self.left_over(pools).into_iter().map(|note| format!("{object}: {note}")));
        for ((cause, field), pools) in restarts {
            let refusal = self.restart(&cause, &field, &pools);
            if allow_restarts {
                told.notes.push(format!("{}: {} {}, as allowed", refusal.object, refusal.field, refusal.problem));
            } else {
                told.refusals.push(refusal);
            }
        }
        told
    }

    /// Why the pods of a pool would restart, and the field; none if they would not. An error is that pool's own.
    fn judge(
        &self,
        pool: &str,
        workload: &Value,
        answers: &BTreeMap<String, Answer>,
    ) -> Result<Option<(Cause, String)>, String> {
        let compared = match self.compare(pool, workload) {
            None => return Ok(None),
            Some(compared) => compared.map_err(|error| error.to_string())?,
        };
        let difference = &compared.difference;
        if !difference.fixed.is_empty() {
            return Err(format!(
                "{} would have to change, and Kubernetes does not change it",
                difference.fixed.join(", ")
            ));
        }
        let Some(field) =
            difference.field.as_ref().map(ToString::to_string).filter(|_| difference.template && has_pods(workload))
        else {
            return Ok(None);
        };
        match answers.get(uid(workload)) {
            Some(Answer::AsStored) => Ok(None),
            Some(Answer::Refused(message)) => {
                Err(format!("the API server would refuse the change of {field}: {message}"))
            }
            Some(Answer::Changed) | None => Ok(Some((self.cause(pool, workload, &compared, &field), field))),
        }
    }

    fn cause(&self, pool: &str, workload: &Value, compared: &Compared, field: &str) -> Cause {
        if let Some(in_force) = &self.version.replacements {
            let without = Version { replacements: None, ..self.version.clone() };
            let is_the_same = self.render(&without, pool).and_then(Result::ok).is_some_and(|rendered| {
                let beside = Beside { is_autoscaled: false, own: compared.own.as_ref() };
                !difference(rendered.document, workload, &wanted(&rendered, workload, beside)).template
            });
            if is_the_same {
                return Cause::Replacement(in_force.name.clone());
            }
        }
        if let Some((name, version)) = self.own_version(workload, pool) {
            let of_own = self.render(&version, pool).and_then(Result::ok);
            if of_own.is_some_and(|of_own| of_own.hash != compared.rendered.hash) {
                return Cause::Unfinished(name);
            }
        }
        let is_dropped = ["spec.template.spec.nodeSelector", "spec.template.spec.affinity"]
            .iter()
            .any(|dropped| field.starts_with(dropped));
        if is_dropped && self.application.kind == SubjectKind::YurtAppDaemon { Cause::Dropped } else { Cause::Unknown }
    }

    fn restart(&self, cause: &Cause, field: &str, pools: &[&str]) -> Refusal {
        let template = match self.document() {
            Some(Document::StatefulSet) => "statefulSetTemplate",
            _ => "deploymentTemplate",
        };
        let of_template = (self.object(), format!("spec.workloadTemplate.{template}.{field}"));
        let ((object, field), why, remedy) = match cause {
            Cause::Replacement(name) => {
                let object = format!("{} {}/{name}", kinds::REPLACEMENT.at.kind, self.application.namespace);
                let why = format!("it changes {field} of {}", self.object());
                ((object, "replacements".to_owned()), why, "take it out until the application is adopted".to_owned())
            }
            Cause::Unfinished(name) => (
                of_template,
                format!("their workloads are of revision {name}, and the application says something else by now"),
                "let OpenYurt finish its rollout first".to_owned(),
            ),
            Cause::Dropped => (
                of_template,
                "OpenYurt leaves a YurtAppDaemon's own nodeSelector and required affinity out, and dapple keeps them"
                    .to_owned(),
                "take it out of the template".to_owned(),
            ),
            Cause::Unknown => (
                of_template,
                "their workloads have something else, which OpenYurt leaves as it is and dapple puts right".to_owned(),
                "have the application say what they have".to_owned(),
            ),
        };
        Refusal {
            object,
            field,
            problem: format!("would restart the pods in {}: {why}", in_pools(pools)),
            remedy: format!("{remedy}, or add --allow-restarts"),
        }
    }

    /// That a pool keeps a number of pods that is not the declared one.
    fn kept_number(&self, pool: &str, workload: &Value) -> Option<String> {
        let rendered = self.render(&self.version, pool)?.ok()?;
        let (live, declared) = (declared_replicas(workload), declared_replicas(&rendered.workload));
        (live != declared).then(|| format!("the pool {pool} keeps its {live} pods, though {declared} are declared"))
    }

    /// Workloads that are not the one of a pool of the application.
    fn left_over(&self, pools: &BTreeMap<String, Vec<Taint>>) -> Vec<String> {
        let mut notes = Vec::new();
        for (pool, workloads) in &self.workloads {
            let names =
                |workloads: &[&Value]| workloads.iter().map(|known| name_of(known)).collect::<Vec<_>>().join(", ");
            if !pools.contains_key(*pool) {
                let names = names(workloads.as_slice());
                notes.push(format!("it is not in the pool {pool} any more: dapple removes {names} in its time"));
            } else if let [first, doubles @ ..] = workloads.as_slice()
                && !doubles.is_empty()
            {
                let (first, doubles) = (name_of(first), names(doubles));
                notes.push(format!("{doubles} is for the pool {pool} too, beside {first}: dapple leaves it alone"));
            }
        }
        notes
    }
}

fn in_pools(pools: &[&str]) -> String {
    match pools {
        [one] => format!("the pool {one}"),
        names => format!("{} pools ({})", names.len(), names.join(", ")),
    }
}
