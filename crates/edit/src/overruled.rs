//! Rules that count nowhere, since a later one of the same list sets the same wherever they would.

use std::collections::BTreeSet;

use dapple_api::verdict::Verdict;

/// Of a longer list nothing is said: nobody reads that many warnings.
const MOST_COMPARED: usize = 64;

/// A rule of a list in which the last one wins.
#[derive(Debug, Default)]
pub(crate) struct Rule {
    /// What it is for, by name; nothing means everything.
    pub(crate) targets: Option<BTreeSet<String>>,
    /// The fields of the rule that change something, each with all that it changes.
    pub(crate) changes: Vec<(String, Vec<String>)>,
    /// What it sets, whatever it was before.
    pub(crate) sets: BTreeSet<String>,
}

impl Rule {
    fn covers(&self, other: &Self) -> bool {
        match (&self.targets, &other.targets) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(others)) => others.is_subset(own),
        }
    }
}

/// Warns of every field of a rule that a later rule makes pointless. `list` is where the rules are.
pub(crate) fn warn_overruled(list: &str, rules: &[Rule], verdict: &mut Verdict) {
    if rules.len() > MOST_COMPARED {
        return;
    }
    for (place, rule) in rules.iter().enumerate() {
        // One that is for nothing is pointless by itself.
        if rule.targets.as_ref().is_some_and(BTreeSet::is_empty) {
            continue;
        }
        let later = rules.iter().enumerate().skip(place + 1);
        let later: Vec<_> = later.filter(|(_, later)| later.covers(rule)).collect();
        for (field, changed) in &rule.changes {
            let overrules = |(_, later): &&(usize, &Rule)| changed.iter().all(|what| later.sets.contains(what));
            if let Some((winner, _)) = later.iter().find(overrules) {
                let text = format!("{list}[{winner}] sets the same wherever this counts, so this is without effect");
                verdict.warn(field, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(place: usize, targets: Option<&[&str]>, sets: &[&str]) -> Rule {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        let changes = vec![(format!("rules[{place}]"), own(sets).into_iter().collect())];
        Rule { targets: targets.map(own), changes, sets: own(sets) }
    }

    fn warned(rules: &[Rule]) -> Vec<String> {
        let mut verdict = Verdict::default();
        warn_overruled("rules", rules, &mut verdict);
        verdict.warnings
    }

    #[test]
    fn only_what_counts_nowhere_is_told_of() {
        let one = |first: Rule, second: Rule| warned(&[first, second]).len();
        assert_eq!(one(rule(0, Some(&["a"]), &["x"]), rule(1, None, &["x"])), 1);
        assert_eq!(one(rule(0, Some(&["a"]), &["x"]), rule(1, Some(&["a", "b"]), &["x", "y"])), 1);
        assert_eq!(one(rule(0, None, &["x"]), rule(1, Some(&["a"]), &["x"])), 0, "the rule, and an exception to it");
        assert_eq!(one(rule(0, Some(&["a"]), &["x", "y"]), rule(1, None, &["x"])), 0, "a part of it counts");
        assert_eq!(one(rule(0, Some(&[]), &["x"]), rule(1, None, &["x"])), 0, "it is for nothing");
        let said = warned(&[rule(0, None, &["x"]), rule(1, Some(&["a"]), &["x"]), rule(2, None, &["x"])]);
        assert!(said.len() == 2 && said.iter().all(|text| text.contains("rules[2] sets the same")), "{said:?}");
    }
}
