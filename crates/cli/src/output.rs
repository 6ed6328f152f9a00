//! Printing that does not mind a reader who left.

use std::fmt::Arguments;
use std::io::Write;

/// Prints a line to standard output. `dapple status | head -1` closes the pipe early, which is no error.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}
pub(crate) use say;

pub(crate) fn line(text: Arguments<'_>) {
    let mut output = std::io::stdout();
    let written = writeln!(output, "{text}").and_then(|()| output.flush());
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        // Whoever reads half an answer must not take it for the whole.
        note(&format!("error: cannot write the output: {error}"));
        std::process::exit(2);
    }
}

/// Whether what is printed to standard output gets colour.
pub(crate) fn is_coloured() -> bool {
    is_coloured_for(&std::io::stdout())
}

/// Colour on a terminal, unless it is not wanted (no-color.org).
pub(crate) fn is_coloured_for(stream: &impl std::io::IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A value as YAML, without the last line's end.
pub(crate) fn yaml(value: &serde_json::Value) -> String {
    dapple_api::yaml::document(value).trim_end().to_owned()
}

/// A line for the person at the terminal, which is no part of the output.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
