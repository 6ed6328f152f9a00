//! The pools that a replacement is for, in the forms people write them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Pools by name: a list of names, one string of names with spaces, line ends or commas between them, or `*` in either
/// for every pool.
///
/// The schema takes any value: a structural schema has no "list or string". [`Pools::check`] is the judge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a list of names, or names in one string")]
pub enum Pools {
    /// Names one by one.
    List(Vec<String>),
    /// Names in one string.
    Text(String),
}

/// Why pools can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolsError {
    /// There is no name.
    #[error("pools is empty: name at least one pool, or write \"*\" for all")]
    Empty,
    /// A name that looks like an exclusion, which there isn't.
    #[error("pools has {0:?}: pools can't be excluded, name those that are meant")]
    Exclusion(String),
}

impl Default for Pools {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Pools {
    /// The names as written, without separators; `*` among them means every pool.
    pub fn names(&self) -> BTreeSet<&str> {
        self.each().collect()
    }

    fn each(&self) -> impl Iterator<Item = &str> {
        let separator = |letter: char| letter.is_whitespace() || letter == ',';
        let texts = match self {
            Self::List(names) => names.as_slice(),
            Self::Text(text) => std::slice::from_ref(text),
        };
        texts.iter().flat_map(move |text| text.split(separator)).filter(|name| !name.is_empty())
    }

    /// Whether a pool of this name is meant.
    pub fn contains(&self, pool: &str) -> bool {
        self.each().any(|name| name == "*" || name == pool)
    }

    /// Finds what the schema can't.
    ///
    /// # Errors
    /// If no pool is named, or one with a minus before it.
    pub fn check(&self) -> Result<(), PoolsError> {
        let names = self.names();
        if let Some(name) = names.iter().find(|name| name.starts_with('-')) {
            return Err(PoolsError::Exclusion((*name).to_owned()));
        }
        if names.is_empty() { Err(PoolsError::Empty) } else { Ok(()) }
    }
}

impl JsonSchema for Pools {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Pools".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Bounds apply to the form that they are about.
        json_schema!({
            "x-kubernetes-preserve-unknown-fields": true,
            "minItems": 1,
            "maxItems": 512,
            "minLength": 1,
            "maxLength": 65536
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(json: &str) -> Pools {
        serde_json::from_str(json).expect("parses")
    }

    #[test]
    fn every_form_is_read() {
        for form in [r#"["beijing", "hangzhou"]"#, r#""beijing hangzhou""#, r#""beijing,\n hangzhou""#] {
            let pools = pools(form);
            assert!(pools.contains("beijing") && pools.contains("hangzhou") && !pools.contains("shanghai"), "{form}");
            assert_eq!(pools.check(), Ok(()));
        }
    }

    #[test]
    fn a_star_means_every_pool() {
        for form in [r#""*""#, r#"["*"]"#, r#"["beijing", "*"]"#] {
            assert!(pools(form).contains("shanghai"), "{form}");
        }
    }

    #[test]
    fn empty_and_excluding_forms_are_refused() {
        assert_eq!(Pools::default().check(), Err(PoolsError::Empty));
        assert_eq!(pools(r#"" , ""#).check(), Err(PoolsError::Empty));
        assert_eq!(pools(r#"["*", "-x"]"#).check(), Err(PoolsError::Exclusion("-x".into())));
        assert!(PoolsError::Exclusion("-x".into()).to_string().contains("\"-x\""));
    }
}
