//! Certificates of somebody else: which authorities callers are to trust while those change.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// For so long, an authority is trusted after another took its place: replicas read their files at different times, since a
/// kubelet may take two minutes to bring a changed Secret to a pod.
const SETTLING: Duration = Duration::from_secs(300);

/// For so long, API servers may not have read what they are told to trust.
const READING: Duration = Duration::from_secs(4);

/// The authorities that callers are to trust.
#[derive(Debug, Default)]
pub struct Trusted {
    now: String,
    before: Vec<(String, Instant)>,
    /// The term of which it is known what was published before it.
    term: u64,
    /// What callers are told to trust everywhere, and since when.
    told: Option<(String, Instant)>,
}

impl Trusted {
    /// Whether callers trust this authority: wherever they are told whom to trust, and they had time to read it.
    pub fn is_settled(&mut self, bundle: &str, published: &[String]) -> bool {
        if !published.iter().all(|known| known.contains(bundle.trim())) {
            self.told = None;
            return false;
        }
        let told = self.told.take().filter(|(told, _)| told == bundle);
        let (_, since) = self.told.insert(told.unwrap_or_else(|| (bundle.to_owned(), Instant::now())));
        since.elapsed() >= READING
    }

    /// The bundle, now that the file says this. Whoever led before this term has told callers of authorities that this
    /// process may never have seen, and that others serve with: so of these, `published` remembers.
    pub fn take(&mut self, bundle: String, term: u64, published: &[String]) -> String {
        if bundle != self.now {
            let before = std::mem::replace(&mut self.now, bundle);
            self.before.push((before, Instant::now()));
        }
        if std::mem::replace(&mut self.term, term) != term && term > 0 {
            let others: BTreeSet<&str> = published.iter().map(|known| known.trim()).collect();
            let others = others.into_iter().filter(|known| *known != self.now.trim());
            self.before.extend(others.map(|known| (known.to_owned(), Instant::now())));
        }
        self.before.retain(|(before, since)| !before.is_empty() && since.elapsed() < SETTLING);
        let all = self.before.iter().map(|(before, _)| before).chain([&self.now]);
        all.map(|bundle| format!("{}\n", bundle.trim())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_authority_is_trusted_for_a_while_after_it_was_replaced() {
        let mut trusted = Trusted::default();
        let mut take = |bundle: &str| trusted.take(bundle.to_owned(), 1, &[]);
        assert_eq!(take("a"), "a\n");
        assert_eq!(take("b\n"), "a\nb\n");
        tokio::time::advance(SETTLING / 2).await;
        assert_eq!(take("c"), "a\nb\nc\n", "both may still be in use");
        tokio::time::advance(SETTLING * 3 / 4).await;
        assert_eq!(take("c"), "b\nc\n");
        tokio::time::advance(SETTLING).await;
        assert_eq!(take("c"), "c\n");
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_were_told_to_trust_stays_when_somebody_else_leads() {
        let (mut trusted, published) = (Trusted::default(), ["a\nb\n".to_owned(), "a\nb\n".to_owned()]);
        let mut take = |term: u64| trusted.take("b".to_owned(), term, &published);
        assert_eq!(take(0), "b\n", "who does not lead tells nobody");
        assert_eq!(take(3), "a\nb\nb\n");
        tokio::time::advance(SETTLING).await;
        assert_eq!(take(3), "b\n", "it is remembered for a while, not for as long as it is published");
        let same = ["b\n".to_owned()];
        assert_eq!(trusted.take("b".to_owned(), 4, &same), "b\n", "there is nothing to remember");
    }

    #[tokio::test(start_paused = true)]
    async fn callers_need_time_to_read_whom_to_trust() {
        let mut trusted = Trusted::default();
        let [old, both] = ["a\n", "a\nb\n"].map(str::to_owned);
        assert!(!trusted.is_settled("b", &[both.clone(), old.clone()]), "not everywhere");
        assert!(!trusted.is_settled("b", &[both.clone(), both.clone()]), "just now");
        tokio::time::advance(READING).await;
        assert!(trusted.is_settled("b", &[both.clone(), both.clone()]));
        assert!(!trusted.is_settled("c", &[both]), "another one");
    }
}
