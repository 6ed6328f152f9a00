//! The other product: what of it runs, and what belongs to it.

use std::collections::BTreeSet;

use dapple_api::daemonset::GROUP;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;

use super::crd::Facts;
use super::{RESOURCE, Refusal, name_of, texts};

/// The name of the lease by which OpenKruise's controllers elect their leader, in whatever namespace.
pub const LEASE: &str = "kruise-manager";
/// The label of its Deployment.
pub const SELECTOR: &str = "control-plane=controller-manager";
/// How names of its objects begin.
const PREFIX: &str = "kruise-";
/// Where it keeps the list of webhooks that it registers anew when it starts.
const TEMPLATE: &str = "template";
/// How long a lease lasts that does not say so: the default of client-go.
const USUAL_DURATION: i64 = 15;

/// A Deployment of the other product's controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `spec.replicas`.
    pub wanted: i64,
    /// `status.replicas`: pods that are still there.
    pub running: i64,
}

/// The Deployment, if it runs OpenKruise. Its label is one that many products use, so name or program must say it too.
pub fn workload(deployment: &Value) -> Option<Workload> {
    let text = |field: &str| deployment["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let labels = &deployment["metadata"]["labels"];
    let (key, value) = SELECTOR.split_once('=')?;
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let words = containers.into_iter().flatten().flat_map(|container| {
        let lists = [&container["command"], &container["args"]];
        let listed = lists.into_iter().flat_map(super::texts);
        listed.chain(container["image"].as_str())
    });
    let is_it = labels[key] == value
        && (name.starts_with("kruise-controller-manager") || { words }.any(|word| word.contains("kruise-manager")));
    let count = |value: &Value, usual: i64| value.as_i64().unwrap_or(usual);
    is_it.then(|| Workload {
        namespace,
        name,
        wanted: count(&deployment["spec"]["replicas"], 1),
        running: count(&deployment["status"]["replicas"], 0),
    })
}

impl Workload {
    /// The command that stops it. It is a person's to run.
    pub fn stop_command(&self) -> String {
        format!("kubectl -n {} scale deploy {} --replicas=0", self.namespace, self.name)
    }

    pub(super) fn refusal(&self) -> Option<Refusal> {
        let object = format!("Deployment {}/{}", self.namespace, self.name);
        if self.wanted > 0 {
            let remedy = format!("stop it: `{}` (that stops its other kinds as well)", self.stop_command());
            let problem = format!("is {}: the other controller still runs", self.wanted);
            return Some(Refusal { object, field: "spec.replicas".to_owned(), problem, remedy });
        }
        (self.running > 0).then(|| Refusal {
            object,
            field: "status.replicas".to_owned(),
            problem: format!("is {}: pods of the other controller are still ending", self.running),
            remedy: "wait until they are gone, and run this again".to_owned(),
        })
    }
}

/// A lease, and whether it was renewed while somebody watched.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeenLease {
    /// The lease.
    pub lease: Lease,
    /// Two looks a while apart differed. That does not depend on anybody's clock.
    pub was_renewed: bool,
}

/// Who leads by a lease, or did last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Namespace and name of the lease.
    pub lease: String,
    /// Who holds it.
    pub identity: String,
    /// Seconds since it was renewed, by our clock.
    pub age: i64,
    /// Seconds that it lasts.
    pub duration: i64,
    /// Whether it is still held.
    pub is_held: bool,
}

/// Who holds this lease; nobody if it was given back. `now` is in seconds since 1970.
pub fn holder(seen: &SeenLease, now: i64) -> Option<Holder> {
    let spec = seen.lease.spec.as_ref()?;
    let identity = spec.holder_identity.clone().filter(|name| !name.is_empty())?;
    let duration = spec.lease_duration_seconds.map_or(USUAL_DURATION, i64::from);
    // One that was never renewed is as old as time.
    let age = spec.renew_time.as_ref().map_or(i64::MAX, |time| now.saturating_sub(time.0.as_second()));
    let metadata = serde_json::json!({"metadata": seen.lease.metadata});
    Some(Holder { lease: name_of(&metadata), identity, age, duration, is_held: seen.was_renewed || age <= duration })
}

