//! kwok: the fake kubelet of fleet nodes, what it does to pods, and how tests make it misbehave.

use std::{path::Path, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    error::{Error, Result, kube_error},
    files::unique,
};

/// kwok's own settings.
pub(crate) const CONFIG: &str = include_str!("../stages/config.yaml");

const PARTS: [(&str, &str); 8] = [
    ("gates", include_str!("../stages/parts/gates")),
    ("old", include_str!("../stages/parts/old")),
    ("image", include_str!("../stages/parts/image")),
    ("conditions", include_str!("../stages/parts/conditions")),
    ("readiness", include_str!("../stages/parts/readiness")),
    ("start", include_str!("../stages/parts/start")),
    ("terminated", include_str!("../stages/parts/terminated")),
    ("images-differ", include_str!("../stages/parts/images-differ")),
];

/// What happens to the readiness of containers on chosen nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// They run and never become ready; those that are ready stop being so.
    Fail,
    /// They become ready this much later.
    Delay(Duration),
}

/// Installs the kind of stages and the stages themselves.
pub(crate) async fn install(client: &Client) -> Result<()> {
    let crd = parse(include_str!("../stages/crd.yaml"))?;
    let crds: Api<DynamicObject> = Api::all_with(client.clone(), &crd_resource());
    crds.create(&PostParams::default(), &object(crd)?).await.map_err(kube_error("cannot create kwok's CRD"))?;
    let by_annotation = |value: &str| format!(r#".metadata.annotations["testbed.dapple.dev/readiness"] == "{value}""#);
    let mut all = stages(include_str!("../stages/node.yaml"), &[])?;
    all.extend(stages(include_str!("../stages/pod.yaml"), &[])?);
    all.extend(hold("by-annotation", &by_annotation("fail"), &by_annotation("delay"), Duration::from_secs(5))?);
    let mut left = 200;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &stage_resource());
    // The new kind is served a moment after it was created.
    while let Err(error) = api.list(&ListParams::default().limit(1)).await {
        left -= 1;
        if left == 0 {
            return Err(kube_error("kwok's CRD is not served")(error));
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    apply(&api, all).await
}

async fn apply(api: &Api<DynamicObject>, stages: Vec<Value>) -> Result<()> {
    for stage in stages {
        let stage = object(stage)?;
        let name = stage.metadata.name.clone().unwrap_or_default();
        let params = PatchParams::apply("dapple-testbed").force();
        api.patch(&name, &params, &Patch::Apply(&stage))
            .await
            .map_err(kube_error(format!("cannot apply kwok stage {name}")))?;
    }
    Ok(())
}

fn crd_resource() -> ApiResource {
    resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
}

fn stage_resource() -> ApiResource {
    resource("kwok.x-k8s.io", "v1alpha1", "Stage", "stages")
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&kube::api::GroupVersionKind::gvk(group, version, kind), plural)
}

fn parse(text: &str) -> Result<Value> {
    serde_saphyr::from_str(text).map_err(|error| stage_error(&error))
}

fn object(value: Value) -> Result<DynamicObject> {
    serde_json::from_value(value).map_err(|error| stage_error(&error))
}

fn stage_error(error: &dyn std::fmt::Display) -> Error {
    Error::State { path: "crates/testbed/stages".into(), reason: error.to_string() }
}

/// Fills the parts in and reads the documents of a file.
fn stages(text: &str, values: &[(&str, &str)]) -> Result<Vec<Value>> {
    let all: Vec<(&str, &str)> = values.iter().chain(&PARTS).copied().collect();
    // Parts may hold parts.
    let text = fill(&fill(&fill(text, &all), &all), &all);
    text.split("\n---\n").map(parse).collect()
}

/// Replaces `$(name)`; alone on its line, the part's lines all get the indentation of that line.
fn fill(text: &str, values: &[(&str, &str)]) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        let indentation = &line[..line.len() - content.len()];
        let alone = values.iter().find(|(name, _)| content == format!("$({name})"));
        match alone {
            Some((_, value)) => lines.extend(value.trim_end().lines().map(|part| format!("{indentation}{part}"))),
            None => {
                let filled = values
                    .iter()
                    .fold(line.to_owned(), |line, (name, value)| line.replace(&format!("$({name})"), value.trim_end()));
                lines.push(filled);
            }
        }
    }
    lines.join("\n")
}

