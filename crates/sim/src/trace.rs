//! What happened in a run, line by line. Two runs are the same if their traces are.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

/// A trace. Its lines are kept only if somebody wants to read them; its fingerprint always is.
#[derive(Debug, Default)]
pub struct Trace {
    lines: Option<Vec<String>>,
    fingerprint: DefaultHasher,
}

impl Trace {
    /// A trace whose lines are kept.
    pub fn kept() -> Self {
        Self { lines: Some(Vec::new()), ..Self::default() }
    }

    /// Adds a line.
    pub fn add(&mut self, at: Duration, what: fmt::Arguments<'_>) {
        let line = format!("{:>9.3} {what}", at.as_secs_f64());
        self.fingerprint.write(line.as_bytes());
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }

    /// The same for the same lines.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint.finish()
    }

    /// The lines, if they were kept.
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}
