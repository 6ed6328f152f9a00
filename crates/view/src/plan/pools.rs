//! What becomes of the pools of an application, and in which wave.

use std::collections::BTreeMap;
use std::fmt::Write;

use dapple_plan::fate::HeldBy;
use dapple_plan::pool::ahead::{Ahead, PoolAhead, Turn};
use serde::Serialize;

use crate::paint::{Tone, count, few, harmless, paint};

/// As many waves are shown, unless all are asked for.
const WAVES_SHOWN: usize = 5;

/// What becomes of the pools of an application.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolsView {
    /// So many may be changed at once until the first is done.
    pub at_once_first: usize,
    /// So many from then on.
    pub at_once: usize,
    /// How many pools have each turn.
    pub counts: BTreeMap<String, usize>,
    /// Each pool, by name.
    pub each: Vec<PoolView>,
}

/// What becomes of a pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// Its name.
    pub pool: String,
    /// Its workload; nothing if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// What becomes of it.
    pub turn: String,
    /// In which wave; nothing for what waits for no turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave: Option<usize>,
    /// How many pods it should have.
    pub pods: i64,
    /// Whether its pods are made anew.
    pub restarts: bool,
    /// The first field of its workload that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Why it stays as it is, or what becomes of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether somebody else has changed its workload.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub changed_by_others: bool,
    /// What its pods would refer to, and does not exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<TargetView>,
}

/// Something that pods would refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetView {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

const LEFT_ALONE: &str = "left alone";
const HELD_BACK: &str = "held back";

impl PoolsView {
    pub(super) fn new(ahead: &Ahead) -> Self {
        let each: Vec<PoolView> = ahead.pools.iter().map(PoolView::new).collect();
        let mut counts = BTreeMap::new();
        for pool in &each {
            *counts.entry(pool.turn.clone()).or_default() += 1;
        }
        Self { at_once_first: ahead.at_once.0, at_once: ahead.at_once.1, counts, each }
    }

    /// Whether something is done to some pool.
    pub(super) fn differs(&self) -> bool {
        self.each.iter().any(|pool| pool.turn != LEFT_ALONE && !pool.turn.starts_with(HELD_BACK))
    }

    pub(super) fn write(&self, text: &mut String, colour: bool, wide: bool) {
        let counts: Vec<String> = self.counts.iter().map(|(turn, number)| format!("{number} {turn}")).collect();
        let told = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
        let _ = writeln!(text, "\n  pools: {told}");
        self.write_waves(text, wide);
        for pool in self.each.iter().filter(|pool| wide && pool.wave.is_none()) {
            let _ = writeln!(text, "    {}", harmless(&pool.line()));
        }
        for pool in self.each.iter().filter(|pool| !wide && !pool.message.is_empty() && pool.is_told()) {
            let line = format!("{}: {}: {}", pool.pool, pool.turn, pool.message);
            let _ = writeln!(text, "    {}", paint(&line, Tone::Warning, colour));
        }
        for pool in self.each.iter().filter(|pool| !pool.missing.is_empty()) {
            let names: Vec<String> =
                pool.missing.iter().map(|known| format!("{} {}", known.kind, known.name)).collect();
            let then =
                if pool.workload.is_some() { "it stays as it is until there is" } else { "its pods wait for it" };
            let line = format!("{}: there is no {}: {then}", pool.pool, names.join(", nor "));
            let _ = writeln!(text, "    {}", paint(&line, Tone::Warning, colour));
        }
    }

