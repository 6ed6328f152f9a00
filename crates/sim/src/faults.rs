//! What goes wrong on the way between a process and the API server, drawn from a seed.
//!
//! Each fault that is drawn has a number, by which it can be left out when the run is repeated: that is how a failure is
//! shrunk. A fault that is left out is drawn all the same, so that those after it stay as alike as they can.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;

/// How rough the way is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weather {
    /// The part of requests that something happens to.
    pub requests: f64,
    /// The part of lines of a watch that something happens to.
    pub lines: f64,
    /// Whether requests may stay under way for longer than a lease.
    pub has_stragglers: bool,
    /// The part of requests that something of the second kind happens to: their answers are late, or their senders die.
    pub second: f64,
    /// The part of calls of the webhook that something happens to.
    pub calls: f64,
}

impl Weather {
    /// Nothing goes wrong.
    pub const CALM: Self = Self { requests: 0.0, lines: 0.0, has_stragglers: false, second: 0.0, calls: 0.0 };

    /// From a calm day to a storm, by chance.
    pub fn draw(random: &mut fastrand::Rng) -> Self {
        let requests = [0.0, 0.01, 0.04, 0.15][random.usize(0..4)];
        let lines = [0.0, 0.02, 0.1, 0.4][random.usize(0..4)];
        Self { requests, lines, has_stragglers: random.u8(0..4) == 0, second: 0.0, calls: 0.0 }
    }

    /// The same, with faults of the second kind. They are drawn apart, so that a seed from before there were any can
    /// still be run as it was.
    pub fn with_second(self, random: &mut fastrand::Rng) -> Self {
        Self { second: [0.0, 0.005, 0.03][random.usize(0..3)], ..self }
    }
}

/// A request that is later than this may be that of a manager that leads no more.
const STRAGGLES: Duration = Duration::from_secs(3);

/// A client gives a connection up after so long a silence.
pub const SILENCE: Duration = Duration::from_secs(150);
/// Whoever was told of a fault has made it good after so long: the longest pause before the next try, and the try.
pub const RECOVERY: Duration = Duration::from_secs(60);

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives and is answered.
    Fine,
    /// It arrives late.
    Late(Duration),
    /// It does not arrive, and the sender is told.
    LostBefore,
    /// It arrives, and its answer is lost.
    LostAfter,
    /// It does not arrive, and the sender is not told.
    SilentBefore,
    /// It arrives, and the sender hears nothing.
    SilentAfter,
    /// The server refuses it, for now.
    Refused(u16),
    /// The server did it, and says that it took too long.
    TimedOut,
    /// Somebody else was faster, says the server.
    Conflict,
    /// It arrives at once, and its answer is old when it comes.
    LateAnswer(Duration),
    /// Its sender dies before it is sent.
    DiesBefore,
    /// Its sender dies as soon as it is sent. It arrives.
    DiesAfter,
}

impl Fate {
    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fine => "none",
            Self::Late(delay) if delay > STRAGGLES => "straggler",
            Self::Late(_) => "late request",
            Self::LostBefore => "lost request",
            Self::LostAfter => "lost answer",
            Self::SilentBefore => "request without an echo",
            Self::SilentAfter => "answer without an echo",
            Self::Refused(429) => "too many requests",
            Self::Refused(_) => "server error",
            Self::TimedOut => "done, said to have timed out",
            Self::Conflict => "conflict",
            Self::LateAnswer(_) => "late answer",
            Self::DiesBefore => "death before a request",
            Self::DiesAfter => "death after a request",
        }
    }

    /// For how long whoever it happens to may not know what has become true since.
    pub fn lasts(self) -> Duration {
        match self {
            Self::Fine => Duration::ZERO,
            Self::Late(delay) | Self::LateAnswer(delay) => delay + RECOVERY,
            Self::SilentBefore | Self::SilentAfter => SILENCE + RECOVERY,
            _ => RECOVERY,
        }
    }
}

/// What happens to a line of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFate {
    /// It arrives soon.
    Fine,
    /// It, and all after it, come late.
    Late(Duration),
    /// The connection ends before it.
    Ended,
    /// The connection breaks in the middle of it.
    Torn,
    /// Neither it nor anything else arrives, and nobody is told.
    Silent,
}

impl LineFate {
    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fine => "none",
            Self::Late(_) => "late watch",
            Self::Ended => "ended watch",
            Self::Torn => "torn watch",
            Self::Silent => "silent watch",
        }
    }

    /// For how long whoever watches may not know what has become true since.
    pub fn lasts(self) -> Duration {
        match self {
            Self::Fine => Duration::ZERO,
            Self::Late(delay) => delay + RECOVERY,
            Self::Silent => SILENCE + RECOVERY,
            Self::Ended | Self::Torn => RECOVERY,
        }
    }
}

