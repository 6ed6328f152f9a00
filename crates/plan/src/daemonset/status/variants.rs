//! What a status says of each variant: counts, and whether there has been a pod of it.

use dapple_api::daemonset::{DaemonSetStatus, VariantStatus};

use super::super::desired::Variant;
use super::super::tally::Tally;
use super::{Facts, number};

/// How many variants a status lists: one that has more is not read by people any more.
const LISTED: usize = 64;

/// The variants that have nodes, and those that nodes cannot be given.
pub(super) fn told(facts: Facts<'_>, before: &DaemonSetStatus) -> Vec<VariantStatus> {
    let told = |(variant, tally): (&Variant, &Tally)| VariantStatus {
        hash: variant.rendering.as_ref().map_or_else(|_| String::new(), |rendered| rendered.hash.to_string()),
        patches: variant.patches.iter().map(|place| number(*place)).collect(),
        rules: variant.rules.iter().map(|place| number(*place)).collect(),
        ran: ran(variant, tally, before).then_some(true),
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

/// Whether there is a pod of a variant, or was one when that was told last. It stays so when all are lost: whoever leads next
/// has nothing else to tell it by.
fn ran(variant: &Variant, tally: &Tally, before: &DaemonSetStatus) -> bool {
    variant.rendering.as_ref().is_ok_and(|rendered| tally.updated > 0 || has_run(before, &rendered.hash))
}

/// Whether a status says that there has been a pod with this hash.
pub fn has_run(status: &DaemonSetStatus, hash: &str) -> bool {
    status.variants.iter().any(|told| told.ran == Some(true) && told.hash == hash)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use dapple_api::daemonset::DaemonSetSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::super::super::cell::{PodState, Rules};
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
    fn what_has_run_is_told_when_all_pods_are_lost() {
        let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": []}});
        let spec: DaemonSetSpec =
            serde_json::from_value(json!({"selector": {"matchLabels": {"app": "a"}}, "template": template})).unwrap();
        let variants = |hash: &str| {
            let mut variants = Variants::new("DaemonSet default/a", (template.clone(), &[]), &spec, (hash, 2));
            variants.of(Node { name: "a", labels: &BTreeMap::<String, String>::new(), taints: &[] });
            variants
        };
        let told = |hash: &str, pod: Option<&str>, before: &DaemonSetStatus| {
            let mut fleet = Fleet::new(Rules::default(), Placement::default(), Renderings::default());
            fleet.put_all(vec![prospect()]);
            let pod = pod.map(|hash| PodState { name: Arc::from("a-1"), hash: Arc::from(hash), ..PodState::default() });
            let node: Arc<str> = Arc::from("a");
            fleet.observe(&Arc::from("a-1"), pod.map(|pod| (&node, pod)));
            fleet.decide(0);
            let variants = variants(hash);
            let facts = Facts {
                fleet: &fleet,
                variants: variants.all(),
                update: "a-1",
                update_hash: hash,
                current: "a-1",
                is_paused: false,
                is_suspended: false,
                is_blocked: false,
                problems: &[],
                generation: None,
            };
            status(facts, before, &Time(jiff::Timestamp::UNIX_EPOCH))
        };
        let never = told("1", None, &DaemonSetStatus::default());
        assert_eq!((never.variants.len(), has_run(&never, "1")), (1, false));
        assert!(!has_run(&told("1", Some("another"), &never), "1"), "that is no pod of it");
        let ran = told("1", Some("it"), &never);
        assert!(has_run(&ran, "1") && !has_run(&ran, "2"));
        let lost = told("1", None, &ran);
        assert!(has_run(&lost, "1"));
        assert!(!has_run(&told("2", None, &lost), "2"), "of another rendering it says nothing");
    }
}
