//! Everything that a manager sends: the client with its rate and its fence, and Events.

pub mod client;
pub mod events;
