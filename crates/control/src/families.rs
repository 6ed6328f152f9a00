//! The families that there are. Everything that goes by family goes by this table.

use crate::family::Family;
use crate::gates::{Gate, Gates};
use crate::{daemonset, group, marker, pool};

/// DaemonSet.
pub const DAEMON_SET: &Family = &daemonset::FAMILY;
/// PodMarker.
pub const MARKER: &Family = &marker::FAMILY;
/// NodeGroup, PropagationPolicy, OverridePolicy.
pub const GROUP: &Family = &group::FAMILY;
/// NodePool, YurtAppSet, YurtAppDaemon, and replacements for these.
pub const POOL: &Family = &pool::FAMILY;

/// Every family there is.
pub const ALL: [&Family; 4] = [DAEMON_SET, MARKER, GROUP, POOL];

/// The families of these names, each once.
pub fn find(names: &[String]) -> Result<Vec<&'static Family>, String> {
    if let Some(name) = names.iter().find(|name| ALL.iter().all(|family| family.name != *name)) {
        return Err(format!("no family {name:?}; there is: {}", ALL.map(|family| family.name).join(", ")));
    }
    Ok(ALL.into_iter().filter(|family| names.iter().any(|name| family.name == name)).collect())
}

/// Reads which features are switched on or off.
pub fn gates(text: &str) -> Result<Gates, String> {
    let known: Vec<&'static Gate> = ALL.iter().flat_map(|family| family.gates).copied().collect();
    Gates::parse(text, &known)
}

/// How dapple comes to serve the kind of a CRD that belongs to another product.
pub fn way_over(crd: &str) -> String {
    match ALL.into_iter().find(|family| family.adoptable.iter().any(|kind| kind.crd() == crd)) {
        Some(family) => format!("`dapple adopt {}` takes it over, and nothing restarts", family.name),
        None => "remove that product and its CRD, then `dapple up --cluster`, to have dapple serve the kind".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dapple_api::kinds::OWN;

    #[test]
    fn what_another_product_serves_comes_with_the_way_over() {
        assert_eq!(
            way_over("daemonsets.apps.kruise.io"),
            "`dapple adopt daemonset` takes it over, and nothing restarts"
        );
        for crd in ["nodepools.apps.openyurt.io", "yurtappdaemons.apps.openyurt.io"] {
            assert_eq!(way_over(crd), "`dapple adopt pool` takes it over, and nothing restarts");
        }
        // Nobody else has replacements.
        for crd in [
            "nodegroups.groupmanagement.kubeedge.io",
            "podmarkers.apps.kruise.io",
            "yurtappconfigurationreplacements.apps.openyurt.io",
        ] {
            assert!(way_over(crd).starts_with("remove that product and its CRD"), "{}", way_over(crd));
        }
    }

    #[test]
    fn families_need_kinds_of_their_own_and_read_what_they_need() {
        for family in ALL {
            assert!(OWN.iter().any(|kind| kind.family == family.name), "{family:?} has no kind in the table");
            for part in family.parts {
                assert!(part.name == family.name || part.name.starts_with(&format!("{}/", family.name)));
                for kind in part.needs {
                    assert_eq!(kind.family, family.name, "{}", kind.at.kind);
                    let mut reads = part.controllers.iter().flat_map(|controller| controller.reads);
                    assert!(
                        reads.any(|read| *read == kind.at),
                        "no controller of {} reads {}",
                        part.name,
                        kind.at.kind
                    );
                }
            }
        }
    }

    #[test]
    fn a_family_that_is_named_twice_is_served_once() {
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        assert_eq!(find(&names(&["group", "daemonset", "group"])), Ok(vec![DAEMON_SET, GROUP]));
        assert!(find(&names(&["group", "nobody"])).unwrap_err().ends_with("there is: daemonset, marker, group, pool"));
    }

    #[test]
    fn gates_of_all_families_are_known() {
        let gate = &daemonset::NODE_LABEL_PATCHES;
        assert!(gates("").unwrap().is_on(gate));
        assert!(!gates("AdvancedDaemonSetNodeLabelPatches=false").unwrap().is_on(gate));
        assert!(gates("Patches=true").unwrap_err().contains("there is: AdvancedDaemonSetNodeLabelPatches"));
    }
}
