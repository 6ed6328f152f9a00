//! Stories of applications in pools: what happens one after another, with nothing else beside it, and how it turns out.

use std::time::Duration;

use dapple_api::pool::{CONFIRM_REMOVAL, POOL_GRACE, ROLLOUT_MAX, SUSPEND_ANNOTATION};
use http::Method;
use serde_json::json;

use super::super::POOLS;
use super::author::{Author, Image, foreign_image};
use super::setup::{VARIABLE, annotated, change, delete, node_of, pool_comes, pool_is_selected, pool_path, put_into};
use crate::script::Event;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

impl Author<'_> {
    /// Tells a story that begins at this time, and returns when it is over.
    pub(super) fn tell(&mut self, at: Duration) -> Duration {
        let app = self.app();
        let is_daemon = self.apps[app].is_daemon;
        match self.random.u8(0..16) {
            0 | 1 => self.breaks(at, app, Image::Bad),
            2 | 3 => self.breaks(at, app, Image::Sick),
            4 => self.breaks_in_one(at, app),
            5 => self.is_struck(at, app),
            6 | 7 => self.stalls(at, app),
            8 if is_daemon => self.is_left(at, app),
            8 => self.leaves(at, app),
            9 if is_daemon => self.is_gone(at, app),
            9 => self.leaves(at, app),
            10 => self.is_scaled(at, app),
            11 => self.is_fought_over(at, app),
            12 => self.is_lost(at, app),
            13 => self.breaks_twice(at, app),
            14 => self.is_lost_where_it_broke(at, app),
            _ => self.is_suspended(at, app),
        }
    }

    /// By chance, how many pools may be changed at once.
    fn limit(&mut self, at: Duration, app: usize) {
        let max = [None, None, Some("2"), Some("3"), Some("34%")][self.random.usize(0..5)];
        self.annotate(at, app, json!({ROLLOUT_MAX: max}));
    }

    /// An image breaks an application, and a manager may die; then comes one that is good.
    fn breaks(&mut self, at: Duration, app: usize, image: Image) -> Duration {
        self.limit(at, app);
        self.roll(at + seconds(1), app, image);
        if self.random.u8(0..3) == 0 {
            self.kill(at, 60_000);
        }
        let fixed_at = at + seconds(self.random.u64(20..150));
        self.roll(fixed_at, app, Image::Good);
        fixed_at + seconds(60)
    }

    /// An image breaks an application, and so does the one that is to mend it; then comes one that is good.
    fn breaks_twice(&mut self, at: Duration, app: usize) -> Duration {
        self.annotate(at, app, json!({ROLLOUT_MAX: "1"}));
        self.roll(at + seconds(1), app, Image::Bad);
        // Sooner than it is late.
        let mended_at = at + seconds(self.random_seconds(10, 30));
        self.roll(mended_at, app, Image::Bad);
        let fixed_at = mended_at + seconds(self.random_seconds(10, 30));
        self.roll(fixed_at, app, Image::Good);
        fixed_at + seconds(60)
    }

    /// What is new is good, but in one of the pools it breaks; others go on until that is late.
    fn breaks_in_one(&mut self, at: Duration, app: usize) -> Duration {
        self.annotate(at, app, json!({ROLLOUT_MAX: "2"}));
        // One of the first: many wait for their turn when it is late.
        let pool = if self.random.bool() { self.first_pool(app) } else { self.pool_of(app) };
        let image = self.image(app, Image::Bad);
        let item = json!({"image": {"containerName": "c", "imageClaim": image}});
        // Both are to be new in one rollout: nothing is written in between.
        self.annotate(at, app, json!({SUSPEND_ANNOTATION: "true"}));
        self.replace_with(at + seconds(6), app, &json!([{"pools": [pool], "items": [item]}]));
        self.roll(at + seconds(6), app, Image::Good);
        self.annotate(at + seconds(12), app, json!({SUSPEND_ANNOTATION: null}));
        let fixed_at = at + seconds(self.random.u64(60..200));
        self.replace_with(fixed_at, app, &json!([]));
        fixed_at + seconds(60)
    }

    /// Some time after something new has come, all nodes fall ill for a while, whatever runs there.
    fn is_struck(&mut self, at: Duration, app: usize) -> Duration {
        self.limit(at, app);
        self.roll(at + seconds(1), app, Image::Good);
        let struck_at = at + seconds(self.random.u64(3..40));
        let well_at = struck_at + seconds(self.random.u64(20..90));
        for pool in self.pools.clone() {
            self.at(struck_at, Event::NodeReady { node: node_of(pool, 0), is_ready: false });
            self.at(struck_at, Event::NodeReady { node: node_of(pool, 1), is_ready: false });
            self.at(well_at, Event::NodeReady { node: node_of(pool, 0), is_ready: true });
            self.at(well_at, Event::NodeReady { node: node_of(pool, 1), is_ready: true });
        }
        well_at + seconds(60)
    }

    /// The nodes of a pool fall ill as soon as something new is there, and get well when it is late.
    fn stalls(&mut self, at: Duration, app: usize) -> Duration {
        let pool = self.first_pool(app);
        self.roll(at, app, Image::Good);
        let struck_at = at + Duration::from_millis(self.random.u64(300..2_500));
        let well_at = at + seconds(self.random.u64(60..100));
        for number in 0..2 {
            self.at(struck_at, Event::NodeReady { node: node_of(pool, number), is_ready: false });
            self.at(well_at, Event::NodeReady { node: node_of(pool, number), is_ready: true });
        }
        let over_at = well_at + seconds(80);
        if self.random.u8(0..3) == 0 {
            self.resume(over_at, app);
            return over_at + seconds(60);
        }
        if self.random.bool() {
            self.add_pool(well_at + seconds(20), app);
        }
        over_at
    }

    /// The pool of an application that is changed first: that goes by their names.
    fn first_pool(&self, app: usize) -> &'static str {
        let named = self.apps[app].pools.iter().map(|said| said.pool).min();
        let of_all = self.pools.iter().copied().min();
        named.or(of_all).unwrap_or_default()
    }

    /// A set leaves pools, few or many, and may come back.
    fn leaves(&mut self, at: Duration, app: usize) -> Duration {
        let before = self.apps[app].pools.clone();
        if before.is_empty() {
            return at;
        }
        let count = [1, 2, 2, before.len() / 2, before.len()][self.random.usize(0..5)].clamp(1, before.len());
        self.apps[app].pools.truncate(before.len() - count);
        let edit = self.apps[app].changes();
        self.user(at, edit);
        if self.random.bool() {
            // Something new is rolled out meanwhile.
            let rolled_at = at + seconds(self.random_seconds(0, 10));
            self.roll(rolled_at, app, Image::Good);
        }
        if self.random.bool() {
            let confirmed_at = at + seconds(self.random_seconds(10, 40));
            // All of them, or one.
            let one = before[before.len() - 1 - self.random.usize(0..count)].pool;
            let said = if self.random.bool() { "*" } else { one };
            self.annotate(confirmed_at, app, json!({CONFIRM_REMOVAL: said}));
        }
        let back_at = at + seconds(self.random_seconds(20, 90));
        if self.random.bool() {
            self.apps[app].pools = before;
            let edit = self.apps[app].changes();
            self.user(back_at, edit);
        }
        self.annotate(back_at, app, json!({CONFIRM_REMOVAL: null}));
        back_at + seconds(40)
    }

    /// Pools are not selected any more, one or all, and are again: in the time of grace or after it, once or twice.
    fn is_left(&mut self, at: Duration, app: usize) -> Duration {
        let confirmed = self.random.bool().then_some("*");
        self.annotate(at, app, json!({POOL_GRACE: "30s", CONFIRM_REMOVAL: confirmed}));
        let left = if self.random.u8(0..3) == 0 { self.pools.clone() } else { vec![self.pool()] };
        let mut now = at + seconds(10);
        for _ in 0..self.random.usize(1..3) {
            for is_selected in [false, true] {
                left.iter().for_each(|pool| self.user(now, pool_is_selected(pool, is_selected)));
                now += seconds(self.random_seconds(8, 60));
            }
        }
        if self.random.bool() {
            left.iter().for_each(|pool| self.user(now, pool_is_selected(pool, false)));
        }
        now + seconds(60)
    }

    /// NodePools go: one whose nodes have its label still, or one without nodes, or all with their CRD; and come back.
    fn is_gone(&mut self, at: Duration, app: usize) -> Duration {
        let (pool, gone_at) = (self.pool(), at + seconds(10));
        if self.random.u8(0..3) == 0 {
            return self.is_without_pools(gone_at, app);
        }
        self.annotate(at, app, json!({POOL_GRACE: "20s"}));
        if self.random.bool() {
            self.empty(gone_at, pool);
        }
        let back_at = gone_at + seconds(self.random_seconds(30, 150));
        self.user(gone_at + seconds(5), delete(&pool_path(pool)));
        self.user(back_at, pool_comes(pool, true, &json!([])));
        back_at + seconds(60)
    }

    /// All nodes leave their pools, and then those are gone with their CRD, for longer than workloads outlive them.
    fn is_without_pools(&mut self, at: Duration, app: usize) -> Duration {
        // Longer than it takes everybody to learn of it.
        self.annotate(at, app, json!({POOL_GRACE: "70s", CONFIRM_REMOVAL: "*"}));
        let back_at = at + seconds(self.random_seconds(100, 160));
        let pools = self.pools.clone();
        for pool in &pools {
            self.empty(at, pool);
        }
        self.at(at + seconds(5), Event::Crd { name: POOLS, is_there: false });
        self.at(back_at, Event::Crd { name: POOLS, is_there: true });
        for pool in pools {
            self.user(back_at, pool_comes(pool, true, &json!([])));
        }
        back_at + seconds(60)
    }

    /// A pool has no nodes any more.
    fn empty(&mut self, at: Duration, pool: &str) {
        for number in 0..2 {
            self.user(at, put_into(&node_of(pool, number), None));
        }
    }

    /// People and autoscalers set numbers of pods, and then others are declared.
    fn is_scaled(&mut self, at: Duration, app: usize) -> Duration {
        let (first, second) = (self.pool_of(app), self.pool_of(app));
        let scaled = json!({"spec": {"replicas": self.random.u8(0..5)}});
        self.user(at, change(&self.apps[app].workload_path(first), scaled));
        self.user(at + seconds(1), self.apps[app].autoscaler_comes(second));
        let scaled = json!({"spec": {"replicas": 5}});
        self.user(at + seconds(2), change(&self.apps[app].workload_path(second), scaled));
        if self.random.bool() {
            self.roll(at + seconds(15), app, Image::Good);
        }
        let replicas = self.random.i64(1..4);
        self.apps[app].replicas = replicas;
        self.apps[app].pools.iter_mut().for_each(|said| said.replicas = replicas);
        let declared = self.apps[app].changes();
        self.user(at + seconds(40), declared);
        at + seconds(120)
    }

    /// Somebody keeps giving a workload another image; others restart it, or hold it.
    fn is_fought_over(&mut self, at: Duration, app: usize) -> Duration {
        let pool = self.pool_of(app);
        let path = self.apps[app].workload_path(pool);
        let other = self.pool_of(app);
        let restarted = json!({"kubectl.kubernetes.io/restartedAt": "now"});
        let restart = json!({"spec": {"template": {"metadata": {"annotations": restarted}}}});
        self.user(at, change(&self.apps[app].workload_path(other), restart));
        if !self.apps[app].is_stateful {
            let paused = json!({"spec": {"paused": true}});
            self.user(at + seconds(2), change(&self.apps[app].workload_path(other), paused));
        }
        self.roll(at + seconds(5), app, Image::Good);
        let begun = at + seconds(60);
        for number in 0..9 {
            self.user(begun + seconds(20 * number), foreign_image(&path));
        }
        begun + seconds(240)
    }

    /// Workloads are deleted in the middle of a rollout that breaks, and pools join it.
    fn is_lost(&mut self, at: Duration, app: usize) -> Duration {
        self.roll(at, app, Image::Bad);
        for _ in 0..3 {
            let pool = self.pool_of(app);
            let lost_at = at + seconds(self.random_seconds(10, 90));
            self.user(lost_at, delete(&self.apps[app].workload_path(pool)));
        }
        self.add_pool(at + seconds(95), app);
        let method = [Method::POST, Method::PATCH][self.random.usize(0..2)].clone();
        let resource = if self.apps[app].is_stateful { "statefulsets.apps" } else { "deployments.apps" };
        if self.random.u8(0..4) == 0 {
            self.at(at + seconds(30), Event::Forbid { method, resource });
            self.at(at + seconds(70), Event::Allow);
        }
        self.roll(at + seconds(140), app, Image::Good);
        at + seconds(200)
    }

    /// An image breaks the first pool, and somebody deletes the workload there before it is late.
    fn is_lost_where_it_broke(&mut self, at: Duration, app: usize) -> Duration {
        self.annotate(at, app, json!({ROLLOUT_MAX: "1"}));
        self.roll(at + seconds(1), app, Image::Bad);
        let pool = self.first_pool(app);
        let mut lost_at = at + seconds(1);
        for _ in 0..self.random.usize(1..3) {
            lost_at += seconds(self.random_seconds(8, 30));
            self.user(lost_at, delete(&self.apps[app].workload_path(pool)));
        }
        let fixed_at = lost_at + seconds(self.random_seconds(10, 60));
        self.roll(fixed_at, app, Image::Good);
        fixed_at + seconds(60)
    }

    /// Nothing is written while an application, or what replaces things in it, is suspended.
    fn is_suspended(&mut self, at: Duration, app: usize) -> Duration {
        let item = json!({"env": {"containerName": "c", "envClaim": {VARIABLE: "{{nodepool}}"}}});
        self.replace_with(at, app, &json!([{"pools": "*", "items": [item]}]));
        let path = match self.random.bool() {
            true => self.apps[app].path(),
            false => self.apps[app].replacement_path(),
        };
        let suspended = |said: Option<&str>| annotated(&path, json!({SUSPEND_ANNOTATION: said}));
        let begun = at + seconds(self.random_seconds(1, 60));
        self.user(begun, suspended(Some("true")));
        self.roll(begun + seconds(10), app, Image::Good);
        let pool = self.pool_of(app);
        self.user(begun + seconds(12), delete(&self.apps[app].workload_path(pool)));
        self.drop_pool(begun + seconds(14), app);
        self.user(begun + seconds(60), suspended(None));
        begun + seconds(120)
    }

    fn random_seconds(&mut self, least: u64, most: u64) -> u64 {
        self.random.u64(least..most)
    }
}
