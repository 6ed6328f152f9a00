//! Finds or builds every upstream program, with progress, so that tests need not do it in silence.

use dapple_testbed::{Need, Upstream, progress::to_stderr};

#[tokio::main]
async fn main() -> Result<(), String> {
    let needs = [Need::ControlPlane, Need::RealNode];
    Upstream::obtain(&needs, to_stderr()).await.map(|_| ()).map_err(|error| error.to_string())
}
