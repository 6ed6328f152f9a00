//! Which nodes have which labels, so that selectors are held against ten thousand nodes in microseconds.
//!
//! Invariant: after any changes, [`Census::classes`] says what holding every selector against every node would say.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::selector::{Requirement, Selector, Test};

/// The labels of all nodes.
#[derive(Debug, Default)]
pub struct Census {
    places: BTreeMap<Arc<str>, u32>,
    /// Places of nodes that are gone.
    free: Vec<u32>,
    /// By label and value: the places of the nodes that have it, in order.
    labels: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Vec<u32>>>,
    /// By place: the labels of the node there.
    nodes: Vec<Vec<(Arc<str>, Arc<str>)>>,
    all: Places,
}

/// Nodes that are alike to some selectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// The selectors that match them, by number, in order.
    pub matching: Vec<usize>,
    /// How many nodes.
    pub nodes: usize,
}

/// A set of places, a bit for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Places(Vec<u64>);

impl Census {
    /// A node came, or its labels changed.
    pub fn put(&mut self, name: &str, labels: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) {
        let place = self.place_of(name);
        self.forget_labels(place);
        let labels: Vec<_> = labels.into_iter().collect();
        for (key, value) in &labels {
            let having = self.labels.entry(key.clone()).or_default().entry(value.clone()).or_default();
            if let Err(at) = having.binary_search(&place) {
                having.insert(at, place);
            }
        }
        self.nodes[place as usize] = labels;
    }

    /// A node is gone.
    pub fn remove(&mut self, name: &str) {
        let Some(place) = self.places.remove(name) else { return };
        self.forget_labels(place);
        self.all.clear(place);
        self.free.push(place);
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether it has a node of this name.
    pub fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// The names of all nodes.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.places.keys()
    }

    /// The nodes, sorted by which of these selectors match them.
    pub fn classes<'s>(&self, selectors: impl IntoIterator<Item = &'s Selector>) -> Vec<Class> {
        let mut classes = vec![(Vec::new(), self.all.clone())];
        for (number, selector) in selectors.into_iter().enumerate() {
            let selected = self.selected(selector);
            let mut split = Vec::new();
            for (matching, places) in classes {
                let inside = places.and(&selected);
                let outside = places.without(&selected);
                if !inside.is_empty() {
                    split.push(([matching.as_slice(), &[number]].concat(), inside));
                }
                if !outside.is_empty() {
                    split.push((matching, outside));
                }
            }
            classes = split;
        }
        classes.retain(|(_, places)| !places.is_empty());
        let mut classes: Vec<Class> =
            classes.into_iter().map(|(matching, places)| Class { matching, nodes: places.count() }).collect();
        classes.sort_by(|one, other| one.matching.cmp(&other.matching));
        classes
    }

    /// The names of the nodes that a selector matches.
    pub fn names_of(&self, selector: &Selector) -> Vec<&str> {
        let selected = self.selected(selector);
        self.places.iter().filter(|(_, place)| selected.has(**place)).map(|(name, _)| name.as_ref()).collect()
    }

    fn selected(&self, selector: &Selector) -> Places {
        let mut selected = self.all.clone();
        for Requirement { key, test } in selector.requirements() {
            let values = self.labels.get(key.as_str());
            let places_of = |having: &mut dyn Iterator<Item = &Vec<u32>>| {
                let mut places = Places(vec![0; self.all.0.len()]);
                having.for_each(|having| places.set_all(having));
                places
            };
            // A value is looked up, not looked for: a label may have as many values as there are nodes.
            let valued =
                |wanted: &[String]| places_of(&mut wanted.iter().filter_map(|value| values?.get(value.as_str())));
            let having = || places_of(&mut values.into_iter().flat_map(BTreeMap::values));
            selected = match test {
                Test::In(wanted) => selected.and(&valued(wanted)),
                Test::NotIn(unwanted) => selected.without(&valued(unwanted)),
                Test::Exists => selected.and(&having()),
                Test::DoesNotExist => selected.without(&having()),
            };
        }
        selected
    }

    fn place_of(&mut self, name: &str) -> u32 {
        if let Some(known) = self.places.get(name) {
            return *known;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Vec::new());
            u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
        });
        self.places.insert(Arc::from(name), place);
        self.all.set(place);
        place
    }

    fn forget_labels(&mut self, place: u32) {
        for (key, value) in std::mem::take(&mut self.nodes[place as usize]) {
            let Some(values) = self.labels.get_mut(&key) else { continue };
            if let Some(having) = values.get_mut(&value) {
                having.retain(|known| *known != place);
                if having.is_empty() {
                    values.remove(&value);
                }
            }
            if values.is_empty() {
                self.labels.remove(&key);
            }
        }
    }
}

