//! Starting and ending processes, and knowing them again.

use std::{
    fs::File,
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{OnceLock, mpsc},
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, io_error};

/// How long what was started lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifetime {
    /// Ends with the process that started it, even if that one is killed.
    WithParent,
    /// Lives on in a session of its own until it is stopped.
    Detached,
}

/// A process, told apart from any later one that gets the same pid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid.
    pub pid: i32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    pub start_time: u64,
    /// The boot that those ticks are counted from.
    pub boot: String,
}

impl ProcessId {
    /// The process that has this pid now, unless it has ended.
    pub fn of(pid: i32) -> Option<Self> {
        let start_time = start_time(pid)?;
        Some(Self { pid, start_time, boot: boot_id() })
    }

    /// This process.
    pub fn current() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// Whether that very process still runs; one that waits to be reaped does not.
    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.start_time) && self.boot == boot_id()
    }

    /// Sends a signal to that very process, and says whether it was there to get it.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        // The descriptor is opened first and the start time compared after: from then on no other process can be meant.
        let Some(pid) = Pid::from_raw(self.pid) else {
            return false;
        };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        self.is_alive() && pidfd_send_signal(&handle, signal).is_ok()
    }
}

/// Field 22 of `/proc/<pid>/stat`; nothing for a process that is gone or a zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in brackets and may hold anything, so count from its end.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

fn boot_id() -> String {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    })
    .clone()
}

/// The variable by which a child is known that was started but not yet recorded when its owner died.
pub(crate) const TOKEN_VARIABLE: &str = "DAPPLE_TESTBED_TOKEN";

/// All processes that carry this token in the environment they were started with.
pub(crate) fn with_token(token: &str) -> Vec<ProcessId> {
    let wanted = format!("{TOKEN_VARIABLE}={token}");
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let process = ProcessId::of(pid)?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let found = environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes());
            (found && process.is_alive()).then_some(process)
        })
        .collect()
}

/// What to start.
#[derive(Debug, Clone)]
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) args: &'a [String],
    pub(crate) env: &'a [(String, String)],
    pub(crate) log: &'a Path,
    pub(crate) lifetime: Lifetime,
}

/// Starts a process in the background and returns who it is.
pub(crate) fn spawn(launch: &Launch<'_>) -> Result<ProcessId> {
    let log = File::options().create(true).append(true).open(launch.log).map_err(io_error("open", launch.log))?;
    let errors = log.try_clone().map_err(io_error("open", launch.log))?;
    let mut command = match launch.lifetime {
        Lifetime::WithParent => dying_with_parent(launch.program),
        Lifetime::Detached => {
            // setsid forks when it leads a process group; it must not lead one, so that its pid stays the program's.
            let mut command = Command::new("setsid");
            command.arg(launch.program);
            command
        }
    };
    command.args(launch.args).envs(launch.env.iter().cloned()).current_dir("/");
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    let program = launch.program.display().to_string();
    let child = on_spawner(command).map_err(|source| spawn_error(&program, source))?;
    let pid = i32::try_from(child.id()).unwrap_or_default();
    let identity = ProcessId::of(pid);
    reap_later(child);
    identity.ok_or_else(|| Error::Died {
        component: program,
        log: launch.log.to_owned(),
        tail: crate::files::tail(launch.log, 20),
    })
}

/// A command whose process gets SIGKILL when the thread that spawns it ends; use it with [`on_spawner`] only.
pub(crate) fn dying_with_parent(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    // A group of its own: Ctrl-C on the terminal reaches the owner alone, which then stops things in order.
    command.process_group(0);
    command
}

fn spawn_error(program: &str, source: io::Error) -> Error {
    let remedy = "setpriv and setsid come with util-linux (apt-get install util-linux)";
    Error::Spawn { program: program.to_owned(), source, remedy }
}

enum Job {
    Spawn(Box<Command>, mpsc::Sender<io::Result<Child>>),
    Reap(Child),
}

/// The one thread that spawns: death signals are bound to the spawning thread, and tokio's and test threads end early.
fn spawner() -> io::Result<&'static mpsc::Sender<Job>> {
    static SPAWNER: OnceLock<io::Result<mpsc::Sender<Job>>> = OnceLock::new();
    let started = SPAWNER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel();
        std::thread::Builder::new().name("testbed-spawner".into()).spawn(move || spawn_forever(&receiver))?;
        Ok(sender)
    });
    started.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))
}

