//! What is served: a table of built-in kinds, and our CRDs.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::schema::Schema;

/// A kind in one version.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) plural: String,
    /// Plural and group, as messages have it: `deployments.apps`.
    pub(super) qualified: String,
    /// Group and version, as objects have it.
    pub(super) api_version: String,
    pub(super) is_namespaced: bool,
    /// Whether there is a status subresource.
    pub(super) has_status: bool,
    pub(super) generation: Generation,
    /// Whether a PUT may do without a version.
    pub(super) unconditional: bool,
    /// Whether a PUT may create.
    pub(super) creates_on_update: bool,
    /// Whether a deletion answers with the object.
    pub(super) returns_deleted: bool,
    /// Of custom resources.
    pub(super) schema: Option<Schema>,
    /// Which of the stores holds its objects. Both APIs of events have one store.
    pub(super) store: usize,
}

/// What `metadata.generation` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Generation {
    /// There is none.
    None,
    /// Changes of one field.
    Of(&'static str),
    /// Changes of everything but metadata and status.
    Custom,
}

/// Rules in which built-in kinds differ.
const STATUS: u8 = 1;
const CLUSTER: u8 = 2;
const CREATES: u8 = 4;
const CONDITIONAL: u8 = 8;
const RETURNS: u8 = 16;

/// Group, version, kind, plural, what the generation counts, rules.
const BUILT_IN: [(&str, &str, &str, &str, Generation, u8); 21] = [
    ("", "v1", "Namespace", "namespaces", Generation::None, STATUS | CLUSTER | RETURNS),
    ("", "v1", "Node", "nodes", Generation::None, STATUS | CLUSTER),
    ("", "v1", "Pod", "pods", Generation::Of("spec"), STATUS | RETURNS),
    ("", "v1", "Event", "events", Generation::None, CREATES),
    ("events.k8s.io", "v1", "Event", "events", Generation::None, CREATES),
    ("", "v1", "ConfigMap", "configmaps", Generation::None, 0),
    ("", "v1", "Secret", "secrets", Generation::None, 0),
    ("", "v1", "Service", "services", Generation::None, STATUS | CREATES | RETURNS),
    ("", "v1", "ServiceAccount", "serviceaccounts", Generation::None, RETURNS),
    ("", "v1", "PodTemplate", "podtemplates", Generation::Of("template"), RETURNS),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", Generation::None, 0),
    ("apps", "v1", "DaemonSet", "daemonsets", Generation::Of("spec"), STATUS),
    ("apps", "v1", "Deployment", "deployments", Generation::Of("spec"), STATUS),
    ("apps", "v1", "ReplicaSet", "replicasets", Generation::Of("spec"), STATUS),
    ("apps", "v1", "StatefulSet", "statefulsets", Generation::Of("spec"), STATUS),
    ("", "v1", "ReplicationController", "replicationcontrollers", Generation::Of("spec"), STATUS),
    ("batch", "v1", "Job", "jobs", Generation::Of("spec"), STATUS),
    ("batch", "v1", "CronJob", "cronjobs", Generation::Of("spec"), STATUS),
    ("coordination.k8s.io", "v1", "Lease", "leases", Generation::None, CREATES | CONDITIONAL),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", Generation::Of("spec"), STATUS | CONDITIONAL),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", Generation::None, STATUS),
];

/// Everything that is the same for every server of the process.
pub(super) struct Catalogue {
    pub(super) kinds: Vec<Kind>,
    /// How many stores there are.
    pub(super) stores: usize,
    /// The CRDs as they are served, without their schemas: nobody here reads those, and they are a megabyte.
    pub(super) crds: Vec<Arc<Value>>,
}

/// Made once: generating and reading the CRDs takes far longer than a whole small world.
pub(super) static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::make);

