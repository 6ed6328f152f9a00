//! OpenYurt's manager: which of its controllers are on, and how to switch off those that would act on what is adopted.
//!
//! It does much else and goes on running. Which controllers are on is said by the arguments of its Deployment, and holds once
//! no pod is left that was started with others.

use serde_json::{Value, json};

use super::{Taken, Told};
use crate::adopt::product::{SeenLease, holder};
use crate::adopt::{Refusal, texts};

/// The name of the lease by which its replicas elect their leader, in whatever namespace.
pub const LEASE: &str = "yurt-manager";
/// Its program.
const PROGRAM: &str = "yurt-manager";
/// The argument that says which controllers are on.
const FLAG: &str = "--controllers";

/// A controller of OpenYurt's manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Controller {
    /// Its name.
    pub name: &'static str,
    /// Another name of it.
    pub alias: &'static str,
}

impl Controller {
    fn is(self, word: &str) -> bool {
        word == self.name || word == self.alias
    }
}

/// A Deployment of OpenYurt's manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `spec.replicas`.
    pub wanted: i64,
    /// `status.replicas`: pods that are still there.
    pub running: i64,
    /// Which of its containers it is.
    container: usize,
    /// Whether that has arguments.
    has_args: bool,
    flag: Flag,
    /// What the argument says.
    controllers: Vec<String>,
    /// A field that says that pods with other arguments may be left, and how.
    unsettled: Option<(&'static str, String)>,
}

/// Where the argument is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flag {
    Absent,
    At {
        /// `command` or `args`.
        list: &'static str,
        index: usize,
        /// Whether flag and value are one word.
        is_joined: bool,
    },
    Several,
}

