//! An in-memory API server with faults, under a clock that the test turns. For tests only.
