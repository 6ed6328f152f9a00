//! Requests at a constant rate, whether those before are answered or not.

use std::time::{Duration, Instant};

use tokio::runtime::Handle;

/// A rate, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub per_second: u32,
    pub seconds: u32,
}

impl Pace {
    pub fn requests(self) -> u32 {
        self.per_second * self.seconds
    }
}

/// Sends what `make` makes of each number. Each answer comes with the time since its request was due, not since it was
/// sent: who is too busy to send in time makes callers wait as well.
pub async fn load<F: Future<Output: Send> + Send + 'static>(
    pace: Pace,
    make: impl Fn(u32) -> F + Send + 'static,
) -> anyhow::Result<Vec<(Duration, F::Output)>> {
    let runtime = Handle::current();
    // A thread of its own, since timers of the runtime know whole milliseconds only.
    let sending = tokio::task::spawn_blocking(move || {
        let begun = Instant::now();
        let send = |number: u32| {
            let request = make(number);
            let due = begun + Duration::from_secs(1) * number / pace.per_second;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            runtime.spawn(async move {
                let answer = request.await;
                (due.elapsed(), answer)
            })
        };
        (0..pace.requests()).map(send).collect::<Vec<_>>()
    });
    let mut answers = Vec::new();
    for answer in sending.await? {
        answers.push(answer.await?);
    }
    Ok(answers)
}

/// How long most took.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub p50: Duration,
    pub p99: Duration,
}

impl Times {
    pub fn of(all: impl IntoIterator<Item = Duration>) -> Self {
        let mut all: Vec<Duration> = all.into_iter().collect();
        all.sort();
        let at = |percent: usize| all.get(all.len() * percent / 100).copied().unwrap_or_default();
        Self { p50: at(50), p99: at(99) }
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "p50 {:.2} ms, p99 {:.2} ms", self.p50.as_secs_f64() * 1e3, self.p99.as_secs_f64() * 1e3)
    }
}

/// The first few of what was said, each once, with how often.
pub fn told(all: &[String]) -> String {
    let mut counts: Vec<(&String, usize)> = Vec::new();
    for text in all {
        match counts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => counts.push((text, 1)),
        }
    }
    counts.iter().take(5).map(|(text, count)| format!("\n    {count} times: {text:.300}")).collect()
}