/// What happens to a call of the webhook, of which the API server says that a failure is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFate {
    /// It is answered by a replica that knows everything.
    Fine,
    /// It is lost: the object comes as if there were no webhook.
    Lost,
    /// It is answered by a replica whose view is this old.
    Old(Duration),
}

/// Draws faults.
#[derive(Debug)]
pub struct Faults {
    random: fastrand::Rng,
    /// For faults of the second kind.
    second: fastrand::Rng,
    /// For calls of the webhook.
    calls: fastrand::Rng,
    weather: Weather,
    /// Numbers of faults that are left out.
    muted: BTreeSet<u64>,
    drawn: u64,
    /// How many there were of each kind.
    counts: BTreeMap<&'static str, u64>,
}

impl Faults {
    /// Faults that follow from a seed, but for these.
    pub fn new(seed: u64, weather: Weather, muted: BTreeSet<u64>) -> Self {
        let (random, second) = (fastrand::Rng::with_seed(seed), fastrand::Rng::with_seed(seed ^ 0x5ec0));
        let calls = fastrand::Rng::with_seed(seed ^ 0xca11);
        Self { random, second, calls, weather, muted, drawn: 0, counts: BTreeMap::new() }
    }

    /// Nothing goes wrong any more.
    pub fn calm(&mut self) {
        self.weather = Weather::CALM;
    }

    /// How many faults were drawn, those left out among them.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }

    /// How many there were of each kind.
    pub fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// How long something takes that goes well.
    pub fn short_while(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(0..4))
    }

    /// Counts something that a script has happen.
    pub fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// What happens to the next request.
    pub fn request(&mut self, method: &Method) -> Fate {
        if self.random.f64() < self.weather.requests { self.first_kind(method) } else { self.second_kind() }
    }

    fn second_kind(&mut self) -> Fate {
        if self.second.f64() >= self.weather.second {
            return Fate::Fine;
        }
        let fate = match self.second.u8(0..8) {
            0 => Fate::DiesBefore,
            1 => Fate::DiesAfter,
            2 => Fate::LateAnswer(Duration::from_millis(self.second.u64(3_000..30_000))),
            _ => Fate::LateAnswer(Duration::from_millis(self.second.u64(20..3_000))),
        };
        if self.passes(fate.name()) { fate } else { Fate::Fine }
    }

    fn first_kind(&mut self, method: &Method) -> Fate {
        let is_write = *method != Method::GET;
        let fate = match self.random.u8(0..12) {
            0 | 1 => Fate::Late(Duration::from_millis(self.random.u64(20..3_000))),
            2 if self.weather.has_stragglers => Fate::Late(Duration::from_millis(self.random.u64(3_000..60_000))),
            2 | 3 => Fate::LostBefore,
            4 | 5 => Fate::LostAfter,
            6 => Fate::SilentBefore,
            7 => Fate::SilentAfter,
            8 => Fate::Refused(429),
            9 => Fate::Refused(if self.random.bool() { 500 } else { 503 }),
            10 if is_write => Fate::TimedOut,
            11 if is_write && *method != Method::POST => Fate::Conflict,
            _ => Fate::Late(Duration::from_millis(self.random.u64(5..200))),
        };
        if self.passes(fate.name()) { fate } else { Fate::Fine }
    }

    /// What happens to the next line of a watch.
    pub fn line(&mut self) -> LineFate {
        if self.random.f64() >= self.weather.lines {
            return LineFate::Fine;
        }
        let fate = match self.random.u8(0..16) {
            0..8 => LineFate::Late(Duration::from_millis(self.random.u64(10..1_000))),
            8..12 => LineFate::Late(Duration::from_millis(self.random.u64(1_000..30_000))),
            12 | 13 => LineFate::Ended,
            14 => LineFate::Torn,
            _ => LineFate::Silent,
        };
        if self.passes(fate.name()) { fate } else { LineFate::Fine }
    }

    /// What happens to the next call of the webhook.
    pub fn call(&mut self) -> CallFate {
        if self.calls.f64() >= self.weather.calls {
            return CallFate::Fine;
        }
        let (fate, name) = match self.calls.bool() {
            true => (CallFate::Lost, "lost call"),
            false => (CallFate::Old(Duration::from_millis(self.calls.u64(10..30_000))), "old answer to a call"),
        };
        if self.passes(name) { fate } else { CallFate::Fine }
    }

    /// Counts a fault; false if it is left out.
    fn passes(&mut self, name: &'static str) -> bool {
        self.drawn += 1;
        let passes = !self.muted.contains(&(self.drawn - 1));
        if passes {
            self.count(name);
        }
        passes
    }
}
