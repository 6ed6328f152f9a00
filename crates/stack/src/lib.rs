//! Nothing: see Cargo.toml beside it.
