//! `dapple tenancy`: DaemonSets belong to the system tenant.

use std::process::ExitCode;

use dapple_api::partition::{Action, PERMISSION, ROLE, Tenancy, TenantLabel};
use dapple_control::partition::{Standing, enforce, look, off, standing};
use dapple_control::writes::client;
use dapple_plan::partition::violations;
use dapple_view::partition::TenancyView;
use kube::Client;

use crate::args::{CheckArgs, ConnectArgs, EnforceArgs, OffArgs, Output, TenancyArgs, TenancyCommand};
use crate::connect;
use crate::install::manager_account;
use crate::output::{confirmed, is_coloured, say};

pub(crate) async fn run(args: TenancyArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        TenancyCommand::Check(args) => check(&args).await,
        TenancyCommand::Enforce(args) => start(args).await,
        TenancyCommand::Off(args) => stop(&args).await,
    }
}

async fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let (client, _) = connected(&args.connect).await?;
    let now = standing(&client).await?;
    let view = found(&client, now.as_ref(), &label(args.label.tenant_label.as_ref(), now.as_ref())).await?;
    match args.output {
        Output::Text => say!("{}", view.to_string().trim_end()),
        Output::Json => say!("{}", serde_json::to_string_pretty(&view)?),
    }
    Ok(if view.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn start(args: EnforceArgs) -> anyhow::Result<ExitCode> {
    let (client, server) = connected(&args.connect).await?;
    let now = standing(&client).await?;
    let (action, label) = (Action::from(args.action), label(args.label.tenant_label.as_ref(), now.as_ref()));
    let view = found(&client, now.as_ref(), &label).await?;
    say!("{view}");
    let broken = view.violations.len();
    if action == Action::Deny && broken > 0 {
        say!(
            "These keep running. Nobody can change their spec from then on; who has the permission can delete them.\n"
        );
        if !args.yes && !confirmed(&format!("enforce the rule at {server} all the same"))? {
            say!("Nothing was changed.");
            return Ok(ExitCode::from(1));
        }
    }
    enforce(&client, &Tenancy { label, action, manager: manager_account(&args.manager_namespace) }).await?;
    let before = now.map_or(String::new(), |before| format!(", before as {}", before.action));
    say!("Enforced as {action}{before}; every API server knows within seconds.");
    say!("DaemonSets and the tenants of namespaces are for who has the permission {PERMISSION}:");
    say!("cluster admins, and accounts that are bound to the ClusterRole {ROLE}.");
    say!(
        "{}",
        match action {
            Action::Audit => "Whatever breaks the rule passes; the API server's audit log has it.",
            Action::Warn => "Whatever breaks the rule passes with a warning; the API server's audit log has it too.",
            Action::Deny => "Whatever breaks the rule is refused.",
        }
    );
    Ok(ExitCode::SUCCESS)
}

async fn stop(args: &OffArgs) -> anyhow::Result<ExitCode> {
    let (client, _) = connected(&args.connect).await?;
    let removal = off(&client).await?;
    for object in &removal.foreign {
        say!("left alone: {object} is not dapple's");
    }
    if removal.removed.is_empty() {
        say!("The rule was not enforced by dapple: nothing to remove.");
        return Ok(ExitCode::SUCCESS);
    }
    for object in &removal.removed {
        say!("removed {object}");
    }
    say!("The rule is not enforced any more. ClusterRole {ROLE} stays, for those who are bound to it.");
    Ok(ExitCode::SUCCESS)
}

/// A client, and the server's address.
async fn connected(args: &ConnectArgs) -> anyhow::Result<(Client, String)> {
    let config = connect::config(args).await?;
    let server = config.cluster_url.to_string();
    Ok((client::connect(config)?, server))
}

/// The label that was asked for, else the one that is enforced: switching from warn to deny must not lose it.
fn label(asked: Option<&TenantLabel>, now: Option<&Standing>) -> TenantLabel {
    asked.or(now.map(|now| &now.label)).cloned().unwrap_or_default()
}

/// What breaks the rule now.
async fn found(client: &Client, now: Option<&Standing>, label: &TenantLabel) -> anyhow::Result<TenancyView> {
    let observed = look(client).await?;
    Ok(TenancyView {
        tenant_label: label.to_string(),
        enforced: now.map(|now| now.action),
        daemon_sets: observed.sets.len(),
        violations: violations(&observed.namespaces, &observed.sets, label),
        colour: is_coloured(),
    })
}
