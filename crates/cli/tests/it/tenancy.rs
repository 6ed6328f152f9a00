//! `dapple tenancy`, with real users by client certificates and the cluster's real controllers.

use std::collections::BTreeMap;
use std::path::Path;

use dapple_control::install::{apply, install_crds};
use dapple_testbed::{Cluster, ClusterSpec, Fleet, testing};
use kube::Client;
use serde_json::{Value, json};

use crate::fake::Fake;
use crate::support::{dapple, eventually, text};
use crate::users::{User, bind, policies_are_sound, refused, role};

const REFUSAL: &str = "denied request: only system tenant is allowed to have DaemonSet: ";
const BOTH_GROUPS: [&str; 2] = ["apps/v1", "apps.kruise.io/v1beta1"];
/// How many nodes there are.
const NODES: usize = 2;

/// A cluster of one's own: `infra` is the system tenant's, `acme` and `legacy` are those of tenants.
struct Stage {
    cluster: Cluster,
    admin: Client,
    /// Where the API server keeps its audit log.
    audit: tempfile::TempDir,
    /// Cluster admin, by RBAC.
    alice: User,
    /// Has every right in `infra` and in `acme`, and none elsewhere.
    nina: User,
    /// Deploys what is in a repository to `infra` and `acme`, and is bound to dapple's ClusterRole.
    flux: User,
}

fn sets(api_version: &str, namespace: &str) -> String {
    format!("/apis/{api_version}/namespaces/{namespace}/daemonsets")
}

fn set(api_version: &str, name: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": "DaemonSet", "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "containers": [{"name": "c", "image": "agent:1"}], "tolerations": [{"operator": "Exists"}]}},
        },
    })
}

fn new_image() -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "agent:2"}]}}}})
}

fn new_label() -> Value {
    json!({"metadata": {"labels": {"seen": "yes"}}})
}

impl Stage {
    async fn start() -> Self {
        let audit = tempfile::tempdir().unwrap();
        let (policy, log) = (audit.path().join("policy.yaml"), audit.path().join("audit.log"));
        let rule = json!({"level": "Metadata", "omitStages": ["RequestReceived"], "resources": [{"group": "apps", "resources": ["daemonsets"]}]});
        let rules = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [rule]});
        std::fs::write(&policy, rules.to_string()).unwrap();
        let mut spec = ClusterSpec::temporary();
        spec.api_args =
            vec![format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
        let cluster = testing::start(spec).await.expect("the cluster starts");
        let admin = cluster.client().await.unwrap();
        install_crds(&admin).await.unwrap();
        cluster.apply_fleet(&Fleet::example().unwrap().scaled_to(NODES)).await.unwrap();
        for (name, tenant) in [("infra", None), ("acme", Some("acme")), ("legacy", Some("acme"))] {
            let labels = tenant.map_or(json!({}), |tenant| json!({"dapple.dev/tenant": tenant}));
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
            apply(&admin, &namespace).await.unwrap();
        }
        bind(&admin, "alice", "cluster-admin", None).await;
        let rules = json!([{"apiGroups": ["apps", "apps.kruise.io"], "resources": ["daemonsets"], "verbs": ["*"]}]);
        role(&admin, "daemonset-writer", rules).await;
        for namespace in ["infra", "acme"] {
            bind(&admin, "nina", "cluster-admin", Some(namespace)).await;
            bind(&admin, "flux", "daemonset-writer", Some(namespace)).await;
        }
        bind(&admin, "flux", "dapple-system-daemonsets", None).await;
        let user = |name| User::new(&cluster, name);
        let (alice, nina, flux) = (user("alice").await, user("nina").await, user("flux").await);
        Self { cluster, admin, audit, alice, nina, flux }
    }

    /// Runs `dapple tenancy`, and returns what it printed.
    fn tenancy(&self, words: &[&str], code: i32, parts: &[&str]) -> String {
        let kubeconfig = self.cluster.admin_kubeconfig().to_str().unwrap();
        let output = dapple(&[&["tenancy"], words, &["--kubeconfig", kubeconfig]].concat());
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        for part in parts {
            assert!(said.contains(part), "{words:?}: {part} is not in\n{said}");
        }
        said
    }

    /// Runs kubectl as a user, with an object on its standard input; all that it printed, if it succeeded.
    fn kubectl(&self, kubeconfig: &Path, args: &[&str], input: &Value) -> Result<String, String> {
        let output = testing::kubectl(&self.cluster, kubeconfig, args, &input.to_string()).unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        if output.status.success() { Ok(said) } else { Err(said) }
    }

    /// Waits until a namespace admin is refused, for both groups.
    async fn denies(&self) {
        for group in BOTH_GROUPS {
            eventually("DaemonSets are refused", || async {
                let answer = self.nina.would_create(&sets(group, "acme"), &set(group, "probe")).await;
                let said = answer.err().unwrap_or_default();
                if said.contains(REFUSAL) { Ok(()) } else { Err(said) }
            })
            .await;
        }
        eventually("tenants are kept", || async {
            let patch = json!({"metadata": {"labels": {"dapple.dev/tenant": "system"}}});
            let answer = self.nina.patch("/api/v1/namespaces/acme?dryRun=All", &patch).await;
            let said = answer.err().unwrap_or_default();
            if said.contains("denied request") { Ok(()) } else { Err(said) }
        })
        .await;
    }

    /// Waits until a namespace admin is not refused any more.
    async fn lets_pass(&self) {
        for group in BOTH_GROUPS {
            let (path, probe) = (sets(group, "acme"), set(group, "probe"));
            eventually("DaemonSets pass", || self.nina.would_create(&path, &probe)).await;
        }
    }
}

