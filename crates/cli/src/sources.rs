//! Where commands that plan get their objects: files, a file of nodes, and the cluster.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use dapple_api::group::REQUIRED_PROPAGATION_LABEL;
use dapple_api::kinds::{OVERRIDE_POLICY, POD};
use dapple_api::manifest::{self, Manifest};
use dapple_control::daemonset::forecast::Cluster;
use dapple_edit::edit::Source;
use dapple_plan::variant::{Reason, Warning};
use dapple_plan::world::{World, name_of};
use dapple_testbed::Fleet;
use dapple_view::plan::WarningView;
use kube::Client;
use serde_json::Value;

use crate::args::SourceArgs;
use crate::checks::stored;
use crate::output::note;
use crate::strangers::Strangers;
use crate::{connect, live};

/// Reading for longer than this is worth a word.
const QUIET: Duration = Duration::from_secs(2);

/// What there is to plan with.
pub(crate) struct Sources {
    /// Objects out of files.
    pub(crate) manifests: Vec<Manifest>,
    /// What the cluster has; nothing where nodes came from a file.
    pub(crate) live: Option<Live>,
    /// What it would be with the files.
    pub(crate) next: World,
    /// How many objects of the files matter to planning.
    pub(crate) concerned: usize,
}

/// The cluster.
pub(crate) struct Live {
    pub(crate) client: Client,
    pub(crate) world: World,
    /// Its nodes, as the controller sees them.
    pub(crate) nodes: Cluster,
}

impl Sources {
    /// Reads the files, and the nodes' file or else the cluster.
    pub(crate) async fn read(args: &SourceArgs) -> anyhow::Result<Self> {
        let manifests = manifests(args)?;
        let (live, mut next) = match &args.nodes {
            Some(path) => (None, nodes_from(path)?),
            None => {
                let client = Client::try_from(connect::config(&args.connect).await?)?;
                let (world, nodes) = with_notice("reading the cluster ...", live::world(&client)).await?;
                (Some(Live { client, world: world.clone(), nodes }), world)
            }
        };
        let strangers = Strangers::new(&manifests, live.as_ref().map(|live| &live.client));
        let (mut concerned, mut malformed) = (0, Vec::new());
        for manifest in &manifests {
            let at = |field: &str| format!("{}:{}", manifest.file(), manifest.locate(field));
            // One that cannot be converted is an error of its own, which is told with the others.
            let object = stored(manifest.value()).unwrap_or(Cow::Borrowed(manifest.value()));
            match next.add(&object) {
                Ok(true) => concerned += 1,
                Ok(false) => {
                    if let Some(told) = strangers.told(manifest).await? {
                        note(&format!("warning: {told}"));
                    }
                }
                Err(error) => malformed.push(format!("{}: {error}", at(&error.field))),
            }
        }
        if !malformed.is_empty() {
            bail!("{}", malformed.join("\n"));
        }
        let mut sources = Self { manifests, live, next, concerned };
        sources.add_bare_pods().await?;
        Ok(sources)
    }

