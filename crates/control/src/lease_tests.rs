//! Who may take the lease.

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

fn lease(holder: &str, version: &str, seconds: Option<i32>) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: seconds,
        // A clock that is years off must not matter.
        renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
        ..LeaseSpec::default()
    };
    let metadata = ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() };
    Lease { metadata, spec: Some(spec) }
}

const OURS: Duration = Duration::from_secs(20);

fn decide(record: Option<&Lease>, identity: &str, sighting: Option<&Sighting>, now: Instant) -> Step {
    super::decide(record, identity, sighting, OURS, now)
}

proptest! {
    /// Whatever others write into it, a record that nobody renews is taken over: after the length that a manager wrote,
    /// else after our own, not before and not much later, and times that are written in it do not matter.
    #[test]
    fn a_record_that_others_touched_is_taken_over_in_time(
        written in prop_oneof![Just(None), any::<i32>().prop_map(Some), (-5..4_000).prop_map(Some)],
        renewed in prop_oneof![Just(None), (-9_999_999_999_i64..99_999_999_999).prop_map(Some)],
    ) {
        let mut touched = lease("other", "7", written);
        let spec = touched.spec.as_mut().unwrap();
        spec.renew_time = renewed.map(|second| MicroTime(Timestamp::from_second(second).unwrap()));
        spec.acquire_time = spec.renew_time.clone();
        let seen = Sighting { version: "7".into(), at: Instant::now() };
        let length = match written {
            Some(seconds @ 3..=3_600) => Duration::from_secs(u64::try_from(seconds).unwrap()),
            _ => OURS,
        };
        let after = |time| decide(Some(&touched), "me", Some(&seen), seen.at + time);
        prop_assert_eq!(after(length - Duration::from_millis(1)), Step::Wait);
        prop_assert_eq!(after(length), Step::TakeOver);
    }
}

#[test]
fn a_length_that_no_manager_wrote_counts_as_our_own() {
    for (written, counts) in [
        (None, 20),
        (Some(i32::MAX), 20),
        (Some(0), 20),
        (Some(-1), 20),
        (Some(i32::MIN), 20),
        (Some(2), 20),
        (Some(3), 3),
        (Some(15), 15),
        (Some(3_600), 3_600),
        (Some(3_601), 20),
    ] {
        let spec = LeaseSpec { lease_duration_seconds: written, ..LeaseSpec::default() };
        assert_eq!(promised(&spec, OURS), Duration::from_secs(counts), "{written:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_over_only_after_it_was_watched_unchanged_for_its_whole_length() {
    let seen = Sighting { version: "7".into(), at: Instant::now() };
    let other = lease("other", "7", Some(15));
    let after = |seconds| decide(Some(&other), "me", Some(&seen), seen.at + Duration::from_secs(seconds));
    assert_eq!([after(0), after(14), after(15)], [Step::Wait, Step::Wait, Step::TakeOver]);
    assert_eq!(decide(Some(&other), "me", None, seen.at), Step::Wait, "never seen before");
    let renewed = lease("other", "8", Some(15));
    let much_later = seen.at + Duration::from_secs(99);
    assert_eq!(decide(Some(&renewed), "me", Some(&seen), much_later), Step::Wait, "it has changed since");
}

#[tokio::test(start_paused = true)]
async fn what_is_free_or_ours_is_taken_at_once() {
    let now = Instant::now();
    assert_eq!(decide(None, "me", None, now), Step::Create);
    assert_eq!(decide(Some(&lease("", "7", Some(15))), "me", None, now), Step::TakeOver);
    assert_eq!(decide(Some(&lease("me", "7", Some(15))), "me", None, now), Step::Renew);
}
