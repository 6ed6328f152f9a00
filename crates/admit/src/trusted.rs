//! Certificates of somebody else: which authorities callers are to trust while those change.

use std::time::Duration;

use tokio::time::Instant;

/// For so long, an authority is trusted after another took its place: replicas read their files at different times, since a
/// kubelet may take two minutes to bring a changed Secret to a pod.
const SETTLING: Duration = Duration::from_secs(300);

/// The authorities that callers are to trust.
#[derive(Debug, Default)]
pub struct Trusted {
    now: String,
    before: Vec<(String, Instant)>,
}

impl Trusted {
    /// The bundle, now that the file says this.
    pub fn take(&mut self, bundle: String) -> String {
        if bundle != self.now {
            let before = std::mem::replace(&mut self.now, bundle);
            self.before.push((before, Instant::now()));
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
        let mut take = |bundle: &str| trusted.take(bundle.to_owned());
        assert_eq!(take("a"), "a\n");
        assert_eq!(take("b\n"), "a\nb\n");
        tokio::time::advance(SETTLING / 2).await;
        assert_eq!(take("c"), "a\nb\nc\n", "both may still be in use");
        tokio::time::advance(SETTLING * 3 / 4).await;
        assert_eq!(take("c"), "b\nc\n");
        tokio::time::advance(SETTLING).await;
        assert_eq!(take("c"), "c\n");
    }
}
