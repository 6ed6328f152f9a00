//! Taking in what has changed, pod by pod and node by node, and what follows from everything where that is not enough.

use std::sync::Arc;

use dapple_plan::daemonset::layout::Revisions;
use dapple_plan::daemonset::placement::Prospect;
use dapple_plan::daemonset::reads::Reads;
use dapple_plan::daemonset::stale::{self, Stale};

use super::claim::is_selected;
use super::io::Io;
use super::known::{Sources, prospect, revisions, variants};
use super::memory::{Memory, View};
use super::pod::{hash_label, pod_state};
use super::proof::{proof_of, prove, rendering_problems};
use super::subscribe::{Changes, News};
use super::{Set, SetRevision};
use crate::overriding::Asked;
use crate::slim::{Key, Node, Pod};

/// Takes what has changed since, our own writes that have come back among it.
pub(super) fn take_news(io: &Io, news: &News, set: &Set, memory: &mut Memory) -> Changes {
    // First: what counts as seen was told, and is news by then.
    let (is_seen, is_in_view) = (|pod: &Key| io.pods.caught_up(pod), |pod: &Key| io.pods.get(pod).is_some());
    let settled = memory.pods.see(&mut memory.view, is_seen, is_in_view);
    let mut changes = news.take(&set.meta.key);
    memory.view.make_stale(changes.is_stale.then_some(Stale::Changed));
    for pod in settled {
        let key = Key { namespace: set.meta.key.namespace.clone(), name: pod.clone() };
        changes.pods.entry(pod).or_insert_with(|| io.pods.get(&key));
    }
    changes
}

/// Takes in the changes of single pods and nodes. Anything that is not known makes everything to be looked at anew.
pub(super) fn take_in(io: &Io, set: &Set, memory: &mut Memory, changes: &Changes) {
    memory.revisions.may_prune |= !changes.pods.is_empty();
    for name in &changes.nodes {
        take_in_node(io, memory, name);
    }
    let Some(mut known) = memory.view.known.take() else { return };
    for (name, told) in &changes.pods {
        // What was told before everything was looked at last is known, and maybe more.
        let is_known = |pod: &Arc<Pod>| known.fleet.pod(name).is_some_and(|seen| seen.version > pod.meta.version);
        if told.as_ref().is_some_and(is_known) {
            continue;
        }
        let pod = told.as_ref().filter(|pod| pod.owner.as_ref() == Some(&set.meta.uid));
        let Some((node, pod)) = pod.and_then(|pod| Some((pod.node.as_ref()?, pod))) else {
            known.fleet.observe(name, None);
            continue;
        };
        let state = pod_state(set, pod, &known.names, memory.pods.unchangeable.contains(&pod.meta.uid));
        memory.view.make_stale(stale::of_pod(known.names.has(&state.label), is_selected(set, pod)));
        known.fleet.observe(name, Some((node, state)));
    }
    memory.view.known = Some(known);
}

/// Takes in a node that came, went or changed: that costs this node, not the fleet.
fn take_in_node(io: &Io, memory: &mut Memory, name: &Arc<str>) {
    let Some(known) = memory.view.known.as_mut() else { return };
    let before = known.fleet.prospect(name).and_then(Prospect::troubled);
    let Some(node) = io.nodes.get(&Key { namespace: Arc::from(""), name: name.clone() }) else {
        known.fleet.drop_node(name);
        memory.pods.refusals.remove(name);
        memory.pods.collisions.remove(name);
        memory.view.make_stale(stale::of_node(false, before, None));
        return;
    };
    let answers = &memory.answers;
    let mut found = revisions(&mut memory.view.variants, &known.update, &known.current);
    let count = found.as_ref().map(Revisions::count);
    let prospect = prospect(&known.strategy, found.as_mut(), &node, |meaning| proof_of(answers, meaning));
    // What no node had before is to be shown to the API server first.
    let is_new = count != found.as_ref().map(Revisions::count);
    // How many nodes a problem concerns is told, and whether it concerns any.
    let why = stale::of_node(is_new, before, prospect.as_ref().and_then(Prospect::troubled));
    let was_known = known.fleet.node(name).is_some();
    if let Some(prospect) = prospect.filter(|_| !is_new) {
        known.fleet.put(prospect);
        if !was_known {
            // It may have gone and come back while writes of ours were under way there.
            memory.pods.freeze_again(&mut memory.view, name);
        }
    }
    memory.view.make_stale(why);
}

