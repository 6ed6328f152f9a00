//! Where a watch shows what it sees: in place on a terminal, or one block after the other.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use crate::args::GetOutput;
use crate::get::kind::{Key, Shown};
use crate::get::printed;
use crate::output::{is_coloured, put};

/// A terminal of unknown height.
const ROWS: usize = 24;

/// An object as it is now, and as it would be at the moment the watch began: in this form only changes of its own
/// differ, and not its age.
pub(super) struct Seen<V> {
    pub(super) now: V,
    pub(super) then: V,
}

pub(super) enum Screen<V> {
    /// Each picture takes the place of the one before it, of so many lines.
    Terminal { lines: usize },
    /// What changed is added, for whoever reads it later.
    Log { shown: BTreeMap<Key, V> },
}

/// How views are to be shown: how the kind is written before a name, and the form that was asked for.
pub(super) type Form<'a> = (&'a str, GetOutput);

impl<V> Screen<V> {
    pub(super) fn new(output: GetOutput) -> Self {
        let is_text = matches!(output, GetOutput::Text | GetOutput::Wide);
        if is_text && std::io::stdout().is_terminal() {
            Self::Terminal { lines: 0 }
        } else {
            Self::Log { shown: BTreeMap::new() }
        }
    }

    /// Whether time alone changes the picture.
    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// Shows what there is now; `aside` is a line below it. Says whether there is still somebody who looks.
    pub(super) fn show<K: Shown<View = V>>(
        &mut self,
        seen: Vec<Seen<V>>,
        aside: Option<&str>,
        form: Form<'_>,
    ) -> anyhow::Result<bool> {
        match self {
            Self::Terminal { lines } => {
                let views: Vec<V> = seen.into_iter().map(|one| one.now).collect();
                let mut picture = printed::<K>(&views, form.0, (form.1, is_coloured()))?;
                if let Some(aside) = aside {
                    picture += &format!("{aside}\n");
                }
                let height = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(ROWS, |size| size.ws_row.into());
                let (text, drawn) = frame(&picture, *lines, height);
                *lines = drawn;
                Ok(put(format_args!("{text}")))
            }
            Self::Log { shown } => {
                let text = log::<K>(shown, seen, form)?;
                Ok(text.is_empty() || put(format_args!("{text}")))
            }
        }
    }
}

/// What draws a picture over one of so many lines, and the lines it has. Lines are cut at the edge instead of wrapped, so
/// that a line is a line; what does not fit below is left out, since nobody could draw over what has scrolled away.
fn frame(picture: &str, before: usize, height: usize) -> (String, usize) {
    let room = height.saturating_sub(1).max(1);
    let mut lines: Vec<String> = picture.lines().map(str::to_owned).collect();
    if lines.len() > room {
        let more = lines.len() - room + 1;
        lines.truncate(room - 1);
        lines.push(format!("… {more} more lines"));
    }
    let up = if before > 0 { format!("\u{1b}[{before}A") } else { String::new() };
    // No wrapping while it is drawn, each line cleared behind its end, and all below the last.
    let mut text = format!("\u{1b}[?7l{up}\r");
    for line in &lines {
        text += &format!("{line}\u{1b}[K\n");
    }
    text += "\u{1b}[J\u{1b}[?7h";
    (text, lines.len())
}

/// What has changed since it was shown last, and what is gone.
fn log<K: Shown>(
    shown: &mut BTreeMap<Key, K::View>,
    seen: Vec<Seen<K::View>>,
    (resource, output): Form<'_>,
) -> anyhow::Result<String> {
    let there: Vec<Key> = seen.iter().map(|one| K::key(&one.then)).collect();
    let gone: Vec<Key> = shown.keys().filter(|known| !there.contains(known)).cloned().collect();
    let mut text = String::new();
    for known in gone {
        shown.remove(&known);
        if matches!(output, GetOutput::Text | GetOutput::Wide) {
            let namespace = if known.0.is_empty() { String::new() } else { format!("{}/", known.0) };
            text += &format!("{namespace}{} was deleted\n\n", known.1);
        }
    }
    let mut changed = Vec::new();
    for Seen { now, then } in seen {
        let key = K::key(&then);
        if shown.get(&key) != Some(&then) {
            shown.insert(key, then);
            changed.push(now);
        }
    }
    if changed.is_empty() {
        return Ok(text);
    }
    match output {
        // One after the other, as `kubectl get -w -o json` writes them.
        GetOutput::Json => {
            for view in &changed {
                text += &format!("{}\n", serde_json::to_string_pretty(view)?);
            }
        }
        GetOutput::Text | GetOutput::Wide => {
            text += &format!("{}\n", printed::<K>(&changed, resource, (output, is_coloured()))?);
        }
        GetOutput::Yaml | GetOutput::Name => text += &printed::<K>(&changed, resource, (output, false))?,
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use dapple_api::daemonset::DaemonSet;
    use dapple_view::daemonset::DaemonSetView;
    use jiff::Timestamp;

    use super::*;
    use crate::get::kind::DaemonSets;

    const RESOURCE: &str = "daemonset.apps.kruise.io";

    fn seen(name: &str, desired: i32, now: i64) -> Seen<DaemonSetView> {
        let set: DaemonSet = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": "default", "creationTimestamp": "2026-11-15T10:00:00Z"},
            "spec": {"selector": {}, "template": {}}, "status": {"desiredNumberScheduled": desired}}))
        .unwrap();
        let view = |second: i64| DaemonSetView::new(&set, &[], Timestamp::from_second(second).unwrap());
        Seen { now: view(now), then: view(0) }
    }

    #[test]
    fn only_what_changed_is_added() {
        let mut shown = BTreeMap::new();
        let mut names =
            |all: Vec<Seen<DaemonSetView>>| log::<DaemonSets>(&mut shown, all, (RESOURCE, GetOutput::Name)).unwrap();
        assert_eq!(names(vec![seen("a", 1, 5), seen("b", 1, 5)]).lines().count(), 2);
        assert_eq!(names(vec![seen("a", 1, 99), seen("b", 1, 99)]), "", "time alone is no change");
        assert_eq!(names(vec![seen("a", 1, 99), seen("b", 2, 99)]), "daemonset.apps.kruise.io/b\n");
        let mut log = |output| log::<DaemonSets>(&mut shown, vec![seen("b", 2, 99)], (RESOURCE, output)).unwrap();
        assert_eq!(log(GetOutput::Text), "default/a was deleted\n\n");
        assert_eq!(log(GetOutput::Json), "");
    }

    #[test]
    fn a_picture_takes_the_place_of_the_one_before() {
        let (text, lines) = frame("a\nb\n", 0, 24);
        assert_eq!((text.as_str(), lines), ("\u{1b}[?7l\ra\u{1b}[K\nb\u{1b}[K\n\u{1b}[J\u{1b}[?7h", 2));
        assert!(frame("c\n", lines, 24).0.contains("\u{1b}[2A"));
        let (text, lines) = frame(&"x\n".repeat(50), 0, 10);
        assert_eq!(lines, 9);
        assert!(text.contains("… 42 more lines"), "{text}");
        assert_eq!(frame("a\nb\n", 0, 0).1, 1, "a terminal without height has one line");
    }
}
