//! When the probes of a node are run, and what comes of it.
//!
//! Invariants:
//! - A probe runs once at a time, and what a run tells counts for the run of the container that it was begun in, and no other.
//! - Nothing runs before it is due, and no more at once than the means of a node allow; what is more waits, and is never run twice
//!   to make up for it.
//! - A result stays until it is known that it does not hold any more: a probe that has not run yet has none.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::marker::{
    ContainerProbe, ContainerProbeState, NodePodProbeSpec, NodePodProbeStatus, PodProbeStatus, ProbeState,
};
use jiff::Timestamp;

use super::action::{Action, Definition, Means, Timing};
use super::scheduled::Scheduled;
use super::stretch::stretch;

/// Why there is no result of a command where none is run.
pub const EXEC_IS_OFF: &str = "commands are not run on this node: its prober was started without --exec";
/// Why there is no result of what no prober of this version can run.
pub const UNREADABLE: &str = "the prober of this node cannot read this probe";
/// Why there is no result any more.
pub const LATE: &str = "it has not run for three periods";

/// So many periods without a run make a probe late.
const LATE_AFTER: u32 = 3;

/// A moment, by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// By one that goes on steadily, also while the machine sleeps.
    pub steady: Duration,
    /// The time of day.
    pub wall: Timestamp,
}

/// Which probe of which pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// The pod's UID.
    pub pod: Arc<str>,
    /// The probe's name.
    pub probe: Arc<str>,
}

/// A probe to be run now, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Which run it is: what comes of it is told by this.
    pub number: u64,
    /// What to do.
    pub action: Action,
    /// How long it may take.
    pub timeout: Duration,
    /// The pod's address, if it has one.
    pub address: Option<Arc<str>>,
    /// In which run of the container.
    pub container_id: Arc<str>,
}

/// What a run tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It succeeded.
    Succeeded,
    /// It failed, or took too long: why, in words of ours.
    Failed(String),
    /// It could not be run: why, in words of ours.
    Error(String),
}

/// The probes of a node.
#[derive(Debug)]
pub struct Schedule {
    is_exec_on: bool,
    spec: NodePodProbeSpec,
    probes: BTreeMap<Id, Scheduled>,
    /// What was stored by the prober before this one.
    restored: BTreeMap<Id, ContainerProbeState>,
    runtime: Lane,
    network: Lane,
    runs: u64,
    under_way: BTreeMap<u64, (Id, Means)>,
}

/// The probes that need the same means.
#[derive(Debug)]
struct Lane {
    means: Means,
    /// Those that do not run, by when they are next.
    order: BTreeSet<(Duration, Id)>,
    running: usize,
    /// How much longer periods are than asked for, in a hundred.
    percent: u32,
}

/// Whether a prober that stops and begins again may go on with what it has stored: only if the manager has gone by it all the
/// time. `renewed` is when it last said that it was there.
#[must_use]
pub fn may_go_on(renewed: Option<Timestamp>, now: Timestamp) -> bool {
    let heard = i64::try_from(super::probers::HEARD.as_secs()).unwrap_or(i64::MAX);
    renewed.is_some_and(|renewed| (0..heard).contains(&now.as_second().saturating_sub(renewed.as_second())))
}

impl Schedule {
    /// Of a prober that may run commands, or not. Nothing is to be probed yet.
    #[must_use]
    pub fn new(is_exec_on: bool) -> Self {
        let lane = |means| Lane { means, order: BTreeSet::new(), running: 0, percent: 100 };
        Self {
            is_exec_on,
            spec: NodePodProbeSpec::default(),
            probes: BTreeMap::new(),
            restored: BTreeMap::new(),
            runtime: lane(Means::Runtime),
            network: lane(Means::Network),
            runs: 0,
            under_way: BTreeMap::new(),
        }
    }

