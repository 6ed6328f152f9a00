//! Installing dapple into a cluster, and taking it out: APIs, permissions and policies, and nothing that runs.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use dapple_admit::install::install_configurations;
use dapple_admit::unregister::unregister;
use dapple_api::marker::PROBER_NAMESPACE;
use dapple_api::partition::{ServiceAccount, author_policies};
use dapple_control::env::Env;
use dapple_control::families::way_over;
use dapple_control::group::release_all;
use dapple_control::install::{apply, apply_yaml, documents, install_crds, install_policies, wait_until_gone};
use dapple_control::partition::off;
use dapple_control::uninstall::{leader, remove, remove_yaml};
use dapple_testbed::progress::to_stderr;
use kube::Client;
use serde_json::{Value, json};

use crate::args::{DownArgs, LEASE, NAMESPACE, UpArgs};
use crate::connect;
use crate::output::{confirmed, say};

/// The prober on every node, and its permissions.
const PROBER: &str = include_str!("../../../config/prober.yaml");

/// Namespace, service account and permissions of the manager.
fn permissions(namespace: &str) -> String {
    // Nothing else in it has this name, or a part of it.
    include_str!("../../../config/rbac.yaml").replace(NAMESPACE, namespace)
}

/// The manager's account, which these permissions are for.
pub(crate) fn manager_account(namespace: &str) -> ServiceAccount {
    ServiceAccount { namespace: namespace.to_owned(), name: "dapple-manager".to_owned() }
}

/// Installs the CRDs, the manager's permissions, configurations for its webhooks, and the policies on who may write what makes
/// it change pods. Returns the CRDs that another product serves.
pub(crate) async fn install(client: &Client, namespace: &str) -> anyhow::Result<Vec<String>> {
    let crds = install_crds(client).await.context("cannot install the CRDs")?;
    apply_yaml(client, &permissions(namespace)).await.context("cannot install the manager's permissions")?;
    install_configurations(client).await.context("cannot install the webhook configurations")?;
    install_policies(client, &manager_account(namespace))
        .await
        .context("cannot install the policies on who may write what makes dapple change pods")?;
    Ok(crds.into_iter().filter(|crd| crd.foreign).map(|crd| crd.name).collect())
}

/// The prober of this image and its permissions; with the folder of the runtime's socket and the socket, if it runs commands.
fn prober(image: &str, runtime: Option<(&str, &str)>) -> anyhow::Result<Vec<Value>> {
    let mut objects = documents(PROBER)?;
    for object in objects.iter_mut().filter(|object| object["kind"] == "DaemonSet") {
        let pod = &mut object["spec"]["template"]["spec"];
        pod["containers"][0]["image"] = json!(image);
        let Some((folder, socket)) = runtime else { continue };
        pod["containers"][0]["args"] = json!(["node", "prober", "--exec", "--runtime-socket", socket]);
        pod["containers"][0]["volumeMounts"] = json!([{"name": "runtime", "mountPath": folder, "readOnly": true}]);
        // A runtime that restarts makes its socket anew, in the same folder.
        pod["volumes"] = json!([{"name": "runtime", "hostPath": {"path": folder, "type": "Directory"}}]);
        // It belongs to root and root's group. The prober is of the group, and still not root itself.
        pod["securityContext"]["runAsGroup"] = json!(0);
    }
    Ok(objects)
}

/// Installs the prober on every node, if that is asked for.
async fn install_prober(client: &Client, args: &UpArgs) -> anyhow::Result<()> {
    let Some(image) = &args.prober.prober_image else { return Ok(()) };
    let runtime = args.prober.prober_exec.map(|runtime| runtime.socket());
    for object in prober(image, runtime)? {
        apply(client, &object).await.context("cannot install the prober")?;
    }
    let commands = if runtime.is_some() { ", which runs commands in containers too" } else { "" };
    say!("Installed the prober of PodMarkers on every node{commands}");
    Ok(())
}