fn hold(name: &str, fails: &str, delays: &str, delay: Duration) -> Result<Vec<Value>> {
    let milliseconds = delay.as_millis().to_string();
    let values = [("name", name), ("fails", fails), ("delays", delays), ("milliseconds", &milliseconds)];
    let mut all = stages(include_str!("../stages/hold.yaml"), &values)?;
    // What can never match would only be asked at every change of every pod.
    let unused: &[&str] = match (fails, delays) {
        (_, "false") => &["-delay"],
        ("false", _) => &["-lose", "-fail"],
        _ => &[],
    };
    all.retain(|stage| {
        let name = stage["metadata"]["name"].as_str().unwrap_or_default();
        !unused.iter().any(|suffix| name.ends_with(suffix))
    });
    Ok(all)
}

const HELD: &str = "testbed.dapple.dev/hold";
const TOUCHED: &str = "testbed.dapple.dev/touched";
/// How long kwok may say nothing before it is reminded: it usually begins within half a second.
const SILENCE: Duration = Duration::from_secs(1);

impl Cluster {
    /// Waits until kwok, just started, plays the kubelet.
    ///
    /// On a busy machine v0.8.0 misses its stages once in some hundred starts: told that they are there, it asks for
    /// their version before client-go's reflector has noted one, and takes that for having none. It then starts none of
    /// its controllers, however many nodes come, until a stage changes. So one is changed until it begins.
    pub(crate) async fn wait_until_kwok_plays(&self, client: &Client) -> Result<()> {
        let log = self.log("kwok");
        self.wait_for("kwok", async || {
            if tokio::time::timeout(SILENCE, begins(&log)).await.is_ok() {
                return Ok(());
            }
            remind(client).await.map_err(|error| error.to_string())?;
            Err("it has not begun to play nodes and pods".to_owned())
        })
        .await
    }

    /// Makes readiness fail or come late on these kwok nodes, until released under the same name.
    ///
    /// Returns once kwok acts on it, and pods that already run there follow at once where it fails. To find out, a pod
    /// of its own runs on the first of the nodes for a moment, in kube-system.
    pub async fn hold_readiness(&self, name: &str, nodes: &[&str], readiness: Readiness) -> Result<()> {
        let names = serde_json::to_string(nodes).map_err(|error| stage_error(&error))?;
        let chosen = format!(".spec.nodeName as $node | {names} | index($node) != null");
        let (fails, delays, delay) = match readiness {
            Readiness::Fail => (chosen.as_str(), "false", Duration::ZERO),
            Readiness::Delay(delay) => ("false", chosen.as_str(), delay),
        };
        let client = self.client().await?;
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &stage_resource());
        let mut stages = hold(name, fails, delays, delay)?;
        for stage in &mut stages {
            stage["metadata"]["labels"] = json!({HELD: name});
            stage["metadata"]["annotations"] = json!({HELD: names});
        }
        apply(&api, stages).await?;
        self.wait_until_kwok_knows(&client, nodes, true).await?;
        touch(&client, nodes).await
    }

    /// Lets readiness on the nodes of this hold be as usual again.
    pub async fn release_readiness(&self, name: &str) -> Result<()> {
        let client = self.client().await?;
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &stage_resource());
        let held = ListParams::default().labels(&format!("{HELD}={name}"));
        let stages = api.list(&held).await.map_err(kube_error("cannot list kwok stages"))?;
        let nodes: Vec<String> = stages
            .iter()
            .find_map(|stage| serde_json::from_str(stage.metadata.annotations.as_ref()?.get(HELD)?).ok())
            .unwrap_or_default();
        for stage in stages {
            let stage = stage.metadata.name.unwrap_or_default();
            api.delete(&stage, &DeleteParams::default())
                .await
                .map_err(kube_error(format!("cannot delete kwok stage {stage}")))?;
        }
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        self.wait_until_kwok_knows(&client, &nodes, false).await?;
        touch(&client, &nodes).await
    }

    /// kwok learns of stages by a watch and says nothing about it: start pods until one is treated as expected.
    async fn wait_until_kwok_knows(&self, client: &Client, nodes: &[&str], held: bool) -> Result<()> {
        let Some(node) = nodes.first() else { return Ok(()) };
        let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
        self.wait_for("kwok", async || match probe(&pods, node).await {
            Ok(Some(seen)) if seen == held => Ok(()),
            Ok(None) => Err("it does not start pods".to_owned()),
            Ok(Some(_)) => {
                // Reading stages just as new ones arrive, kwok keeps the old ones until the next change.
                remind(client).await.map_err(|error| error.to_string())?;
                Err("it does not know its new stages yet".to_owned())
            }
            Err(error) => Err(error.to_string()),
        })
        .await
    }
}

