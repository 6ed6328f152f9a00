//! Starts the real thing: etcd, kube-apiserver, controller manager, scheduler, kwok nodes and, when asked for, a kubelet.
//!
//! [`Upstream::obtain`] finds or builds the programs, [`Cluster::start`] runs them, a [`Fleet`] fills the cluster with
//! nodes. Whatever is started is recorded by pid and start time in the cluster's folder, so that [`stop()`] and
//! [`clean_leftovers`] can end it from anywhere, and a reused pid is never harmed.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod balancer;
mod cancel;
mod certs;
mod cluster;
mod control_plane;
mod disk;
mod error;
mod files;
mod fleet;
mod hash;
mod kubeconfig;
mod kwok;
mod lock;
mod node;
mod ports;
mod process;
pub mod progress;
mod shared;
mod spec;
mod state;
mod stop;
pub mod testing;
mod upstream;

pub use cluster::{Attached, Cluster};
pub use error::{Error, Result};
pub use files::{cache_root, clusters_root, temporary_root};
pub use fleet::Fleet;
pub use kubeconfig::trusting;
pub use kwok::Readiness;
pub use node::{RealNode, RealNodeSpec, can_start_real_node};
pub use process::{Lifetime, ProcessId};
pub use progress::Progress;
pub use shared::shared;
pub use spec::ClusterSpec;
pub use stop::{abandon, clean_leftovers, stop};
pub use upstream::{Binaries, Binary, Need, Upstream};
