//! What is counted of questions.

use std::time::Duration;

use dapple_control::metrics::FamilyMetrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// How a question was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It concerned nothing of ours.
    Untouched,
    /// No node may have the pod.
    Refused,
    /// Nodes were judged.
    Judged,
    /// It could not be read, as a whole or in part.
    Unreadable,
}

impl Ended {
    fn label(self) -> &'static str {
        match self {
            Self::Untouched => "untouched",
            Self::Refused => "refused",
            Self::Judged => "judged",
            Self::Unreadable => "unreadable",
        }
    }
}

const SECONDS: [f64; 8] = [0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.01, 0.1, 1.0];

/// What is counted.
pub struct ExtenderMetrics {
    questions: Family<[(&'static str, &'static str); 2], Counter>,
    seconds: Family<[(&'static str, &'static str); 1], Histogram>,
}

impl FamilyMetrics for ExtenderMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics =
            Self { questions: Family::default(), seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)) };
        let help = "Questions of schedulers per verb and answer";
        registry.register("dapple_extender_requests", help, metrics.questions.clone());
        let help = "Time to answer a scheduler";
        registry.register_with_unit("dapple_extender_duration", help, Unit::Seconds, metrics.seconds.clone());
        metrics
    }
}

impl ExtenderMetrics {
    /// A question was answered.
    pub fn answered(&self, verb: &'static str, ended: Ended, took: Duration) {
        self.questions.get_or_create(&[("verb", verb), ("answer", ended.label())]).inc();
        self.seconds.get_or_create(&[("verb", verb)]).observe(took.as_secs_f64());
    }
}
