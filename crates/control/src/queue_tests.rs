use std::sync::Arc;

use super::*;
use crate::env::SystemClock;

const FIRST: Duration = Duration::from_secs(1);

fn queue() -> Arc<Queue<&'static str>> {
    let backoff = Backoff { first: FIRST, longest: FIRST * 60 };
    Arc::new(Queue::new(backoff, Env::new(SystemClock, 1)))
}

async fn take(queue: &Queue<&'static str>) -> &'static str {
    queue.take().await.expect("the queue is open").key
}

/// Whether nothing comes within `time` of the paused clock.
async fn silent_for(queue: &Queue<&'static str>, time: Duration) -> bool {
    tokio::time::timeout(time, queue.take()).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_once_and_the_urgent_go_first() {
    let queue = queue();
    assert!(queue.add("swept", Urgency::Sweep));
    assert!(queue.add("a", Urgency::Change));
    assert!(!queue.add("a", Urgency::Change));
    assert!(queue.add("b", Urgency::Sweep));
    assert!(!queue.add("b", Urgency::Change), "it waits already, but moves forward");
    assert_eq!([take(&queue).await, take(&queue).await, take(&queue).await], ["a", "b", "swept"]);
    assert_eq!(queue.depth(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_worked_on_comes_again_and_not_before() {
    let queue = queue();
    queue.add("a", Urgency::Change);
    assert_eq!(take(&queue).await, "a");
    queue.add("a", Urgency::Change);
    assert!(silent_for(&queue, FIRST).await, "two workers must not have one key");
    queue.finish(&"a", Ended::Done);
    assert_eq!(take(&queue).await, "a");
    queue.finish(&"a", Ended::Done);
    assert!(silent_for(&queue, FIRST * 100).await);
}

#[tokio::test(start_paused = true)]
async fn what_is_removed_does_not_come_again_unless_it_is_worked_on() {
    let queue = queue();
    queue.add("ready", Urgency::Change);
    assert!(queue.remove(&"ready") && queue.remove(&"unknown"));
    for key in ["failed", "later"] {
        queue.add(key, Urgency::Change);
        assert_eq!(take(&queue).await, key);
        assert!(!queue.remove(&key), "it is being worked on");
    }
    queue.finish(&"failed", Ended::Failed);
    queue.finish(&"later", Ended::Again(FIRST));
    assert!(queue.remove(&"failed") && queue.remove(&"later"));
    assert!(silent_for(&queue, FIRST * 100).await);
    let state = queue.lock();
    assert!(state.keys.is_empty() && state.ready.is_empty() && state.delayed.is_empty() && state.failures.is_empty());
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_per_key_and_success_forgets_them() {
    let queue = queue();
    queue.add("bad", Urgency::Change);
    for failures in 1..=4u32 {
        let started = Instant::now();
        assert_eq!(take(&queue).await, "bad");
        queue.finish(&"bad", Ended::Failed);
        queue.add("good", Urgency::Change);
        assert_eq!(take(&queue).await, "good", "another key does not wait for it");
        queue.finish(&"good", Ended::Done);
        let full = FIRST * 2u32.pow(failures - 1);
        assert!(silent_for(&queue, full / 2 - Duration::from_millis(1)).await, "after {failures} failures");
        let taken = take(&queue).await;
        assert!(started.elapsed() <= full + Duration::from_millis(2), "{:?} after {failures}", started.elapsed());
        queue.finish(&taken, Ended::Again(Duration::ZERO));
        // `Again` forgot the failures: bring them back for the next round.
        for _ in 0..failures {
            assert_eq!(take(&queue).await, "bad");
            queue.finish(&"bad", Ended::Failed);
            queue.add("bad", Urgency::Change);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_ends_a_backoff() {
    let queue = queue();
    queue.add("a", Urgency::Change);
    take(&queue).await;
    queue.finish(&"a", Ended::Failed);
    assert!(queue.add("a", Urgency::Change));
    let started = Instant::now();
    assert_eq!(take(&queue).await, "a");
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn again_comes_after_its_delay() {
    let queue = queue();
    queue.add("a", Urgency::Change);
    take(&queue).await;
    queue.finish(&"a", Ended::Again(FIRST * 5));
    let started = Instant::now();
    assert_eq!(take(&queue).await, "a");
    assert_eq!(started.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_backoff_that_is_ended_early_is_not_ended_so_again() {
    let queue = queue();
    let fail = async || {
        let taken = queue.take().await.expect("open");
        queue.finish(&taken.key, Ended::Failed);
    };
    queue.add("a", Urgency::Change);
    queue.add("b", Urgency::Change);
    for _ in 0..2 {
        fail().await;
    }
    queue.add("later", Urgency::Change);
    let later = queue.take().await.expect("open");
    queue.finish(&later.key, Ended::Again(FIRST * 100));
    queue.end_backoffs();
    assert_eq!(queue.depth(), 2, "both that failed, and not the one that comes later");
    for _ in 0..2 {
        fail().await;
    }
    queue.end_backoffs();
    assert_eq!(queue.depth(), 0, "they failed again: now they wait to the end");
    let began = Instant::now();
    for _ in 0..2 {
        fail().await;
    }
    assert!(began.elapsed() <= FIRST, "and begin with short backoffs: {:?}", began.elapsed());
    for _ in 0..12 {
        fail().await;
    }
    queue.end_backoffs();
    assert_eq!(queue.depth(), 2, "the longest backoffs have passed since");
    let working = queue.take().await.expect("open");
    queue.end_backoffs();
    queue.finish(&working.key, Ended::Failed);
    assert_eq!(queue.depth(), 1, "it was woken already");
}

#[tokio::test(start_paused = true)]
async fn closing_ends_every_waiting_worker() {
    let queue = queue();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.take().await.is_none() })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.close();
    for worker in workers {
        assert!(worker.await.expect("the worker ends"));
    }
}

#[tokio::test(start_paused = true)]
async fn several_workers_share_what_is_ready() {
    let queue = queue();
    let done = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..4 {
        let (queue, done) = (queue.clone(), done.clone());
        tokio::spawn(async move {
            while let Some(Taken { key, .. }) = queue.take().await {
                tokio::time::sleep(FIRST).await;
                done.lock().expect("no worker panics").push(key);
                queue.finish(&key, Ended::Done);
            }
        });
    }
    let started = Instant::now();
    for key in ["a", "b", "c", "d"] {
        queue.add(key, Urgency::Change);
    }
    while done.lock().expect("no worker panics").len() < 4 {
        tokio::time::sleep(FIRST / 4).await;
    }
    assert!(started.elapsed() < FIRST * 2, "four workers, one second each: {:?}", started.elapsed());
}
