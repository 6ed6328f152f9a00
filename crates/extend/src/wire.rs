//! What a scheduler sends, and what it reads: `ExtenderArgs`, `ExtenderFilterResult` and `HostPriorityList`.
//!
//! Thousands of nodes come with every question. Of them only the names are read, in place, and an answer is written without
//! anything in between.

use std::borrow::Cow;
use std::collections::BTreeMap;

use dapple_control::group::extender::{AskedPod, Controller};
use dapple_plan::group::extender::{Filtered, Reason};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Every score there is.
const DIGITS: [&str; 11] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];

/// What is asked.
pub(crate) struct Question<'b> {
    /// The pod; none if it cannot be read.
    pub(crate) pod: Option<AskedPod>,
    /// The nodes.
    pub(crate) nodes: Nodes<'b>,
}

/// The nodes of a question, as they came.
pub(crate) enum Nodes<'b> {
    /// By name.
    Names(&'b RawValue),
    /// As objects, from a scheduler that is not told to send names only.
    Objects(Vec<&'b RawValue>),
}

#[derive(Deserialize)]
struct Args<'b> {
    #[serde(rename = "Pod", alias = "pod", borrow)]
    pod: Option<&'b RawValue>,
    #[serde(rename = "Nodes", alias = "nodes", borrow)]
    nodes: Option<NodeList<'b>>,
    #[serde(rename = "NodeNames", alias = "nodeNames", alias = "nodenames", borrow)]
    names: Option<&'b RawValue>,
}

#[derive(Deserialize)]
struct NodeList<'b> {
    #[serde(borrow)]
    items: Option<Vec<&'b RawValue>>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: PodMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMeta {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    owner_references: Option<Vec<Owner>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Deserialize)]
struct Name<'b>(#[serde(borrow)] Cow<'b, str>);

#[derive(Deserialize)]
struct Node<'b> {
    #[serde(borrow)]
    metadata: NodeMeta<'b>,
}

#[derive(Deserialize)]
struct NodeMeta<'b> {
    #[serde(borrow)]
    name: Cow<'b, str>,
}

impl From<Pod> for AskedPod {
    fn from(Pod { metadata }: Pod) -> Self {
        let mut owners = metadata.owner_references.unwrap_or_default().into_iter();
        let controller = owners.find(|owner| owner.controller == Some(true));
        Self {
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            labels: metadata.labels.unwrap_or_default(),
            controller: controller.map(|owner| Controller {
                api_version: owner.api_version,
                kind: owner.kind,
                uid: owner.uid,
            }),
        }
    }
}

impl<'b> Question<'b> {
    /// Reads a question. An error if it does not say which nodes it is about.
    pub(crate) fn read(body: &'b [u8]) -> Result<Self, serde_json::Error> {
        let Args { pod, nodes, names } = serde_json::from_slice(body)?;
        let pod = pod.and_then(|pod| serde_json::from_str::<Pod>(pod.get()).ok()).map(AskedPod::from);
        let is_null = |names: &&RawValue| names.get() == "null";
        let nodes = match (names.filter(|names| !is_null(names)), nodes) {
            (Some(names), _) => Nodes::Names(names),
            (None, nodes) => Nodes::Objects(nodes.and_then(|nodes| nodes.items).unwrap_or_default()),
        };
        Ok(Self { pod, nodes })
    }
}

