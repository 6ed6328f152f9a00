use std::collections::BTreeMap;

use http::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use kube::client::Body;
use serde_json::Value;

use super::correlate::{BURST, MOST_OBJECTS, PACE, REFILL, SIMILAR_WITHIN};
use super::*;
use crate::env::SystemClock;

const THING: KindInfo = KindInfo { group: "g", version: "v1", kind: "Thing", plural: "things" };

fn report(name: &str, reason: &'static str, note: &str) -> Report {
    Report {
        about: THING,
        key: Key::new("space", name),
        uid: format!("uid of {name}"),
        event_type: EventType::Normal,
        action: "Reading",
        reason,
        note: note.into(),
    }
}

/// A correlator at a time of its own, and what it had written.
struct Story {
    correlator: Correlator,
    now: Instant,
    /// By object, reason and whether it is combined: the counts, in the order in which they were written.
    written: Vec<(String, &'static str, bool, u32)>,
}

impl Story {
    fn new() -> Self {
        Self { correlator: Correlator::default(), now: Instant::now(), written: Vec::new() }
    }

    fn say(&mut self, report: Report) {
        self.correlator.observe(report, Timestamp::UNIX_EPOCH, self.now);
    }

    /// Writes all that may be written in this time.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            match self.correlator.next(self.now) {
                Next::Write(due) => {
                    let name = due.report.key.name.to_string();
                    self.written.push((name, due.report.reason, due.is_combined, due.count));
                    self.correlator.wrote(&due, EventOutcome::Wrote { before: 0 }, self.now);
                }
                Next::WaitUntil(at) if at <= end => {
                    assert!(at > self.now, "it would turn in circles");
                    self.now = at;
                }
                Next::WaitUntil(_) | Next::Nothing => break,
            }
        }
        self.now = end;
    }

    fn take(&mut self) -> Vec<(String, &'static str, bool, u32)> {
        std::mem::take(&mut self.written)
    }
}

#[test]
fn so_many_go_at_once_and_then_one_in_five_minutes_with_the_right_count() {
    let mut story = Story::new();
    let (mut said, mut counts) = (0, Vec::new());
    // The same words all the time: each count is written after a pause, until the burst is used up.
    while story.written.len() < BURST as usize {
        story.say(report("a", "R", "words"));
        said += 1;
        story.pass(PACE);
    }
    for _ in 0..3 {
        counts.push(story.take().len());
        for _ in 0..100 {
            story.say(report("a", "R", "words"));
            said += 1;
            story.pass(REFILL / 100);
        }
    }
    assert_eq!(counts[1..], [1, 1], "one in five minutes");
    // Nobody says anything any more: what was held back is told all the same.
    story.pass(3 * REFILL);
    let rest = story.take();
    let (own, similar): (Vec<_>, Vec<_>) = rest.iter().partition(|(_, _, is_combined, _)| !is_combined);
    assert!(own.is_empty() && !similar.is_empty(), "{rest:?}");
    assert_eq!(similar.last().map(|last| last.3), Some(said - BURST), "each is counted once");
}

#[test]
fn a_rollout_is_a_few_events_and_a_count() {
    let mut story = Story::new();
    for pod in 0..10_000 {
        for reason in ["SuccessfulDelete", "SuccessfulCreate"] {
            story.say(report("agent", reason, &format!("pod {pod}")));
        }
        story.pass(Duration::from_secs(1));
    }
    let during = story.take();
    let most = BURST as usize + 10_000 / REFILL.as_secs() as usize + 1;
    assert!((BURST as usize..=most).contains(&during.len()), "{} writes", during.len());
    story.pass(3 * REFILL);
    for reason in ["SuccessfulDelete", "SuccessfulCreate"] {
        let all: Vec<_> = during.iter().chain(&story.written).filter(|written| written.1 == reason).collect();
        let own = all.iter().filter(|written| !written.2).count();
        assert_eq!(own, 9, "the first have their own");
        assert_eq!(all.iter().rfind(|written| written.2).map(|last| last.3), Some(10_000 - 9), "the others one count");
    }
}

