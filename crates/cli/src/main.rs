//! The `dapple` command.
fn main() {}
