//! Markers on a real API server. Pods are objects that nobody runs, but where their owners matter.

mod bad_input;
mod brakes;
mod first;
mod owners;
mod played;
mod probed;
mod probes;
mod several;
mod story;
