//! Memory and CPU time of one thing at a time.

use std::time::Duration;

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use tikv_jemalloc_ctl::{epoch, stats};

/// What something cost.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Memory that it holds, in bytes.
    pub bytes: usize,
    /// CPU time that making it took.
    pub cpu: Duration,
}

/// Runs `make` and measures what its result holds and what making it took. The binary's allocator must be jemalloc.
pub fn cost_of<T>(make: impl FnOnce() -> T) -> anyhow::Result<(T, Cost)> {
    let (bytes_before, cpu_before) = (allocated()?, cpu_time());
    let made = make();
    let cpu = cpu_time().saturating_sub(cpu_before);
    let bytes = allocated()?.saturating_sub(bytes_before);
    Ok((made, Cost { bytes, cpu }))
}

fn allocated() -> anyhow::Result<usize> {
    epoch::advance().ok().context("jemalloc has no statistics")?;
    stats::allocated::read().ok().context("jemalloc has no statistics")
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
