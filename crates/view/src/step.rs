//! What `dapple rollout status` does after a look at a rollout.

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing that was not said before.
    Same,
    /// Say this, and look on.
    Line(String),
    /// Say this, and end: nothing more is to be waited for.
    Done(String),
    /// Say this, and fail: there is nothing left to wait for.
    Failed(String),
}