    /// What the prober before this one has stored, to be told before anything else. If that was silent for long, nobody knows
    /// what became of it meanwhile, and it is unknown until it is run. Returns whether something is to be stored.
    pub fn restore(&mut self, status: &NodePodProbeStatus, may_go_on: bool) -> bool {
        let mut has_changed = false;
        for pod in &status.pod_probe_statuses {
            for state in &pod.probe_states {
                let mut state = state.clone();
                if !may_go_on && state.state != ProbeState::Unknown {
                    state.state = ProbeState::Unknown;
                    state.message = Some("the prober was away, and has not run it since".to_owned());
                    has_changed = true;
                }
                let id = Id { pod: Arc::from(pod.uid.as_str()), probe: Arc::from(state.name.as_str()) };
                self.restored.insert(id, state);
            }
        }
        has_changed
    }

    /// What is to be probed now. Returns whether something is to be stored.
    pub fn change(&mut self, spec: NodePodProbeSpec, now: Moment) -> bool {
        let mut before = take(&mut self.probes);
        let mut has_changed = false;
        for pod in &spec.pod_probes {
            for asked in &pod.probes {
                let id = Id { pod: Arc::from(pod.uid.as_str()), probe: Arc::from(asked.name.as_str()) };
                let address = pod.ip.as_deref().map(Arc::from);
                let probe = match before.remove(&id) {
                    Some(known) if known.asked == *asked => Scheduled { address, ..known },
                    known => {
                        let stored = known.and_then(|known| known.stored).or_else(|| self.restored.remove(&id));
                        let mut probe = Scheduled::new(asked.clone(), address, stored, now);
                        has_changed |= probe.forbid(self.is_exec_on, now.wall);
                        probe
                    }
                };
                self.probes.insert(id, probe);
            }
        }
        // What is not run any more says nothing, should it be asked for again.
        has_changed |= before.values().any(|probe| probe.stored.is_some()) || !self.restored.is_empty();
        self.restored.clear();
        self.spec = spec;
        self.arrange();
        has_changed
    }

    /// Whether anything is to be probed.
    #[must_use]
    pub fn has_probes(&self) -> bool {
        !self.probes.is_empty()
    }

    /// Puts all probes in order anew.
    fn arrange(&mut self) {
        for lane in [&mut self.runtime, &mut self.network] {
            let periods =
                self.probes.values().filter_map(|probe| probe.of_lane(lane.means)).map(|timing| timing.period);
            lane.percent = stretch(periods, lane.means.runs_in_ten_seconds());
            lane.order.clear();
            for (id, probe) in self.probes.iter().filter(|(_, probe)| probe.running.is_none()) {
                if let Some(timing) = probe.of_lane(lane.means) {
                    let next = probe.next(id, lane.period(timing));
                    lane.order.insert((next, id.clone()));
                }
            }
        }
    }

    /// The probes to be run now; each is under way until [`Schedule::done`].
    pub fn due(&mut self, now: Duration) -> Vec<Order> {
        let mut orders = Vec::new();
        for lane in [&mut self.runtime, &mut self.network] {
            while let Some(id) = lane.take(now) {
                let Some(probe) = self.probes.get_mut(&id) else { continue };
                let Some(Definition { action, timing }) = &probe.definition else { continue };
                self.runs += 1;
                orders.push(Order {
                    number: self.runs,
                    action: action.clone(),
                    timeout: timing.timeout,
                    address: probe.address.clone(),
                    container_id: Arc::from(probe.asked.container_id.as_str()),
                });
                (probe.running, probe.begun_at, probe.seen_at) = (Some(self.runs), Some(now), now);
                lane.running += 1;
                self.under_way.insert(self.runs, (id, lane.means));
            }
        }
        orders
    }

    /// What came of a run. Returns whether something is to be stored.
    pub fn done(&mut self, number: u64, answer: Answer, now: Moment) -> bool {
        let Some((id, means)) = self.under_way.remove(&number) else { return false };
        let lane = match means {
            Means::Runtime => &mut self.runtime,
            Means::Network => &mut self.network,
        };
        lane.running = lane.running.saturating_sub(1);
        let probe = self.probes.get_mut(&id).filter(|probe| probe.running == Some(number));
        let Some(probe) = probe else { return false };
        (probe.running, probe.seen_at) = (None, now.steady);
        let Some(timing) = probe.definition.as_ref().map(|definition| definition.timing) else { return false };
        let next = probe.next(&id, lane.period(timing)).max(now.steady);
        lane.order.insert((next, id));
        probe.judge(answer, timing, now.wall)
    }

