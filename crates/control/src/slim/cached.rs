//! Kinds that can be cached: how the slim form is made, and how objects of it are found.

use std::sync::Arc;

use serde_json::Value;

use super::{Interner, Meta};
use crate::observed::{Observed, Wire};

/// A way to find objects of a kind besides their key. Those who need one declare it when they open the kind.
pub struct Index<T> {
    /// Its name: one of a kind.
    pub name: &'static str,
    /// Tells every value that an object is to be found under.
    pub values: fn(&T, &mut dyn FnMut(Arc<str>)),
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Index<T> {}

impl<T> Index<T> {
    /// Whether an object is to be found under a value.
    pub(crate) fn has(&self, object: &T, value: &str) -> bool {
        let mut has = false;
        (self.values)(object, &mut |found| has |= *found == *value);
        has
    }
}

/// A kind that can be cached.
pub trait Cached: Send + Sync + Sized + 'static {
    /// What is read off the wire.
    type Wire: Wire;
    /// Makes the slim form, sharing its strings.
    fn slim(meta: Meta, wire: Self::Wire, strings: &mut Interner) -> Self;
    /// What names it.
    fn meta(&self) -> &Meta;
}

/// Reads one object as a cache would.
pub fn read<T: Cached>(object: &Value, strings: &mut Interner) -> Result<T, String> {
    let observed: Observed<T::Wire> = serde_json::from_str(&object.to_string()).map_err(|error| error.to_string())?;
    let meta = Meta::read(kube::Resource::meta(&observed), strings)?;
    Ok(T::slim(meta, observed.object?, strings))
}
