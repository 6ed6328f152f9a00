//! One cluster for all tests of a process.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use crate::{
    cluster::Cluster,
    error::{Error, Result},
    files::temporary_root,
    progress,
    spec::ClusterSpec,
    stop,
    upstream::{Need, Upstream},
};

type Slot = Option<Result<Arc<Cluster>, String>>;

/// The cluster that all tests of this process share, started by the first that asks, without nodes and with kwok.
///
/// It ends with the process. Statics are never dropped, so its folder stays until the next run cleans it away. Each test
/// makes its own client ([`Cluster::client`]), since clients belong to the runtime they were made in.
pub async fn shared() -> Result<Arc<Cluster>> {
    static SLOT: OnceLock<watch::Receiver<Slot>> = OnceLock::new();
    let mut slot = SLOT
        .get_or_init(|| {
            let (sender, receiver) = watch::channel(None);
            // A thread and runtime of its own: the test that asked first may end before the others.
            std::thread::spawn(move || {
                sender.send_replace(Some(start().map_err(|error| error.to_string())));
            });
            receiver
        })
        .clone();
    let interrupted = || Error::Interrupted { what: "starting the shared cluster" };
    let ready = slot.wait_for(Option::is_some).await.map_err(|_| interrupted())?;
    match ready.as_ref() {
        Some(Ok(cluster)) => Ok(cluster.clone()),
        Some(Err(reason)) => Err(Error::Shared { reason: reason.clone() }),
        None => Err(interrupted()),
    }
}

fn start() -> Result<Arc<Cluster>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|_| Error::Interrupted { what: "making a runtime" })?;
    stop::clean_leftovers(&temporary_root())?;
    let progress = progress::to_stderr();
    runtime.block_on(async {
        let binaries = Upstream::obtain(&[Need::ControlPlane], progress.clone()).await?;
        Ok(Arc::new(Cluster::start(ClusterSpec::temporary(), &binaries, progress.as_ref()).await?))
    })
}
