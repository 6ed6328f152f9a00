//! Certificates of a port whose callers are told by a person whom to trust, and not by us: kept in a Secret that all replicas
//! share, renewed by whoever leads. Callers show certificates of the same authority.
//!
//! The steps of a renewal are those of [`dapple_plan::certificate`]. That a new authority is there, a person has to take note
//! of, so it waits for longer before a certificate of it is used.

use std::time::Duration;

use dapple_plan::certificate::Lifetimes;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::callers::Callers;
use crate::requests::Error;
use crate::secret::Contents;
use crate::serve::Identity;
use crate::shared::SharedSecret;

/// How often to look.
const EVERY: Duration = Duration::from_secs(5);
/// How long a new authority is there before it is used: time to tell callers of it. A certificate for serving has more than
/// that left when one is made.
const NOTICE: i64 = 20 * 86_400;

/// How long certificates last. A person has to do something when an authority ends: that is not to be often.
pub const LIFETIMES: Lifetimes = Lifetimes { authority: 3_650 * 86_400, serving: 90 * 86_400 };

/// Certificates of one port.
pub struct Certificates {
    /// Where they are kept.
    pub kept: SharedSecret,
    /// What tells callers whom to trust.
    pub remedy: &'static str,
    /// What is served with.
    pub identity: Identity,
    /// Who may ask.
    pub callers: Callers,
}

impl Certificates {
    /// Keeps them until stopped.
    pub async fn keep(&self, stop: &CancellationToken) {
        let mut said = String::new();
        while !stop.is_cancelled() {
            let done = tokio::select! { biased; () = stop.cancelled() => return, done = self.look() => done };
            let text = match done {
                Ok(None) => String::new(),
                Ok(Some(notice)) => notice,
                Err(error) => format!("{error}; trying again"),
            };
            if !text.is_empty() && text != said {
                warn!(secret = self.kept.name, "{text}");
            }
            said = text;
            tokio::select! { biased; () = stop.cancelled() => return, () = tokio::time::sleep(EVERY) => {} }
        }
    }

    /// Serves with what is there, and renews it if this process leads. Returns what a person has to know.
    async fn look(&self) -> Result<Option<String>, Error> {
        let contents = self.kept.load().await?;
        let trusted = self.callers.trust(&contents.bundle());
        let served = self.identity.set(&contents.certificate, &contents.key);
        let now = self.kept.env.now().as_second();
        let since = contents.authority_span().from;
        let is_replaced = contents.authorities.len() > 1;
        if self.kept.leading.get() != 0 {
            let is_told = is_told(&contents, now);
            // What cannot be used is made anew.
            self.kept.renew(contents, is_told).await?;
        }
        trusted?;
        served?;
        Ok(is_replaced.then(|| {
            let days = (since.saturating_add(NOTICE).saturating_sub(now) / 86_400).max(0);
            format!("there is another authority, used in {days} days: {} before that", self.remedy)
        }))
    }
}

/// Whether callers know of all authorities: a person is told of a new one by a line in the log, and has time to tell them.
fn is_told(contents: &Contents, now: i64) -> bool {
    contents.authorities.len() == 1 || now.saturating_sub(contents.authority_span().from) >= NOTICE
}

#[cfg(test)]
mod tests {
    use dapple_plan::certificate::Step;

    use super::*;
    use crate::shared::step;

    #[test]
    fn a_new_authority_is_used_once_people_had_time_to_tell_callers_and_before_anything_ends() {
        const DAY: i64 = 86_400;
        let (names, begun) = (vec!["dapple-extender.dapple-system.svc".to_owned()], 1_800_000_000);
        let mut contents = Contents::new(&names, LIFETIMES, begun).unwrap();
        let (mut added, mut used, mut dropped) = (None, None, None);
        let mut now = begun;
        while now < begun + LIFETIMES.authority && dropped.is_none() {
            let step = step(&contents, &names, is_told(&contents, now), LIFETIMES, now);
            match step {
                Step::AddAuthority => added = Some(now),
                Step::Sign if added.is_some() => used = Some(now),
                Step::DropOlder => dropped = Some(now),
                Step::Rest | Step::NotePublished | Step::Sign => {}
            }
            contents.take(step, &names, LIFETIMES, now).unwrap();
            let serving = contents.held(true, &names).serving.unwrap();
            assert!(serving.span.until > now, "on day {} nobody can be served", (now - begun) / DAY);
            now += DAY / 4;
        }
        let (added, used, dropped) = (added.unwrap(), used.unwrap(), dropped.unwrap());
        assert!((added - begun) / DAY >= 2_400, "an authority lasts for years");
        assert!((20..22).contains(&((used - added) / DAY)), "{} days", (used - added) / DAY);
        assert!(dropped > used && contents.authorities.len() == 1);
    }
}
