//! Webhook configurations are made at installation, and ask nobody then: the manager fills them in once it serves. It may only
//! change them, by name.

use dapple_api::crd::is_ours;
use dapple_control::install::{Error, apply, documents, find};
use kube::Client;

const CONFIGURATIONS: &str = include_str!("../../../config/webhooks.yaml");

/// Makes the configurations that are not there; what a manager has put into them is left as it is. One of another product is
/// left alone: the manager says so.
pub async fn install_configurations(client: &Client) -> Result<(), Error> {
    for wanted in documents(CONFIGURATIONS)? {
        if find(client, &wanted).await?.is_none_or(|found| is_ours(&found)) {
            apply(client, &wanted).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::registered;

    #[test]
    fn what_is_installed_is_what_is_registered_in_and_asks_nobody() {
        let mut registered = registered();
        for fields in registered.iter_mut().filter_map(|one| one.as_object_mut()) {
            fields.remove("webhooks");
        }
        assert_eq!(documents(CONFIGURATIONS).expect("it is YAML"), registered);
    }
}