#[test]
fn a_burst_of_similar_ones_takes_one_write() {
    let mut story = Story::new();
    for pod in 0..60 {
        story.say(report("agent", "SuccessfulCreate", &format!("pod {pod}")));
    }
    story.pass(PACE);
    let written = story.take();
    assert_eq!(written.len(), 10);
    assert_eq!(written[9], ("agent".into(), "SuccessfulCreate", true, 51));
    story.pass(SIMILAR_WITHIN);
    story.say(report("agent", "SuccessfulCreate", "pod 60"));
    story.pass(Duration::ZERO);
    assert_eq!(story.take(), [("agent".into(), "SuccessfulCreate", false, 1)], "after a while it has its own again");
}

#[test]
fn objects_and_types_do_not_hold_each_other_back() {
    let mut story = Story::new();
    while story.written.len() < BURST as usize {
        story.say(report("a", "R", "words"));
        story.pass(PACE);
    }
    story.take();
    story.say(report("a", "Other", "words"));
    story.say(report("b", "R", "words"));
    story.say(Report { event_type: EventType::Warning, ..report("a", "Bad", "words") });
    story.pass(Duration::ZERO);
    let written = story.take();
    assert_eq!(written, [("b".into(), "R", false, 1), ("a".into(), "Bad", false, 1)]);
    story.pass(REFILL);
    assert_eq!(story.take(), [("a".into(), "Other", true, 1)], "it only waited");
}

#[test]
fn what_failed_is_tried_again_and_what_is_refused_is_not() {
    let mut story = Story::new();
    story.say(report("a", "R", "words"));
    let Next::Write(due) = story.correlator.next(story.now) else { panic!("it may be written") };
    let again = Duration::from_secs(7);
    story.correlator.wrote(&due, EventOutcome::Failed { again }, story.now);
    let Next::WaitUntil(at) = story.correlator.next(story.now) else { panic!("later") };
    assert_eq!(at, story.now + again);
    let Next::Write(due) = story.correlator.next(at) else { panic!("again") };
    assert_eq!((due.failures, due.count), (1, 1));
    story.correlator.wrote(&due, EventOutcome::Refused, at);
    assert!(matches!(story.correlator.next(at), Next::WaitUntil(later) if later > at + again));
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut story = Story::new();
    let is_empty = |story: &Story| story.correlator.len() == 0;
    story.say(report("a", "R", "words"));
    story.correlator.forget("Thing", &Key::new("space", "a"));
    story.pass(REFILL);
    assert!(is_empty(&story) && story.take().is_empty(), "what was yet to be said is not");

    story.say(report("a", "R", "words"));
    story.pass(SIMILAR_WITHIN);
    assert!(is_empty(&story), "after a while it is as good as new");

    // The same name, and another object: it begins anew.
    story.say(report("a", "R", "words"));
    story.pass(PACE);
    story.say(Report { uid: "another".into(), ..report("a", "R", "words") });
    story.pass(Duration::ZERO);
    assert_eq!(story.take().last().map(|written| written.3), Some(1));
}

#[test]
fn memory_is_bounded() {
    let mut story = Story::new();
    for number in 0..MOST_OBJECTS + 100 {
        story.say(report(&format!("object-{number}"), "R", "words"));
        story.now += Duration::from_millis(1);
    }
    assert_eq!(story.correlator.len(), MOST_OBJECTS);
    for number in 0..1000 {
        story.say(report("a", "R", &format!("words {number}")));
        story.say(report("a", "S", &format!("words {number}")));
    }
    assert!(story.correlator.series_of("Thing", &Key::new("space", "a")) <= 20);
}

fn due(note: &str) -> Due {
    let mut correlator = Correlator::default();
    let now = Instant::now();
    correlator.observe(report("a", "R", note), Timestamp::UNIX_EPOCH, now);
    match correlator.next(now) {
        Next::Write(due) => *due,
        other => panic!("{other:?}"),
    }
}

