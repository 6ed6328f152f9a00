//! Asking the API server whether it would take the pods that dapple would make.

use dapple_plan::adopt::Refusal;
use dapple_plan::adopt::sets::Set;
use dapple_plan::adopt::trial::{Trial, node, trials};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;

use super::Error;
use super::rest::{Shape, dry_run, list, refused};

/// As many questions at once: a webhook that nobody answers may take ten seconds for each.
const AT_ONCE: usize = 8;

/// What would be refused: one question for each rendering that each DaemonSet has on the nodes. Changes nothing.
pub(super) async fn try_pods(client: &Client, sets: &[Result<Set, Refusal>]) -> Result<Vec<Refusal>, Error> {
    let nodes = list(client, "/api/v1/nodes", "", Shape::Whole, |object| Some(node(&object))).await;
    let nodes = nodes.map_err(refused("Nodes"))?;
    let (mut asked, mut told) = (Vec::new(), Vec::new());
    for set in sets.iter().flatten() {
        let (trials, refusals) = trials(set, &nodes);
        asked.extend(trials);
        told.extend(refusals);
    }
    let answers = stream::iter(&asked).map(|trial| ask(client, trial)).buffered(AT_ONCE);
    let answers: Vec<Option<Refusal>> = answers.try_collect().await?;
    told.extend(answers.into_iter().flatten());
    Ok(told)
}

async fn ask(client: &Client, trial: &Trial) -> Result<Option<Refusal>, Error> {
    let path = format!("/api/v1/namespaces/{}/pods", trial.namespace);
    match dry_run(client, &path, &trial.pod).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let fields: Vec<&str> =
                causes.map(|cause| cause.field.as_str()).filter(|field| !field.is_empty()).collect();
            Ok(trial.refused(status.code, &status.message, &fields))
        }
        Err(error) => Err(refused("Pods")(error)),
    }
}
