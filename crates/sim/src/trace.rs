//! What happened in a run, line by line. Two runs are the same if the fingerprints of their traces are, in which every byte
//! counts that went to and from the server.

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

    /// Has more count than what is read: two runs are the same only if this is, too.
    pub fn mix(&mut self, bytes: &[u8]) {
        self.fingerprint.write(bytes);
    }

    /// The same for the same lines, and what they are about.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint.finish()
    }

    /// The lines, if they were kept.
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}
