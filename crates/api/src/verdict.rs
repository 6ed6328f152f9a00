//! What is to be said of an object before it is taken: everything that is wrong with it, each with its field, and what
//! is allowed but probably not meant.
//!
//! Whoever looks at an object writes into a [`Verdict`]: the admission webhooks answer with it, and `dapple plan` prints
//! it. Nothing here asks a cluster.

use std::fmt;

/// What is to be said of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is wrong. An object with any of these is refused.
    pub errors: Vec<FieldError>,
    /// What is allowed, and probably not meant.
    pub warnings: Vec<String>,
}

/// Something that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The field, such as `spec.patches[0].patch`.
    pub field: String,
    /// In which way it is wrong.
    pub reason: Reason,
    /// What is wrong with it, and what to do.
    pub text: String,
}

/// The ways in which a field can be wrong, as Kubernetes tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It has to be there.
    Required,
    /// Its value cannot be used.
    Invalid,
    /// Its value is none of those that there are.
    NotSupported,
    /// It may not be there, or not be changed.
    Forbidden,
    /// It says again what another says.
    Duplicate,
    /// It is too long.
    TooLong,
    /// There are too many of them.
    TooMany,
}

impl Verdict {
    /// Adds something that is wrong.
    pub fn refuse(&mut self, field: impl Into<String>, reason: Reason, text: impl Into<String>) {
        self.errors.push(FieldError { field: field.into(), reason, text: text.into() });
    }

    /// Adds a warning about a field.
    pub fn warn(&mut self, field: &str, text: impl fmt::Display) {
        self.warnings.push(format!("{field}: {text}"));
    }

    /// Whether there is nothing wrong.
    pub fn is_ok(&self) -> bool {
        self.errors.is_empty()
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.text)
    }
}

impl Reason {
    /// As the type of a cause in a Kubernetes Status.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_refuse() {
        let mut verdict = Verdict::default();
        verdict.warn("spec.patches[0]", "it matches no node");
        assert!(verdict.is_ok());
        assert_eq!(verdict.warnings, ["spec.patches[0]: it matches no node"]);
        verdict.refuse("spec.patches", Reason::TooMany, "a DaemonSet may have 10");
        assert!(!verdict.is_ok());
        assert_eq!(verdict.errors[0].to_string(), "spec.patches: a DaemonSet may have 10");
    }
}