impl Holder {
    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.is_held.then(|| Refusal {
            object: format!("Lease {}", self.lease),
            field: "spec.renewTime".to_owned(),
            problem: format!("is {} s ago, by {}: the other controller still runs", self.age.max(0), self.identity),
            remedy: format!(
                "stop it; if it was stopped just now, the lease ends in {} s: run this again then",
                self.duration.saturating_sub(self.age).clamp(1, self.duration.max(1))
            ),
        })
    }
}

/// What belongs to another product, and what is taken out of its webhooks.
#[derive(Debug, Clone)]
pub struct Product {
    /// How names of its objects begin.
    pub(super) prefix: &'static str,
    /// Namespaces in which whatever answers webhooks is its own.
    pub(super) namespaces: BTreeSet<String>,
    /// The API group of the kinds that are taken over.
    pub(super) group: &'static str,
    /// These kinds, as rules of webhooks name them.
    pub(super) resources: Vec<&'static str>,
    /// The same for people.
    pub(super) objects: String,
    /// Webhooks that go, whatever their rules are.
    pub(super) whole: &'static [&'static str],
    /// Annotations of its configurations that have the list of webhooks that it registers anew when it starts.
    pub(super) templates: &'static [&'static str],
    /// What is worth knowing of one of its webhooks: by its configuration, its name, and itself.
    pub(super) note: fn(&str, &str, &Value) -> Option<String>,
}

/// OpenKruise, of which nothing is found.
impl Default for Product {
    fn default() -> Self {
        Self::new(&[], &[], &Facts::default())
    }
}

impl Product {
    /// OpenKruise, of which these are parts.
    pub fn new(workloads: &[Workload], holders: &[Holder], crd: &Facts) -> Self {
        let leases = holders.iter().filter_map(|holder| holder.lease.split_once('/')).map(|(namespace, _)| namespace);
        let namespaces = workloads.iter().map(|workload| workload.namespace.as_str());
        let conversion = crd.conversion_service.as_ref().map(|(namespace, _)| namespace.as_str());
        Self {
            prefix: PREFIX,
            namespaces: namespaces.chain(leases).chain(conversion).map(str::to_owned).collect(),
            group: GROUP,
            resources: vec![RESOURCE],
            objects: "DaemonSets".to_owned(),
            whole: &[],
            templates: &[TEMPLATE],
            note: note_on_pods,
        }
    }

    /// Whether an entry of a webhook configuration is the product's, by its name or by who answers it.
    pub fn has(&self, configuration: &Value, entry: &Value) -> bool {
        let begins = |name: &Value| name.as_str().is_some_and(|name| name.starts_with(self.prefix));
        let service = &entry["clientConfig"]["service"];
        let namespace = service["namespace"].as_str().unwrap_or_default();
        begins(&configuration["metadata"]["name"]) || begins(&service["name"]) || self.namespaces.contains(namespace)
    }
}