impl<'b> Nodes<'b> {
    /// The names. An error if one has none.
    pub(crate) fn names(&self) -> Result<Vec<Cow<'b, str>>, serde_json::Error> {
        match self {
            Self::Names(names) => match plain_names(names.get()) {
                Some(names) => Ok(names.into_iter().map(Cow::Borrowed).collect()),
                None => serde_json::from_str::<Vec<Name<'b>>>(names.get())
                    .map(|names| names.into_iter().map(|name| name.0).collect()),
            },
            Self::Objects(objects) => {
                let name = |object: &&'b RawValue| serde_json::from_str::<Node<'b>>(object.get());
                objects.iter().map(|object| name(object).map(|node| node.metadata.name)).collect()
            }
        }
    }

    /// The answer that all of them may have the pod.
    pub(crate) fn all_pass(&self) -> String {
        match self {
            Self::Names(names) => format!(r#"{{"NodeNames":{}}}"#, names.get()),
            Self::Objects(objects) => {
                let mut text = String::from(r#"{"Nodes":{"metadata":{},"items":["#);
                list(&mut text, objects.iter().map(|object| object.get()));
                text.push_str("]}}");
                text
            }
        }
    }

    /// The answer that none of them may have the pod.
    pub(crate) fn none_passes(&self, names: &[Cow<'_, str>], reason: &Reason) -> String {
        let nodes = vec![Some(0); names.len()];
        self.filtered(names, &Filtered { nodes, reasons: vec![reason.clone()], group: None })
    }

    /// The answer that some of them may have the pod.
    pub(crate) fn filtered(&self, names: &[Cow<'_, str>], filtered: &Filtered) -> String {
        let reasons: Vec<String> = filtered.reasons.iter().map(|reason| quoted(&reason.to_string())).collect();
        let longest = reasons.iter().map(String::len).max().unwrap_or(0);
        let rejected = filtered.nodes.iter().flatten().count();
        let mut text = String::with_capacity(names.len() * 32 + rejected * longest + 128);
        let passing = || filtered.nodes.iter().enumerate().filter(|(_, why)| why.is_none()).map(|(number, _)| number);
        match self {
            Self::Names(_) => {
                text.push_str(r#"{"NodeNames":["#);
                for (count, number) in passing().enumerate() {
                    if count > 0 {
                        text.push(',');
                    }
                    quote(&mut text, &names[number]);
                }
                text.push(']');
            }
            Self::Objects(objects) => {
                text.push_str(r#"{"Nodes":{"metadata":{},"items":["#);
                list(&mut text, passing().map(|number| objects[number].get()));
                text.push_str("]}");
            }
        }
        text.push_str(r#","FailedAndUnresolvableNodes":{"#);
        let failed = filtered.nodes.iter().enumerate().filter_map(|(number, why)| Some((number, (*why)?)));
        for (count, (number, why)) in failed.enumerate() {
            if count > 0 {
                text.push(',');
            }
            quote(&mut text, &names[number]);
            text.push(':');
            text.push_str(&reasons[why]);
        }
        text.push_str("}}");
        text
    }
}

/// The scores of nodes.
pub(crate) fn priorities(names: &[Cow<'_, str>], scores: &[u8]) -> String {
    let mut text = String::with_capacity(names.len() * 48 + 2);
    text.push('[');
    for (count, (name, score)) in names.iter().zip(scores).enumerate() {
        if count > 0 {
            text.push(',');
        }
        text.push_str(r#"{"Host":"#);
        quote(&mut text, name);
        text.push_str(r#","Score":"#);
        text.push_str(DIGITS[usize::from(*score).min(DIGITS.len() - 1)]);
        text.push('}');
    }
    text.push(']');
    text
}

/// The answer to what does not say which nodes it is about: a scheduler that may ignore us goes on with all of them. Without
/// these words it would go on with none.
pub(crate) fn unreadable(error: &serde_json::Error) -> String {
    format!(r#"{{"Error":{}}}"#, quoted(&format!("dapple cannot read the question: {error}")))
}

/// The texts of a list of strings, read off the text itself. None if one of them is not written as it is, or is no string.
fn plain_names(text: &str) -> Option<Vec<&str>> {
    if text.contains('\\') {
        return None;
    }
    // By turns what is between two strings, and a string.
    let mut pieces = text.split('"');
    let first = pieces.next()?.trim();
    let mut names = Vec::with_capacity(text.len() / 16);
    loop {
        let Some(name) = pieces.next() else { return (names.is_empty() && first == "[]").then_some(names) };
        names.push(name);
        match pieces.next()? {
            "," => {}
            "]" => return (first == "[" && pieces.next().is_none()).then_some(names),
            _ => return None,
        }
    }
}

fn list<'t>(text: &mut String, items: impl Iterator<Item = &'t str>) {
    for (count, item) in items.enumerate() {
        if count > 0 {
            text.push(',');
        }
        text.push_str(item);
    }
}

/// Writes a name. One that was borrowed stood so in the question.
#[allow(clippy::ptr_arg, reason = "whether it is borrowed is what matters")]
fn quote(text: &mut String, name: &Cow<'_, str>) {
    match name {
        Cow::Borrowed(name) => {
            text.push('"');
            text.push_str(name);
            text.push('"');
        }
        Cow::Owned(name) => text.push_str(&quoted(name)),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
