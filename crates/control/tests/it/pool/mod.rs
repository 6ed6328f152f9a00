//! What nodes get of their NodePool, on a real API server.

mod attributes;
mod execute;
mod leaving;
mod story;
mod unserved;
