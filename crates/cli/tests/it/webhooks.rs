//! Admission webhooks of the real program, asked by a real API server, seen through kubectl.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;

use dapple_control::install::apply;
use dapple_testbed::Cluster;
use dapple_testbed::balancer::{Backend, Balancer};
use dapple_testbed::testing;
use kube::Client;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{MANAGER_USER, Manager, dapple, eventually, own_api_server, own_cluster, text};

/// A cluster and where its manager is.
pub(crate) struct Hooked {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    /// Where replicas are, if they are started.
    pub(crate) backends: Vec<Backend>,
    /// Where the API server comes.
    front: SocketAddr,
    balancer: Option<Balancer>,
}

impl Hooked {
    /// An API server with three nodes, and room for two replicas behind a balancer.
    pub(crate) async fn start() -> Self {
        Self::on(own_api_server().await).await
    }

    /// On this cluster.
    pub(crate) async fn on(cluster: (Cluster, Client)) -> Self {
        Self::with_replicas(cluster, 2).await
    }

    /// The same, with room for so many replicas.
    pub(crate) async fn with_replicas((cluster, client): (Cluster, Client), replicas: usize) -> Self {
        for (name, disk) in [("a", "large"), ("b", "large"), ("c", "small")] {
            let labels = json!({"disk-type": disk, "node-restriction.kubernetes.io/disk": disk});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
            apply(&client, &node).await.unwrap();
        }
        let kubeconfig = cluster.kubeconfig_for(MANAGER_USER, &[]).await.unwrap();
        let address = || SocketAddr::from(([127, 0, 0, 1], cluster.choose_port().unwrap()));
        let backends = (0..replicas).map(|_| Backend { address: address(), health: address() }).collect();
        let front = address();
        let mut hooked = Self { cluster, client, kubeconfig, backends, front, balancer: None };
        hooked.connect().await;
        hooked
    }

    /// The API server reaches replicas.
    pub(crate) async fn connect(&mut self) {
        self.balancer = Some(Balancer::start(self.front, self.backends.clone()).await.unwrap());
    }

    /// The API server reaches nobody any more, whoever runs; connections are cut.
    pub(crate) fn disconnect(&mut self) {
        self.balancer = None;
    }

    /// Starts the only one.
    pub(crate) fn replica(&self) -> Manager {
        self.replica_with(0, &[])
    }

    /// Starts one of several, with more flags.
    pub(crate) fn replica_with(&self, number: usize, flags: &[&str]) -> Manager {
        self.replica_at(self.backends[number], &format!("replica-{number}"), &self.kubeconfig, flags)
    }

    /// Starts one there, which reaches the API server by this kubeconfig.
    pub(crate) fn replica_at(&self, backend: Backend, log: &str, kubeconfig: &Path, flags: &[&str]) -> Manager {
        let Backend { address, health } = backend;
        let (address, health) = (address.to_string(), health.to_string());
        let url = format!("https://{}", self.front);
        let own = ["--listen", &health, "--webhook-listen", &address, "--webhook-url", &url];
        Manager::with(kubeconfig, self.cluster.log(log), &[&own[..], flags].concat())
    }