/// The Deployment, if it runs OpenYurt's manager.
pub fn read(deployment: &Value) -> Option<Manager> {
    let text = |field: &str| deployment["metadata"][field].as_str().unwrap_or_default().to_owned();
    let spec = &deployment["spec"];
    let containers = spec["template"]["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = || containers.first().map(|_| 0).filter(|_| text("name") == PROGRAM);
    let container = containers.iter().position(is_program).or_else(named)?;
    let of_manager = &containers[container];
    let (flag, controllers) = flag(of_manager);
    Some(Manager {
        namespace: text("namespace"),
        name: text("name"),
        wanted: spec["replicas"].as_i64().unwrap_or(1),
        running: deployment["status"]["replicas"].as_i64().unwrap_or(0),
        container,
        has_args: of_manager["args"].is_array(),
        flag,
        controllers,
        unsettled: unsettled(deployment),
    })
}

/// Whether a container runs it, by its command or its image.
fn is_program(container: &Value) -> bool {
    let is_it = |word: &str| {
        let last = word.rsplit('/').next().unwrap_or_default();
        last.split([':', '@']).next() == Some(PROGRAM)
    };
    texts(&container["command"]).any(is_it) || container["image"].as_str().is_some_and(is_it)
}

/// Where the argument is, and what it says: all are on by default.
fn flag(container: &Value) -> (Flag, Vec<String>) {
    let (mut found, mut said) = (Flag::Absent, Vec::new());
    let mut is_value_next = false;
    for list in ["command", "args"] {
        for (index, word) in container[list].as_array().into_iter().flatten().enumerate() {
            let Some(word) = word.as_str() else { continue };
            let joined = word.strip_prefix(FLAG).and_then(|rest| rest.strip_prefix('='));
            let value = if is_value_next { Some(word) } else { joined };
            is_value_next = !is_value_next && word == FLAG;
            let Some(value) = value else { continue };
            let place = Flag::At { list, index, is_joined: joined.is_some() };
            found = if found == Flag::Absent { place } else { Flag::Several };
            said.extend(value.split(',').map(str::to_owned));
        }
    }
    if said.is_empty() {
        said.push("*".to_owned());
    }
    (found, said)
}

/// A field that says that pods with other arguments may be left.
fn unsettled(deployment: &Value) -> Option<(&'static str, String)> {
    let (metadata, status) = (&deployment["metadata"], &deployment["status"]);
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let (generation, observed) = (number(&metadata["generation"]), number(&status["observedGeneration"]));
    if observed < generation {
        let text = format!("is {observed}, and metadata.generation is {generation}: its last change was not seen yet");
        return Some(("status.observedGeneration", text));
    }
    let (all, updated) = (number(&status["replicas"]), number(&status["updatedReplicas"]));
    if updated < all {
        let text = format!("is {updated} of {all}: a pod with other arguments is still there");
        return Some(("status.updatedReplicas", text));
    }
    let ending = number(&status["terminatingReplicas"]);
    (ending > 0)
        .then(|| ("status.terminatingReplicas", format!("is {ending}: pods with other arguments are still ending")))
}

impl Manager {
    /// As people name it.
    pub fn object(&self) -> String {
        format!("Deployment {}/{}", self.namespace, self.name)
    }

    /// Whether a controller is on: the first word about it counts, and `*` stands for all that no word is about.
    pub fn is_on(&self, controller: Controller) -> bool {
        for word in &self.controllers {
            if controller.is(word) {
                return true;
            }
            if word.strip_prefix('-').is_some_and(|word| controller.is(word)) {
                return false;
            }
        }
        self.controllers.iter().any(|word| word == "*")
    }

    /// Whether no pod of it is there, nor will be.
    pub fn is_stopped(&self) -> bool {
        self.wanted == 0 && self.running == 0
    }

    /// The argument without these controllers.
    fn without(&self, off: &[Controller]) -> String {
        let stays = |word: &&String| !off.iter().any(|controller| controller.is(word));
        let rest = self.controllers.iter().filter(stays).cloned();
        let added = off.iter().filter(|known| {
            !self.controllers.iter().any(|word| word.strip_prefix('-').is_some_and(|word| known.is(word)))
        });
        rest.chain(added.map(|known| format!("-{}", known.name))).collect::<Vec<_>>().join(",")
    }

    /// How to switch these controllers off: a command that is a person's to run.
    fn way_off(&self, off: &[Controller]) -> String {
        let (value, at) = (self.without(off), format!("/spec/template/spec/containers/{}", self.container));
        let joined = format!("{FLAG}={value}");
        let operation = match self.flag {
            Flag::At { list, index, is_joined } => {
                let value = if is_joined { joined } else { value };
                json!({"op": "replace", "path": format!("{at}/{list}/{index}"), "value": value})
            }
            Flag::Absent if self.has_args => json!({"op": "add", "path": format!("{at}/args/-"), "value": joined}),
            Flag::Absent => json!({"op": "add", "path": format!("{at}/args"), "value": [joined]}),
            Flag::Several => {
                return format!("`kubectl -n {} edit deploy {}` to say once `{joined}`", self.namespace, self.name);
            }
        };
        format!("`kubectl -n {} patch deploy {} --type=json -p '{}'`", self.namespace, self.name, json!([operation]))
    }

    /// What is to be said of it when these controllers have to be off.
    fn told(&self, off: &[Controller]) -> Told {
        let on: Vec<Controller> = off.iter().copied().filter(|controller| self.is_on(*controller)).collect();
        let names: Vec<&str> = on.iter().map(|controller| controller.name).collect();
        let object = self.object();
        let mut told = Told::default();
        if self.is_stopped() {
            if !on.is_empty() {
                told.notes.push(format!(
                    "{object} is stopped, and would have {} on; before it is started again: {}",
                    names.join(", "),
                    self.way_off(off)
                ));
            }
            return told;
        }
        let refusal = if !on.is_empty() {
            Some(Refusal {
                object,
                field: format!("spec.template.spec.containers[{}].args", self.container),
                problem: format!("leaves {} on, which act on what is to be adopted", names.join(", ")),
                remedy: format!("switch them off, and let all else go on: {}", self.way_off(off)),
            })
        } else {
            self.unsettled.clone().map(|(field, problem)| Refusal {
                object,
                field: field.to_owned(),
                problem,
                remedy: "wait until it is rolled out, and run this again".to_owned(),
            })
        };
        told.refusals.extend(refusal);
        told
    }
}

/// The controllers that work on these kinds, each once.
pub fn controllers(taken: &[&'static Taken]) -> Vec<Controller> {
    let mut all: Vec<Controller> = Vec::new();
    for controller in taken.iter().flat_map(|taken| taken.controllers) {
        if !all.contains(controller) {
            all.push(*controller);
        }
    }
    all
}

/// What is to be said of OpenYurt's manager when these kinds are taken over. `now` is in seconds since 1970.
pub(super) fn look(managers: &[Manager], leases: &[SeenLease], taken: &[&'static Taken], now: i64) -> Told {
    let off = controllers(taken);
    let mut told = Told::default();
    for manager in managers {
        told.add(manager.told(&off));
    }
    if !managers.is_empty() {
        return told;
    }
    for held in leases.iter().filter_map(|seen| holder(seen, now)).filter(|holder| holder.is_held) {
        let names: Vec<String> = off.iter().map(|controller| format!("-{}", controller.name)).collect();
        told.refusals.push(Refusal {
            object: format!("Lease {}", held.lease),
            field: "spec.holderIdentity".to_owned(),
            problem: format!(
                "is {}: OpenYurt's manager runs, and no Deployment of it is found that says what it acts on",
                held.identity
            ),
            remedy: format!("stop it, or run it as a Deployment with {FLAG}=*,{}, and run this again", names.join(",")),
        });
    }
    told
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