    /// Makes what is late unknown. To be called once in a while. Returns whether something is to be stored.
    pub fn late(&mut self, now: Moment) -> bool {
        let mut has_changed = false;
        for probe in self.probes.values_mut() {
            let Some(Definition { action, timing }) = &probe.definition else { continue };
            let lane = if action.means() == Means::Runtime { &self.runtime } else { &self.network };
            let more = if probe.running.is_some() { timing.timeout } else { Duration::ZERO };
            let late_at =
                probe.seen_at.saturating_add(lane.period(*timing).saturating_mul(LATE_AFTER)).saturating_add(more);
            if now.steady > late_at {
                probe.streak = (false, 0);
                has_changed |= probe.set(ProbeState::Unknown, Some(LATE.to_owned()), now.wall);
            }
        }
        has_changed
    }

    /// When the next probe is due, if none ends before.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        let lanes = [&self.runtime, &self.network].into_iter();
        lanes.filter(|lane| lane.has_room()).filter_map(|lane| lane.order.first()).map(|(at, _)| *at).min()
    }

    /// What is to be stored.
    #[must_use]
    pub fn status(&self) -> NodePodProbeStatus {
        let pods = self.spec.pod_probes.iter().map(|pod| {
            let uid: Arc<str> = Arc::from(pod.uid.as_str());
            let stored = |asked: &ContainerProbe| {
                let id = Id { pod: uid.clone(), probe: Arc::from(asked.name.as_str()) };
                self.probes.get(&id)?.stored.clone()
            };
            PodProbeStatus {
                name: pod.name.clone(),
                namespace: pod.namespace.clone(),
                uid: pod.uid.clone(),
                probe_states: pod.probes.iter().filter_map(stored).collect(),
            }
        });
        NodePodProbeStatus {
            pod_probe_statuses: pods.filter(|pod| !pod.probe_states.is_empty()).collect(),
            message: self.stretched(),
        }
    }

    /// How many probes there are of each kind with each result, for metrics.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(&'static str, ProbeState), usize> {
        let mut counts = BTreeMap::new();
        for probe in self.probes.values() {
            *counts.entry((probe.kind, probe.state())).or_default() += 1;
        }
        counts
    }

    /// That probes run more seldom than they ask for, if they do.
    #[must_use]
    pub fn stretched(&self) -> Option<String> {
        let said = [&self.runtime, &self.network].into_iter().filter(|lane| lane.percent > 100).map(|lane| {
            let (what, most) = (lane.means.what(), lane.means.runs_in_ten_seconds());
            let (whole, tenths) = (lane.percent / 100, lane.percent % 100 / 10);
            format!("{what} take {whole}.{tenths} times their period: a node runs at most {most} in 10 seconds")
        });
        Some(said.collect::<Vec<_>>().join("; ")).filter(|said| !said.is_empty())
    }
}

impl Means {
    /// So many at once.
    const fn most_at_once(self) -> usize {
        match self {
            Self::Runtime => 10,
            Self::Network => 512,
        }
    }

    /// So many in ten seconds. If more are asked for, all of them run more seldom.
    const fn runs_in_ten_seconds(self) -> u32 {
        match self {
            Self::Runtime => 100,
            Self::Network => 5_000,
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Self::Runtime => "commands",
            Self::Network => "probes over the network",
        }
    }
}

impl Lane {
    fn has_room(&self) -> bool {
        self.running < self.means.most_at_once()
    }

    /// The next probe, if it is time for it.
    fn take(&mut self, now: Duration) -> Option<Id> {
        if !self.has_room() || self.order.first()?.0 > now {
            return None;
        }
        self.order.pop_first().map(|(_, id)| id)
    }

    fn period(&self, timing: Timing) -> Duration {
        timing.period.saturating_mul(self.percent) / 100
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
