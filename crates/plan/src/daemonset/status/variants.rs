//! What a status says of each variant: counts, and whether the API server takes its pods.

use dapple_api::daemonset::{DaemonSetStatus, VariantStatus};

use super::super::desired::Variant;
use super::super::tally::Tally;
use super::{Facts, number};
use crate::proof::{Answer, Answers};

/// How many variants a status lists: one that has more is not read by people any more.
const LISTED: usize = 64;

/// The variants that have nodes, and those that nodes cannot be given.
pub(super) fn told(facts: Facts<'_>, before: &DaemonSetStatus) -> Vec<VariantStatus> {
    let told = |(variant, tally): (&Variant, &Tally)| VariantStatus {
        hash: variant.rendering.as_ref().map_or_else(|_| String::new(), |rendered| rendered.hash.to_string()),
        patches: variant.patches.iter().map(|place| number(*place)).collect(),
        rules: variant.rules.iter().map(|place| number(*place)).collect(),
        taken: is_taken(variant, facts.answers, before).then_some(true),
        desired: number(tally.desired),
        updated: number(tally.updated),
        ready: number(tally.ready),
        available: number(tally.available),
    };
    let has_nodes = |(variant, tally): &(&Variant, &Tally)| tally.desired > 0 || variant.rendering.is_err();
    let all = facts.variants.iter().zip(facts.fleet.variants());
    let mut all: Vec<VariantStatus> = all.filter(has_nodes).map(told).collect();
    all.sort_by(|a, b| (&a.patches, &a.rules).cmp(&(&b.patches, &b.rules)));
    all.truncate(LISTED);
    all
}

/// Whether the API server takes such pods, or took them before. Where it has not said so yet, what was told before holds:
/// whoever leads next may find neither a pod that shows it nor an answer.
fn is_taken(variant: &Variant, answers: &Answers, before: &DaemonSetStatus) -> bool {
    let Ok(rendered) = &variant.rendering else { return false };
    match answers.get(&rendered.meaning) {
        Some(Answer::Taken) => true,
        Some(Answer::Refused { .. }) => false,
        Some(Answer::None { .. }) | None => was_taken(before, &rendered.hash),
    }
}

/// Whether a status says that pods with this hash were taken.
pub fn was_taken(status: &DaemonSetStatus, hash: &str) -> bool {
    status.variants.iter().any(|told| told.taken == Some(true) && told.hash == hash)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use dapple_api::daemonset::DaemonSetSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::super::super::cell::Rules;
    use super::super::super::desired::Variants;
    use super::super::super::fleet::Fleet;
    use super::super::super::placement::{Given, Placement, Prospect};
    use super::super::super::renderings::Renderings;
    use super::super::status;
    use super::*;
    use crate::fit::{Node, Reach};
    use crate::health::Health;

    /// A node for the only variant.
    fn prospect() -> Prospect {
        let next = Given {
            rendering: Some(Arc::from("it")),
            can_start: true,
            can_stay: true,
            is_selected: true,
            reach: Reach::Always,
            ..Given::default()
        };
        let (name, health) = (Arc::from("a"), Health::Ready);
        Prospect { name, health, is_out_of_service: false, next, now: None, is_canary: false, is_chosen: true }
    }

    #[test]
    fn what_was_taken_stays_so_until_it_is_refused() {
        let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": []}});
        let spec: DaemonSetSpec =
            serde_json::from_value(json!({"selector": {"matchLabels": {"app": "a"}}, "template": template})).unwrap();
        let mut variants = Variants::new("DaemonSet default/a", (template, &[]), &spec, ("1", 2));
        variants.of(Node { name: "a", labels: &BTreeMap::<String, String>::new(), taints: &[] });
        let meaning = variants.unpatched().meaning.clone();
        let mut fleet = Fleet::new(Rules::default(), Placement::default(), Renderings::default());
        fleet.put_all(vec![prospect()]);
        fleet.decide(0);
        let told = |answer: Option<Answer>, before: &DaemonSetStatus| {
            let answers: Answers = answer.map(|answer| (meaning.clone(), answer)).into_iter().collect();
            let facts = Facts {
                fleet: &fleet,
                variants: variants.all(),
                answers: &answers,
                update: "a-1",
                update_hash: "1",
                current: "a-1",
                is_paused: false,
                is_suspended: false,
                is_blocked: false,
                problems: &[],
                generation: None,
            };
            status(facts, before, &Time(jiff::Timestamp::UNIX_EPOCH))
        };
        let silent = || Some(Answer::None { text: "it is late".into(), ask_again: 5 });
        let refused = Some(Answer::Refused { text: "no".into(), ask_again: 30 });
        let never = told(silent(), &DaemonSetStatus::default());
        assert_eq!((never.variants.len(), was_taken(&never, "1")), (1, false));
        let taken = told(Some(Answer::Taken), &never);
        assert!(was_taken(&taken, "1") && !was_taken(&taken, "2"));
        assert!(was_taken(&told(silent(), &taken), "1") && was_taken(&told(None, &taken), "1"));
        let lost = told(refused, &taken);
        assert!(!was_taken(&lost, "1") && !was_taken(&told(silent(), &lost), "1"));
    }
}
