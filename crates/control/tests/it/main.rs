//! Tests on a real etcd and kube-apiserver. One binary, one cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

mod api;
mod daemonset;
mod explain;
mod foreign;
mod group;
mod malformed;
mod marker;
mod pool;
mod pool_apps;
mod support;