impl Catalogue {
    fn make() -> Self {
        let mut catalogue = Self { kinds: Vec::new(), stores: 0, crds: Vec::new() };
        for (group, version, kind, plural, generation, rules) in BUILT_IN {
            let mut made = Kind::new([group, version, kind, plural], catalogue.stores);
            made.is_namespaced = rules & CLUSTER == 0;
            made.has_status = rules & STATUS != 0;
            made.generation = generation;
            made.unconditional = rules & CONDITIONAL == 0;
            made.creates_on_update = rules & CREATES != 0;
            made.returns_deleted = rules & RETURNS != 0;
            catalogue.add(made);
        }
        let names = ["apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"];
        let mut crds = Kind::new(names, catalogue.stores);
        (crds.has_status, crds.generation) = (true, Generation::Of("spec"));
        catalogue.add(crds);
        for (index, crd) in dapple_api::crd::crds().into_iter().enumerate() {
            catalogue.define(crd, index + 1);
        }
        catalogue
    }

    fn add(&mut self, mut kind: Kind) {
        if kind.group == "events.k8s.io" {
            kind.store = self.kinds.iter().find(|known| known.plural == "events").map_or(kind.store, |core| core.store);
        } else {
            self.stores += 1;
        }
        self.kinds.push(kind);
    }

    /// Serves what a CRD defines.
    fn define(&mut self, mut crd: Value, version: usize) {
        let names = crd["spec"]["names"].clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let group = text(&crd["spec"]["group"]);
        let is_namespaced = crd["spec"]["scope"] == "Namespaced";
        let store = self.stores;
        self.stores += 1;
        for of in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
            let schema = of["schema"]["openAPIV3Schema"].take();
            if let Some(fields) = of.as_object_mut() {
                fields.remove("schema");
            }
            if of["served"] != true {
                continue;
            }
            let (kind, plural) = (text(&names["kind"]), text(&names["plural"]));
            let mut made = Kind::new([&group, &text(&of["name"]), &kind, &plural], store);
            made.is_namespaced = is_namespaced;
            made.has_status = of["subresources"].get("status").is_some();
            made.generation = Generation::Custom;
            made.schema = Some(Schema::read(&schema));
            self.kinds.push(made);
        }
        let uid = format!("00000000-0000-4000-8000-{version:012}");
        crd["metadata"]["uid"] = json!(uid);
        crd["metadata"]["resourceVersion"] = json!(version.to_string());
        crd["metadata"]["generation"] = json!(1);
        crd["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        let stored = crd["spec"]["versions"].as_array().into_iter().flatten().find(|of| of["storage"] == true);
        let stored = stored.map(|of| of["name"].clone());
        let condition = |of: &str| json!({"type": of, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        crd["status"] = json!({
            "acceptedNames": names, "storedVersions": [stored],
            "conditions": [condition("NamesAccepted"), condition("Established")],
        });
        self.crds.push(Arc::new(crd));
    }

    /// The kind at a place in the API.
    pub(super) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.plural == plural && kind.group == group && kind.version == version)
    }

    /// The kind of this name, such as `deployments.apps`.
    pub(super) fn named(&self, qualified: &str) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.qualified == qualified)
    }

    /// The kind that an owner reference means.
    pub(super) fn of_object(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        self.kinds.iter().find(|known| known.kind == kind && known.api_version == api_version)
    }

    /// The first kind that a store is for.
    pub(super) fn of_store(&self, store: usize) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.store == store)
    }
}

impl Kind {
    fn new([group, version, kind, plural]: [&str; 4], store: usize) -> Self {
        let qualified = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            qualified,
            api_version,
            is_namespaced: false,
            has_status: false,
            generation: Generation::None,
            unconditional: false,
            creates_on_update: false,
            returns_deleted: false,
            schema: None,
            store,
        }
    }

    pub(super) fn is_custom(&self) -> bool {
        self.schema.is_some()
    }

    pub(super) fn is_pod(&self) -> bool {
        self.group.is_empty() && self.plural == "pods"
    }

    pub(super) fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.plural == "namespaces"
    }

    /// The key of an object, in the order of the real store.
    pub(super) fn key(&self, namespace: &str, name: &str) -> String {
        if self.is_namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}