/// Waits until kwok says that it started its controllers: nothing that it does outside shows it before there are nodes.
async fn begins(log: &Path) {
    loop {
        let said = std::fs::read_to_string(log).unwrap_or_default();
        let started = |kind: &str| {
            let mut lines = said.lines().filter(|line| line.contains("Start stage controller"));
            lines.any(|line| line.contains(&format!("\"{kind}\"")))
        };
        if started("Node") && started("Pod") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// Makes kwok read its stages again, which it does when any of them changes.
async fn remind(client: &Client) -> Result<(), kube::Error> {
    let stages: Api<DynamicObject> = Api::all_with(client.clone(), &stage_resource());
    let patch = json!({"metadata": {"annotations": {TOUCHED: unique()}}});
    stages.patch("node-initialize", &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
}

/// Runs a pod on the node for a moment, and says whether its start was held; nothing if kwok did not start it.
async fn probe(pods: &Api<Pod>, node: &str) -> Result<Option<bool>, kube::Error> {
    let name = format!("testbed-probe-{}", unique());
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "probe", "image": "probe"}],
        },
    }))
    .map_err(kube::Error::SerdeError)?;
    pods.create(&PostParams::default(), &pod).await?;
    let seen = tokio::time::timeout(PROBE, treated(pods, &name)).await;
    // Whatever was seen, the pod has served.
    let deleted = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
    let held = seen.ok().transpose()?;
    deleted.map(|_| held)
}

/// How long kwok may take for one pod: well within one try of [`Cluster::wait_for`], so that the pod is deleted.
const PROBE: Duration = Duration::from_secs(5);

/// Waits until kwok has started the pod, and says whether it is held.
async fn treated(pods: &Api<Pod>, name: &str) -> Result<bool, kube::Error> {
    loop {
        let status = pods.get_status(name).await?.status.unwrap_or_default();
        let mut conditions = status.conditions.iter().flatten();
        if let Some(started) = conditions.find(|condition| condition.type_ == "ContainersReady") {
            return Ok(started.status == "False");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// kwok only looks at a pod when it changes: change something harmless on those of the nodes.
async fn touch(client: &Client, nodes: &[&str]) -> Result<()> {
    let all: Api<Pod> = Api::all(client.clone());
    let failed = || kube_error("cannot touch the pods of held nodes");
    let mut touched = Vec::new();
    for node in nodes {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node},status.phase=Running"));
        touched.extend(all.list(&on_node).await.map_err(failed())?);
    }
    let patch = json!({"metadata": {"annotations": {TOUCHED: unique()}}});
    stream::iter(touched)
        .map(|pod| {
            let (client, patch) = (client.clone(), &patch);
            async move {
                let pods: Api<Pod> = Api::namespaced(client, pod.metadata.namespace.as_deref().unwrap_or("default"));
                let name = pod.metadata.name.unwrap_or_default();
                match pods.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
                    // It went away meanwhile, and needs no touching then.
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    other => other.map(|_| ()).map_err(failed()),
                }
            }
        })
        .buffer_unordered(8)
        .try_collect()
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_is_filled_and_parses() {
        let mut all = stages(include_str!("../stages/node.yaml"), &[]).unwrap();
        all.extend(stages(include_str!("../stages/pod.yaml"), &[]).unwrap());
        all.extend(hold("x", "true", "true", Duration::from_secs(1)).unwrap());
        assert_eq!(all.len(), 4 + 7 + 4);
        for stage in all {
            assert_eq!(stage["kind"], "Stage");
            assert!(!stage.to_string().contains("$("), "{stage}");
        }
    }

    #[test]
    fn a_hold_has_only_stages_that_can_match() {
        let names = |stages: Vec<Value>| -> Vec<String> {
            stages.iter().map(|stage| stage["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        let fail = hold("a", "true", "false", Duration::ZERO).unwrap();
        assert_eq!(names(fail), ["hold-a-lose", "hold-a-fail", "hold-a-start"]);
        let delay = hold("a", "false", "true", Duration::ZERO).unwrap();
        assert_eq!(names(delay), ["hold-a-delay", "hold-a-start"]);
    }

    #[test]
    fn parts_keep_the_indentation_of_their_line() {
        assert_eq!(fill("a:\n  $(p)\nb: $(p)", &[("p", "x\ny")]), "a:\n  x\n  y\nb: x\ny");
    }
}
