//! When certificates are renewed, so that no request fails meanwhile.
//!
//! A certificate for serving is signed by an authority, and callers trust the authorities of a bundle that is published to
//! them. Both are replaced long before they end, an authority in three steps:
//!
//! 1. A new authority joins the bundle, and the bundle is published. The certificate is still the old one's.
//! 2. Once every caller has had time to read the bundle, a certificate of the new authority is used.
//! 3. Once every server has had time to use it, the old authority leaves the bundle.
//!
//! Invariant: whichever certificate a server still uses, and whichever bundle a caller still knows, the caller trusts the
//! server, as long as nobody is behind by more than [`Lifetimes::settling`].

/// How long certificates last, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of an authority.
    pub authority: i64,
    /// Of a certificate for serving.
    pub serving: i64,
}

impl Lifetimes {
    /// How long anybody may be behind. Twice that, and the steps in between, have to fit into the third of a lifetime that is
    /// left when renewing begins.
    pub fn settling(self) -> i64 {
        (self.authority.min(self.serving) / 8).clamp(1, 600)
    }
}

/// From when until when something holds, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first second.
    pub from: i64,
    /// The first second after it.
    pub until: i64,
}

impl Span {
    /// Beginning now.
    pub fn beginning(now: i64, length: i64) -> Self {
        Self { from: now, until: now.saturating_add(length) }
    }

    /// Whether less than a third is left: time enough to notice that renewing fails, and to mend it.
    fn is_ending(self, now: i64) -> bool {
        self.until.saturating_sub(now) < self.until.saturating_sub(self.from) / 3
    }
}

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The newest authority.
    pub authority: Span,
    /// Since when every caller can read a bundle with the newest authority in it.
    pub published: Option<i64>,
    /// Whether the authority before it is still in the bundle.
    pub has_older: bool,
    /// The certificate for serving; nothing if there is none that can be used.
    pub serving: Option<Serving>,
}

/// The certificate for serving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Serving {
    /// How long it holds.
    pub span: Span,
    /// Whether the newest authority signed it.
    pub is_of_newest: bool,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Rest,
    /// Make a new authority and put it into the bundle, beside the newest of those that are there.
    AddAuthority,
    /// Note that the bundle is published now.
    NotePublished,
    /// Make a certificate, signed by the newest authority.
    Sign,
    /// Take the older authority out of the bundle.
    DropOlder,
}

