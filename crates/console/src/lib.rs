//! The web console: its server and the embedded page.
