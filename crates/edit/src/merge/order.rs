//! In which order the items of a merged list are.

use serde_json::Value;

use super::DIRECTIVE;

/// Where the patch and the server have an item of a merged list, if they do.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub(super) in_patch: Option<usize>,
    pub(super) in_server: Option<usize>,
}

/// Puts items, whose places these are, into one list of the patch's items in the patch's order and the server's own in the
/// server's, in which an item of the server's comes first only where the server had both and had it first.
pub(super) fn arrange(items: &mut Vec<Value>, places: &[Places]) {
    let is_ours = |item: &usize| places[*item].in_patch.is_some();
    let ours = sorted((0..items.len()).filter(is_ours), items, |item| places[item].in_patch);
    let theirs = sorted((0..items.len()).filter(|item| !is_ours(item)), items, |item| places[item].in_server);
    let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.into_iter().peekable());
    let mut all = Vec::with_capacity(items.len());
    while let (Some(&our), Some(&their)) = (ours.peek(), theirs.peek()) {
        let both = places[their].in_server.zip(places[our].in_server);
        let theirs_first = both.is_some_and(|(their, our)| their < our);
        all.extend(if theirs_first { theirs.next() } else { ours.next() });
    }
    all.extend(ours.chain(theirs));
    if !all.is_sorted() {
        *items = all.into_iter().map(|item| std::mem::take(&mut items[item])).collect();
    }
}

/// Sorts by insertion, with upstream's comparison: an item without a place counts as less than any other. That is no
/// order in the strict sense, so the result depends on the algorithm, and this is upstream's for short lists. Items that
/// a patch brought with their `$patch: delete` go last.
fn sorted(
    unsorted: impl Iterator<Item = usize>,
    items: &[Value],
    place: impl Fn(usize) -> Option<usize>,
) -> Vec<usize> {
    let (mut sorted, mut deleted) = (Vec::with_capacity(items.len()), Vec::new());
    for item in unsorted {
        if is_deleted(&items[item]) {
            deleted.push(item);
            continue;
        }
        sorted.push(item);
        for at in (1..sorted.len()).rev() {
            let both = place(sorted[at]).zip(place(sorted[at - 1]));
            if both.is_some_and(|(one, before)| one >= before) {
                break;
            }
            sorted.swap(at, at - 1);
        }
    }
    sorted.extend(deleted);
    sorted
}

/// Whether a patch brought the item with a `$patch: delete`.
pub(super) fn is_deleted(item: &Value) -> bool {
    item.get(DIRECTIVE).is_some_and(|directive| directive == "delete")
}
