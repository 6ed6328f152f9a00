//! Pools and applications on a terminal: tables, with a tree below each application.

use dapple_api::pool::PoolState;

use super::{ApplicationView, CountsView, NodePoolView, PoolView, ReplacementView};
use crate::cells::{Cell, named, plain, since, write_notes};
use crate::paint::{Tone, count, harmless};
use crate::table::{self, Line, Row, across};

/// As many pools are shown below an application, unless all are asked for.
const POOLS_SHOWN: usize = 10;

/// Applications in one table; `wide` with the kind of workload, replacements and every pool.
pub fn applications(views: &[ApplicationView], colour: bool, wide: bool) -> String {
    let mut head = vec!["NAME", "POOLS", "DESIRED", "UPDATED", "READY", "AVAILABLE", "AGE", "REVISION", "STATE"];
    if wide {
        head.extend(["WORKLOAD", "REPLACEMENT"]);
    }
    let mut lines = Vec::new();
    views.iter().for_each(|view| view.write(&mut lines, colour, wide));
    table::text(&head, lines, colour)
}

/// Pools of nodes in one table; `wide` with the names of the nodes.
pub fn node_pools(views: &[NodePoolView], colour: bool, wide: bool) -> String {
    let mut head = vec!["NAME", "TYPE", "NODES", "READY", "NOTREADY", "AGE", "STATE"];
    if wide {
        head.push("NODE-NAMES");
    }
    let mut lines = Vec::new();
    for view in views {
        let tone = match view.state.as_str() {
            "Applied" | "NoNodes" => Tone::Good,
            "Applying" => Tone::Place,
            "NotBegun" => Tone::Aside,
            "Failed" | "Contested" => Tone::Bad,
            _ => Tone::Warning,
        };
        let mut cells = vec![named(&view.name), plain(view.kind), plain(view.nodes.len())];
        cells.extend([plain(view.ready), plain(view.not_ready), since(view.created, view.now)]);
        cells.push((harmless(&view.state), Some(tone)));
        if wide {
            cells.push(plain(harmless(&view.nodes.join(","))));
        }
        lines.push(Line::Row(Row::new(cells)));
        write_notes(&mut lines, &view.notes, colour);
    }
    table::text(&head, lines, colour)
}

/// Replacements in one table.
pub fn replacements(views: &[ReplacementView], colour: bool) -> String {
    let head = ["NAME", "SUBJECT", "MATCHED", "IN-EFFECT", "WAITING", "FAILED", "AGE", "STATE"];
    let mut lines = Vec::new();
    for view in views {
        let tone = match view.state.as_str() {
            "InEffect" => Tone::Good,
            "RollingOut" => Tone::Place,
            "NotBegun" => Tone::Aside,
            "PoolsFailed" => Tone::Bad,
            _ => Tone::Warning,
        };
        let numbers = [view.matched_pools, view.pools_in_effect, view.pools_waiting, view.pools_failed];
        let mut cells = vec![named(&format!("{}/{}", view.namespace, view.name)), plain(harmless(&view.subject))];
        cells.extend(numbers.map(plain));
        cells.extend([since(view.created, view.now), (harmless(&view.state), Some(tone))]);
        lines.push(Line::Row(Row::new(cells)));
        write_notes(&mut lines, &view.notes, colour);
    }
    table::text(&head, lines, colour)
}

fn numbers(counts: CountsView) -> [Cell; 4] {
    [counts.desired, counts.updated, counts.ready, counts.available].map(plain)
}

impl ApplicationView {
    fn write(&self, lines: &mut Vec<Line>, colour: bool, wide: bool) {
        let tone = match self.state {
            "Complete" | "NoPools" => Tone::Good,
            "Degraded" | "Deleting" | "Stopped" | "Late" => Tone::Bad,
            "RollingOut" => Tone::Place,
            "NotBegun" => Tone::Aside,
            _ => Tone::Warning,
        };
        let mut cells = vec![named(&format!("{}/{}", self.namespace, self.name))];
        cells.push(plain(format!("{}/{}", self.pools_done, self.pool_count)));
        cells.extend(numbers(self.counts));
        cells.push(since(self.created, self.now));
        cells.push(plain(self.short(self.update_revision.as_deref().unwrap_or_default())));
        cells.push((self.state_text.clone(), Some(tone)));
        if wide {
            cells.push(plain(self.workload.unwrap_or_default()));
            cells.push(plain(harmless(self.replacement.as_deref().unwrap_or_default())));
        }
        lines.push(Line::Row(Row::new(cells)));
        let pools = self.shown(wide);
        // All that are left out are as they should be, or there are too many of the others.
        let rest = self.pools.len() - pools.len();
        let more = (rest > 0).then(|| (format!("… and {} (-o wide shows all)", count(rest, "more pool")), Tone::Aside));
        let notes = self.notes.iter().map(|note| (note.clone(), Tone::Warning));
        let below: Vec<(String, Tone)> = more.into_iter().chain(notes).collect();
        for (index, pool) in pools.iter().enumerate() {
            let is_last = below.is_empty() && index + 1 == pools.len();
            lines.push(Line::Row(Row::below(is_last, self.of_pool(pool))));
        }
        for (index, (text, tone)) in below.iter().enumerate() {
            lines.push(across(index + 1 == below.len(), text, *tone, colour));
        }
    }

    /// Of many pools those that are not done come first, and not all are shown.
    fn shown(&self, wide: bool) -> Vec<&PoolView> {
        if wide || self.pools.len() <= POOLS_SHOWN {
            return self.pools.iter().collect();
        }
        self.pools.iter().filter(|pool| pool.state != PoolState::Done).take(POOLS_SHOWN).collect()
    }

    fn of_pool(&self, pool: &PoolView) -> Vec<Cell> {
        let mut cells = vec![plain(harmless(&pool.name)), plain("")];
        cells.extend(numbers(pool.counts));
        cells.push(plain(""));
        cells.push((self.short(&pool.revision), Some(Tone::Aside)));
        let (word, tone) = match pool.state {
            PoolState::Done => ("done", Tone::Good),
            PoolState::Waiting => ("waits", Tone::Aside),
            PoolState::Changing => ("changing", Tone::Place),
            PoolState::Late => ("late", Tone::Bad),
            PoolState::Unavailable => ("unavailable", Tone::Warning),
            PoolState::Leaving => ("leaving", Tone::Aside),
            PoolState::Failed => ("failed", Tone::Bad),
        };
        let text = match pool.state {
            _ if pool.message.is_empty() => word.to_owned(),
            // That it waits is what it says.
            PoolState::Waiting => pool.message.clone(),
            _ => format!("{word}: {}", pool.message),
        };
        cells.push((harmless(&text), Some(tone)));
        cells
    }

    /// The name of a revision without that of the application.
    fn short(&self, revision: &str) -> String {
        harmless(revision.strip_prefix(&format!("{}-", self.name)).unwrap_or(revision))
    }
}
