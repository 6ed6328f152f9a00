//! Admission webhooks: certificates, TLS and handlers. Thin shells around `dapple-api`, `dapple-edit` and `dapple-plan`.
//!
//! Every replica of the manager serves all of them ([`serve`], [`routes`]); whoever leads registers them and renews the
//! certificates ([`register`]). What is judged, and by whom it may be judged wrongly without harm, is in [`hooks`].

pub mod ask;
pub mod authority;
pub mod callers;
pub mod certificates;
pub mod daemonset;
pub mod gate;
pub mod hooks;
pub mod install;
pub mod memory;
pub mod own_name;
pub mod pool;
pub mod prove;
pub mod register;
pub mod requests;
pub mod review;
pub mod routes;
pub mod secret;
pub mod serve;
pub mod shared;
pub mod surroundings;
pub mod trusted;
pub mod unregister;
pub mod workload;

use std::net::SocketAddr;
use std::sync::Arc;

use dapple_control::group::Gatekeeper;
use dapple_control::manager::Shared;
use dapple_control::serve::{ListenError, listen};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::ask::Asker;
use crate::callers::Callers;
use crate::gate::Gate;
use crate::gate::placer::Placer;
use crate::gate::registration::{GateRegistration, Parts};
use crate::hooks::Reach;
use crate::pool::Workloads;
use crate::register::{Registrar, Source};
use crate::routes::{Judges, routes};
use crate::serve::{LIMITS, Server};
use crate::surroundings::Surroundings;

/// The part of readiness that is ours.
const PART: &str = "webhooks";

/// How to serve webhooks.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where the API server reaches us.
    pub reach: Reach,
    /// Where certificates come from.
    pub source: Source,
    /// Whose certificates callers have to show, if they have to.
    pub callers: Option<Callers>,
    /// dapple's namespace.
    pub namespace: String,
    /// The lease in it by which one of several managers leads.
    pub lease: String,
    /// Whether this process serves node groups, and so may put pods behind their gate.
    pub serves_groups: bool,
    /// Whether it serves applications in pools, and so may put back what others change of their workloads.
    pub serves_pools: bool,
}

/// Webhooks that are listened for, and not answered yet.
pub struct Webhooks {
    options: Options,
    listener: TcpListener,
}

impl Webhooks {
    /// Listens. Done before anything else, so that a taken port ends the process at once.
    pub async fn listen(options: Options) -> Result<Self, ListenError> {
        let listener = listen(options.listen).await?;
        Ok(Self { options, listener })
    }

    /// Serves beside the controllers of a manager, until it is stopped and nobody is left waiting.
    pub async fn run(self, shared: Shared) {
        let Options { listen, reach, source, callers, namespace, lease, serves_groups, serves_pools } = self.options;
        shared.readiness.note(PART, false);
        let stop = shared.stop.clone();
        // Who does not know what is around must not judge: without it nothing is served, and the process is not ready.
        let life = stop.child_token();
        let known = Arc::new(Surroundings::start(&shared.caches, &life));
        let asked = Arc::new(Notify::new());
        let gatekeeper = serves_groups.then(|| gatekeeper(&shared, &life, &namespace, asked.clone()));
        let workloads = serves_pools.then(|| Arc::new(Workloads::start(&shared, &life)));
        let gate = Arc::new(GateRegistration::new(Parts {
            plain: shared.plain.clone(),
            guarded: shared.guarded.clone(),
            reach: reach.clone(),
            own_namespace: namespace.clone(),
            env: shared.env.clone(),
            gatekeeper: gatekeeper.clone(),
            asked,
        }));
        let own = workloads.as_ref().map(|known| known.own.clone());
        let registrar = Arc::new(Registrar::new(&shared, namespace.clone(), reach, source, gate.clone(), own));
        let identity = registrar.identity.clone();
        registrar.prepare(&stop).await;
        tokio::select! { biased; () = life.cancelled() => {}, () = known.read_once() => {} }
        if life.is_cancelled() {
            return end_if_broken(&stop);
        }
        let asker = Arc::new(Asker::new(shared.plain.clone(), namespace.clone()));
        let gated = gatekeeper.map(|gatekeeper| {
            let placer = Placer::new(shared.plain.clone(), &namespace, lease, shared.env.clone(), stop.clone());
            gate::routes(Arc::new(Gate {
                gatekeeper,
                placer,
                registration: gate,
                asker: asker.clone(),
                metrics: shared.metrics.clone(),
            }))
        });
        let blueprints = workloads.as_ref().map(|known| known.blueprints.clone());
        let judges = Arc::new(Judges::new(asker, known, blueprints, shared.metrics.clone()));
        let address = self.listener.local_addr().unwrap_or(listen);
        let reading = callers.clone().map(|callers| tokio::spawn(callers.keep()));
        let server = Server { identity, callers, limits: LIMITS, metrics: shared.metrics.clone() };
        let of_pools = workloads.map(pool::routes);
        let all = routes(judges).merge(gated.unwrap_or_default()).merge(of_pools.unwrap_or_default());
        let serving = server.run(self.listener, all, life.clone());
        info!(%address, "webhooks are served");
        shared.readiness.note(PART, true);
        let keeping = tokio::spawn(registrar.run(stop.clone()));
        let unready = async {
            life.cancelled().await;
            // Whoever balances between replicas is told at once; whoever still comes is served for a while.
            shared.readiness.note(PART, false);
            end_if_broken(&stop);
        };
        let (served, ()) = tokio::join!(serving, unready);
        if let Err(error) = served {
            error!(%error, "webhooks cannot be served");
        }
        keeping.abort();
        reading.into_iter().for_each(|reading| reading.abort());
    }
}

/// What is known of what asks for policies. `asked` is notified of every change of that.
fn gatekeeper(shared: &Shared, life: &CancellationToken, namespace: &str, asked: Arc<Notify>) -> Arc<Gatekeeper> {
    let clients = (shared.plain.clone(), shared.env.clone());
    Arc::new(Gatekeeper::start(&shared.caches, life, clients, namespace, move || asked.notify_one()))
}

/// Ends the process, to be started anew, if webhooks end though it was not asked to stop: what they go by has broken, and API
/// servers wait for their answers.
fn end_if_broken(stop: &CancellationToken) {
    if !stop.is_cancelled() {
        error!("webhooks have lost what they go by; the process ends, to begin anew");
        stop.cancel();
    }
}