impl Places {
    fn set(&mut self, place: u32) {
        let word = place as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (place % 64);
    }

    /// There has to be room for them.
    fn set_all(&mut self, places: &[u32]) {
        for place in places {
            if let Some(word) = self.0.get_mut(*place as usize / 64) {
                *word |= 1 << (place % 64);
            }
        }
    }

    fn has(&self, place: u32) -> bool {
        self.0.get(place as usize / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    fn clear(&mut self, place: u32) {
        if let Some(word) = self.0.get_mut(place as usize / 64) {
            *word &= !(1 << (place % 64));
        }
    }

    fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(one, other)| one & other).collect())
    }

    fn without(&self, other: &Self) -> Self {
        let other = other.0.iter().copied().chain(std::iter::repeat(0));
        Self(self.0.iter().zip(other).map(|(one, other)| one & !other).collect())
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
    use proptest::prelude::*;

    use super::*;

    type Labels = BTreeMap<String, String>;

    fn labels() -> impl Strategy<Value = Labels> {
        prop::collection::btree_map("[abc]", "[xyz]", 0..3)
    }

    fn selector() -> impl Strategy<Value = Selector> {
        let test = ("[abc]", 0..4_usize, prop::collection::vec("[xyz]", 1..3));
        prop::collection::vec(test, 0..3).prop_map(|tests| {
            let expressions = tests.into_iter().map(|(key, operator, values)| {
                let operator = ["In", "NotIn", "Exists", "DoesNotExist"][operator];
                let values = operator.ends_with("In").then_some(values);
                LabelSelectorRequirement { key, operator: operator.to_owned(), values }
            });
            let match_expressions = Some(expressions.collect());
            Selector::new(&LabelSelector { match_expressions, match_labels: None }).unwrap()
        })
    }

    proptest! {
        #[test]
        fn classes_equal_their_definition(
            changes in prop::collection::vec((0..90_usize, prop::option::weighted(0.8, labels())), 0..200),
            selectors in prop::collection::vec(selector(), 0..5),
        ) {
            let (mut census, mut nodes) = (Census::default(), BTreeMap::new());
            for (number, labels) in changes {
                let name = format!("node-{number}");
                match labels {
                    Some(labels) => {
                        let shared = labels.iter().map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())));
                        census.put(&name, shared);
                        nodes.insert(name, labels);
                    }
                    None => {
                        census.remove(&name);
                        nodes.remove(&name);
                    }
                }
            }
            let mut wanted: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
            for labels in nodes.values() {
                let label = |key: &str| labels.get(key).map(String::as_str);
                let matching = (0..selectors.len()).filter(|number| selectors[*number].matches(label)).collect();
                *wanted.entry(matching).or_default() += 1;
            }
            let found: BTreeMap<Vec<usize>, usize> =
                census.classes(&selectors).into_iter().map(|class| (class.matching, class.nodes)).collect();
            prop_assert_eq!(found, wanted);
            prop_assert_eq!(census.len(), nodes.len());
            if let Some(selector) = selectors.first() {
                let label_of = |labels: &Labels| selector.matches(|key| labels.get(key).map(String::as_str));
                let wanted: Vec<&str> =
                    nodes.iter().filter(|(_, labels)| label_of(labels)).map(|(name, _)| name.as_str()).collect();
                prop_assert_eq!(census.names_of(selector), wanted);
            }
        }
    }
}
