//! What follows from the answer to a write: what is known of it from now on, and what has to be looked at anew.

use super::cell::Act;
use super::stale::Stale;
use crate::backoff;

/// How long a node is left alone after a refusal, at first and at most, in seconds.
const SET_BACK: (i64, i64) = (10, 300);

/// What the API server said to a write, or what came of it otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// It was done.
    Written,
    /// It was done, and somebody has undone it at once.
    Ineffective,
    /// What was to be deleted is gone.
    Gone,
    /// There is no such object, or no such namespace.
    Missing,
    /// The object has changed since it was decided on.
    Conflict,
    /// Something else has this name.
    NameTaken,
    /// It was not sent: there is no reason for it.
    Unfounded,
    /// Nobody knows whether it was done.
    Unknown,
    /// It was refused for a reason that concerns every write: this process does not lead, or asks too much.
    Stopped,
    /// It was refused.
    Refused,
}

/// What is known of a write from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// It was done: nothing is decided about its node until our view includes it.
    Unconfirmed,
    /// Whether it was done has to be asked.
    InDoubt,
    /// Nothing was done.
    No,
}

/// What is done about the node of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// What was refused there before is over.
    Forget,
    /// Its pod is given another name.
    Rename,
    /// Its pod cannot be changed where it runs: it is replaced.
    Replace,
    /// It is left alone for a while.
    SetBack,
    /// Nothing.
    None,
}

/// What follows from an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consequence {
    /// What is known of the write.
    pub open: Open,
    /// What is done about the node.
    pub remedy: Remedy,
    /// Why everything has to be looked at anew, if it has.
    pub stale: Option<Stale>,
    /// Whether the look ends with the error.
    pub is_error: bool,
}

impl Consequence {
    /// What follows from the answer to an act.
    ///
    /// Invariant: a write that may have been done is open until our view includes it, or the API server was asked.
    #[must_use]
    pub fn of(act: Act, answered: Answered) -> Self {
        let is_new = act == Act::Create;
        let (open, remedy, stale) = match answered {
            Answered::Written => (Open::Unconfirmed, Remedy::Forget, None),
            Answered::Ineffective => (Open::Unconfirmed, Remedy::Replace, Some(Stale::Unchangeable)),
            // That one was not made, no watch will tell.
            Answered::Gone | Answered::Missing | Answered::Conflict if is_new => {
                (Open::No, Remedy::None, Some(Stale::NotMade))
            }
            // At no version that a watch could be held against: until our view includes it, it is asked for.
            Answered::Gone | Answered::Missing | Answered::Conflict => (Open::InDoubt, Remedy::None, None),
            Answered::NameTaken => (Open::No, Remedy::Rename, Some(Stale::NotMade)),
            // Of a node that is there after all, the watch will tell.
            Answered::Unfounded | Answered::Stopped => (Open::No, Remedy::None, None),
            Answered::Unknown => (Open::InDoubt, Remedy::None, None),
            // It looked as if it could be changed where it runs. The API server knows better.
            Answered::Refused if matches!(act, Act::Edit | Act::Resize) => {
                (Open::No, Remedy::Replace, Some(Stale::Unchangeable))
            }
            // Perhaps it is not the node: what is refused there may be refused everywhere by now.
            Answered::Refused => (Open::No, Remedy::SetBack, is_new.then_some(Stale::Refused)),
        };
        Self { open, remedy, stale, is_error: matches!(answered, Answered::Unknown | Answered::Stopped) }
    }
}

/// Whether making more pods is of no use after this answer: a few are enough to know that they are refused.
#[must_use]
pub fn is_in_vain(answered: Answered) -> bool {
    use Answered::{Conflict, Gone, Ineffective, Missing, NameTaken, Refused, Stopped, Unfounded, Unknown, Written};
    match answered {
        Written | Gone | NameTaken | Ineffective | Unfounded => false,
        Missing | Conflict | Unknown | Stopped | Refused => true,
    }
}

/// What the API server refused on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// One word for machines.
    pub reason: &'static str,
    /// One sentence for people.
    pub text: String,
    times: u32,
    /// Not before this time is it tried again.
    pub until: i64,
}

impl Refusal {
    /// An act was refused on a node, where this may have been refused before.
    #[must_use]
    pub fn after(before: Option<&Self>, (act, node): (Act, &str), error: &str, now: i64) -> Self {
        let (reason, what) = match act {
            Act::Create => ("FailedCreate", "made"),
            Act::Delete(_) => ("FailedDelete", "deleted"),
            Act::Mark(_) | Act::Gate { .. } | Act::Edit | Act::Resize | Act::ClearResize => ("FailedUpdate", "changed"),
        };
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        let text = format!("the pod on {node} cannot be {what}: {error}");
        Self { reason, text, times, until: now.saturating_add(backoff::wait(SET_BACK, times)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::Why;
    use super::*;

    const ACTS: [Act; 4] = [Act::Create, Act::Delete(Why::Ended), Act::Edit, Act::Resize];
    const ANSWERS: [Answered; 10] = [
        Answered::Written,
        Answered::Ineffective,
        Answered::Gone,
        Answered::Missing,
        Answered::Conflict,
        Answered::NameTaken,
        Answered::Unfounded,
        Answered::Unknown,
        Answered::Stopped,
        Answered::Refused,
    ];

    #[test]
    fn what_may_have_been_done_stays_open() {
        for act in ACTS {
            for answered in ANSWERS {
                let open = Consequence::of(act, answered).open;
                match answered {
                    Answered::Written | Answered::Ineffective => assert_eq!(open, Open::Unconfirmed, "{act:?}"),
                    Answered::Unknown => assert_eq!(open, Open::InDoubt, "{act:?}"),
                    Answered::Refused | Answered::Stopped | Answered::Unfounded | Answered::NameTaken => {
                        assert_eq!(open, Open::No, "{act:?} {answered:?}");
                    }
                    // Somebody else has changed or deleted the pod: our view is behind.
                    Answered::Gone | Answered::Missing | Answered::Conflict => {
                        let expected = if act == Act::Create { Open::No } else { Open::InDoubt };
                        assert_eq!(open, expected, "{act:?} {answered:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_refusal_concerns_the_node_or_the_pod_and_never_ends_the_look() {
        let remedy = |act| Consequence::of(act, Answered::Refused).remedy;
        assert_eq!(ACTS.map(remedy), [Remedy::SetBack, Remedy::SetBack, Remedy::Replace, Remedy::Replace]);
        assert!(ACTS.iter().all(|act| !Consequence::of(*act, Answered::Refused).is_error));
        // What concerns every write does.
        assert!(ACTS.iter().all(|act| Consequence::of(*act, Answered::Stopped).is_error));
        assert!(ACTS.iter().all(|act| Consequence::of(*act, Answered::Stopped).remedy == Remedy::None));
    }

    #[test]
    fn a_node_that_refuses_is_tried_ever_more_rarely() {
        let mut refusal = Refusal::after(None, (Act::Create, "a"), "no room", 100);
        assert_eq!(refusal.text, "the pod on a cannot be made: no room");
        let mut waits = vec![refusal.until - 100];
        for _ in 0..70 {
            refusal = Refusal::after(Some(&refusal), (Act::Delete(Why::Ended), "a"), "no", 100);
            waits.push(refusal.until - 100);
        }
        assert_eq!(waits[..6], [10, 20, 40, 80, 160, 300]);
        assert!(waits[6..].iter().all(|wait| *wait == 300), "however often");
        assert_eq!(refusal.reason, "FailedDelete");
    }
}
