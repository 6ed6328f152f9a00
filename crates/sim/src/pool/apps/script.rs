//! Scripts about applications in pools: what is there at first, what happens, and what is mended in the end.

use std::time::Duration;

use dapple_api::pool::{
    CONFIRM_REMOVAL, POOL_GRACE, ROLLOUT_MAX, ROLLOUT_ORDER, ROLLOUT_RESUMED, ROLLOUT_SKIP, SUSPEND_ANNOTATION,
};
use serde_json::json;

use super::super::POOLS;
use super::REPLACEMENTS;
use super::author::{Author, foreign_image};
use super::setup::{
    Said, VARIABLE, annotated, change, delete, node_comes_to, node_of, pool_comes, pool_is_selected, put_into,
};
use crate::faults::Weather;
use crate::script::{Edit, Event, Script};
use crate::world::Habits;

/// By then every workload is made, and done.
const MADE: Duration = Duration::from_secs(90);

/// What a script is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    /// Somebody changes workloads, and nothing else happens.
    Drift,
    /// A few stories, over a connection that never fails.
    Stories,
    /// The same over any connection.
    StoriesInWeather,
    /// Anything at any time.
    Anything,
}

/// The script of a seed.
pub(super) fn script(seed: u64) -> Script {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x6170_7073);
    let about = match random.u8(0..10) {
        0 => About::Drift,
        1..6 => About::Stories,
        6 => About::StoriesInWeather,
        _ => About::Anything,
    };
    let is_calm = [About::Drift, About::Stories].contains(&about);
    let weather = Weather::draw(&mut random).with_second(&mut random);
    let habits = habits(is_calm, &mut random);
    let mut author = Author::new(&mut random);
    let mut setup = what_is_there(&author.pools.clone(), &mut author);
    if about == About::Drift {
        author.apps.iter_mut().for_each(|app| app.deadline = 600);
    } else {
        setup.extend(bystanders(&mut author));
    }
    setup.extend(author.apps.iter().map(|app| app.comes()));
    let mut end = MADE;
    match about {
        About::Drift => end = drift(&mut author),
        About::Stories | About::StoriesInWeather => {
            for _ in 0..author.random.usize(1..4) {
                end = author.tell(end);
            }
        }
        About::Anything => {
            let length = author.random.u64(60_000..900_000);
            let count = author.random.usize(5..30);
            let mut times: Vec<u64> = (0..count).map(|_| author.random.u64(500..length)).collect();
            times.sort_unstable();
            times.into_iter().for_each(|at| author.happen(Duration::from_millis(at)));
            end = Duration::from_millis(length);
        }
    }
    let finish = if about == About::Drift { Vec::new() } else { finish(&mut author) };
    let (managers, mut events) = (author.managers, author.events);
    // Stable: what is told together stays in order.
    events.sort_by_key(|(at, _)| *at);
    let last = events.last().map_or(Duration::ZERO, |(at, _)| *at);
    let calm_at = end.max(last + Duration::from_secs(1));
    let weather = if is_calm { Weather::CALM } else { weather };
    Script { seed, setup, events, calm_at, finish, managers, weather, habits }
}

/// How fast things are: so that all pools can be changed one after another in the time of a run.
fn habits(is_calm: bool, random: &mut fastrand::Rng) -> Habits {
    let drawn = Habits::draw(random);
    Habits {
        kubelet: [20, 500, 2_000][random.usize(0..3)],
        ending: [20, 2_000, 10_000][random.usize(0..3)],
        crashes: if is_calm { 0.0 } else { drawn.crashes },
        // After a pool is done, which it is some time after its pods are.
        ails_after: [20_000, 30_000][random.usize(0..2)],
        controllers: [20, 500, 3_000][random.usize(0..3)],
        schedules: true,
        ..drawn
    }
}

