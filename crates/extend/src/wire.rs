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

/// What comes between the name of a node and that of the next, by its score.
const AFTER_NAME: [&str; 11] = [
    r#"","Score":0},{"Host":""#,
    r#"","Score":1},{"Host":""#,
    r#"","Score":2},{"Host":""#,
    r#"","Score":3},{"Host":""#,
    r#"","Score":4},{"Host":""#,
    r#"","Score":5},{"Host":""#,
    r#"","Score":6},{"Host":""#,
    r#"","Score":7},{"Host":""#,
    r#"","Score":8},{"Host":""#,
    r#"","Score":9},{"Host":""#,
    r#"","Score":10},{"Host":""#,
];
/// What comes before the first name.
const BEFORE_NAME: &str = r#"{"Host":""#;
/// What a list of names begins with, as Go writes a question.
const NAMES: &str = r#","NodeNames":"#;

/// What is asked.
pub(crate) struct Question<'b> {
    /// The pod; none if it cannot be read.
    pub(crate) pod: Option<AskedPod>,
    /// The nodes.
    pub(crate) nodes: Nodes<'b>,
}

/// The nodes of a question, as they came.
pub(crate) enum Nodes<'b> {
    /// By name: the list as it is written, and the names if they are written as they are.
    Names(&'b str, Option<Vec<&'b str>>),
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
        if let Some(question) = Self::as_go_writes_it(body) {
            return Ok(question);
        }
        let Args { pod, nodes, names } = serde_json::from_slice(body)?;
        let is_null = |names: &&RawValue| names.get() == "null";
        let nodes = match (names.filter(|names| !is_null(names)), nodes) {
            (Some(names), _) => Nodes::Names(names.get(), plain_names(names.get())),
            (None, nodes) => Nodes::Objects(nodes.and_then(|nodes| nodes.items).unwrap_or_default()),
        };
        Ok(Self { pod: read_pod(pod), nodes })
    }

    /// Reads a question that ends with its names, plainly written: these are looked at once. None if it is not so.
    fn as_go_writes_it(body: &'b [u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        // Nowhere else: in a text, quotes are escaped, and an object that has such a field is not whole without the rest.
        let (head, rest) = text.split_once(NAMES)?;
        let list = rest.strip_suffix('}')?;
        let names = plain_names(list)?;
        let head = format!("{head}}}");
        let Args { pod, .. } = serde_json::from_str(&head).ok()?;
        Some(Self { pod: read_pod(pod), nodes: Nodes::Names(list, Some(names)) })
    }
}

/// Who would have to go for a pod, by node: `ExtenderPreemptionArgs` of a scheduler that sends names only. It asks about nodes
/// that no filter of ours was asked about, since they have no room.
pub(crate) struct Preemption<'b> {
    /// The pod; none if it cannot be read.
    pub(crate) pod: Option<AskedPod>,
    /// What is written of each node.
    pub(crate) victims: BTreeMap<String, &'b RawValue>,
}

#[derive(Deserialize)]
struct PreemptionArgs<'b> {
    #[serde(rename = "Pod", borrow)]
    pod: Option<&'b RawValue>,
    #[serde(rename = "NodeNameToMetaVictims", borrow)]
    victims: BTreeMap<String, &'b RawValue>,
}

impl<'b> Preemption<'b> {
    pub(crate) fn read(body: &'b [u8]) -> Result<Self, serde_json::Error> {
        let PreemptionArgs { pod, victims } = serde_json::from_slice(body)?;
        Ok(Self { pod: read_pod(pod), victims })
    }

    /// The answer that pods may go for it on nodes of which this is true.
    pub(crate) fn on(&self, is_allowed: impl Fn(usize) -> bool) -> String {
        let nodes = self.victims.iter().enumerate().filter(|(number, _)| is_allowed(*number));
        let nodes: BTreeMap<&String, &&RawValue> = nodes.map(|(_, node)| node).collect();
        serde_json::json!({"NodeNameToMetaVictims": nodes}).to_string()
    }
}

fn read_pod(pod: Option<&RawValue>) -> Option<AskedPod> {
    pod.and_then(|pod| serde_json::from_str::<Pod>(pod.get()).ok()).map(AskedPod::from)
}

