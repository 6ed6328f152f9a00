//! What the tests share.

use std::{sync::Arc, time::Duration};

use dapple_testbed::{Binaries, Cluster, ClusterSpec, Need, Upstream, progress};

pub(crate) async fn binaries() -> Binaries {
    Upstream::obtain(&[Need::ControlPlane], progress::to_stderr()).await.unwrap()
}

pub(crate) async fn start(spec: ClusterSpec) -> Cluster {
    Cluster::start(spec, &binaries().await, &progress::Quiet).await.unwrap()
}

pub(crate) async fn shared() -> Arc<Cluster> {
    dapple_testbed::shared().await.unwrap()
}

/// Waits for something that takes as long as it takes; a minute or two without it is a failure.
pub(crate) async fn eventually<T>(what: &str, check: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..1200 {
        if let Some(value) = check().await {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never happened: {what}");
}