    /// Adds the pods of the cluster that are divided together with pods of the files: those that nothing owns.
    async fn add_bare_pods(&mut self) -> anyhow::Result<()> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let bare = self.manifests.iter().map(Manifest::value).filter(|object| object["kind"] == POD.kind);
        let asked: BTreeSet<(String, String)> = bare
            .filter_map(|pod| {
                let policy = pod["metadata"]["labels"][REQUIRED_PROPAGATION_LABEL].as_str()?;
                Some((name_of(pod).namespace, policy.to_owned()))
            })
            .collect();
        for (namespace, policy) in asked {
            for pod in live::bare_pods(&live.client, &namespace, &policy).await? {
                let _ = live.world.add(&pod)?;
                if !self.manifests.iter().any(|manifest| name_of(manifest.value()) == name_of(&pod)) {
                    let _ = self.next.add(&pod)?;
                }
            }
        }
        Ok(())
    }

    /// What is probably not meant in the files, beyond any one plan.
    pub(crate) fn notices(&self) -> Vec<WarningView> {
        let locate = |rule: &Source| self.locate(rule);
        // Fields that a rule of an OverridePolicy has not got are errors, and told as such.
        let is_error = |known: &Warning| {
            known.reason == Reason::Mistake && known.rule.object.starts_with(&format!("{} ", OVERRIDE_POLICY.at.kind))
        };
        let notices = self.next.notices().into_iter().filter(|known| !is_error(known));
        let views = notices.map(|known| WarningView::new(&known, "", &locate));
        views.filter(|view| view.at.is_some()).collect()
    }

    /// The place in a file where a rule is written.
    pub(crate) fn locate(&self, rule: &Source) -> Option<String> {
        let is_it = |manifest: &&Manifest| name_of(manifest.value()).to_string() == rule.object;
        let manifest = self.manifests.iter().rev().find(is_it)?;
        Some(format!("{}:{}", manifest.file(), manifest.locate(&rule.rule)))
    }

    /// Whether the files have this object.
    pub(crate) fn has(&self, object: &dapple_plan::variant::ObjectName) -> bool {
        self.manifests.iter().any(|manifest| name_of(manifest.value()) == *object)
    }
}

/// The objects of the files.
pub(crate) fn manifests(args: &SourceArgs) -> anyhow::Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for path in &args.filename {
        for file in files(path)? {
            manifests.extend(read(&file)?);
        }
    }
    Ok(manifests)
}

/// Says on a terminal what takes so long.
pub(crate) async fn with_notice<T>(notice: &str, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = tokio::time::sleep(QUIET) => {}
    }
    if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        note(notice);
    }
    work.await
}

/// A file, or every YAML and JSON file below a folder, by name.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut entries = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    entries.sort();
    for entry in entries {
        let is_manifest =
            entry.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known));
        // As kubectl does: a folder that is linked to is not entered, or a loop of links would have no end.
        let is_linked_folder = entry.is_symlink() && entry.is_dir();
        if (entry.is_dir() || is_manifest) && !is_linked_folder {
            found.extend(files(&entry)?);
        }
    }
    Ok(found)
}

/// The objects of a file; `-` is standard input.
fn read(path: &Path) -> anyhow::Result<Vec<Manifest>> {
    Ok(manifest::read(&shown(path), &bytes(path)?)?)
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let open = || -> std::io::Result<Box<dyn Read>> {
        let is_input = path == Path::new("-");
        Ok(if is_input { Box::new(std::io::stdin()) } else { Box::new(std::fs::File::open(path)?) })
    };
    // One byte more than is taken is enough to be refused.
    let most = u64::try_from(manifest::MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    let read = open().and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bytes)
}

/// Nodes from a file: Node objects, a list of them, or a fleet description.
fn nodes_from(path: &Path) -> anyhow::Result<World> {
    let (name, bytes) = (shown(path), bytes(path)?);
    let manifests = manifest::read(&name, &bytes)?;
    let mut world = World::default();
    if manifests.iter().any(|manifest| manifest.value()["kind"].is_string()) {
        for manifest in &manifests {
            if manifest.value()["kind"] != "Node" {
                continue;
            }
            if !manifest.value()["metadata"]["name"].is_string() {
                bail!("{}:{}: metadata.name: a Node needs a name", manifest.file(), manifest.position());
            }
            world.add(manifest.value())?;
        }
    } else {
        let text = String::from_utf8_lossy(&bytes);
        for mut node in Fleet::from_yaml(&text, &name)?.nodes() {
            node["apiVersion"] = Value::from("v1");
            node["kind"] = Value::from("Node");
            world.add(&node)?;
        }
    }
    if world.node_count() == 0 {
        return Err(anyhow!("{name}: there is neither a Node nor a fleet description in it"));
    }
    Ok(world)
}