fn spawn_forever(jobs: &mpsc::Receiver<Job>) {
    let mut children: Vec<Child> = Vec::new();
    loop {
        match jobs.recv_timeout(Duration::from_millis(200)) {
            Ok(Job::Spawn(mut command, reply)) => {
                // A caller that gave up has no use for the child: it is reaped like the others.
                if let Err(mpsc::SendError(Ok(child))) = reply.send(command.spawn()) {
                    children.push(child);
                }
            }
            Ok(Job::Reap(child)) => children.push(child),
            Err(_) => {}
        }
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

/// Spawns on the thread that never ends.
pub(crate) fn on_spawner(command: Command) -> io::Result<Child> {
    let (reply, answer) = mpsc::channel();
    let gone = || io::Error::other("the spawning thread is gone");
    spawner()?.send(Job::Spawn(Box::new(command), reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

fn reap_later(child: Child) {
    if let Ok(spawner) = spawner() {
        // Only fails when the thread is gone, and then the process is about to end.
        let _ = spawner.send(Job::Reap(child));
    }
}

/// Ends processes: SIGTERM, then SIGKILL for those still there after `grace`; returns those that live on.
pub(crate) fn end(processes: &[ProcessId], grace: Duration) -> Vec<ProcessId> {
    // SIGKILL only waits for the kernel; a process stuck in it is reported, not waited for without end.
    end_by(processes, grace, Duration::from_secs(20), ProcessId::signal)
}

fn end_by(
    processes: &[ProcessId],
    grace: Duration,
    limit: Duration,
    signal: impl Fn(&ProcessId, Signal) -> bool,
) -> Vec<ProcessId> {
    let mut left: Vec<ProcessId> = processes.iter().filter(|process| process.is_alive()).cloned().collect();
    for (with, patience) in [(Signal::TERM, grace), (Signal::KILL, limit)] {
        for process in &left {
            // One that got no signal either ended by itself or lives on: waiting shows which.
            signal(process, with);
        }
        wait_until_gone(&mut left, patience);
    }
    left
}

fn wait_until_gone(processes: &mut Vec<ProcessId>, limit: Duration) {
    let deadline = Instant::now() + limit;
    loop {
        processes.retain(ProcessId::is_alive);
        if processes.is_empty() || Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_itself() {
        let me = ProcessId::current().unwrap();
        assert!(me.is_alive());
        assert_eq!(me, ProcessId::current().unwrap());
    }

    #[test]
    fn a_reused_pid_is_never_signalled() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let real = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        let recorded_earlier = ProcessId { start_time: real.start_time - 1, ..real.clone() };
        let recorded_before_boot = ProcessId { boot: "another".into(), ..real.clone() };
        for stale in [recorded_earlier, recorded_before_boot] {
            assert!(!stale.is_alive());
            assert!(!stale.signal(Signal::KILL));
            assert!(end(&[stale], Duration::ZERO).is_empty());
        }
        assert!(child.try_wait().unwrap().is_none(), "the process with the reused pid was harmed");
        assert!(real.signal(Signal::KILL));
        child.wait().unwrap();
        assert!(!real.is_alive());
    }

    #[test]
    fn one_that_cannot_be_signalled_is_reported() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        let left = end_by(std::slice::from_ref(&process), Duration::ZERO, Duration::ZERO, |_, _| false);
        assert_eq!(left, [process]);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        while ProcessId::of(pid).is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_child_can_be_found_by_its_token_and_ignores_no_sigkill() {
        let dir = tempfile::tempdir().unwrap();
        let token = crate::files::unique();
        for lifetime in [Lifetime::WithParent, Lifetime::Detached] {
            let log = dir.path().join(format!("{lifetime:?}"));
            let process = spawn(&Launch {
                program: Path::new("/bin/sh"),
                // Ignores SIGTERM, so that the second step of `end` is needed.
                args: &["-c".into(), "trap '' TERM; echo up; while :; do sleep 0.05; done".into()],
                env: &[(TOKEN_VARIABLE.into(), token.clone())],
                log: &log,
                lifetime,
            })
            .unwrap();
            while crate::files::tail(&log, 9).lines().count() < 1 {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(with_token(&token).contains(&process));
            assert!(end(std::slice::from_ref(&process), Duration::from_millis(100)).is_empty());
            assert!(!process.is_alive());
        }
    }
}
