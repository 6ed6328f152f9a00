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

    /// Adds that a value cannot be used, if it cannot.
    pub fn check(&mut self, field: impl Into<String>, value: Result<(), String>) {
        if let Err(text) = value {
            self.refuse(field, Reason::Invalid, text);
        }
    }

    /// Adds that a list or a map has too much in it, if it has.
    pub fn at_most(&mut self, field: &str, count: usize, limit: usize) {
        if count > limit {
            self.refuse(field, Reason::TooMany, format!("there are {count}, and may be {limit} at most"));
        }
    }

    /// Adds what another verdict says.
    pub fn extend(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.warnings.extend(other.warnings);
    }

    /// What was wrong before is no reason to refuse a change that leaves it as it is: it is told, and no more.
    pub fn excuse(&mut self, before: &Self) {
        let (old, new): (Vec<FieldError>, Vec<FieldError>) =
            std::mem::take(&mut self.errors).into_iter().partition(|error| before.errors.contains(error));
        self.errors = new;
        old.iter().for_each(|error| self.warn(&error.field, format!("{}; it was so before", error.text)));
    }

    /// Whether there is nothing wrong.
    pub fn is_ok(&self) -> bool {
        self.errors.is_empty()
    }
}

impl From<FieldError> for Verdict {
    fn from(error: FieldError) -> Self {
        Self { errors: vec![error], warnings: Vec::new() }
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

    #[test]
    fn what_was_wrong_before_is_excused() {
        let wrong = |fields: &[&str]| {
            let mut verdict = Verdict::default();
            fields.iter().for_each(|field| verdict.refuse(*field, Reason::Invalid, "it is wrong"));
            verdict
        };
        let mut verdict = wrong(&["spec.a", "spec.b"]);
        verdict.excuse(&wrong(&["spec.a", "spec.c"]));
        assert_eq!(verdict.errors, wrong(&["spec.b"]).errors);
        assert_eq!(verdict.warnings, ["spec.a: it is wrong; it was so before"]);
    }

    #[test]
    fn what_is_in_order_adds_nothing() {
        let mut verdict = Verdict::default();
        verdict.check("spec.a", Ok(()));
        verdict.at_most("spec.b", 2, 2);
        assert_eq!(verdict, Verdict::default());
        verdict.check("spec.a", Err("it is empty".to_owned()));
        let mut other = Verdict::default();
        other.at_most("spec.b", 3, 2);
        verdict.extend(other);
        let told: Vec<String> = verdict.errors.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["spec.a: it is empty", "spec.b: there are 3, and may be 2 at most"]);
    }
}
