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
    /// A problem concerns a node that it did not concern, or does so no more: how many it concerns is told.
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

/// Whether a node that came, changed or went makes a view stale. `is_new`: no node had its rendering before. `before` and
/// `after`: the variant by which it was, and is, one of those that a problem concerns. What else happens to such a node costs
/// this node: while one patch is wrong, every node that is Ready or is not would cost the fleet.
#[must_use]
pub fn of_node(is_new: bool, before: Option<usize>, after: Option<usize>) -> Option<Stale> {
    match () {
        () if is_new => Some(Stale::NewRendering),
        () if before != after => Some(Stale::Problem),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_or_node_that_is_as_others_were_costs_no_look_at_everything() {
        assert_eq!(of_pod(true, true), None);
        assert_eq!([of_node(false, None, None), of_node(false, Some(1), Some(1))], [None; 2]);
        assert_eq!([of_pod(false, true), of_pod(true, false)], [Some(Stale::UnknownLabel), Some(Stale::Unselected)]);
        assert_eq!([of_node(true, None, None), of_node(true, Some(1), Some(2))], [Some(Stale::NewRendering); 2]);
        for (before, after) in [(None, Some(1)), (Some(1), None), (Some(1), Some(2))] {
            assert_eq!(of_node(false, before, after), Some(Stale::Problem));
        }
    }
}