/// The next step, `is_published` being whether callers are offered the bundle as it is. Steps are taken one at a time.
pub fn next(held: &Held, is_published: bool, lifetimes: Lifetimes, now: i64) -> Step {
    if held.authority.until <= now {
        return Step::AddAuthority;
    }
    let Some(serving) = held.serving.filter(|serving| serving.span.until > now) else {
        // Nobody can be served: there is nothing to be careful about.
        return Step::Sign;
    };
    let Some(published) = held.published else {
        return if is_published { Step::NotePublished } else { Step::Rest };
    };
    let has_settled = |since: i64| now.saturating_sub(since) >= lifetimes.settling();
    if !serving.is_of_newest {
        return if has_settled(published) { Step::Sign } else { Step::Rest };
    }
    if held.has_older {
        return if has_settled(serving.span.from) { Step::DropOlder } else { Step::Rest };
    }
    if held.authority.is_ending(now) {
        return Step::AddAuthority;
    }
    // A certificate outlives no authority: near the authority's end, that one goes first.
    if serving.span.is_ending(now) && serving.span.until < held.authority.until { Step::Sign } else { Step::Rest }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIFETIMES: Lifetimes = Lifetimes { authority: 9_000, serving: 3_000 };

    /// An authority's number, and when it ends.
    type Authority = (u32, i64);

    /// Servers and callers that are behind, each by its own time.
    struct World {
        held: Held,
        bundle: Vec<Authority>,
        certificate: Option<(Authority, Span)>,
        /// Every bundle that was published, with the time.
        published: Vec<(i64, Vec<Authority>)>,
        /// Every certificate that was made, with the time.
        made: Vec<(i64, Authority, Span)>,
        steps: Vec<Step>,
    }

    impl World {
        fn new(now: i64) -> Self {
            let authority = Span::beginning(now, LIFETIMES.authority);
            let held = Held { authority, published: None, has_older: false, serving: None };
            let bundle = vec![(0, authority.until)];
            Self { held, bundle, certificate: None, published: Vec::new(), made: Vec::new(), steps: Vec::new() }
        }

        fn step(&mut self, now: i64, can_publish: bool) {
            if can_publish && self.published.last().is_none_or(|(_, bundle)| *bundle != self.bundle) {
                self.published.push((now, self.bundle.clone()));
            }
            let is_published = self.published.last().is_some_and(|(_, bundle)| *bundle == self.bundle);
            let step = next(&self.held, is_published, LIFETIMES, now);
            match step {
                Step::Rest => return,
                Step::AddAuthority => {
                    let newest = *self.bundle.last().unwrap();
                    self.held.authority = Span::beginning(now, LIFETIMES.authority);
                    self.bundle = vec![newest, (newest.0 + 1, self.held.authority.until)];
                    (self.held.published, self.held.has_older) = (None, true);
                    if let Some(serving) = &mut self.held.serving {
                        serving.is_of_newest = false;
                    }
                }
                Step::NotePublished => self.held.published = Some(now),
                Step::Sign => {
                    let authority = *self.bundle.last().unwrap();
                    let span = Span { from: now, until: (now + LIFETIMES.serving).min(authority.1) };
                    self.held.serving = Some(Serving { span, is_of_newest: true });
                    self.certificate = Some((authority, span));
                    self.made.push((now, authority, span));
                }
                Step::DropOlder => {
                    self.bundle.remove(0);
                    self.held.has_older = false;
                }
            }
            self.steps.push(step);
        }

        /// What somebody knows who is behind by this much at most: the newest that old, and everything since.
        fn known<T>(all: &[(i64, T)], now: i64, behind: i64) -> &[(i64, T)] {
            let newest = all.iter().rposition(|(at, _)| *at <= now - behind).unwrap_or(0);
            &all[newest..]
        }
    }

    proptest! {
        #[test]
        fn whoever_is_behind_trusts_whoever_is_behind(
            pauses in prop::collection::vec((1_i64..20, prop::bool::weighted(0.9)), 900..4_500),
        ) {
            let mut now = 1_000_000;
            let mut world = World::new(now);
            // What is looked at and published in one go, at first.
            (0..4).for_each(|_| world.step(now, true));
            for (pause, can_publish) in pauses {
                now += pause;
                world.step(now, can_publish);
                let certificates: Vec<(i64, (Authority, Span))> =
                    world.made.iter().map(|(at, authority, span)| (*at, (*authority, *span))).collect();
                for (_, (authority, span)) in World::known(&certificates, now, LIFETIMES.settling()) {
                    prop_assert!(span.until > now, "a certificate has ended at {now}");
                    for (_, bundle) in World::known(&world.published, now, LIFETIMES.settling()) {
                        prop_assert!(bundle.contains(authority), "{authority:?} is not in {bundle:?} at {now}");
                    }
                }
            }
            if now > 1_000_000 + 2 * LIFETIMES.authority {
                prop_assert!(world.steps.iter().filter(|step| **step == Step::DropOlder).count() >= 2);
            }
        }
    }

    #[test]
    fn what_cannot_be_used_is_replaced_at_once() {
        let authority = Span { from: 0, until: 9_000 };
        let mut held = Held { authority, published: Some(0), has_older: false, serving: None };
        assert_eq!(next(&held, true, LIFETIMES, 10), Step::Sign);
        held.serving = Some(Serving { span: Span { from: 0, until: 3_000 }, is_of_newest: true });
        assert_eq!(next(&held, true, LIFETIMES, 10), Step::Rest);
        assert_eq!(next(&held, true, LIFETIMES, 2_500), Step::Sign, "it is ending");
        assert_eq!(next(&held, true, LIFETIMES, 3_500), Step::Sign, "it has ended");
        assert_eq!(next(&held, true, LIFETIMES, 9_000), Step::AddAuthority);
    }
}