/// Pods are everybody's: such a webhook stays, but one that must answer and has nobody behind it stops their changes.
fn note_on_pods(object: &str, hook: &str, entry: &Value) -> Option<String> {
    let is_pod = |rule: &&Value| {
        texts(&rule["apiGroups"]).any(|group| group.is_empty() || group == "*")
            && texts(&rule["resources"]).any(|resource| resource.split('/').next() == Some("pods"))
    };
    let rules: Vec<&Value> = entry["rules"].as_array().into_iter().flatten().filter(is_pod).collect();
    if rules.is_empty() {
        return None;
    }
    let mut operations: Vec<String> =
        rules.iter().flat_map(|rule| texts(&rule["operations"])).map(str::to_lowercase).collect();
    operations.dedup();
    let kept = format!("{object}: {hook} concerns pods and is left alone");
    // Fail is what the API server does unless told otherwise.
    if entry["failurePolicy"] == "Ignore" {
        return Some(kept);
    }
    Some(format!(
        "{kept}; its failurePolicy is Fail: while OpenKruise is stopped, the API server refuses to {} pods that it \
         selects. Set it to Ignore, or remove the webhook",
        operations.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(name: &str, image: &str, replicas: Value) -> Value {
        json!({"metadata": {"namespace": "kruise-system", "name": name, "labels": {"control-plane": "controller-manager"}},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"image": image, "args": ["--v=4"]}]}}}})
    }

    #[test]
    fn only_openkruise_is_openkruise() {
        let is_it = |deployment: &Value| workload(deployment).is_some();
        assert!(is_it(&deployment("manager", "openkruise/kruise-manager:v1.8.0", json!(1))));
        assert!(is_it(&deployment("kruise-controller-manager", "mirror/image@sha256:0", json!(1))));
        assert!(!is_it(&deployment("manager", "another/manager:1", json!(1))), "the label is everybody's");
        let mut unlabelled = deployment("kruise-controller-manager", "x", json!(1));
        unlabelled["metadata"]["labels"] = Value::Null;
        assert!(!is_it(&unlabelled));
        let mut by_args = deployment("manager", "x", json!(1));
        by_args["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["/kruise-manager"]);
        assert!(is_it(&by_args));
    }

    #[test]
    fn one_that_runs_is_refused_and_the_command_is_told() {
        let refusal = |replicas: Value, running: i64| {
            let mut deployment = deployment("kruise-controller-manager", "x", replicas);
            deployment["status"] = json!({"replicas": running});
            workload(&deployment)?.refusal()
        };
        let told = refusal(json!(2), 2).unwrap();
        assert!(told.remedy.contains("`kubectl -n kruise-system scale deploy kruise-controller-manager --replicas=0`"));
        assert_eq!(
            (told.field.as_str(), refusal(Value::Null, 0).is_some()),
            ("spec.replicas", true),
            "one is the default"
        );
        assert_eq!(refusal(json!(0), 1).unwrap().field, "status.replicas");
        assert_eq!(refusal(json!(0), 0), None);
    }

    #[test]
    fn a_lease_holds_while_it_is_renewed_whatever_the_clocks_say() {
        let seen = |spec: Value, was_renewed: bool| SeenLease {
            lease: serde_json::from_value(
                json!({"metadata": {"namespace": "kruise-system", "name": LEASE}, "spec": spec}),
            )
            .unwrap(),
            was_renewed,
        };
        let spec =
            json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"});
        let renewed = 1_767_225_600;
        let is_held =
            |spec: &Value, was: bool, now: i64| holder(&seen(spec.clone(), was), now).is_some_and(|is| is.is_held);
        assert!(is_held(&spec, false, renewed + 15));
        assert!(!is_held(&spec, false, renewed + 16));
        assert!(is_held(&spec, true, renewed + 1000), "our clock is ahead, but it was seen to change");
        assert!(is_held(&spec, false, renewed - 100), "our clock is behind: wait rather than disturb");
        let told = holder(&seen(spec.clone(), false), renewed + 3).unwrap().refusal().unwrap().to_string();
        assert!(told.starts_with("Lease kruise-system/kruise-manager: spec.renewTime is 3 s ago, by a"), "{told}");
        assert!(told.contains("the lease ends in 12 s"), "{told}");
        assert!(!is_held(&json!({"holderIdentity": "", "renewTime": spec["renewTime"]}), true, renewed), "given back");
        assert!(!is_held(&json!({"holderIdentity": "a"}), false, renewed), "never renewed");
    }

    #[test]
    fn what_answers_in_its_namespace_is_the_products() {
        let workloads: Vec<Workload> =
            workload(&deployment("kruise-controller-manager", "x", json!(0))).into_iter().collect();
        let product = Product::new(&workloads, &[], &Facts::default());
        let entry = |namespace: &str| json!({"clientConfig": {"service": {"namespace": namespace, "name": "hooks"}}});
        let other = json!({"metadata": {"name": "hooks"}});
        assert!(product.has(&other, &entry("kruise-system")));
        assert!(!product.has(&other, &entry("elsewhere")));
        assert!(!product.has(&other, &json!({"clientConfig": {"url": "https://hooks"}})));
        let converting = Facts { conversion_service: Some(("elsewhere".into(), "x".into())), ..Facts::default() };
        assert!(Product::new(&[], &[], &converting).has(&other, &entry("elsewhere")));
    }
}
