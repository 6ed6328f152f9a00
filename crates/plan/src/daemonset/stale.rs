//! What makes a view stale: why everything about a set has to be looked at anew, not only the pods and nodes that changed.

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// Nothing was looked at yet, or the last look did not come to its end.
    Unseen,
    /// The set asks for something else, a revision has changed, or there were too many changes to tell one by one.
    Changed,
    /// Something of the set still belongs to nobody, or something else to the set.
    NotOwned,
    /// A question may be asked again, or a step that failed may be tried again.
    Due,
    /// A pod says that it is of something that was not looked for.
    UnknownLabel,
    /// A pod is not selected any more.
    Unselected,
    /// A node needs a rendering that no node had before: it has to be shown to the API server first.
    NewRendering,
    /// A problem concerns a node: how many it concerns is told.
    Problem,
    /// A pod was not made, and no watch will tell.
    NotMade,
    /// A pod cannot be changed where it runs, though it looked so.
    Unchangeable,
    /// A pod was refused: perhaps all of its kind are by now.
    Refused,
    /// A pod was taken of which the API server had not said whether it takes it.
    Taken,
}

/// Whether a pod that changed makes a view stale. `is_known`: it was looked for what its label stands for.
#[must_use]
pub fn of_pod(is_known: bool, is_selected: bool) -> Option<Stale> {
    match (is_known, is_selected) {
        (false, _) => Some(Stale::UnknownLabel),
        (true, false) => Some(Stale::Unselected),
        (true, true) => None,
    }
}

/// Whether a node that came or changed makes a view stale. `is_new`: no node had its rendering before. `is_problem`: it
/// cannot be given what it should have. `are_told`: it is told how many nodes problems concern.
#[must_use]
pub fn of_node(is_new: bool, is_problem: bool, are_told: bool) -> Option<Stale> {
    match () {
        () if is_new => Some(Stale::NewRendering),
        () if is_problem || are_told => Some(Stale::Problem),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_or_node_that_is_as_others_were_costs_no_look_at_everything() {
        assert_eq!(of_pod(true, true), None);
        assert_eq!(of_node(false, false, false), None);
        assert_eq!([of_pod(false, true), of_pod(true, false)], [Some(Stale::UnknownLabel), Some(Stale::Unselected)]);
        assert_eq!(of_node(true, true, true), Some(Stale::NewRendering));
        assert_eq!([of_node(false, true, false), of_node(false, false, true)], [Some(Stale::Problem); 2]);
    }
}
