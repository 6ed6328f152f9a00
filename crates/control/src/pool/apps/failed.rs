//! Steps of a look that failed alone: the others go on, all of it is told, and none is tried again at once.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::AGAIN;
use crate::writes::client::in_words;

/// What failed, by the object that it was about.
#[derive(Default)]
pub(super) struct Failed(BTreeMap<String, Failure>);

struct Failure {
    /// What could not be done, and why.
    text: String,
    /// Until when it is not tried again.
    until: Timestamp,
}

impl Failed {
    /// Forgets what may be tried again.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.0.retain(|_, failure| now < failure.until);
    }

    /// What could not be done about an object a moment ago.
    pub(super) fn about(&self, object: &str) -> Option<&str> {
        self.0.get(object).map(|failure| failure.text.as_str())
    }

    /// Notes that something could not be done about an object, such as that it cannot be "dropped". An error that concerns more than
    /// this one request is given back: it ends the look.
    pub(super) fn note(
        &mut self,
        object: String,
        done: &str,
        error: kube::Error,
        now: Timestamp,
    ) -> Result<String, kube::Error> {
        if ends_all(&error) {
            return Err(error);
        }
        let text = format!("{object} cannot be {done}: {}", in_words(&error));
        let until = now.checked_add(AGAIN).unwrap_or(now);
        self.0.insert(object, Failure { text: text.clone(), until });
        Ok(text)
    }

    /// What is to be told of all.
    pub(super) fn told(&self) -> impl Iterator<Item = String> {
        self.0.values().map(|failure| failure.text.clone())
    }
}

/// Whether an error concerns more than the request that got it: nothing was answered, or this process does not lead.
pub(super) fn ends_all(error: &kube::Error) -> bool {
    !matches!(error, kube::Error::Api(_) | kube::Error::BuildRequest(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writes::client::NotLeading;

    fn answer(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(kube::core::Status::failure(message, "").with_code(code).boxed())
    }

    #[test]
    fn what_the_api_server_answers_stops_one_step_and_is_told_until_it_is_tried_again() {
        let (mut failed, now) = (Failed::default(), Timestamp::UNIX_EPOCH);
        for code in [403, 422, 429, 500, 504] {
            let text = failed.note("ControllerRevision r".to_owned(), "dropped", answer(code, "not here"), now);
            assert_eq!(text.unwrap(), "ControllerRevision r cannot be dropped: not here");
        }
        assert_eq!(failed.told().count(), 1, "what is tried is one thing");
        let until = now.checked_add(AGAIN).unwrap();
        failed.forget(Timestamp::from_second(until.as_second() - 1).unwrap());
        assert!(failed.about("ControllerRevision r").is_some() && failed.about("ControllerRevision s").is_none());
        failed.forget(until);
        assert!(failed.about("ControllerRevision r").is_none());
    }

    #[test]
    fn what_concerns_more_than_one_request_ends_the_look() {
        let mut failed = Failed::default();
        for error in [kube::Error::Service(NotLeading.into()), kube::Error::LinesCodecMaxLineLengthExceeded] {
            assert!(failed.note("Deployment d".to_owned(), "taken in", error, Timestamp::UNIX_EPOCH).is_err());
        }
        assert_eq!(failed.told().count(), 0);
    }
}