/// Takes in what the set has of its policy. Renderings by another one are forgotten, but for what pods were made from.
pub(super) fn take_policy(view: &mut View, asked: Asked) {
    if view.asked.overriding != asked.overriding {
        let all = std::mem::take(&mut view.variants).into_values().flat_map(|(_, variants)| variants.into_all());
        let rendered = all.filter_map(|variant| variant.rendering.ok());
        view.past.extend(rendered.map(|known| (known.hash.clone(), known)));
    }
    view.asked = asked;
}

/// Makes sure that the variants of these revisions are in memory, and forgets those of others.
pub(super) fn render(io: &Io, set: &Set, view: &mut View, revisions: [&Arc<SetRevision>; 2]) {
    if view.selector.as_ref() != Some(&set.spec.selector) {
        view.selector = Some(set.spec.selector.clone());
        view.variants.clear();
    }
    view.variants.retain(|name, (version, _)| {
        revisions.iter().any(|known| known.meta.key.name == *name && known.meta.version == *version)
    });
    let overriding = &view.asked.overriding;
    let variants = |revision: &SetRevision| variants(set, revision, io.ignores_patches, overriding);
    for revision in revisions {
        let (name, version) = (revision.meta.key.name.clone(), revision.meta.version);
        view.variants.entry(name).or_insert_with(|| (version, variants(revision)));
    }
}

/// Brings memory up to date with what there is, and with what the API server says of what is new.
pub(super) async fn know(
    io: &Io,
    news: &News,
    set: &Set,
    memory: &mut Memory,
    (revisions, update, current): (&[Arc<SetRevision>], &Arc<SetRevision>, &Arc<SetRevision>),
    (pods, nodes): (&[Arc<Pod>], &[Arc<Node>]),
) -> Result<(), kube::Error> {
    let (ignores_patches, now) = (io.ignores_patches, io.env.now());
    let (is_gone, is_blocked) = (memory.view.is_gone, memory.view.is_blocked);
    memory.view.past.retain(|hash, _| pods.iter().any(|pod| *hash_label(pod) == **hash));
    let (asked, past) = (&memory.view.asked, &memory.view.past);
    let sources = Sources {
        set,
        revisions,
        update,
        current,
        pods,
        nodes,
        ignores_patches,
        asked,
        past,
        is_gone,
        is_blocked,
        now,
    };
    prove(io, &sources, &mut memory.view.variants, &mut memory.answers).await?;
    let (answers, unchangeable) = (&memory.answers, &memory.pods.unchangeable);
    let is_unchangeable = |pod: &Pod| unchangeable.contains(&pod.meta.uid);
    let mut known = sources.known(&mut memory.view.variants, |meaning| proof_of(answers, meaning), is_unchangeable);
    if let Some(before) = memory.view.known.as_ref().filter(|before| before.generation == set.generation) {
        known.fleet = known.fleet.remembering(&before.fleet);
    }
    memory.pods.nodes().for_each(|node| known.fleet.wrote(node));
    for (node, refusal) in &memory.pods.refusals {
        known.fleet.set_back(node, refusal.until);
    }
    known.problems.extend(rendering_problems(&mut memory.view.variants, &memory.answers, update, nodes));
    for problem in &known.problems {
        if memory.said.reported.insert((problem.reason, problem.text.clone())) {
            io.reporter.report(set, problem.reason, problem.text.clone());
        }
    }
    // What is over may be told again, should it come back.
    memory.said.reported.retain(|(reason, text)| {
        known.problems.iter().any(|problem| (problem.reason, &problem.text) == (*reason, text))
    });
    let reads = Reads::of(&known.strategy, memory.view.variants.values().map(|(_, variants)| variants));
    news.reads(&set.meta.key, reads);
    memory.view.known = Some(known);
    Ok(())
}
