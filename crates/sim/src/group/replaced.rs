//! Pods that are replaced behind the gate, since they were made by the edition of another group.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use http::{Method, Request};
use serde_json::Value;

use super::placing::is_gated;
use super::seats::{Owner, is_live, owner_of};
use crate::object::text;
use crate::server::ChangeKind;
use crate::sim::Write;

/// Over this time pods that are replaced are counted.
const WHILE: Duration = Duration::from_secs(10);
/// So many of one owner are as many as come in four steps, and again after a change of leader, and then some.
const MOST: usize = 80;

/// What was seen of them.
#[derive(Default)]
pub(super) struct Replaced {
    /// UID and version of pods that managers have asked to delete.
    asked: BTreeSet<(String, String)>,
    /// When pods of an owner were replaced lately.
    lately: BTreeMap<Owner, VecDeque<Duration>>,
}

impl Replaced {
    /// A manager asks for something.
    pub(super) fn hear(&mut self, request: &Request<Vec<u8>>) -> Result<(), String> {
        let path = request.uri().path();
        if *request.method() != Method::DELETE || !path.contains("/pods") {
            return Ok(());
        }
        let options: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let condition = |name: &str| text(&options["preconditions"][name]).to_owned();
        let (uid, version) = (condition("uid"), condition("resourceVersion"));
        if uid.is_empty() || version.is_empty() {
            return Err(format!("a manager deletes a pod, whichever it is by then: {path}"));
        }
        self.asked.insert((uid, version));
        Ok(())
    }

    /// Only pods that wait are deleted, those that are to be moved are evicted; and not as fast as others are made.
    pub(super) fn see(&mut self, write: &Write<'_>) -> Result<(), String> {
        let (pod, before) = (&write.change.object, write.change.previous.as_deref());
        let is_taken = !is_live(pod) || write.change.kind == ChangeKind::Deleted;
        let Some(before) = before.filter(|before| write.is_ours() && is_live(before) && is_taken) else {
            return Ok(());
        };
        let (name, identity) = (&before["metadata"]["name"], &before["metadata"]);
        let version = (text(&identity["uid"]).to_owned(), text(&identity["resourceVersion"]).to_owned());
        if !is_gated(before) {
            let is_deleted = self.asked.contains(&version);
            return if is_deleted {
                Err(format!("a manager deletes a pod that does not wait: {name}"))
            } else {
                Ok(())
            };
        }
        let lately = self.lately.entry(owner_of(before)).or_default();
        lately.push_back(write.at);
        while lately.pop_front_if(|at| *at + WHILE < write.at).is_some() {}
        if lately.len() > MOST {
            return Err(format!("{} pods were replaced in {WHILE:?}, the last of them {name}", lately.len()));
        }
        Ok(())
    }
}
