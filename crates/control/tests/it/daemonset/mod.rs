//! DaemonSets on a real control plane with kwok nodes. One cluster and one manager serve all stories; each has its own
//! namespace and its own nodes.

mod bad_input;
mod bytes;
mod complaints;
mod counts;
mod down;
mod events;
mod excused;
mod failing;
mod fields;
mod forged;
mod gate;
mod half_done;
mod held;
mod identity;
mod illness;
mod inplace;
mod kubelet;
mod lifecycle;
mod meaning;
mod midway;
mod owners;
mod patches;
mod policies;
mod pull;
mod refused;
mod shunned;
mod sick;
mod stalled;
mod steps;
mod story;
mod unanswered;
mod updates;
mod watch;

pub(crate) use story::{cluster, metrics};