    fn write_waves(&self, text: &mut String, wide: bool) {
        let mut waves: BTreeMap<usize, Vec<&PoolView>> = BTreeMap::new();
        for pool in &self.each {
            if let Some(wave) = pool.wave {
                waves.entry(wave).or_default().push(pool);
            }
        }
        let Some(last) = waves.keys().next_back().copied() else { return };
        let pace = match (self.at_once_first, self.at_once) {
            (first, then) if first == then => format!("at most {} at a time", count(then, "pool")),
            (first, then) => format!("{} first, then at most {then} at a time", count(first, "pool")),
        };
        let _ = writeln!(text, "  rollout: {pace}, in {}", count(last, "wave"));
        let shown = if wide { last } else { WAVES_SHOWN };
        for (wave, pools) in waves.iter().take(shown) {
            if wide {
                for pool in pools {
                    let _ = writeln!(text, "    wave {wave}: {}", harmless(&pool.line()));
                }
                continue;
            }
            let names: Vec<String> = pools.iter().map(|pool| pool.pool.clone()).collect();
            let restarted: i64 = pools.iter().filter(|pool| pool.restarts).map(|pool| pool.pods).sum();
            let pods = count(usize::try_from(restarted).unwrap_or(0), "pod");
            let _ = writeln!(text, "    wave {wave}: {}; {pods} made anew", harmless(&few(&names)));
        }
        if last > shown {
            let _ = writeln!(text, "    … and {}", count(last - shown, "more wave"));
        }
    }
}

impl PoolView {
    fn new(pool: &PoolAhead) -> Self {
        let target = |kind: String, name: &str| TargetView { kind, name: name.to_owned() };
        Self {
            pool: pool.name.clone(),
            workload: pool.workload.clone(),
            turn: turn(pool),
            wave: pool.wave,
            pods: pool.pods,
            restarts: pool.turn == Turn::Restarted,
            field: pool.field.clone(),
            // That it waits for its turn, or is well, is told already.
            message: if is_worth_telling(pool.turn) { pool.message.clone() } else { String::new() },
            changed_by_others: pool.is_drift,
            missing: pool.missing.iter().map(|known| target(format!("{:?}", known.kind), &known.name)).collect(),
        }
    }

    /// Whether it is worth a line even where not all is asked for. What does not exist has lines of its own.
    fn is_told(&self) -> bool {
        self.missing.is_empty()
    }

    /// All that there is to say of it.
    fn line(&self) -> String {
        let mut line = format!("{}: {}", self.pool, self.turn);
        if let Some(workload) = &self.workload {
            let _ = write!(line, ", {workload} with {}", count(usize::try_from(self.pods).unwrap_or(0), "pod"));
        }
        if let Some(field) = &self.field {
            let by = if self.changed_by_others { ", which somebody else has changed" } else { "" };
            let _ = write!(line, " ({field}{by})");
        }
        if !self.message.is_empty() {
            let _ = write!(line, ": {}", self.message);
        }
        line
    }
}

fn turn(pool: &PoolAhead) -> String {
    match pool.turn {
        Turn::LeftAlone => LEFT_ALONE.to_owned(),
        Turn::Made => "made".to_owned(),
        Turn::Restarted if pool.is_drift => "restarted to undo changes of others".to_owned(),
        Turn::Restarted => "restarted".to_owned(),
        Turn::Noted => "updated when pods are deleted".to_owned(),
        Turn::Shrunk => "made smaller".to_owned(),
        Turn::Changed => "changed without a restart".to_owned(),
        Turn::Leaves => "removed".to_owned(),
        Turn::HeldBack(by) => format!("{HELD_BACK} ({by})"),
    }
}

/// Whether what the controller would say of a pool tells more than its turn.
fn is_worth_telling(turn: Turn) -> bool {
    matches!(turn, Turn::Leaves | Turn::HeldBack(HeldBy::Rendering | HeldBy::Removal))
}

#[cfg(test)]
mod tests {
    use dapple_edit::edit::ReferenceKind;
    use dapple_plan::pool::learned::Target;

    use super::*;

    fn pool(name: &str, turn: Turn, wave: Option<usize>) -> PoolAhead {
        PoolAhead {
            name: name.to_owned(),
            workload: (turn != Turn::Made).then(|| format!("web-{name}")),
            turn,
            wave,
            pods: 3,
            field: wave.map(|_| "spec.template.spec.containers".to_owned()),
            message: "so it is\u{1b}[2J".to_owned(),
            missing: Vec::new(),
            is_drift: false,
        }
    }