/// NodePools and nodes: one node in each pool, or two.
fn what_is_there(pools: &[&'static str], author: &mut Author<'_>) -> Vec<Edit> {
    let mut setup = Vec::new();
    for pool in pools {
        let taint = json!([{"key": "edge", "value": "x", "effect": "NoSchedule"}]);
        let taints = if author.random.u8(0..4) == 0 { taint } else { json!([]) };
        setup.push(pool_comes(pool, true, &taints));
        for number in 0..author.random.usize(1..3) {
            setup.push(node_comes_to(pool, number, author.random));
        }
    }
    setup
}

/// Workloads that nobody owns, some as if they were an application's; what is in an application's way; and what replaces things in one.
fn bystanders(author: &mut Author<'_>) -> Vec<Edit> {
    let mut setup = Vec::new();
    let app = author.app();
    if author.random.u8(0..4) == 0 {
        let pool = author.pool_of(app);
        setup.push(author.apps[app].orphan_comes("orphan", pool, true));
    }
    if author.random.u8(0..4) == 0 {
        let pool = author.pool_of(app);
        setup.push(author.apps[app].orphan_comes("stranger", pool, false));
    }
    if author.random.u8(0..8) == 0 {
        let pool = author.pool_of(app);
        setup.push(author.apps[app].name_is_taken(pool));
        author.in_the_way.push(author.apps[app].workload_path(pool));
    }
    if author.random.bool() {
        let item = json!({"env": {"containerName": "c", "envClaim": {VARIABLE: "{{nodepool}}"}}});
        let replacements = json!([{"pools": "*", "items": [item]}]);
        setup.push(author.apps[app].replacement_comes(&replacements));
    }
    setup
}

/// Somebody changes a few workloads.
fn drift(author: &mut Author<'_>) -> Duration {
    for number in 0..author.random.u64(1..4) {
        let app = author.app();
        let pool = author.pool_of(app);
        let path = author.apps[app].workload_path(pool);
        let edit = if author.random.bool() {
            foreign_image(&path)
        } else {
            change(&path, json!({"metadata": {"labels": {"app": "somebody-elses"}}}))
        };
        author.user(MADE + Duration::from_secs(20 * number), edit);
    }
    MADE + Duration::from_secs(60)
}

/// All is mended, and each application says something new that does no harm.
fn finish(author: &mut Author<'_>) -> Vec<Event> {
    let mut finish = vec![Event::Allow];
    finish.extend([POOLS, REPLACEMENTS].map(|name| Event::Crd { name, is_there: true }));
    let pools = author.pools.clone();
    let mut edits: Vec<Edit> = Vec::new();
    for pool in pools.iter().copied() {
        edits.extend([pool_comes(pool, true, &json!([])), pool_is_selected(pool, true)]);
        edits.extend((0..2).map(|number| put_into(&node_of(pool, number), Some(pool))));
    }
    let settings = json!({ROLLOUT_MAX: null, ROLLOUT_ORDER: null, ROLLOUT_SKIP: null, ROLLOUT_RESUMED: null,
        SUSPEND_ANNOTATION: null, CONFIRM_REMOVAL: "*", POOL_GRACE: "10s"});
    let are_scaled = author.random.bool();
    let (replicas, is_replaced) = (author.random.i64(1..4), author.random.bool());
    for app in &mut author.apps {
        app.image = format!("{}:final", app.name);
        app.deadline = 600;
        app.replicas = if pools.len() > 8 { 1 } else { replicas };
        if !app.is_daemon && app.pools.is_empty() {
            app.pools = pools.iter().map(|pool| Said { pool: *pool, replicas: 1, image: None }).collect();
        }
        for said in &mut app.pools {
            (said.replicas, said.image) = (app.replicas, None);
        }
        for pool in &pools {
            if !app.is_stateful {
                edits.push(change(&app.workload_path(pool), json!({"spec": {"paused": null}})));
            }
            if !are_scaled {
                edits.push(delete(&app.autoscaler_path(pool)));
            }
        }
        edits.extend([app.comes(), annotated(&app.path(), settings.clone())]);
        let item = json!({"env": {"containerName": "c", "envClaim": {VARIABLE: "final"}}});
        let replacements = json!([{"pools": "*", "items": [item]}]);
        if is_replaced {
            edits.push(app.replacement_comes(&replacements));
            edits.push(change(&app.replacement_path(), json!({"replacements": replacements})));
            edits.push(annotated(&app.replacement_path(), json!({SUSPEND_ANNOTATION: null})));
        } else {
            edits.push(delete(&app.replacement_path()));
        }
        edits.push(app.changes());
    }
    edits.extend(author.in_the_way.iter().map(|path| delete(path)));
    finish.extend(edits.into_iter().map(Event::User));
    finish.push(Event::MendNodes);
    finish
}
