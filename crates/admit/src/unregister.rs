//! Taking webhooks back, before those who answer them go.

use dapple_api::crd::is_ours;
use dapple_control::install::{Error, find, stop_conversion};
use dapple_control::manager::Shared;
use dapple_control::uninstall::{Removal, remove};
use kube::Client;
use tracing::warn;

use crate::hooks::registered;
use crate::register::CONVERTED;

/// What a manager does about webhooks that it does not serve: it says so if the API server is told to ask. Another replica
/// may serve them, so they are left alone.
pub async fn notice(shared: Shared) {
    for wanted in registered() {
        if let Ok(Some(found)) = find(&shared.plain, &wanted).await
            && is_ours(&found)
            && found["webhooks"].as_array().is_some_and(|hooks| !hooks.is_empty())
        {
            warn!(
                configuration = wanted["metadata"]["name"].as_str(),
                "it has the API server ask for webhooks, and this process serves none: give --webhook-listen, or stop all \
                 managers and take it back with `dapple down --cluster`"
            );
        }
    }
}

/// Has the API server ask nobody any more. Only what is dapple's is touched.
pub async fn unregister(client: &Client) -> Result<Removal, Error> {
    let mut removal = remove(client, registered()).await?;
    let crd = CONVERTED.crd();
    if stop_conversion(client, &crd).await? {
        removal.removed.push(format!("the conversion of {crd}"));
    }
    Ok(removal)
}