async fn gone(user: &User, path: &str) {
    eventually(&format!("{path} is gone"), || async {
        match user.get(path).await {
            Err(said) if said.contains("not found") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daemonsets_belong_to_the_system_tenant() {
    let stage = Stage::start().await;
    stage.lets_pass().await;
    for (namespace, group) in
        [("acme", BOTH_GROUPS[0]), ("acme", BOTH_GROUPS[1]), ("legacy", BOTH_GROUPS[0]), ("legacy", BOTH_GROUPS[1])]
    {
        stage.alice.create(&sets(group, namespace), &set(group, "old")).await.unwrap();
    }
    what_breaks_the_rule_is_listed(&stage);
    audit_and_warn_let_it_pass(&stage).await;
    stage.tenancy(&["enforce"], 2, &["DaemonSet legacy/old (apps)", "These keep running", "add --yes"]);
    stage.tenancy(&["enforce", "--yes"], 0, &["Enforced as deny, before as warn"]);
    stage.denies().await;

    a_cluster_admin_is_held_to_the_place(&stage).await;
    a_namespace_admin_is_refused(&stage).await;
    the_permission_can_be_granted(&stage).await;
    controllers_go_on(&stage).await;
    tenants_change_by_the_same_permission(&stage).await;
    what_was_there_goes_with_its_namespace(&stage).await;
    policies_are_sound(&stage.alice, &["dapple-system-daemonsets", "dapple-namespace-tenants"]).await;
    off_removes_what_is_ours(&stage).await;
    stage.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_policies_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (_, kubeconfig) = Fake::start(BTreeMap::new(), 0, folder.path()).await;
    let tenancy =
        |words: &[&str]| dapple(&[&["tenancy"], words, &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat());
    for words in [&["check"][..], &["enforce", "--as", "audit"]] {
        let output = tenancy(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("does not serve this kind of admissionregistration.k8s.io/v1; use a newer"), "{said}");
    }
    // Where there can be no policies, none is in effect: that is what `off` is to reach.
    let output = tenancy(&["off"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("was not enforced by dapple: nothing to remove"), "{}", text(&output.stdout));
}

fn what_breaks_the_rule_is_listed(stage: &Stage) {
    let parts = [
        "by label dapple.dev/tenant",
        "4 DaemonSets, of which 4 not the system tenant's",
        r#"DaemonSet acme/old (apps): its namespace belongs to tenant "acme""#,
        "kubectl delete daemonset.apps.kruise.io -n legacy old",
        "`dapple tenancy enforce` starts it",
    ];
    stage.tenancy(&["check"], 1, &parts);
    let found: Value = serde_json::from_str(&stage.tenancy(&["check", "-o", "json"], 1, &[])).unwrap();
    assert_eq!((&found["enforced"], &found["daemonSets"]), (&Value::Null, &json!(4)));
    assert_eq!(found["violations"][1]["group"], "apps.kruise.io");
    stage.tenancy(&["check", "--tenant-label", "example.com/team"], 0, &["all of them the system tenant's"]);
}

async fn audit_and_warn_let_it_pass(stage: &Stage) {
    let path = sets(BOTH_GROUPS[0], "acme");
    stage.tenancy(&["enforce", "--as", "audit"], 0, &["4 DaemonSets, of which 4", "Enforced as audit"]);
    eventually("the audit log has it", || async {
        stage.nina.would_create(&path, &set(BOTH_GROUPS[0], "probe")).await?;
        let log = std::fs::read_to_string(stage.audit.path().join("audit.log")).unwrap_or_default();
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let notes =
            events.filter(|event| event["user"]["username"] == "nina").map(|event| event["annotations"].to_string());
        let has_it =
            |note: &String| note.contains("validation_failure") && note.contains("only system tenant is allowed");
        notes.into_iter().find(has_it).map(|_| ()).ok_or_else(|| "not there".to_owned())
    })
    .await;

    stage.tenancy(&["enforce", "--as", "warn"], 0, &["Enforced as warn, before as audit"]);
    let nina = stage.cluster.kubeconfig_for("nina", &[]).await.unwrap();
    eventually("whoever breaks the rule is warned", || async {
        let words = ["create", "-n", "acme", "--dry-run=server", "-f", "-"];
        let said = stage.kubectl(&nina, &words, &set(BOTH_GROUPS[0], "probe"))?;
        let is_warned =
            said.contains("Warning: ") && said.contains("only system tenant is allowed to have DaemonSet: ");
        if is_warned && said.contains("created") { Ok(()) } else { Err(said) }
    })
    .await;
    stage.nina.create(&path, &set(BOTH_GROUPS[0], "warned")).await.unwrap();
    stage.tenancy(&["check"], 1, &["as warn", "DaemonSet acme/warned"]);
}

async fn a_cluster_admin_is_held_to_the_place(stage: &Stage) {
    let elsewhere = [REFUSAL, "namespace acme belongs to tenant acme (label dapple.dev/tenant)"];
    for group in BOTH_GROUPS {
        stage.alice.create(&sets(group, "infra"), &set(group, "agent")).await.unwrap();
        refused(stage.alice.create(&sets(group, "acme"), &set(group, "agent")).await, &elsewhere);
        let old = format!("{}/old", sets(group, "acme"));
        refused(stage.alice.patch(&old, &new_image()).await, &elsewhere);
        // In v1alpha1 these are the patches and the scale strategy.
        for part in ["dapple.dev/v1beta1", "daemonset.kruise.io/progressive-create-pod"] {
            let patch = json!({"metadata": {"annotations": {part: "true"}}});
            refused(stage.alice.patch(&old, &patch).await, &elsewhere);
        }
        // What is in the wrong place can be cleaned up: finalizers off, and away with it.
        stage.alice.patch(&old, &new_label()).await.unwrap();
    }
    stage.alice.delete(&format!("{}/old", sets(BOTH_GROUPS[0], "acme"))).await.unwrap();
}

async fn a_namespace_admin_is_refused(stage: &Stage) {
    let (nina, no_right) = (&stage.nina, |deed: &str| format!("nina may not {deed} one without permission"));
    let grant = "--clusterrole=dapple-system-daemonsets --user='nina'";
    for group in BOTH_GROUPS {
        refused(nina.create(&sets(group, "acme"), &set(group, "mine")).await, &[REFUSAL, "tenant acme"]);
        refused(nina.create(&sets(group, "infra"), &set(group, "mine")).await, &[REFUSAL, &no_right("create"), grant]);
        for (namespace, name) in [("infra", "agent"), ("acme", if group == "apps/v1" { "warned" } else { "old" })] {
            let path = format!("{}/{name}", sets(group, namespace));
            refused(nina.patch(&path, &new_image()).await, &[REFUSAL]);
            refused(nina.patch(&path, &new_label()).await, &[REFUSAL, &no_right("update")]);
            refused(nina.delete(&path).await, &[REFUSAL, &no_right("delete"), grant]);
            refused(nina.delete(&sets(group, namespace)).await, &[REFUSAL, &no_right("delete")]);
        }
    }
    // The status is nobody's business here; owners that the garbage collector would act on are.
    let status = format!("{}/agent/status", sets(BOTH_GROUPS[0], "infra"));
    nina.patch(&status, &json!({"status": {"conditions": [{"type": "Seen", "status": "True"}]}})).await.unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "00000000-0000-0000-0000-000000000000"}]);
    let adopted = nina.patch(&status, &json!({"metadata": {"ownerReferences": owner}})).await;
    refused(adopted, &[REFUSAL, &no_right("update")]);
}

async fn the_permission_can_be_granted(stage: &Stage) {
    for group in BOTH_GROUPS {
        let path = sets(group, "infra");
        stage.flux.create(&path, &set(group, "from-git")).await.unwrap();
        stage.flux.patch(&format!("{path}/from-git"), &new_image()).await.unwrap();
        stage.flux.delete(&format!("{path}/from-git")).await.unwrap();
        refused(stage.flux.create(&sets(group, "acme"), &set(group, "x")).await, &[REFUSAL, "belongs to tenant acme"]);
    }
}

/// Pods and status by the DaemonSet controller; foreground deletion and owners by the garbage collector.
async fn controllers_go_on(stage: &Stage) {
    let path = format!("{}/agent", sets(BOTH_GROUPS[0], "infra"));
    let rolled_out = |generation: i64| {
        let path = &path;
        eventually("every node has its pod", move || async move {
            let set = stage.alice.get(path).await?;
            let status = &set["status"];
            let is_done = status["observedGeneration"] == generation
                && ["numberReady", "updatedNumberScheduled"].iter().all(|field| status[*field] == NODES);
            if is_done { Ok(()) } else { Err(status.to_string()) }
        })
    };
    rolled_out(1).await;
    stage.flux.patch(&path, &new_image()).await.unwrap();
    rolled_out(2).await;
    stage.flux.delete(&format!("{path}?propagationPolicy=Foreground")).await.unwrap();
    gone(&stage.alice, &path).await;

    let maps = "/api/v1/namespaces/infra/configmaps";
    let owner = stage.alice.create(maps, &json!({"metadata": {"name": "owner"}})).await.unwrap();
    let reference =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    for group in BOTH_GROUPS {
        let mut owned = set(group, "owned");
        owned["metadata"]["ownerReferences"] = reference.clone();
        stage.alice.create(&sets(group, "infra"), &owned).await.unwrap();
    }
    // dapple's manager is a controller, too.
    let manager = "system:serviceaccount:dapple-system:dapple-manager";
    bind(&stage.admin, manager, "daemonset-writer", Some("infra")).await;
    let (manager, path) =
        (User::new(&stage.cluster, manager).await, format!("{}/agent", sets(BOTH_GROUPS[1], "infra")));
    let label = new_label();
    eventually("the manager may", || manager.patch(&path, &label)).await;
    // Whoever may delete the owner has its DaemonSets deleted, by the garbage collector.
    stage.nina.delete(&format!("{maps}/owner")).await.unwrap();
    for group in BOTH_GROUPS {
        gone(&stage.alice, &format!("{}/owned", sets(group, "infra"))).await;
    }
}

async fn tenants_change_by_the_same_permission(stage: &Stage) {
    let acme = "/api/v1/namespaces/acme";
    let words = ["only who may manage systemdaemonsets.dapple.dev", "nina may not", "of namespace acme"];
    for tenant in [json!("system"), json!("other"), Value::Null] {
        let patch = json!({"metadata": {"labels": {"dapple.dev/tenant": tenant}}});
        // Labels can be written through the status, too.
        for path in [acme.to_owned(), format!("{acme}/status")] {
            refused(stage.nina.patch(&path, &patch).await, &words);
        }
        let mut whole = stage.alice.get(acme).await.unwrap();
        whole["metadata"]["labels"]["dapple.dev/tenant"] = tenant;
        refused(stage.nina.replace(&format!("{acme}/finalize"), &whole).await, &words);
    }
    stage.nina.patch(acme, &new_label()).await.unwrap();

    role(&stage.admin, "namespaces", json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]}]))
        .await;
    bind(&stage.admin, "nick", "namespaces", None).await;
    let nick = User::new(&stage.cluster, "nick").await;
    let named = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let all = "/api/v1/namespaces";
    refused(
        nick.create(all, &named("mine", json!({"dapple.dev/tenant": "mine"}))).await,
        &["nick may not", "namespace mine"],
    );
    nick.create(all, &named("mine", json!({"team": "blue"}))).await.unwrap();
    stage.alice.create(all, &named("newco", json!({"dapple.dev/tenant": "newco"}))).await.unwrap();
    let patch = json!({"metadata": {"labels": {"dapple.dev/tenant": "system"}}});
    stage.alice.patch("/api/v1/namespaces/newco", &patch).await.unwrap();
    let group = BOTH_GROUPS[0];
    // The API server may still have the label of a moment ago.
    let (path, agent) = (sets(group, "newco"), set(group, "agent"));
    eventually("the namespace is the system tenant's", || stage.alice.would_create(&path, &agent)).await;
}

