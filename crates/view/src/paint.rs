//! Colour, and differences line by line.

use std::fmt::Write;

use similar::{ChangeTag, TextDiff};

/// What a piece of text is, and so how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// A heading.
    Heading,
    /// Something that is probably not meant.
    Warning,
    /// Something that is wrong, or goes.
    Bad,
    /// Something that comes.
    Good,
    /// Where something is.
    Place,
    /// Beside the matter.
    Aside,
}

/// Text that can do nothing to a terminal: names and keys are whatever somebody wrote. Letters that steer it, or turn the
/// direction of writing, are shown as what they are.
pub fn harmless(text: &str) -> String {
    let steers =
        |letter: char| letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .flat_map(|letter| if steers(letter) { letter.escape_default().collect() } else { vec![letter] })
        .collect()
}

/// A line in the colour of its tone, or plain.
pub(crate) fn paint(text: &str, tone: Tone, colour: bool) -> String {
    let text = harmless(text);
    let code = match tone {
        Tone::Heading => "1",
        Tone::Warning => "33",
        Tone::Bad => "31",
        Tone::Good => "32",
        Tone::Place => "36",
        Tone::Aside => "2",
    };
    if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text }
}

/// A unified difference without file names, three lines of context.
pub(crate) fn unified(before: &str, after: &str) -> String {
    let mut text = String::new();
    for hunk in TextDiff::from_lines(before, after).unified_diff().context_radius(3).iter_hunks() {
        let _ = writeln!(text, "{}", hunk.header());
        for change in hunk.iter_changes() {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            let _ = writeln!(text, "{sign}{}", change.value().trim_end_matches('\n'));
        }
    }
    text
}

/// A unified difference, each line in its colour and behind `indent`.
pub(crate) fn paint_diff(diff: &str, indent: &str, colour: bool) -> String {
    let line = |line: &str| match line.as_bytes().first() {
        Some(b'+') => paint(line, Tone::Good, colour),
        Some(b'-') => paint(line, Tone::Bad, colour),
        Some(b'@') => paint(line, Tone::Place, colour),
        _ => harmless(line),
    };
    diff.lines().fold(String::new(), |text, each| text + indent + &line(each) + "\n")
}

/// A number of things, in words.
pub(crate) fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// The first names of many.
pub(crate) fn few(names: &[String]) -> String {
    let first = names.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > 3 { format!("{first}, …") } else { first }
}
