//! What must hold of PodMarkers, and of the pods that they mark.

use std::collections::{BTreeMap, BTreeSet};

use super::brake::Brakes;
use super::changes::{Changed, changed};
use super::end::is_settled;
use super::results::Results;
use super::{KEPT, MARKERS, PROBED, RESULTS, name};
use crate::past::{Past, believed, note};
use crate::server::Server;
use crate::sim::{Properties, Write};

/// So many pods does the marker mark whose pods are replaced.
const KEPT_PODS: usize = 2;

/// The properties.
#[derive(Default)]
pub struct MarkerProperties {
    markers: BTreeMap<String, Past>,
    brakes: Brakes,
    results: Results,
    /// Pods that were there from the beginning, and that the marker has marked whose pods are replaced.
    led_to: BTreeSet<String>,
}

impl Properties for MarkerProperties {
    fn see(&mut self, write: &Write<'_>, _: &Server) -> Result<(), String> {
        let resource = write.change.resource;
        // What nodes are to probe is the manager's to say, and results are the prober's.
        let is_own = match resource {
            MARKERS => write.is_of_status(),
            RESULTS => !write.is_of_status(),
            resource => resource == "pods",
        };
        write.allow(is_own)?;
        self.brakes.see(write);
        self.results.see(write);
        match resource {
            MARKERS => note(self.markers.entry(name(&write.change.object).to_owned()).or_default(), write),
            "pods" if write.is_ours() => return self.changed(write),
            RESULTS if write.is_ours() => return self.results.asked(write),
            _ => {}
        }
        Ok(())
    }

    fn is_settled(&self, server: &Server) -> Result<(), String> {
        is_settled(server)
    }
}

impl MarkerProperties {
    fn changed(&mut self, write: &Write<'_>) -> Result<(), String> {
        let change = changed(write, &self.markers)?;
        let past = self.markers.get(&change.marker).map(|past| believed(past, write)).unwrap_or_default();
        self.brakes.changed(write, &change, &past)?;
        if change.marker == PROBED {
            self.results.changed(write, &change, self.brakes.leads_since(write.actor))?;
        }
        self.leads_nobody_on(write, &change)
    }

    /// Whoever replaces marked pods is not led to those that were not marked.
    fn leads_nobody_on(&mut self, write: &Write<'_>, change: &Changed) -> Result<(), String> {
        let pod = name(&write.change.object);
        if change.marker != KEPT || !change.is_marked || !change.is_first || !pod.starts_with("pod-") {
            return Ok(());
        }
        self.led_to.insert(pod.to_owned());
        if self.led_to.len() > KEPT_PODS {
            return Err(format!("who replaces marked pods is led to others: {:?}", self.led_to));
        }
        Ok(())
    }
}
