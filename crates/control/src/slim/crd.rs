//! A CustomResourceDefinition, as far as its metadata tells: that there is one, and that it has changed.

use dapple_api::kinds::CUSTOM_RESOURCE_DEFINITION;
use serde::Deserialize;

use super::{Cached, Interner, Meta};
use crate::observed::{KindInfo, KindWire, Wire};

/// A cached CustomResourceDefinition. A whole one may have a megabyte.
#[derive(Debug)]
pub struct Crd {
    meta: Meta,
}

/// Nothing besides what names it.
#[derive(Debug, Clone, Deserialize)]
pub struct CrdWire {}

impl Wire for CrdWire {
    const IS_METADATA: bool = true;
}

impl KindWire for CrdWire {
    const KIND: KindInfo = CUSTOM_RESOURCE_DEFINITION;
}

impl Cached for Crd {
    type Wire = CrdWire;

    fn slim(meta: Meta, _: CrdWire, _: &mut Interner) -> Self {
        Self { meta }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
