//! Tenancy in a cluster: what breaks the rule, whether it is enforced, and switching that.

use dapple_api::crd::is_ours;
use dapple_api::kinds::{self, KindInfo};
use dapple_api::partition::{
    Action, DAEMONSET_POLICY, LABEL_ANNOTATION, Tenancy, TenantLabel, policies_of, system_daemonsets_role,
    tenancy_policies,
};
use dapple_plan::partition::{DaemonSet, Namespace};
use k8s_openapi::api::core::v1;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::install::{Error, apply_own, find};
use crate::uninstall::{Removal, remove};

/// As many objects per answer.
const PAGE: u32 = 500;

/// What tenancy looks at.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// Every namespace.
    pub namespaces: Vec<Namespace>,
    /// Every DaemonSet of every group.
    pub sets: Vec<DaemonSet>,
}

/// How the rule is enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The label that the policies go by.
    pub label: TenantLabel,
    /// What they do where the rule is broken.
    pub action: Action,
}

/// Reads namespaces and DaemonSets. Namespaces come last, so that those of every DaemonSet are known.
pub async fn look(client: &Client) -> Result<Observed, Error> {
    let (native, own) = (kinds::NATIVE_DAEMON_SET.at, kinds::DAEMON_SET);
    let mut sets = daemonsets(client, native, [native.version]).await?;
    // An older OpenKruise serves v1alpha1 alone.
    sets.extend(daemonsets(client, own.at, own.served_versions()).await?);
    let api: Api<v1::Namespace> = Api::all(client.clone());
    let namespaces = pages(&api).await.map_err(refused("namespaces"))?;
    let namespace = |mut found: PartialObjectMeta<v1::Namespace>| Namespace {
        name: found.name_any(),
        labels: std::mem::take(found.labels_mut()),
    };
    Ok(Observed { namespaces: namespaces.into_iter().map(namespace).collect(), sets })
}

/// The DaemonSets of one group, in the first version that is served; none if none is.
async fn daemonsets(
    client: &Client,
    KindInfo { group, kind, plural, .. }: KindInfo,
    versions: impl IntoIterator<Item = &'static str>,
) -> Result<Vec<DaemonSet>, Error> {
    for version in versions {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let set = |found: &PartialObjectMeta<DynamicObject>| DaemonSet {
            namespace: found.namespace().unwrap_or_default(),
            name: found.name_any(),
            group: group.to_owned(),
        };
        match pages(&api).await {
            Ok(found) => return Ok(found.iter().map(set).collect()),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(refused(&format!("{plural}.{group}"))(error)),
        }
    }
    Ok(Vec::new())
}

async fn pages<K>(api: &Api<K>) -> Result<Vec<PartialObjectMeta<K>>, kube::Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let (mut params, mut all) = (ListParams::default().limit(PAGE), Vec::new());
    loop {
        let page = api.list_metadata(&params).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// How the rule is enforced by dapple's policies; nothing if it is not.
pub async fn standing(client: &Client) -> Result<Option<Standing>, Error> {
    let own = |kind| async move {
        let found = find(client, &named(kind, DAEMONSET_POLICY)).await?;
        Ok::<_, Error>(found.filter(is_ours))
    };
    let binding = own("ValidatingAdmissionPolicyBinding").await?;
    let (Some(policy), Some(action)) =
        (own("ValidatingAdmissionPolicy").await?, binding.as_ref().and_then(Action::of_binding))
    else {
        return Ok(None);
    };
    let written = policy["metadata"]["annotations"][LABEL_ANNOTATION].as_str();
    let label = written.and_then(|key| key.parse().ok()).unwrap_or_default();
    Ok(Some(Standing { label, action }))
}

/// Puts the rule into effect, or changes how it is: the ClusterRole that grants the permission, policies and bindings. If
/// somebody else has one of them under the same name, nothing is changed.
pub async fn enforce(client: &Client, tenancy: &Tenancy) -> Result<(), Error> {
    let mut objects = vec![system_daemonsets_role()];
    objects.extend(tenancy_policies(tenancy));
    apply_own(client, &objects).await
}

/// Removes dapple's policies and bindings. The ClusterRole stays: what binds accounts to it is not dapple's.
pub async fn off(client: &Client) -> Result<Removal, Error> {
    remove(client, policies_of().into_iter().map(|(kind, name)| named(kind, name))).await
}

fn named(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}})
}

fn refused(object: &str) -> impl FnOnce(kube::Error) -> Error {
    |source| Error::Refused { object: object.to_owned(), source: Box::new(source) }
}
