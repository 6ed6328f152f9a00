//! What was found out about kinds of pods and about patches, so that nobody is asked twice.

use std::collections::BTreeMap;
use std::sync::Arc;

/// How much is remembered.
const MOST_KNOWN: usize = 4_096;

/// The hashes of all that an answer follows from: of a rendering, those of its template and of each patch in order.
pub type Key = Vec<Arc<str>>;

/// What was found out. What nobody has asked for longest is forgotten first.
pub(crate) struct Memory<T> {
    known: BTreeMap<Key, (T, u64)>,
    order: BTreeMap<u64, Key>,
    next: u64,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), order: BTreeMap::new(), next: 0 }
    }
}

impl<T: Clone> Memory<T> {
    pub(crate) fn get(&mut self, key: &Key) -> Option<T> {
        let (found, number) = self.known.get_mut(key)?;
        // What is asked for stays.
        if let Some(key) = self.order.remove(number) {
            self.order.insert(self.next, key);
        }
        *number = self.next;
        self.next += 1;
        Some(found.clone())
    }

    pub(crate) fn put(&mut self, key: Key, found: T) {
        if let Some((_, number)) = self.known.insert(key.clone(), (found, self.next)) {
            self.order.remove(&number);
        }
        self.order.insert(self.next, key);
        self.next += 1;
        while self.known.len() > MOST_KNOWN {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_asks_for_is_forgotten_first() {
        let mut memory = Memory::default();
        let key = |number: usize| vec![number.to_string().into()];
        (0..MOST_KNOWN).for_each(|number| memory.put(key(number), number));
        assert_eq!(memory.get(&key(0)), Some(0));
        memory.put(key(MOST_KNOWN), MOST_KNOWN);
        assert_eq!(memory.get(&key(1)), None, "the one that was asked for longest ago");
        assert_eq!(memory.get(&key(0)), Some(0));
        assert_eq!(memory.known.len(), memory.order.len());
    }
}