    fn view(at_once: (usize, usize), pools: Vec<PoolAhead>) -> PoolsView {
        PoolsView::new(&Ahead { at_once, pools })
    }

    fn text(view: &PoolsView, wide: bool) -> String {
        let mut text = String::new();
        view.write(&mut text, false, wide);
        text
    }

    #[test]
    fn waves_are_told_with_what_restarts() {
        let mut drift = pool("d", Turn::Restarted, Some(2));
        drift.is_drift = true;
        let all = vec![
            pool("a", Turn::Restarted, Some(1)),
            pool("b", Turn::LeftAlone, None),
            pool("c", Turn::Restarted, Some(2)),
            drift,
            pool("e", Turn::Made, None),
            pool("f", Turn::HeldBack(HeldBy::Rendering), None),
        ];
        let view = view((1, 2), all);
        assert!(view.differs());
        let expected = "
  pools: 1 held back (patch error), 1 left alone, 1 made, 2 restarted, 1 restarted to undo changes of others
  rollout: 1 pool first, then at most 2 at a time, in 2 waves
    wave 1: a; 3 pods made anew
    wave 2: c, d; 6 pods made anew
    f: held back (patch error): so it is\\u{1b}[2J
";
        assert_eq!(text(&view, false), expected);
        let wide = text(&view, true);
        for line in [
            "    wave 1: a: restarted, web-a with 3 pods (spec.template.spec.containers)",
            "    b: left alone, web-b with 3 pods",
            "    e: made",
        ] {
            assert!(wide.lines().any(|known| known == line), "{line} in {wide}");
        }
        assert!(wide.contains("(spec.template.spec.containers, which somebody else has changed)"), "{wide}");
        let told = serde_json::to_value(&view).unwrap();
        assert_eq!((&told["each"][2]["wave"], &told["each"][2]["restarts"]), (&2.into(), &true.into()));
        assert!(told["each"][1].get("wave").is_none() && told["each"][1].get("missing").is_none(), "{told}");
    }

    #[test]
    fn what_does_not_exist_is_named() {
        let target = |kind, name: &str| Target { kind, name: name.to_owned() };
        let mut held = pool("a", Turn::HeldBack(HeldBy::Target), None);
        held.missing =
            vec![target(ReferenceKind::ConfigMap, "to-a"), target(ReferenceKind::PersistentVolumeClaim, "data-a")];
        let mut made = pool("b", Turn::Made, None);
        made.missing = vec![target(ReferenceKind::ConfigMap, "to-b")];
        let view = view((1, 1), vec![held, made]);
        let shown = text(&view, false);
        let lines = [
            "    a: there is no ConfigMap to-a, nor PersistentVolumeClaim data-a: it stays as it is until there is",
            "    b: there is no ConfigMap to-b: its pods wait for it",
        ];
        lines.iter().for_each(|line| assert!(shown.lines().any(|known| known == *line), "{line} in {shown}"));
        assert_eq!(serde_json::to_value(&view).unwrap()["each"][0]["missing"][0]["name"], "to-a");
    }

    #[test]
    fn nothing_is_done_where_all_is_held_back_or_left_alone() {
        let still = vec![pool("a", Turn::LeftAlone, None), pool("b", Turn::HeldBack(HeldBy::Pause), None)];
        let view = view((1, 1), still);
        assert!(!view.differs());
        assert_eq!(text(&view, false), "\n  pools: 1 held back (paused), 1 left alone\n");
    }

    #[test]
    fn many_waves_are_counted() {
        let all = (0..9).map(|number| pool(&format!("p{number}"), Turn::Restarted, Some(number + 1))).collect();
        let view = view((1, 1), all);
        let shown = text(&view, false);
        assert!(
            shown.contains("at most 1 pool at a time, in 9 waves") && shown.contains("    … and 4 more waves"),
            "{shown}"
        );
        assert_eq!(text(&view, true).lines().filter(|line| line.starts_with("    wave ")).count(), 9);
    }
}
