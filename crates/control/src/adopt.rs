//! Taking DaemonSets, and in [`pool`] what belongs to pools, over from another product. What is found decides in
//! `dapple_plan::adopt`; here it is read and done.
//!
//! Every step is safe to repeat, and the label that makes the CRD dapple's is set last: until then no manager acts on
//! the objects, and whoever was interrupted runs it again.

mod act;
mod look;
pub mod pool;
mod rest;
mod trial;

pub use act::carry_out;
pub use look::look;

/// Why something could not be adopted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or did not answer, or a CRD could not be installed.
    #[error(transparent)]
    Install(#[from] crate::install::Error),
    /// Somebody else changes it all the time.
    #[error("{object} was changed by somebody else each time it was to be written; run this again")]
    Busy {
        /// What it is.
        object: String,
    },
    /// It is not what it was when it was looked at.
    #[error("{what}; nothing was handed over, and dapple acts on none of it: run this again")]
    Changed {
        /// What changed.
        what: String,
    },
    /// The CRD does not serve its objects.
    #[error("the API server does not serve {version} of {crd} yet: {problem}; run this again")]
    NotServed {
        /// Which version.
        version: &'static str,
        /// Of which CRD.
        crd: String,
        /// Its last answer.
        problem: String,
    },
    /// Objects that the API server does not take as they are.
    #[error(
        "{} DaemonSets cannot be stored as v1beta1; correct them and run this again: {}",
        problems.len(),
        problems.join("; ")
    )]
    NotWritten {
        /// Each with what is wrong.
        problems: Vec<String>,
    },
}

/// How the cluster stands to the CRD, or to those of several kinds.
#[derive(Debug)]
pub enum Standing<T> {
    /// There is none: nothing to adopt.
    Missing,
    /// What there is is dapple's already.
    Ours,
    /// It can be judged.
    Open(Box<T>),
}