fn combined(mut due: Due, count: u32) -> Due {
    (due.is_combined, due.count) = (true, count);
    due
}

#[test]
fn the_same_words_have_the_same_name() {
    assert_eq!(name(&due("x")), name(&due("x")));
    assert_ne!(name(&due("x")), name(&due("y")));
    let combined = |note: &str| combined(due(note), 1);
    assert_eq!(name(&combined("x")), name(&combined("y")));
}

#[test]
fn a_long_note_is_cut_at_a_letter() {
    let note = "ä".repeat(LONGEST_MESSAGE);
    let written = message(&due(&note));
    assert!(written.len() <= LONGEST_MESSAGE && note.starts_with(&written));
    let several = message(&combined(due(&note), 2));
    assert!(several.len() <= LONGEST_MESSAGE && several.starts_with(COMBINED));
}

/// What the API server has, by name.
#[derive(Default)]
struct Stored(Mutex<BTreeMap<String, Value>>);

impl Stored {
    fn answer(&self, method: &Method, path: &str, body: Value) -> (StatusCode, Value) {
        let mut stored = self.0.lock().unwrap();
        let named = |value: &Value| value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let name = path.rsplit('/').next().unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
        let gone =
            |code: u16| json!({"kind": "Status", "status": "Failure", "code": code, "reason": "", "message": ""});
        match *method {
            Method::POST if stored.contains_key(&named(&body)) => (StatusCode::CONFLICT, gone(409)),
            Method::POST => {
                stored.insert(named(&body), body.clone());
                (StatusCode::CREATED, body)
            }
            _ => match stored.get_mut(&name) {
                None => (StatusCode::NOT_FOUND, gone(404)),
                Some(known) => {
                    for (field, value) in body.as_object().into_iter().flatten() {
                        known[field] = value.clone();
                    }
                    (StatusCode::OK, known.clone())
                }
            },
        }
    }

    fn events(&self) -> Vec<Value> {
        self.0.lock().unwrap().values().cloned().collect()
    }

    fn counts(&self) -> Vec<i64> {
        self.events().iter().filter_map(|event| event["count"].as_i64()).collect()
    }
}

/// A recorder of this name that writes into it.
fn recorder(stored: &Arc<Stored>, instance: &str, leading: Signal) -> Recorder {
    let stored = stored.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let stored = stored.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (status, answer) = stored.answer(&parts.method, parts.uri.path(), body);
            let answer = Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, tower::BoxError>(answer?)
        }
    });
    let (client, env) = (Client::new(server, "default"), Env::new(SystemClock, 1));
    Recorder::start(client, instance.into(), env, leading, CancellationToken::new())
}

#[tokio::test(start_paused = true)]
async fn a_standby_says_nothing_and_a_new_leader_counts_on() {
    let stored = Arc::new(Stored::default());
    let leading = Signal::default();
    let first = recorder(&stored, "first", leading.clone());
    first.report(report("a", "R", "words"));
    tokio::time::sleep(REFILL).await;
    assert_eq!(stored.counts(), Vec::<i64>::new());
    leading.set(1);
    tokio::time::sleep(PACE).await;
    assert_eq!(stored.counts(), [1]);
    first.report(report("a", "R", "words"));
    tokio::time::sleep(PACE).await;
    assert_eq!(stored.counts(), [2]);

    let second = recorder(&stored, "second", leading.clone());
    for _ in 0..3 {
        second.report(report("a", "R", "words"));
    }
    tokio::time::sleep(2 * PACE).await;
    assert_eq!(stored.counts(), [5], "on top of what was there");
    let event = stored.events().remove(0);
    assert_eq!(event["involvedObject"]["uid"], "uid of a");
    assert_eq!((&event["type"], &event["action"]), (&json!("Normal"), &json!("Reading")));
    assert_eq!(event["reportingInstance"], "first");

    // The API server drops Events after an hour.
    stored.0.lock().unwrap().clear();
    second.report(report("a", "R", "words"));
    tokio::time::sleep(2 * PACE).await;
    assert_eq!(stored.counts(), [6]);
}
