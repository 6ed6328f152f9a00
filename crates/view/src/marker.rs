//! PodMarkers as `dapple get` shows them, and how each pod stands to one: for the terminal, the page and JSON.

mod account;
mod ahead;

pub use account::{AccountView, NumbersView, PodView, ReasonView};
pub use ahead::MarkerPlanView;

use dapple_api::marker::PodMarker;
use dapple_plan::marker::status::{CONFLICT, HELD, MARKED, PROBES_KNOWN};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;

use crate::cells::{named, plain, since, write_notes};
use crate::object::{created, fresh};
use crate::paint::{Tone, harmless};
use crate::table::{self, Line, Row};

/// A marker.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MarkerView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// How many pods it asks for, as it says; nothing for all that match.
    pub replicas: Option<String>,
    /// The state, as a word for programs.
    pub state: String,
    /// Whether as many pods are marked as should be, and none is to be changed.
    pub done: bool,
    /// Pods that should be marked.
    pub desired: i32,
    /// Pods that have all the marks.
    pub succeeded: i32,
    /// Pods that match.
    pub matched: i32,
    /// Pods that wait for their turn.
    pub waiting: i32,
    /// Pods that could not be changed.
    pub failed: i32,
    /// Pods that would match, but for something that stands against it.
    pub conflicting: i32,
    /// Pods of which it is not known whether they match.
    pub unknown: i32,
    /// What is wrong, and why something waits.
    pub notes: Vec<String>,
    /// The moment it is seen from.
    #[serde(skip)]
    now: Timestamp,
}

impl MarkerView {
    /// The view of a marker at a moment.
    pub fn new(marker: &PodMarker, now: Timestamp) -> Self {
        let (metadata, status) = (&marker.metadata, marker.status.clone().unwrap_or_default());
        let fresh = |kind: &str| fresh(&status.conditions, metadata, kind);
        let marked = fresh(MARKED);
        // How far it is, the numbers say.
        let wrong = marked.filter(|known| known.status == "False" && known.reason != "InProgress");
        let of = |kind: &str, is: &str| fresh(kind).filter(|known| known.status == is);
        let told = [wrong, of(CONFLICT, "True"), of(HELD, "True"), of(PROBES_KNOWN, "False")];
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            created: created(metadata),
            replicas: marker.spec.replicas().map(|replicas| match replicas {
                IntOrString::Int(count) => count.to_string(),
                IntOrString::String(text) => text.clone(),
            }),
            state: marked.map_or("NotBegun", |known| known.reason.as_str()).to_owned(),
            done: marked.is_some_and(|known| known.status == "True"),
            notes: told.into_iter().flatten().map(|known| known.message.clone()).collect(),
            desired: status.desired,
            succeeded: status.succeeded,
            matched: status.matched,
            waiting: status.waiting,
            failed: status.failed,
            conflicting: status.conflicting,
            unknown: status.unknown,
            now,
        }
    }
}

/// Markers in one table; `wide` with what they ask for, and with pods that are left alone.
pub fn table(views: &[MarkerView], colour: bool, wide: bool) -> String {
    let mut head = vec!["NAME", "DESIRED", "SUCCEEDED", "MATCHED", "WAITING", "FAILED", "AGE", "STATE"];
    if wide {
        head.extend(["REPLICAS", "CONFLICTING", "UNKNOWN"]);
    }
    let mut lines = Vec::new();
    for view in views {
        let tone = match view.state.as_str() {
            "AllMarked" | "FewMatch" | "Cleaned" => Tone::Good,
            "InProgress" => Tone::Place,
            "NotBegun" => Tone::Aside,
            "CannotBeUsed" | "PodsRefused" => Tone::Bad,
            _ => Tone::Warning,
        };
        let mut cells = vec![named(&format!("{}/{}", view.namespace, view.name))];
        cells.extend([view.desired, view.succeeded, view.matched, view.waiting, view.failed].map(plain));
        cells.extend([since(view.created, view.now), (harmless(&view.state), Some(tone))]);
        if wide {
            cells.push(plain(harmless(view.replicas.as_deref().unwrap_or("all"))));
            cells.extend([view.conflicting, view.unknown].map(plain));
        }
        lines.push(Line::Row(Row::new(cells)));
        write_notes(&mut lines, &view.notes, colour);
    }
    table::text(&head, lines, colour)
}

#[cfg(test)]
mod tests;
