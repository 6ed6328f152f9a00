//! Who tells what happens to applications in pools: what is there, what is changed of it, and by whom.

use std::time::Duration;

use dapple_api::pool::{
    CONFIRM_REMOVAL, POOL_GRACE, ROLLOUT_MAX, ROLLOUT_ORDER, ROLLOUT_RESUMED, ROLLOUT_SKIP, SUSPEND_ANNOTATION,
};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::POOLS;
use super::REPLACEMENTS;
use super::setup::{
    App, POOL_NAMES, Said, VARIABLE, annotated, change, delete, node_of, pool_comes, pool_is_selected, pool_path,
    put_into,
};
use crate::clock::FIRST_SECOND;
use crate::kubelet::BAD_IMAGE;
use crate::script::{Edit, Event};

/// How pods turn out that have an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Image {
    Good,
    /// They never become ready.
    Bad,
    /// They become ready, and some time later their node falls ill, with all that runs there.
    Sick,
}

/// Whoever writes a script.
pub(super) struct Author<'r> {
    pub(super) random: &'r mut fastrand::Rng,
    pub(super) pools: Vec<&'static str>,
    pub(super) apps: Vec<App>,
    pub(super) managers: usize,
    pub(super) events: Vec<(Duration, Event)>,
    /// Where something else has the name of a workload.
    pub(super) in_the_way: Vec<String>,
    /// How many images were named.
    tags: u32,
}

impl<'r> Author<'r> {
    /// Applications in some pools: a set, a daemon, or both.
    pub(super) fn new(random: &'r mut fastrand::Rng) -> Self {
        let count = if random.u8(0..5) == 0 { POOL_NAMES.len() } else { random.usize(3..9) };
        let pools = POOL_NAMES[..count].to_vec();
        let kinds: &[bool] = match random.u8(0..4) {
            0 | 1 => &[false],
            2 => &[true],
            _ => &[false, true],
        };
        let apps = kinds.iter().map(|is_daemon| app(*is_daemon, &pools, random)).collect();
        let managers = random.usize(1..3);
        Self { random, pools, apps, managers, events: Vec::new(), in_the_way: Vec::new(), tags: 1 }
    }

    pub(super) fn at(&mut self, at: Duration, event: Event) {
        self.events.push((at, event));
    }

    pub(super) fn user(&mut self, at: Duration, edit: Edit) {
        self.at(at, Event::User(edit));
    }