impl<'b> Nodes<'b> {
    /// The names. An error if one has none.
    pub(crate) fn names(&self) -> Result<Vec<Cow<'b, str>>, serde_json::Error> {
        match self {
            Self::Names(_, Some(names)) => Ok(names.iter().copied().map(Cow::Borrowed).collect()),
            Self::Names(list, None) => {
                serde_json::from_str::<Vec<Name<'b>>>(list).map(|names| names.into_iter().map(|name| name.0).collect())
            }
            Self::Objects(objects) => {
                let name = |object: &&'b RawValue| serde_json::from_str::<Node<'b>>(object.get());
                objects.iter().map(|object| name(object).map(|node| node.metadata.name)).collect()
            }
        }
    }

    /// The answer that all of them may have the pod.
    pub(crate) fn all_pass(&self) -> String {
        match self {
            Self::Names(list, _) => format!(r#"{{"NodeNames":{list}}}"#),
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
            Self::Names(list, _) => {
                text.push_str(r#"{"NodeNames":["#);
                copy_names(&mut text, list, passing().map(|number| &names[number]));
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
    if names.is_empty() {
        return "[]".to_owned();
    }
    let lengths: usize = names.iter().map(|name| name.len()).sum();
    let mut text = String::with_capacity(lengths + names.len() * AFTER_NAME[10].len() + 16);
    text.push('[');
    text.push_str(BEFORE_NAME);
    for (name, score) in names.iter().zip(scores) {
        match name {
            Cow::Borrowed(name) => text.push_str(name),
            Cow::Owned(name) => {
                let quoted = quoted(name);
                text.push_str(quoted.get(1..quoted.len() - 1).unwrap_or_default());
            }
        }
        text.push_str(AFTER_NAME[usize::from(*score).min(AFTER_NAME.len() - 1)]);
    }
    // The comma, and what would come before another.
    text.truncate(text.len() - BEFORE_NAME.len() - 1);
    text.push(']');
    text
}

/// The answer to what does not say which nodes it is about: a scheduler that may ignore us goes on with all of them. Without
/// these words it would go on with none.
pub(crate) fn unreadable(error: &serde_json::Error) -> String {
    format!(r#"{{"Error":{}}}"#, quoted(&format!("dapple cannot read the question: {error}")))
}

/// The texts of a list of strings, read off the text itself. None if one of them is not written as it is, or is no string, or
/// something is between them.
fn plain_names(list: &str) -> Option<Vec<&str>> {
    let bytes = list.as_bytes();
    if bytes == b"[]" {
        return Some(Vec::new());
    }
    let mut names = Vec::with_capacity(list.len() / 16);
    let (mut at, mut before) = (0, b"[\"");
    loop {
        let begin = at + before.len();
        if bytes.get(at..begin)? != before {
            return None;
        }
        let end = begin + first_quote(&bytes[begin..])?;
        names.push(list.get(begin..end)?);
        if bytes[end..] == *b"\"]" {
            return Some(names);
        }
        (at, before) = (end + 1, b",\"");
    }
}

/// Where the first quote is; none if there is none, or a backslash comes before it. Eight bytes at a time.
fn first_quote(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // The lowest byte of those that are marked is zero.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    let (words, rest) = bytes.as_chunks::<8>();
    let is_wanted = |byte: &u8| matches!(byte, b'"' | b'\\');
    let in_words = words.iter().enumerate().find_map(|(number, word)| {
        let word = u64::from_le_bytes(*word);
        let found = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
        (found != 0).then(|| number * 8 + found.trailing_zeros() as usize / 8)
    });
    let found = in_words.or_else(|| Some(words.len() * 8 + rest.iter().position(is_wanted)?))?;
    (bytes[found] == b'"').then_some(found)
}

/// Writes names of a list, neighbours in one piece.
fn copy_names<'n>(text: &mut String, list: &str, names: impl Iterator<Item = &'n Cow<'n, str>>) {
    // From the quote before the first to the one behind the last.
    let mut piece: Option<(usize, usize)> = None;
    let mut is_first = true;
    let mut put = |text: &mut String, what: &str| {
        if !std::mem::take(&mut is_first) {
            text.push(',');
        }
        text.push_str(what);
    };
    for name in names {
        let here = match name {
            Cow::Borrowed(name) => (name.as_ptr() as usize).checked_sub(list.as_ptr() as usize),
            Cow::Owned(_) => None,
        };
        match (here, piece) {
            (Some(begin), Some((from, to))) if begin == to + 2 => piece = Some((from, begin + name.len() + 1)),
            (here, before) => {
                before.and_then(|(from, to)| list.get(from..to)).into_iter().for_each(|before| put(text, before));
                piece = here.map(|begin| (begin - 1, begin + name.len() + 1));
                if here.is_none() {
                    put(text, &quoted(name));
                }
            }
        }
    }
    piece.and_then(|(from, to)| list.get(from..to)).into_iter().for_each(|last| put(text, last));
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
