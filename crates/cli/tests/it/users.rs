//! Real users, by client certificates, and what the API server answers them.

use dapple_control::install::apply;
use dapple_testbed::Cluster;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::support::eventually;

/// Somebody whom the API server knows by certificate.
pub(crate) struct User {
    client: Client,
}

impl User {
    pub(crate) async fn new(cluster: &Cluster, name: &str) -> Self {
        Self::of(cluster, name, &[]).await
    }

    /// One who is in these groups.
    pub(crate) async fn of(cluster: &Cluster, name: &str, groups: &[&str]) -> Self {
        let path = cluster.kubeconfig_for(name, groups).await.unwrap();
        Self::by(Kubeconfig::read_from(path).unwrap()).await
    }

    /// Whoever a kubeconfig is of.
    pub(crate) async fn by(file: Kubeconfig) -> Self {
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        Self { client: Client::try_from(config).unwrap() }
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Result<Value, String> {
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, kind).body(body).unwrap();
        self.client.request(request).await.map_err(|error| match error {
            kube::Error::Api(status) => status.message,
            other => other.to_string(),
        })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, String> {
        self.send(Method::GET, path, "application/json", &Value::Null).await
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Value, String> {
        self.send(Method::POST, path, "application/json", object).await
    }

    /// Asks whether an object would be taken.
    pub(crate) async fn would_create(&self, path: &str, object: &Value) -> Result<Value, String> {
        self.create(&format!("{path}?dryRun=All"), object).await
    }

    pub(crate) async fn replace(&self, path: &str, object: &Value) -> Result<Value, String> {
        self.send(Method::PUT, path, "application/json", object).await
    }

    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> Result<Value, String> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Value, String> {
        self.send(Method::DELETE, path, "application/json", &Value::Null).await
    }
}

/// That a request was refused, with each of these words.
pub(crate) fn refused(answer: Result<Value, String>, words: &[&str]) {
    let said = answer.expect_err(&format!("it is refused with {words:?}"));
    assert!(words.iter().all(|word| said.contains(word)), "{words:?} are not all in: {said}");
}

/// Lets a user do this in one namespace, or everywhere, and waits until the API server's authorizer knows.
pub(crate) async fn bind(admin: &Client, user: &str, role: &str, namespace: Option<&str>) {
    let (kind, place) = match namespace {
        Some(namespace) => ("RoleBinding", json!(namespace)),
        None => ("ClusterRoleBinding", Value::Null),
    };
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": format!("{user}-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    if !place.is_null() {
        binding["metadata"]["namespace"] = place;
    }
    apply(admin, &binding).await.unwrap();
    // A role may be bound before it is there.
    let role = Api::<ClusterRole>::all(admin.clone()).get_opt(role).await.unwrap().unwrap_or_default();
    let first = |names: Option<Vec<String>>| names.unwrap_or_default().into_iter().next();
    for rule in role.rules.unwrap_or_default().into_iter().filter(|rule| rule.resources.is_some()) {
        let resource = first(rule.resources).unwrap();
        let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
        let asked = json!({"metadata": {}, "spec": {"user": user, "resourceAttributes": {
            "group": first(rule.api_groups), "resource": resource, "subresource": subresource,
            "verb": rule.verbs[0], "namespace": namespace, "name": first(rule.resource_names),
        }}});
        let asked: SubjectAccessReview = serde_json::from_value(asked).unwrap();
        let reviews = Api::<SubjectAccessReview>::all(admin.clone());
        eventually(&format!("{user} may {} {resource}", rule.verbs[0]), || async {
            let answer = reviews.create(&PostParams::default(), &asked).await.map_err(|error| error.to_string())?;
            let status = answer.status.ok_or("no status")?;
            if status.allowed { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await;
    }
}

/// A ClusterRole.
pub(crate) async fn role(admin: &Client, name: &str, rules: Value) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    apply(admin, &role).await.unwrap();
}

/// Waits until the cluster has judged every policy of dapple's, and found nothing wrong with any expression.
pub(crate) async fn policies_are_sound(admin: &User, names: &[&str]) {
    for name in names {
        let path = format!("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}");
        let policy = eventually(&format!("policy {name} is judged"), || async {
            let policy = admin.get(&path).await?;
            let is_judged = policy["status"]["observedGeneration"] == policy["metadata"]["generation"];
            if is_judged { Ok(policy) } else { Err(policy["status"].to_string()) }
        })
        .await;
        assert_eq!(policy["status"]["typeChecking"]["expressionWarnings"], Value::Null, "{name}");
        assert_eq!(policy["metadata"]["labels"]["app.kubernetes.io/managed-by"], "dapple");
    }
}

/// A kubeconfig of the prober of a node, with a token of its pod; or of one of no pod. Its account is there, with its rights.
pub(crate) async fn prober(cluster: &Cluster, admin: &User, node: Option<&str>) -> Kubeconfig {
    let namespace = "/api/v1/namespaces/dapple-probers";
    let mut request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    if let Some(node) = node {
        let name = format!("prober-{node}");
        let containers = json!([{"name": "prober", "image": "example/dapple:1"}]);
        let spec = json!({"nodeName": node, "serviceAccountName": "dapple-prober", "containers": containers});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        let pods = format!("{namespace}/pods");
        let pod = eventually("the prober's pod is made", || admin.create(&pods, &pod)).await;
        request["spec"]["boundObjectRef"] =
            json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]});
    }
    let tokens = format!("{namespace}/serviceaccounts/dapple-prober/token");
    let token = admin.create(&tokens, &request).await.unwrap();
    let mut file = Kubeconfig::read_from(cluster.admin_kubeconfig()).unwrap();
    let auth: AuthInfo = serde_json::from_value(json!({"token": token["status"]["token"]})).unwrap();
    file.auth_infos.iter_mut().for_each(|known| known.auth_info = Some(auth.clone()));
    file
}
