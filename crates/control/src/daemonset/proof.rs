//! Asking the API server what it thinks of renderings, before any pod is given up for one of them.
//!
//! The dry run is a guard, not a gate. Where the API server refuses a rendering, its nodes keep what they run. Where it does
//! not answer, no pod in service is given up for it; pods that are missing are tried, one at a time, and all else goes on.
//! What pods ran before is excused: as what they are, not by their label, and from the status where none of them is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dapple_edit::daemonset::place_of;
use dapple_edit::edit::EditError;
use dapple_plan::daemonset::desired::{Unrendered, Variants};
use dapple_plan::daemonset::layout::Proof;
use dapple_plan::daemonset::pod::{Wanted, pod};
use dapple_plan::daemonset::revision::spec_of;
use dapple_plan::daemonset::status::Problem;
use dapple_plan::daemonset::status::variants::has_run;
use dapple_plan::fit;
use dapple_plan::overriding::Overriding;
use dapple_plan::proof::{Answer, Answers, is_to_ask};
use tokio::time::Instant;

use super::SetRevision;
use super::io::Io;
use super::known::{Sources, VariantsOfRevisions};
use crate::overriding::WAITING;
use crate::proof::ask;
use crate::slim::Node;

/// How long questions are asked in one look.
const LONGEST_ASKED: Duration = Duration::from_secs(10);

/// As deciding sees it. What was not asked is not known.
pub(super) fn proof_of(answers: &Answers, meaning: &str) -> Proof {
    match answers.get(meaning) {
        Some(Answer::Taken) => Proof::Taken,
        Some(Answer::Refused { .. }) => Proof::Refused,
        Some(Answer::None { .. }) | None => Proof::Unanswered,
    }
}

/// Asks whether pods of each variant would be taken. One question for each variant of the newest revision.
pub(super) async fn prove(
    io: &Io,
    sources: &Sources<'_>,
    rendered: &mut VariantsOfRevisions,
    answers: &mut Answers,
) -> Result<(), kube::Error> {
    let (set, nodes, name) = (sources.set, sources.nodes, &sources.update.meta.key.name);
    let (now, begun) = (io.env.now().as_second(), Instant::now());
    let Some((_, variants)) = rendered.get_mut(name) else { return Ok(()) };
    io.reporter.match_patches(&set.meta.key, variants, nodes);
    let all: Vec<_> = variants.all().iter().filter_map(|known| known.rendering.as_ref().ok()).cloned().collect();
    // What nobody should get any more is not asked for again.
    answers.retain(|meaning, _| all.iter().any(|known| known.meaning == *meaning));
    let mut due: Vec<_> = all.into_iter().filter(|known| is_to_ask(answers, &known.meaning, now)).collect();
    // Those first that could not be asked last time.
    due.sort_by_key(|known| answers.get(&known.meaning).and_then(Answer::ask_again));
    let pods_api = io.pod_writer(&set.meta.key.namespace);
    let mut there = None;
    for asked in due {
        if begun.elapsed() >= LONGEST_ASKED {
            // A webhook that lets every question run into its timeout must not keep the rest from being done.
            let text = "other pods of the set are being asked for".to_owned();
            answers.entry(asked.meaning).or_insert(Answer::None { text, ask_again: now });
            continue;
        }
        let wanted = Wanted {
            set: &set.meta.key.name,
            uid: &set.meta.uid,
            node: "dry-run",
            template: &asked.template,
            hash: &asked.hash,
            revision: name,
            gates: &[],
            collisions: 0,
        };
        let mut answer = ask(&pods_api, &pod(&wanted), &io.env).await?;
        if matches!(answer, Answer::Refused { .. }) {
            let is_there = there.get_or_insert_with(|| sources.meanings_of_pods(rendered)).contains(&asked.meaning);
            answer = answer.excused(is_there, has_run(&set.status, &asked.hash));
        }
        if let (Answer::Refused { .. }, Some((_, variants))) = (&answer, rendered.get_mut(name)) {
            io.reporter.count_refused(&set.meta.key, variants, &asked.hash, nodes);
        }
        answers.insert(asked.meaning.clone(), answer);
    }
    Ok(())
}

/// What is wrong with what nodes should get.
pub(super) fn rendering_problems(
    rendered: &mut VariantsOfRevisions,
    answers: &Answers,
    update: &SetRevision,
    nodes: &[Arc<Node>],
) -> Vec<Problem> {
    let mut problems = Vec::new();
    if spec_of(&update.data).is_none() {
        let text = format!("ControllerRevision {} cannot be read; nodes keep what they run", update.meta.key.name);
        problems.push(Problem::new("UnreadableRevision", text));
    }
    let Some((_, variants)) = rendered.get_mut(&update.meta.key.name) else { return problems };
    for bad in &variants.bad_selectors {
        problems.push(Problem::new("BadSelector", format!("{bad}; the patch matches no node")));
    }
    if let Overriding::Waits(why) = variants.overriding() {
        let text = why.clone();
        let count: usize = concerned(variants, nodes).values().sum();
        let extent = format!("; {count} nodes keep what they run, and get no pod where they have none");
        problems.push(Problem { reason: WAITING, text, extent });
    }
    let mut counts: Option<BTreeMap<usize, usize>> = None;
    for number in 0..variants.all().len() {
        let (variant, whose) = (&variants.all()[number], variants.made_by(number));
        let (reason, text, follows) = match &variant.rendering {
            Err(Unrendered::Waits(_)) => continue,
            Err(Unrendered::Edit(error)) => (failed(error), error.to_string(), KEEP),
            Err(error @ Unrendered::Unselected) if variant.rules.is_empty() => {
                (PATCH_FAILED, format!("{whose}: {error}"), KEEP)
            }
            Err(error @ Unrendered::Unselected) => (OVERRIDE_FAILED, format!("{whose}: {error}"), KEEP),
            Ok(rendered) => match answers.get(&rendered.meaning) {
                Some(Answer::Refused { text, .. }) => ("Refused", format!("{whose}: {text}"), KEEP),
                Some(Answer::None { text, .. }) => ("Unanswered", format!("{whose}: {UNKNOWN}: {text}"), SERVE),
                Some(Answer::Taken) | None => continue,
            },
        };
        let counts = counts.get_or_insert_with(|| concerned(variants, nodes));
        // Patches for nodes that the set is not for do no harm.
        let Some(count) = counts.get(&number) else { continue };
        problems.push(Problem { reason, text, extent: format!("; {count} nodes {follows}") });
    }
    problems
}

/// Whose fault it is that a rendering does not come about.
fn failed(error: &EditError) -> &'static str {
    if place_of(&error.source_of_edit.rule).is_some() { PATCH_FAILED } else { OVERRIDE_FAILED }
}

const PATCH_FAILED: &str = "PatchFailed";
const OVERRIDE_FAILED: &str = "OverrideFailed";
const KEEP: &str = "keep what they run";
const SERVE: &str = "keep the pod that serves them";
const UNKNOWN: &str = "the API server does not say whether it takes such a pod";

/// By variant: the nodes that should have a pod of it.
fn concerned(variants: &mut Variants, nodes: &[Arc<Node>]) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for node in nodes {
        let node = fit::Node { name: node.name(), labels: &node.labels, taints: &node.fit_taints() };
        let variant = variants.of(node);
        if variants.misfit(variant, node).is_none() {
            *counts.entry(variant).or_default() += 1;
        }
    }
    counts
}
