//! Everything that a manager sends: the client with its rate and its fence, writes with what has come of them, the ledger of
//! those that are open, and Events.

pub mod client;
pub mod events;
pub mod fence;
pub mod ledger;
pub mod outcome;
pub mod rate;