    /// One of the pools.
    pub(super) fn pool(&mut self) -> &'static str {
        self.pools[self.random.usize(0..self.pools.len())]
    }

    /// The place of one of the applications.
    pub(super) fn app(&mut self) -> usize {
        self.random.usize(0..self.apps.len())
    }

    /// A pool of an application.
    pub(super) fn pool_of(&mut self, app: usize) -> &'static str {
        let named: Vec<&'static str> = self.apps[app].pools.iter().map(|said| said.pool).collect();
        if named.is_empty() { self.pool() } else { named[self.random.usize(0..named.len())] }
    }

    /// An image that nothing has had yet, or one of those before.
    pub(super) fn image(&mut self, app: usize, image: Image) -> String {
        let name = self.apps[app].name;
        self.tags += 1;
        match image {
            // People go back, too.
            Image::Good if self.random.u8(0..4) == 0 => format!("{name}:1"),
            Image::Good => format!("{name}:{}", self.tags),
            Image::Bad => format!("{name}:{}-{BAD_IMAGE}", self.tags),
            Image::Sick => format!("{name}:{}-sick", self.tags),
        }
    }

    fn any_image(&mut self) -> Image {
        [Image::Good, Image::Good, Image::Good, Image::Bad, Image::Sick][self.random.usize(0..5)]
    }

    /// An application gets another image.
    pub(super) fn roll(&mut self, at: Duration, app: usize, image: Image) {
        let image = self.image(app, image);
        self.apps[app].image = image;
        let edit = self.apps[app].changes();
        self.user(at, edit);
    }

    /// An application gets annotations; null takes one away.
    pub(super) fn annotate(&mut self, at: Duration, app: usize, annotations: Value) {
        let path = self.apps[app].path();
        self.user(at, annotated(&path, annotations));
    }

    /// A manager is killed some time after this.
    pub(super) fn kill(&mut self, after: Duration, within: u64) {
        let slot = self.random.usize(0..self.managers);
        let at = after + Duration::from_millis(self.random.u64(0..within));
        let back_after = Duration::from_millis(self.random.u64(0..40_000));
        self.at(at, Event::Kill { slot, back_after });
    }

    /// Anything.
    pub(super) fn happen(&mut self, at: Duration) {
        match self.random.u8(0..10) {
            0..4 => self.of_app(at),
            4..6 => self.of_workload(at),
            6..8 => self.of_pools(at),
            _ => self.of_managers(at),
        }
    }

    /// Something about an application.
    fn of_app(&mut self, at: Duration) {
        let app = self.app();
        match self.random.u8(0..16) {
            0..4 => {
                let image = self.any_image();
                self.roll(at, app, image);
            }
            4..6 => self.replace(at, app),
            6 => self.say_of_pool(at, app),
            7 => self.drop_pool(at, app),
            8 => self.add_pool(at, app),
            9 => {
                let said = self.random.bool().then_some("true");
                let path = match self.random.bool() {
                    true => self.apps[app].path(),
                    false => self.apps[app].replacement_path(),
                };
                self.user(at, annotated(&path, json!({SUSPEND_ANNOTATION: said})));
            }
            10 => {
                let max = [None, Some("1"), Some("2"), Some("34%"), Some("100%")][self.random.usize(0..5)];
                let skip = Some(self.pool()).filter(|_| self.random.u8(0..3) == 0);
                let order = Some(self.pool()).filter(|_| self.random.bool());
                let said = json!({ROLLOUT_MAX: max, ROLLOUT_SKIP: skip, ROLLOUT_ORDER: order});
                self.annotate(at, app, said);
            }
            11 => self.resume(at, app),
            12 => {
                let pool = self.pool();
                let said = [Some("*"), Some(pool), None][self.random.usize(0..3)];
                self.annotate(at, app, json!({CONFIRM_REMOVAL: said}));
            }
            13 => {
                let said = [Some("20s"), Some("90s"), None][self.random.usize(0..3)];
                self.annotate(at, app, json!({POOL_GRACE: said}));
            }
            14 if self.random.u8(0..3) == 0 => {
                // Its workloads go with it, under the names that the next one's are to have.
                self.user(at, delete(&self.apps[app].path()));
                let back_at = at + Duration::from_millis(self.random.u64(0..60_000));
                self.user(back_at, self.apps[app].comes());
            }
            _ => self.roll(at, app, Image::Good),
        }
    }

    /// Somebody has a rollout go on.
    pub(super) fn resume(&mut self, at: Duration, app: usize) {
        let now = Timestamp::from_second(FIRST_SECOND + at.as_secs() as i64).unwrap_or_default();
        self.annotate(at, app, json!({ROLLOUT_RESUMED: now.to_string()}));
    }

    /// What replaces things in an application comes, changes or goes.
    fn replace(&mut self, at: Duration, app: usize) {
        if self.random.u8(0..4) == 0 {
            return self.user(at, delete(&self.apps[app].replacement_path()));
        }
        let image = self.any_image();
        let image = self.image(app, image);
        let one = self.pool_of(app);
        let pools = if self.random.u8(0..3) == 0 { json!("*") } else { json!([one]) };
        let item = match self.random.u8(0..3) {
            0 => json!({"image": {"containerName": "c", "imageClaim": image}}),
            1 => json!({"env": {"containerName": "c", "envClaim": {VARIABLE: "{{nodepool}}-1"}}}),
            _ => json!({"replicas": self.random.u8(1..4)}),
        };
        let all = json!({"env": {"containerName": "c", "envClaim": {VARIABLE: "all"}}});
        let replacements = json!([{"pools": "*", "items": [all]}, {"pools": pools, "items": [item]}]);
        self.replace_with(at, app, &replacements);
    }

    /// This replaces things in an application from now on.
    pub(super) fn replace_with(&mut self, at: Duration, app: usize, replacements: &Value) {
        // One that is there already is changed.
        let comes = self.apps[app].replacement_comes(replacements);
        let changes = change(&self.apps[app].replacement_path(), json!({"replacements": replacements}));
        self.user(at, comes);
        self.user(at, changes);
    }

    /// A set says something else of a pool; a daemon, of all.
    fn say_of_pool(&mut self, at: Duration, app: usize) {
        let replicas = self.random.i64(1..4);
        let image = self.random.bool().then(|| self.image(app, Image::Good));
        let own = &mut self.apps[app];
        if own.is_daemon || own.pools.is_empty() {
            own.replicas = replicas;
        } else {
            let place = self.random.usize(0..own.pools.len());
            (own.pools[place].replicas, own.pools[place].image) = (replicas, image);
        }
        let edit = own.changes();
        self.user(at, edit);
    }

    /// A set leaves one of its pools, or several at once.
    pub(super) fn drop_pool(&mut self, at: Duration, app: usize) {
        let count = if self.random.u8(0..3) == 0 { self.random.usize(1..6) } else { 1 };
        for _ in 0..count {
            let own = &mut self.apps[app];
            if own.pools.len() > 1 {
                let place = self.random.usize(0..own.pools.len());
                own.pools.remove(place);
            }
        }
        let edit = self.apps[app].changes();
        self.user(at, edit);
    }

    /// A set comes into one more pool.
    pub(super) fn add_pool(&mut self, at: Duration, app: usize) {
        let own = &mut self.apps[app];
        let has = |pool: &&&'static str| own.pools.iter().any(|said| said.pool == **pool);
        let next = self.pools.iter().find(|pool| !has(pool)).copied();
        if let (Some(pool), false) = (next, own.is_daemon) {
            own.pools.push(Said { pool, replicas: 1, image: None });
        }
        let edit = own.changes();
        self.user(at, edit);
    }

    /// Somebody does something to a workload by other means.
    pub(super) fn of_workload(&mut self, at: Duration) {
        let app = self.app();
        let pool = self.pool_of(app);
        let path = self.apps[app].workload_path(pool);
        let edit = match self.random.u8(0..8) {
            2 if !self.apps[app].is_stateful => {
                let is_paused = self.random.bool().then_some(true);
                change(&path, json!({"spec": {"paused": is_paused}}))
            }
            0 | 2 => {
                let replicas = self.random.u8(0..4);
                change(&path, json!({"spec": {"replicas": replicas}}))
            }
            1 => {
                let restarted = json!({"kubectl.kubernetes.io/restartedAt": format!("{}", at.as_secs())});
                change(&path, json!({"spec": {"template": {"metadata": {"annotations": restarted}}}}))
            }
            3 | 4 => foreign_image(&path),
            5 => self.apps[app].autoscaler_comes(pool),
            6 => delete(&self.apps[app].autoscaler_path(pool)),
            _ => delete(&path),
        };
        self.user(at, edit);
    }

    /// Something about NodePools and their nodes.
    fn of_pools(&mut self, at: Duration) {
        let pool = self.pool();
        let node = node_of(pool, 0);
        match self.random.u8(0..16) {
            0 | 1 => {
                let is_selected = self.random.bool();
                self.user(at, pool_is_selected(pool, is_selected));
            }
            2 => {
                let is_selected = self.random.u8(0..3) == 0;
                let all: Vec<Edit> = self.pools.iter().map(|pool| pool_is_selected(pool, is_selected)).collect();
                all.into_iter().for_each(|edit| self.user(at, edit));
            }
            3 => self.user(at, delete(&pool_path(pool))),
            4 => self.user(at, pool_comes(pool, true, &json!([]))),
            5 => self.user(at, put_into(&node, None)),
            6 => self.user(at, put_into(&node, Some(pool))),
            7 => {
                self.user(at, put_into(&node, None));
                self.user(at, delete(&pool_path(pool)));
            }
            8 => {
                let taint = json!([{"key": "slow", "value": "x", "effect": "NoSchedule"}]);
                let taints = Some(taint).filter(|_| self.random.bool());
                self.user(at, change(&pool_path(pool), json!({"spec": {"taints": taints}})));
            }
            9 | 10 => self.at(at, Event::NodeReady { node, is_ready: false }),
            11 | 12 => self.at(at, Event::NodeReady { node, is_ready: true }),
            13 => {
                let lasts = Duration::from_secs(self.random.u64(1..120));
                self.at(at, Event::Unready { node, lasts });
            }
            14 => self.at(at, Event::Fail { node }),
            _ => {
                let name = [POOLS, REPLACEMENTS][self.random.usize(0..2)];
                let back_at = at + Duration::from_millis(self.random.u64(100..200_000));
                self.at(at, Event::Crd { name, is_there: false });
                self.at(back_at, Event::Crd { name, is_there: true });
            }
        }
    }

    /// Something happens to managers, or to the API server.
    fn of_managers(&mut self, at: Duration) {
        let slot = self.random.usize(0..self.managers);
        match self.random.u8(0..8) {
            0..3 => self.kill(at, 1),
            3 => self.at(at, Event::Stop { slot }),
            4 => {
                let lasts = Duration::from_millis(self.random.u64(500..90_000));
                self.at(at, Event::Isolate { slot, lasts });
            }
            5 => self.at(at, Event::Compact),
            6 => self.at(at, Event::DeleteOldRevisions),
            _ => {
                let method = [Method::POST, Method::PATCH, Method::DELETE][self.random.usize(0..3)].clone();
                let resource = ["deployments.apps", "statefulsets.apps", "controllerrevisions.apps"];
                let resource = resource[self.random.usize(0..3)];
                let over_at = at + Duration::from_secs(self.random.u64(1..60));
                self.at(at, Event::Forbid { method, resource });
                self.at(over_at, Event::Allow);
            }
        }
    }
}

/// A workload gets an image that is not its application's.
pub(super) fn foreign_image(path: &str) -> Edit {
    let containers = json!([{"name": "c", "image": "foreign:1"}]);
    change(path, json!({"spec": {"template": {"spec": {"containers": containers}}}}))
}

/// A set in most of these pools, or a daemon.
fn app(is_daemon: bool, pools: &[&'static str], random: &mut fastrand::Rng) -> App {
    let name = if is_daemon { "agent" } else { "web" };
    let mut named: Vec<&'static str> = pools.to_vec();
    if random.bool() && named.len() > 3 {
        named.pop();
    }
    let (replicas, is_few) = (random.i64(1..3), pools.len() > 8);
    let said = |pool: &&'static str| Said { pool: *pool, replicas: if is_few { 1 } else { replicas }, image: None };
    App {
        name,
        is_daemon,
        is_stateful: random.u8(0..3) == 0,
        pools: if is_daemon { Vec::new() } else { named.iter().map(said).collect() },
        replicas: if is_few { 1 } else { replicas },
        image: format!("{name}:1"),
        // Sooner than Kubernetes' own, so that it is seen in the time of a run.
        deadline: 40,
    }
}
