//! Any bytes as the body of a review, for every webhook and for conversion: there is an answer, and no panic.
#![no_main]

use std::cell::LazyCell;
use std::sync::Arc;

use dapple_admit::hooks::HOOKS;
use dapple_admit::review::converted;
use dapple_admit::routes::Judges;
use dapple_admit::surroundings::Surroundings;
use dapple_control::caches::{Caches, Watches};
use dapple_control::env::Env;
use dapple_control::metrics::Metrics;
use dapple_control::retry::Recovery;
use dapple_control::signal::Signal;
use dapple_control::writes::events::Recorder;
use kube::Client;
use kube::client::Body;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

/// A cluster that answers nothing.
fn dead_client() -> Client {
    let service = tower::service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("nobody answers"))
    });
    Client::new(service, "default")
}

/// The caches of a process that does not lead.
fn caches(client: Client) -> Caches {
    let (env, leading, stop) = (Env::system(), Signal::default(), CancellationToken::new());
    let recorder = Recorder::start(client.clone(), "fuzz".to_owned(), env.clone(), leading.clone(), stop.clone());
    let (metrics, recorder, recovery) = (Arc::new(Metrics::new()), Arc::new(recorder), Recovery::default());
    Caches::new(Watches { client, env, metrics, recorder, leading, recovery, stop })
}

thread_local! {
    static JUDGES: LazyCell<(Runtime, Judges)> = LazyCell::new(|| {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let entered = runtime.enter();
        let known = Surroundings::start(&caches(dead_client()), &CancellationToken::new());
        let judges =
            Judges::new(dead_client(), "dapple-system".to_owned(), Arc::new(known), Arc::new(Metrics::new()));
        drop(entered);
        (runtime, judges)
    });
}

fuzz_target!(|bytes: &[u8]| {
    JUDGES.with(|known| {
        let (runtime, judges) = &**known;
        for hook in HOOKS {
            // What is no review is told so; what is one gets an answer that says yes or no to that very request.
            if let Ok(answer) = runtime.block_on(judges.answer(hook.job, bytes)) {
                assert!(answer["response"]["allowed"].is_boolean(), "{answer}");
                assert!(answer["response"]["uid"].is_string(), "{answer}");
            }
        }
    });
    if let Ok(answer) = converted(bytes) {
        assert!(answer["response"]["result"]["status"].is_string(), "{answer}");
    }
});
