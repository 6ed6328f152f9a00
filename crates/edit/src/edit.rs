//! Edits: every override form, compiled to one list of changes that remember where they came from.

use std::fmt;

use serde_json::Value;

pub use dapple_api::pool::UpgradeStrategy;

use crate::container::{self, ContainerError};
use crate::document::Document;
use crate::image::{Component, ImageError, Operation};
use crate::merge::{MergeError, patch_value};
use crate::placement;
use crate::plain::{PlainError, apply_plain};
use crate::references::References;

/// Where an edit came from: an object, and the rule in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The object, as people name it: `DaemonSet default/agent`.
    pub object: String,
    /// The rule in it, as a path: `spec.patches[1]`.
    pub rule: String,
}

impl Source {
    /// How the rule is called beside an object: its own rules need no name of an object.
    pub fn beside(&self, object: &str) -> String {
        if self.object == object { self.rule.clone() } else { self.to_string() }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.object, self.rule)
    }
}

/// One change, and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// Where it came from.
    pub source: Source,
    /// What it does.
    pub change: Change,
}

/// A change. All but a merge, the number of pods and how they are replaced concern the pod template of a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A strategic merge patch of the whole document.
    Merge(Value),
    /// One operation of RFC 6902.
    Plain {
        /// Where, by RFC 6901; the first slash may be missing.
        path: String,
        /// What to do there.
        operator: PlainOperator,
        /// With what; not for a removal.
        value: Value,
    },
    /// A part of image names.
    Image {
        /// The image at this path only (RFC 6901); otherwise that of every container, init containers aside.
        only_at: Option<String>,
        /// Which part.
        component: Component,
        /// What to do with it.
        operator: ImageOperator,
    },
    /// Items of a container's command or arguments.
    Words {
        /// The container.
        container: String,
        /// Which list.
        list: WordList,
        /// What to do with them.
        operator: WordOperator,
        /// The items.
        words: Vec<String>,
    },
    /// The image of a container.
    SetImage {
        /// The container.
        container: String,
        /// The image.
        image: String,
    },
    /// Environment variables of a container.
    SetEnv {
        /// The container.
        container: String,
        /// Names and values, sorted by name.
        variables: Vec<(String, String)>,
    },
    /// Another object in the place of one that the template refers to, as it was before the first change of this kind.
    Refer {
        /// What kind of object.
        kind: ReferenceKind,
        /// The name that is referred to.
        from: String,
        /// The name to refer to instead.
        to: String,
    },
    /// The nodes that pods may run on, beside what the template asks for.
    Place {
        /// A node selector term that a node must meet.
        term: Option<Value>,
        /// Taints of these nodes that pods tolerate.
        tolerations: Vec<Value>,
    },
    /// How many pods a workload has.
    Replicas(i32),
    /// How a workload replaces pods.
    Strategy(UpgradeStrategy),
    /// A rule that says what cannot be done, and why. It fails where it applies, and nowhere else.
    Impossible(&'static str),
}

/// An operation of RFC 6902.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainOperator {
    /// Adds, or replaces what is there.
    Add,
    /// Replaces what is there.
    Replace,
    /// Removes what is there.
    Remove,
}

/// What to do with a part of an image name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageOperator {
    /// Put this behind it.
    Add(String),
    /// Put this in its place.
    Replace(String),
    /// Take it away.
    Remove,
}

impl ImageOperator {
    pub(crate) fn operation(&self) -> Operation<'_> {
        match self {
            Self::Add(value) => Operation::Add(value),
            Self::Replace(value) => Operation::Replace(value),
            Self::Remove => Operation::Remove,
        }
    }
}

/// A list of words in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordList {
    /// `command`.
    Command,
    /// `args`.
    Args,
}

/// What to do with words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordOperator {
    /// Put them behind those that are there.
    Add,
    /// Take away every one that equals one of them.
    Remove,
}

/// What a template refers to by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReferenceKind {
    /// A ConfigMap: volumes, plain and projected, `env` and `envFrom`.
    ConfigMap,
    /// A Secret: the same, and `imagePullSecrets`.
    Secret,
    /// A PersistentVolumeClaim: volumes.
    PersistentVolumeClaim,
}

