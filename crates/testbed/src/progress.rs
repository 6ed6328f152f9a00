//! Telling somebody what takes so long.

use std::{
    io::{IsTerminal, Write},
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

/// Is told what goes on. All methods may be called from any thread.
pub trait Progress: Send + Sync {
    /// A task began; it replaces the one before.
    fn started(&self, task: &str);
    /// The task goes on; `detail` is what it is at.
    fn detail(&self, detail: &str);
    /// The task ended.
    fn finished(&self);
    /// A line worth keeping.
    fn note(&self, line: &str);
}

/// Says nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Quiet;

impl Progress for Quiet {
    fn started(&self, _: &str) {}
    fn detail(&self, _: &str) {}
    fn finished(&self) {}
    fn note(&self, _: &str) {}
}

/// A spinner where standard error is a terminal, plain lines elsewhere.
pub fn to_stderr() -> Arc<dyn Progress> {
    if std::io::stderr().is_terminal() { Arc::new(Spinner::default()) } else { Arc::new(Lines::default()) }
}

/// A spinner with the elapsed time.
#[derive(Debug, Default)]
pub struct Spinner {
    bar: Mutex<Option<indicatif::ProgressBar>>,
}

impl Spinner {
    fn with<T>(&self, act: impl FnOnce(&mut Option<indicatif::ProgressBar>) -> T) -> T {
        act(&mut self.bar.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Progress for Spinner {
    fn started(&self, task: &str) {
        self.finished();
        let style = indicatif::ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg:.dim}")
            .unwrap_or_else(|_| indicatif::ProgressStyle::default_spinner());
        let bar = indicatif::ProgressBar::new_spinner().with_style(style).with_prefix(task.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        self.with(|slot| *slot = Some(bar));
    }

    fn detail(&self, detail: &str) {
        self.with(|slot| {
            if let Some(bar) = slot {
                bar.set_message(detail.to_owned());
            }
        });
    }

    fn finished(&self) {
        if let Some(bar) = self.with(Option::take) {
            bar.finish_and_clear();
        }
    }

    fn note(&self, line: &str) {
        let shown = self.with(|slot| slot.as_ref().map(|bar| bar.println(line)).is_some());
        if !shown {
            print_line(line);
        }
    }
}

/// Plain lines: when a task begins, and every quarter of a minute while it lasts.
#[derive(Debug, Default)]
pub struct Lines {
    ticker: Mutex<Option<(mpsc::Sender<String>, String, Instant)>>,
}

/// How often a lasting task is mentioned again in a log.
const REMIND: Duration = Duration::from_secs(15);

impl Progress for Lines {
    fn started(&self, task: &str) {
        print_line(&format!("{task} ..."));
        let (sender, receiver) = mpsc::channel::<String>();
        let (name, begun) = (task.to_owned(), Instant::now());
        // The thread ends with the sender: nobody has to join it.
        std::thread::spawn(move || {
            let (mut detail, mut next) = (String::new(), begun + REMIND);
            loop {
                match receiver.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(now_at) => detail = now_at,
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        print_line(&format!("{name} ... {} s {detail}", begun.elapsed().as_secs()));
                        next += REMIND;
                    }
                }
            }
        });
        *self.ticker.lock().unwrap_or_else(PoisonError::into_inner) = Some((sender, task.to_owned(), Instant::now()));
    }

    fn detail(&self, detail: &str) {
        if let Some((sender, ..)) = &*self.ticker.lock().unwrap_or_else(PoisonError::into_inner) {
            // A reminder thread that is gone has nobody to remind.
            let _ = sender.send(detail.to_owned());
        }
    }

    fn finished(&self) {
        let ended = self.ticker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((_, task, begun)) = ended
            && begun.elapsed() > REMIND
        {
            print_line(&format!("{task} ... done in {} s", begun.elapsed().as_secs()));
        }
    }

    fn note(&self, line: &str) {
        print_line(line);
    }
}

fn print_line(line: &str) {
    // Progress is a courtesy: a closed stderr must not stop the work.
    let _ = writeln!(std::io::stderr(), "{line}");
}
