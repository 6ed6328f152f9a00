//! Marking pods: which pods a marker marks, how fast marks move, what is probed for it, and what its status says.
//!
//! [`rule`] is what a PodMarker asks for. [`standing`] says how one pod stands to it: whether it matches, by results of probes that
//! count ([`result`], [`probers`]) and unless a value stands against it ([`clash`]), and what it has of the marks. [`choice`] keeps
//! these one pod at a time and says which pods are to be marked, and which not any more. [`allowance`], [`rest`], [`carry`],
//! [`seats`], [`pace`] and [`refusals`] say how fast. [`probing`] is what a node is to probe; there, [`schedule`] says when each
//! probe ([`action`]) runs and what comes of it, and [`reporting`] when that is written. What becomes of a pod is in
//! `dapple_edit::marker`.
//!
//! For commands, [`seen`] is a namespace that is read once, off pods that are read [`whole`], and [`explain`] says why a pod is marked
//! or is not.

pub mod action;
pub mod allowance;
pub mod carry;
pub mod choice;
pub mod clash;
pub mod explain;
pub mod owner;
pub mod pace;
pub mod probe;
pub mod probers;
pub mod probing;
pub mod refusals;
pub mod reporting;
pub mod rest;
pub mod result;
pub mod rule;
pub mod schedule;
mod scheduled;
pub mod seats;
pub mod seen;
pub mod standing;
pub mod status;
mod stretch;
pub mod whole;

#[cfg(test)]
mod tests;