/// `dapple down --cluster`.
pub(crate) async fn out_of_cluster(args: &DownArgs) -> anyhow::Result<ExitCode> {
    let config = connect::config(&args.connect).await?;
    let server = config.cluster_url.to_string();
    let (client, namespace) = (Client::try_from(config)?, &args.namespace);
    // It would put everything back.
    let watching = |time: Duration| {
        let seconds = time.as_secs();
        say!(
            "The lease {namespace}/{LEASE} has a time that no manager wrote: watching for {seconds} s whether one renews it"
        );
    };
    if let Some(holder) = leader(&client, (namespace, LEASE), Env::system().now(), watching).await? {
        bail!(
            "a manager runs at {server}, {holder} by the lease {namespace}/{LEASE}: stop all managers first, and wait until \
             the lease has ended"
        );
    }
    let what = format!(
        "take dapple's webhooks, policies, permissions and probers, and the namespaces {namespace} and {PROBER_NAMESPACE}, out of"
    );
    if !args.yes && !confirmed(&format!("{what} {server}"))? {
        say!("Nothing was changed.");
        return Ok(ExitCode::from(1));
    }
    // Webhooks first: from here on nobody answers them.
    let mut removal = unregister(&client).await.context("cannot take back the webhooks")?;
    release_pods(&client).await?;
    // While the policies are there that keep it to its own node.
    removal.extend(remove_yaml(&client, PROBER).await.context("cannot remove the prober's permissions")?);
    let policies =
        author_policies(&manager_account(namespace)).into_iter().flat_map(|policy| policy.objects.into_iter().rev());
    removal.extend(remove(&client, policies).await.context("cannot remove the policies")?);
    removal.extend(off(&client).await.context("cannot remove the policies on tenancy")?);
    removal.extend(
        remove_yaml(&client, &permissions(namespace)).await.context("cannot remove the manager's permissions")?,
    );
    removal.removed.iter().for_each(|object| say!("removed {object}"));
    removal.foreign.iter().for_each(|object| say!("left alone: {object} is not dapple's"));
    say!("\ndapple is out of {server}. Its CRDs stay, with every object, and pods go on as they are.");
    Ok(ExitCode::SUCCESS)
}

/// Takes the gate off pods that wait for a group: nobody else would.
async fn release_pods(client: &Client) -> anyhow::Result<()> {
    let progress = to_stderr();
    progress.started("releasing pods that wait behind the scheduling gate");
    let released = release_all(client, |released| progress.detail(&format!("{released} released"))).await;
    progress.finished();
    match released.context("cannot release the pods that wait behind dapple's scheduling gate")? {
        0 => {}
        released => say!("released {released} pods from the scheduling gate: they go to any node that fits"),
    }
    Ok(())
}

/// Waits, visibly, until a namespace that `down --cluster` has just deleted is gone.
async fn wait_for_namespace(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let (progress, mut is_waiting) = (to_stderr(), false);
    let on_wait = |why: &str| {
        if !std::mem::replace(&mut is_waiting, true) {
            progress.started(&format!("waiting until the namespace {namespace} of before is gone"));
        }
        progress.detail(why);
    };
    let gone = wait_until_gone(client, namespace, on_wait).await;
    if is_waiting {
        progress.finished();
    }
    Ok(gone?)
}

/// `dapple up --cluster`.
pub(crate) async fn into_cluster(args: &UpArgs) -> anyhow::Result<ExitCode> {
    let config = connect::config(&args.connect).await?;
    let server = config.cluster_url.to_string();
    let namespace = &args.namespace;
    let what = format!(
        "install dapple's CRDs, the namespace {namespace} with the manager's permissions, and policies on who may write \
         PodMarkers and OverridePolicies{}, into",
        if args.prober.prober_image.is_some() { ", and the prober of PodMarkers on every node" } else { "" }
    );
    if !args.yes && !confirmed(&format!("{what} {server}"))? {
        say!("Nothing was changed.");
        return Ok(ExitCode::from(1));
    }
    let client = Client::try_from(config)?;
    for namespace in [namespace.as_str(), PROBER_NAMESPACE] {
        wait_for_namespace(&client, namespace).await?;
    }
    let foreign = install(&client, namespace).await?;
    say!("Installed dapple's APIs and permissions into {server}");
    install_prober(&client, args).await?;
    for crd in foreign {
        say!("  left alone: {crd} belongs to another product;");
        say!("              {}", way_over(&crd));
    }
    let flag = if namespace == NAMESPACE { String::new() } else { format!(" --namespace {namespace}") };
    say!("\nRun the manager with this cluster's kubeconfig:\n  dapple manager{flag}");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
#[path = "install_tests.rs"]
mod tests;