    /// Waits until webhooks are asked.
    pub(crate) async fn asked(&self) {
        let bad = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet",
            "metadata": {"name": "probe", "namespace": "default"}, "spec": {
                "selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "a"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "c:1"}]}}}});
        eventually("webhooks are asked", || async {
            let said = self.kubectl(&["create", "--dry-run=server", "-f", "-"], &bad.to_string());
            let all = text(&said.stderr);
            // The reason is ours, so somebody answers.
            if all.contains("must be Always for the pods of a DaemonSet") { Ok(()) } else { Err(all) }
        })
        .await;
    }

    pub(crate) fn kubectl(&self, args: &[&str], input: &str) -> Output {
        testing::kubectl(&self.cluster, self.cluster.admin_kubeconfig(), args, input).expect("kubectl runs")
    }
}

pub(crate) fn set(name: &str, namespace: &str, version: &str) -> Value {
    json!({"apiVersion": format!("apps.kruise.io/{version}"), "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace}, "spec": {
            "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "c:1"}]}}}})
}

/// What a kubectl command printed; it must succeed.
pub(crate) fn ok(said: &Output) -> String {
    assert!(said.status.success(), "{}", text(&said.stderr));
    text(&said.stdout)
}

/// What kubectl said as it failed.
pub(crate) fn failed(said: &Output) -> String {
    assert!(!said.status.success(), "{}", text(&said.stdout));
    text(&said.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_are_served_and_defaults_are_stated() {
    let hooked = Hooked::start().await;
    let manager = hooked.replica();
    hooked.asked().await;
    eventually("the older version is served", || async {
        let said = hooked.kubectl(&["get", "daemonsets.v1alpha1.apps.kruise.io"], "");
        if said.status.success() { Ok(()) } else { Err(text(&said.stderr)) }
    })
    .await;
    let mut old = set("old", "default", "v1alpha1");
    old["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"rollingUpdateType": "Surging"}});
    ok(&hooked.kubectl(&["create", "-f", "-"], &old.to_string()));
    let read = |version: &str, name: &str| -> Value {
        let resource = format!("daemonsets.{version}.apps.kruise.io");
        serde_json::from_str(&ok(&hooked.kubectl(&["get", &resource, name, "-o", "json"], ""))).unwrap()
    };
    let new = &read("v1beta1", "old")["spec"]["updateStrategy"]["rollingUpdate"];
    assert_eq!(
        (&new["rollingUpdateType"], &new["maxSurge"], &new["maxUnavailable"]),
        (&json!("Standard"), &json!(1), &json!(0))
    );
    assert_eq!(read("v1alpha1", "old")["spec"]["updateStrategy"]["rollingUpdate"]["rollingUpdateType"], "Surging");
    // What is wrong is refused in either version.
    old["metadata"]["name"] = "wrong".into();
    old["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    assert!(failed(&hooked.kubectl(&["create", "-f", "-"], &old.to_string())).contains("must be Always"));

    ok(&hooked.kubectl(&["create", "-f", "-"], &set("plain", "default", "v1beta1").to_string()));
    let update = read("v1beta1", "plain")["spec"]["updateStrategy"].clone();
    assert_eq!(
        update,
        json!({"type": "RollingUpdate", "rollingUpdate": {"rollingUpdateType": "Standard", "maxUnavailable": 1, "maxSurge": 0,
            "partition": 0, "paused": false}})
    );
    the_older_version_has_the_same_schema(&hooked);
    drop(manager);
    hooked.cluster.stop().await.unwrap();
}

/// Its templates are merged by server-side apply, and in namespaces whose DaemonSets we are not asked about its schema holds.
fn the_older_version_has_the_same_schema(hooked: &Hooked) {
    ok(&hooked.kubectl(&["create", "-f", "-"], &set("apart", "kube-system", "v1alpha1").to_string()));
    let resource = "daemonsets.v1alpha1.apps.kruise.io";
    let change = r#"{"spec": {"selector": {"matchLabels": {"another": "one"}}}}"#;
    let said = hooked.kubectl(&["patch", resource, "apart", "-n", "kube-system", "--type=merge", "-p", change], "");
    assert!(failed(&said).contains("selector cannot be changed"), "{}", text(&said.stderr));
    let beside = json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "DaemonSet", "metadata": {"name": "apart", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"containers": [{"name": "beside", "image": "beside:1"}]}}},
    });
    let apply = ["apply", "--server-side", "--field-manager=somebody-else", "--validate=false", "-f", "-"];
    ok(&hooked.kubectl(&apply, &beside.to_string()));
    let names =
        ["get", resource, "apart", "-n", "kube-system", "-o", "jsonpath={.spec.template.spec.containers[*].name}"];
    assert_eq!(ok(&hooked.kubectl(&names, "")).split(' ').count(), 2, "a list without keys would have been replaced");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_has_one_replacement() {
    let hooked = Hooked::start().await;
    let manager = hooked.replica();
    hooked.asked().await;
    let replacement = |name: &str, subject: &str| {
        let mut object = of_every_kind(name)[7].1.clone();
        object["subject"]["name"] = subject.into();
        object.to_string()
    };
    ok(&hooked.kubectl(&["create", "-f", "-"], &replacement("first", "shop")));
    ok(&hooked.kubectl(&["create", "-f", "-"], &replacement("b-second", "bank")));
    // Its name comes first, and its time may be the same: it is the second all the same.
    eventually("the webhook knows the first", || async {
        let said = hooked.kubectl(&["create", "--dry-run=server", "-f", "-"], &replacement("a", "shop"));
        let reason = "subject: YurtAppSet shop is changed by first already";
        if !said.status.success() && text(&said.stderr).contains(reason) { Ok(()) } else { Err(text(&said.stderr)) }
    })
    .await;
    failed(&hooked.kubectl(&["create", "-f", "-"], &replacement("a", "shop")));
    // Nor can one that is older go where another is.
    let retarget = |name: &str, subject: &str| {
        let patch = json!({"subject": {"name": subject}}).to_string();
        hooked.kubectl(&["patch", "yurtappconfigurationreplacement", name, "--type=merge", "-p", &patch], "")
    };
    let said = failed(&retarget("first", "bank"));
    assert!(said.contains("subject: YurtAppSet bank is changed by b-second already"), "{said}");
    ok(&retarget("first", "garden"));
    drop(manager);
    hooked.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn registrations_are_mended_and_nobody_waits_for_one_that_is_down() {
    let hooked = Hooked::on(own_cluster().await).await;
    // Before there is a manager, nothing stands in the way.
    let mut early = set("early", "default", "v1beta1");
    early["spec"]["template"]["spec"]["containers"][0]["envv"] = json!([]);
    ok(&hooked.kubectl(&["create", "-f", "-"], &early.to_string()));
    let mut manager = hooked.replica();
    hooked.asked().await;
    let path = |kind: &str, name: &str| format!("/apis/admissionregistration.k8s.io/v1/{kind}/{name}");
    let first = path("validatingwebhookconfigurations", "daemonset-patches-validator");
    let webhook = || async {
        let found: Value = hooked.client.request(http::Request::get(&first).body(Vec::new()).unwrap()).await.ok()?;
        Some(found["webhooks"][0].clone())
    };
    let right = webhook().await.unwrap();
    let name = "validatingwebhookconfiguration/daemonset-patches-validator";
    for spoiled in [
        r#"[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]"#,
        r#"[{"op": "add", "path": "/webhooks/0/objectSelector", "value": {"matchLabels": {"nobody": "has-it"}}}]"#,
        r#"[{"op": "add", "path": "/webhooks/0/namespaceSelector/matchLabels", "value": {"nobody": "has-it"}}]"#,
    ] {
        ok(&hooked.kubectl(&["patch", name, "--type=json", "-p", spoiled], ""));
        eventually("what somebody changed is put back", || async {
            let now = webhook().await;
            if now.as_ref() == Some(&right) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }
    // What was wrong before keeps nobody from stopping a rollout, but a new template has to be right.
    let change = |patch: &str| hooked.kubectl(&["patch", "ads/early", "--type=merge", "-p", patch], "");
    ok(&change(r#"{"spec": {"updateStrategy": {"rollingUpdate": {"paused": true}}}}"#));
    let said = failed(&change(r#"{"spec": {"template": {"spec": {"hostNetwork": true}}}}"#));
    assert!(said.contains("spec.template.spec.containers[0].envv"), "{said}");
    ok(&hooked.kubectl(&["delete", "secret/dapple-webhook-certificates", "-n", "dapple-system"], ""));
    eventually("the certificates come back as they were", || async {
        let path = "{.data.ca\\.crt}";
        let secret = ["get", "secret/dapple-webhook-certificates", "-n", "dapple-system", "-o"];
        let said = hooked.kubectl(&[&secret[..], &[&format!("jsonpath={path}")]].concat(), "");
        if text(&said.stdout) == right["clientConfig"]["caBundle"].as_str().unwrap() {
            Ok(())
        } else {
            Err(text(&said.stderr))
        }
    })
    .await;
    ok(&hooked.kubectl(&["delete", "mutatingwebhookconfiguration/dapple-defaults"], ""));
    eventually("the manager says what is missing, and may not make it", || async {
        let said = manager.log_text();
        let missing =
            "no MutatingWebhookConfiguration dapple-defaults, and the manager may not make it: `dapple up --cluster`";
        if said.contains(missing) { Ok(()) } else { Err(said) }
    })
    .await;
    let admin = hooked.cluster.admin_kubeconfig().to_str().unwrap();
    ok(&dapple(&["up", "--cluster", "--yes", "--kubeconfig", admin]));
    eventually("what somebody deleted comes back, and what is in it", || async {
        let said =
            hooked.kubectl(&["get", "mutatingwebhookconfiguration/dapple-defaults", "-o", "jsonpath={.webhooks}"], "");
        if said.status.success() && text(&said.stdout).contains("caBundle") { Ok(()) } else { Err(text(&said.stderr)) }
    })
    .await;
    assert_eq!(webhook().await.as_ref(), Some(&right), "installing again leaves the others as they are");

    a_pool_with_nodes_is_kept(&hooked).await;
    let out = ["down", "--cluster", "--yes", "--kubeconfig", hooked.cluster.admin_kubeconfig().to_str().unwrap()];
    let said = dapple(&out);
    assert_eq!(said.status.code(), Some(2), "{}", text(&said.stdout));
    assert!(text(&said.stderr).contains("stop all managers first"), "{}", text(&said.stderr));
    manager.signal(Signal::TERM);
    assert!(manager.wait().success(), "{}", manager.log_text());
    nobody_answers(&hooked);

    nobody_is_asked_any_more(&hooked, &out);
    hooked.cluster.stop().await.unwrap();
}

/// After `dapple down --cluster`.
fn nobody_is_asked_any_more(hooked: &Hooked, down: &[&str]) {
    let said = ok(&dapple(down));
    for part in
        ["removed ValidatingWebhookConfiguration dapple-validator", "the conversion of daemonsets.apps.kruise.io"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    ok(&hooked.kubectl(&["create", "-f", "-"], &set("free", "default", "v1beta1").to_string()));
    for (_, object) in of_every_kind("free") {
        ok(&hooked.kubectl(&["create", "-f", "-"], &object.to_string()));
    }
    let said = failed(&hooked.kubectl(&["get", "daemonsets.v1alpha1.apps.kruise.io"], ""));
    let is_unknown =
        ["doesn't have a resource type", "could not find the requested resource"].map(|it| said.contains(it));
    assert!(is_unknown.contains(&true), "nobody converts it: {said}");
    let said = ok(&dapple(down));
    assert!(!said.contains("removed Validating"), "there is nothing left: {said}");
}

/// Has a pool `kept` with a node in it, and waits until webhooks keep it.
pub(crate) async fn a_pool_with_nodes_is_kept(hooked: &Hooked) {
    ok(&hooked.kubectl(&["create", "-f", "-"], &of_every_kind("kept")[3].1.to_string()));
    let home = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "home",
        "labels": {"apps.openyurt.io/nodepool": "kept"}}});
    apply(&hooked.client, &home).await.unwrap();
    eventually("a pool with nodes is kept", || async {
        let said = hooked.kubectl(&["delete", "nodepool/kept", "--dry-run=server"], "");
        if said.status.success() { Err(text(&said.stdout)) } else { Ok(()) }
    })
    .await;
}

/// An object of every kind but DaemonSet that a webhook is asked about, with the webhook.
fn of_every_kind(name: &str) -> [(&'static str, Value); 8] {
    let object = |version: &str, kind: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let (kruise, edge, yurt) =
        ("apps.kruise.io/v1alpha1", "groupmanagement.kubeedge.io/v1alpha1", "apps.openyurt.io/v1alpha1");
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {
        "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}}});
    let workload =
        json!({"selector": {"matchLabels": {"app": name}}, "workloadTemplate": {"deploymentTemplate": template}});
    let range = json!({"nodeGroupNames": ["g"], "min": 1, "max": 3});
    let tag = json!({"component": "Tag", "operator": "replace", "value": "9"});
    [
        ("podmarkers.dapple.dev", object(kruise, "PodMarker", json!({"markItems": {"labels": {"a": "b"}}}))),
        ("nodegroups.dapple.dev", object(edge, "NodeGroup", json!({"matchLabels": {"disk": "large"}}))),
        (
            "overridepolicies.dapple.dev",
            object(edge, "OverridePolicy", json!({"overrideRules": [{"imageOverrider": [tag]}]})),
        ),
        ("nodepools.dapple.dev", object("apps.openyurt.io/v1beta1", "NodePool", json!({"type": "Edge"}))),
        ("propagationpolicies.dapple.dev", object(edge, "PropagationPolicy", json!({"numRange": [range]}))),
        ("yurtappsets.dapple.dev", object(yurt, "YurtAppSet", workload.clone())),
        ("yurtappdaemons.dapple.dev", object(yurt, "YurtAppDaemon", workload)),
        (
            "replacements.dapple.dev",
            json!({"apiVersion": yurt, "kind": "YurtAppConfigurationReplacement", "metadata": {"name": name},
                "subject": {"apiVersion": yurt, "kind": "YurtAppSet", "name": name},
                "replacements": [{"pools": ["kept"], "items": [{"replicas": 2}]}]}),
        ),
    ]
}

/// Documented in docs/admission.md: what is refused, and what is not, while nobody answers.
fn nobody_answers(hooked: &Hooked) {
    let refused = |webhook: &str, object: &Value| {
        let said = failed(&hooked.kubectl(&["create", "-f", "-"], &object.to_string()));
        assert!(said.contains(&format!("failed calling webhook \"{webhook}\"")), "{said}");
    };
    refused("daemonset-patches.kruise.io", &set("late", "default", "v1beta1"));
    for (webhook, object) in of_every_kind("late") {
        refused(webhook, &object);
    }
    let said = failed(&hooked.kubectl(&["create", "-f", "-"], &set("late", "kube-system", "v1alpha1").to_string()));
    assert!(said.contains("conversion webhook"), "{said}");
    for works in [
        &["label", "daemonsets.v1beta1.apps.kruise.io/early", "a=b"][..],
        &["label", "nodepools.v1beta1.apps.openyurt.io/kept", "a=b"],
        &[
            "patch",
            "daemonsets.v1beta1.apps.kruise.io/early",
            "--subresource=status",
            "--type=merge",
            "-p",
            "{\"status\":{\"numberReady\":1}}",
        ],
        &["get", "daemonsets.v1beta1.apps.kruise.io"],
        &["delete", "daemonsets.v1beta1.apps.kruise.io/early"],
        &["delete", "nodepool/kept"],
    ] {
        ok(&hooked.kubectl(works, ""));
    }
    // What may have to be there before dapple is.
    ok(&hooked.kubectl(&["create", "-f", "-"], &set("network", "kube-system", "v1beta1").to_string()));
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": "default"}});
    ok(&hooked.kubectl(&["create", "-f", "-"], &other.to_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_registered_that_nobody_reaches() {
    let hooked = Hooked::on(own_cluster().await).await;
    let Backend { address, health } = hooked.backends[0];
    // Also in another namespace: with what is installed for it, and nothing else.
    let place = ["--namespace", "fleet", "--yes", "--kubeconfig", hooked.cluster.admin_kubeconfig().to_str().unwrap()];
    let installed = dapple(&[&["up", "--cluster"], &place[..]].concat());
    assert!(ok(&installed).contains("dapple manager --namespace fleet"), "{}", text(&installed.stdout));
    let kubeconfig = hooked.cluster.kubeconfig_for("system:serviceaccount:fleet:dapple-manager", &[]).await.unwrap();
    let own = ["--listen", &health.to_string(), "--webhook-listen", &address.to_string(), "--namespace", "fleet"];
    let mut manager = Manager::with(&kubeconfig, hooked.cluster.log("replica"), &own);
    eventually("it says why nothing is registered", || async {
        let said = manager.log_text();
        if said.contains("Service fleet/dapple-webhook leads to no manager") { Ok(()) } else { Err(said) }
    })
    .await;
    let validator = ["get", "validatingwebhookconfiguration/dapple-validator", "-o", "jsonpath={.webhooks}"];
    let registered = || hooked.kubectl(&validator, "");
    assert_eq!(ok(&registered()), "", "there is one since the installation, and it asks nobody");
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "webhook", "namespace": "fleet", "labels": {"kubernetes.io/service-name": "dapple-webhook"}},
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}], "ports": [{"port": 9443}]});
    apply(&hooked.client, &slice).await.unwrap();
    eventually("it is registered", || async {
        let said = registered();
        if text(&said.stdout).contains("caBundle") { Ok(()) } else { Err(manager.log_text()) }
    })
    .await;
    assert!(!manager.log_text().contains("forbidden"), "{}", manager.log_text());
    let said = dapple(&[&["down", "--cluster"], &place[..]].concat());
    assert!(text(&said.stderr).contains("by the lease fleet/dapple-manager"), "{}", text(&said.stderr));
    manager.signal(Signal::TERM);
    assert!(manager.wait().success(), "{}", manager.log_text());
    ok(&dapple(&[&["down", "--cluster"], &place[..]].concat()));
    failed(&registered());
    hooked.cluster.stop().await.unwrap();
}
