//! What a benchmark has to reach.

/// Prints a figure, and notes it if it misses its goal.
pub fn check(missed: &mut Vec<String>, what: String, is_met: bool) {
    println!("  {what}{}", if is_met { "" } else { "  MISSED" });
    if !is_met {
        missed.push(what);
    }
}