async fn what_was_there_goes_with_its_namespace(stage: &Stage) {
    stage.alice.get(&format!("{}/old", sets(BOTH_GROUPS[0], "legacy"))).await.expect("it is still there");
    stage.alice.delete("/api/v1/namespaces/legacy").await.unwrap();
    gone(&stage.alice, "/api/v1/namespaces/legacy").await;
}

async fn off_removes_what_is_ours(stage: &Stage) {
    let removed = ["dapple-system-daemonsets", "dapple-namespace-tenants"];
    let said = stage.tenancy(&["off"], 0, &["not enforced any more", "ClusterRole dapple-system-daemonsets stays"]);
    for name in removed {
        for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
            assert!(said.contains(&format!("removed {kind} {name}\n")), "{said}");
        }
    }
    stage.lets_pass().await;
    stage.tenancy(&["off"], 0, &["nothing to remove"]);

    // One of the same name that is somebody else's.
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let theirs = json!({
        "metadata": {"name": "dapple-namespace-tenants"},
        "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["configmaps"]}]}, "validations": [{"expression": "true"}]},
    });
    stage.alice.create(policies, &theirs).await.unwrap();
    let words = ["ValidatingAdmissionPolicy dapple-namespace-tenants is there and is not dapple's", "rename it"];
    stage.tenancy(&["enforce", "--as", "warn"], 2, &words);
    stage.tenancy(&["check"], 1, &["`dapple tenancy enforce` starts it"]);
    stage.tenancy(
        &["off"],
        0,
        &["left alone: ValidatingAdmissionPolicy dapple-namespace-tenants", "nothing to remove"],
    );
    stage.alice.delete(&format!("{policies}/dapple-namespace-tenants")).await.unwrap();

    // The label that is enforced is kept until another is asked for.
    stage.tenancy(&["enforce", "--as", "warn", "--tenant-label", "example.com/team"], 0, &["Enforced as warn"]);
    stage.tenancy(&["enforce"], 0, &["by label example.com/team", "Enforced as deny, before as warn"]);
    stage.tenancy(&["check"], 0, &["by label example.com/team", "as deny"]);
}