/// Why an edit does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_of_edit}: {problem}")]
pub struct EditError {
    /// Where the edit came from.
    pub source_of_edit: Source,
    /// What is wrong with it.
    pub problem: EditProblem,
}

/// What can be wrong with an edit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditProblem {
    /// The strategic merge patch does not apply.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// The operation of RFC 6902 does not apply.
    #[error(transparent)]
    Plain(#[from] PlainError),
    /// The image name, or what it would become, is not valid.
    #[error("{path}: {error}")]
    Image {
        /// Where the image is.
        path: String,
        /// What is wrong.
        error: ImageError,
    },
    /// The template has no such container, or no such image.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The pods' owner would not know them any more, and make others without end.
    #[error("it changes the label {key}, which the selector of the pods' owner needs: leave that label as it is")]
    SelectedLabel {
        /// The label.
        key: String,
    },
    /// The rule says what cannot be done.
    #[error("{0}")]
    Impossible(&'static str),
    /// The workload holds no pod template.
    #[error("the workload has no spec.template to change")]
    NoTemplate,
    /// Something of a workload, where there is only a pod template.
    #[error("{field} is a matter of the workload, and here is only a pod template")]
    NoWorkload {
        /// What was to be set.
        field: &'static str,
    },
    /// A workload that cannot replace pods in this way.
    #[error("{of:?}s cannot have the upgradeStrategy {strategy:?}")]
    Strategy {
        /// The way.
        strategy: UpgradeStrategy,
        /// The workload.
        of: Document,
    },
    /// An object that cannot be.
    #[error("no {kind:?} can have the name {name:?}: lower-case letters, digits, - and . only")]
    ObjectName {
        /// What kind of object.
        kind: ReferenceKind,
        /// The name.
        name: String,
    },
    /// Something in the template is not what Kubernetes has there.
    #[error("{field} must be {expected}")]
    Shape {
        /// Where.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
}

/// Something that is probably not meant, and no error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where the edit came from.
    pub source: Source,
    /// What is odd about it.
    pub text: String,
}

impl Edit {
    /// Makes the change. On an error the document is left half changed: edit a copy if it is still needed.
    pub(crate) fn apply(
        &self,
        kind: Document,
        document: &mut Value,
        references: &mut References,
    ) -> Result<Option<Warning>, EditError> {
        let warning = self.change.apply(kind, document, (references, &self.source));
        let warning = warning.map_err(|problem| EditError { source_of_edit: self.source.clone(), problem })?;
        Ok(warning.map(|text| Warning { source: self.source.clone(), text }))
    }
}

impl Change {
    fn apply(
        &self,
        kind: Document,
        document: &mut Value,
        (references, source): (&mut References, &Source),
    ) -> Result<Option<String>, EditProblem> {
        let template = |document| kind.template_mut(document);
        match self {
            Self::Merge(patch) => patch_value(document, patch, kind.shape())?,
            Self::Replicas(replicas) => kind.set_replicas(document, *replicas)?,
            Self::Impossible(why) => return Err(EditProblem::Impossible(why)),
            Self::Strategy(strategy) => kind.set_strategy(document, *strategy)?,
            Self::Plain { path, operator, value } => apply_plain(template(document)?, path, *operator, value)?,
            Self::Image { only_at, component, operator } => {
                container::change_images(template(document)?, only_at.as_deref(), *component, operator.operation())?;
            }
            Self::Words { container, list, operator, words } => {
                container::change_words(template(document)?, container, *list, *operator, words)?;
            }
            Self::SetImage { container, image } => container::set_image(template(document)?, container, image)?,
            Self::SetEnv { container, variables } => container::set_env(template(document)?, container, variables)?,
            Self::Refer { kind: referred, from, to } => {
                return Ok(references.replace(template(document)?, (*referred, from, to), source));
            }
            Self::Place { term, tolerations } => placement::place(template(document)?, term.as_ref(), tolerations)?,
        }
        Ok(None)
    }
}
