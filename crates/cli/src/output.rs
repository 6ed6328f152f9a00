//! Printing that does not mind a reader who left.

use std::fmt::Arguments;
use std::io::Write;

/// Prints a line to standard output. `dapple status | head -1` closes the pipe early, which is no error.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}
pub(crate) use say;

pub(crate) fn line(text: Arguments<'_>) {
    put(format_args!("{text}\n"));
}

/// Writes to standard output. Says whether there is still somebody who reads: what goes on for ever ends with its reader.
pub(crate) fn put(text: Arguments<'_>) -> bool {
    let mut output = std::io::stdout();
    match output.write_fmt(text).and_then(|()| output.flush()) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => false,
        Err(error) => {
            // Whoever reads half an answer must not take it for the whole.
            note(&format!("error: cannot write the output: {error}"));
            std::process::exit(2);
        }
    }
}

/// Asks the person at the terminal whether to do something, such as `adopt this`. Without a terminal nobody can answer.
pub(crate) fn confirmed(what: &str) -> anyhow::Result<bool> {
    use std::io::IsTerminal;
    if !std::io::stdin().is_terminal() {
        anyhow::bail!("not asking without a terminal whether to {what}: add --yes to go on");
    }
    let mut letters = what.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    print!("{first}{}? [y/N] ", letters.as_str());
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
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
