//! What a look reads and writes the cluster with. What it remembers is handed in beside it, part by part.

use dapple_api::daemonset::DaemonSet;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};

use super::Set;
use super::report::Reporter;
use crate::caches::Subscription;
use crate::env::Env;
use crate::history::History;
use crate::overriding::Policies;
use crate::slim::{Node, Pod, Revision};
use crate::writes::outcome::Writer;

/// Clients, caches and the like. Nothing here changes from look to look.
pub(super) struct Io {
    pub(super) client: Client,
    pub(super) env: Env,
    pub(super) sets: Subscription<Set>,
    pub(super) revisions: Subscription<Revision>,
    pub(super) pods: Subscription<Pod>,
    pub(super) nodes: Subscription<Node>,
    pub(super) policies: Policies,
    pub(super) reporter: Reporter,
    /// Whether patches are switched off.
    pub(super) ignores_patches: bool,
}

impl Io {
    /// Now, in seconds.
    pub(super) fn now(&self) -> i64 {
        self.env.now().as_second()
    }

    /// The revisions of a set's namespace, in the API server.
    pub(super) fn history(&self, set: &Set) -> History {
        History::new(&self.client, &set.meta.key.namespace)
    }

    /// The sets of a set's namespace, in the API server.
    pub(super) fn sets_api(&self, set: &Set) -> Api<DaemonSet> {
        Api::namespaced(self.client.clone(), &set.meta.key.namespace)
    }

    /// The pods of a namespace, in the API server.
    pub(super) fn pods_api(&self, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    /// Writes to them.
    pub(super) fn pod_writer(&self, namespace: &str) -> Writer {
        Writer::new(&self.client, &self.pods_api(namespace))
    }
}
