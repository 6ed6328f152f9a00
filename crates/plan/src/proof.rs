//! What the API server says of an object before anything is given up for it, and when to ask it again. For any owner.
//!
//! The dry run is a guard, not a gate: that there is no answer says nothing about the object.

use std::collections::BTreeMap;
use std::sync::Arc;

/// How soon to ask again whether an object is taken, in seconds: a quota or a webhook may have changed.
const REFUSED_FOR: i64 = 30;
/// How soon to ask again where there was no answer.
const UNANSWERED_FOR: i64 = 5;

/// What the API server says of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It takes it.
    Taken,
    /// It refuses it.
    Refused {
        /// Why, in its own words.
        text: String,
        /// When to ask again.
        ask_again: i64,
    },
    /// It does not say.
    None {
        /// Why not.
        text: String,
        /// When to ask again.
        ask_again: i64,
    },
}

impl Answer {
    /// What a dry run that failed says. `code`: the API server's own, if it answered at all.
    pub fn of_failure(code: Option<u16>, text: String, now: i64) -> Self {
        match code {
            // That there is no room for one more says nothing about the template: the old pod makes room.
            Some(403) if text.contains("exceeded quota") => Self::Taken,
            Some(400 | 403 | 422) => Self::Refused { text, ask_again: now + REFUSED_FOR },
            // Anything else that fails says nothing about the template.
            _ => Self::None { text, ask_again: now + UNANSWERED_FOR },
        }
    }

    /// What an answer comes to where such an object is there, or was before. As in admission, what is there is excused: one
    /// that is lost comes back. What was there is tried where one is missing, and nothing in service is given up for it, so that
    /// it does no harm if what says so is wrong.
    #[must_use]
    pub fn excused(self, is_there: bool, was_there: bool) -> Self {
        match self {
            Self::Refused { .. } if is_there => Self::Taken,
            Self::Refused { text, ask_again } if was_there => {
                Self::None { text: format!("it took such pods before, and refuses a dry run now: {text}"), ask_again }
            }
            answer => answer,
        }
    }

    /// When to ask again.
    pub fn ask_again(&self) -> Option<i64> {
        match self {
            Self::Taken => None,
            Self::Refused { ask_again, .. } | Self::None { ask_again, .. } => Some(*ask_again),
        }
    }
}

/// Answers, by what objects mean.
pub type Answers = BTreeMap<Arc<str>, Answer>;

/// Whether it is to be asked now whether objects of this meaning are taken.
pub fn is_to_ask(answers: &Answers, meaning: &str, now: i64) -> bool {
    answers.get(meaning).is_none_or(|answer| answer.ask_again().is_some_and(|at| at <= now))
}

/// When the first question is to be asked again.
pub fn ask_again_at(answers: &Answers) -> Option<i64> {
    answers.values().filter_map(Answer::ask_again).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_judgement_on_the_object_is_a_refusal() {
        let answer = |code: u16, text: &str| Answer::of_failure(Some(code), text.to_owned(), 100);
        assert_eq!(answer(403, "exceeded quota: pods"), Answer::Taken);
        assert_eq!(answer(422, "no"), Answer::Refused { text: "no".into(), ask_again: 130 });
        assert_eq!(answer(500, "failed"), Answer::None { text: "failed".into(), ask_again: 105 });
        let torn = Answer::of_failure(None, "connection reset".into(), 100);
        assert_eq!(torn, Answer::None { text: "connection reset".into(), ask_again: 105 });
        let answers = Answers::from([(Arc::from("bad"), answer(422, "no")), (Arc::from("good"), Answer::Taken)]);
        assert!(is_to_ask(&answers, "new", 100) && !is_to_ask(&answers, "good", i64::MAX));
        assert!(!is_to_ask(&answers, "bad", 129) && is_to_ask(&answers, "bad", 130));
        assert_eq!(ask_again_at(&answers), Some(130));
    }

    #[test]
    fn what_is_there_is_excused_and_what_was_there_is_tried() {
        let refused = || Answer::Refused { text: "no".into(), ask_again: 130 };
        assert_eq!(refused().excused(true, false), Answer::Taken);
        let Answer::None { text, ask_again: 130 } = refused().excused(false, true) else { panic!("it is not tried") };
        assert!(text.ends_with(": no"), "{text}");
        assert_eq!(refused().excused(false, false), refused(), "what never was there");
        let silent = || Answer::None { text: "no".into(), ask_again: 105 };
        assert_eq!(silent().excused(true, true), silent(), "that nobody says anything is no refusal");
    }
}
