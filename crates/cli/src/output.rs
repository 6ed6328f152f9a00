//! Printing that does not mind a reader who left.

use std::fmt::Arguments;
use std::io::Write;

/// Prints a line to standard output. `dapple status | head -1` closes the pipe early, which is no error.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}
pub(crate) use say;

pub(crate) fn line(text: Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
