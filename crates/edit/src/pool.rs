//! The items of a YurtAppConfigurationReplacement as edits.

use dapple_api::pool::{Item, POOL_PLACEHOLDER, Replacement, UpgradeStrategy};

use crate::edit::{Change, Edit, ReferenceKind, Source};

/// What a replacement changes of the workload around the template. The last that says something wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadChange {
    /// How many pods.
    pub replicas: Option<i32>,
    /// How pods are replaced.
    pub upgrade_strategy: Option<UpgradeStrategy>,
}

/// The edits for one pool, in order, and what changes around the template.
pub fn edits(object: &str, replacements: &[Replacement], pool: &str) -> (Vec<Edit>, WorkloadChange) {
    let (mut edits, mut workload) = (Vec::new(), WorkloadChange::default());
    for (index, replacement) in replacements.iter().enumerate().filter(|(_, known)| known.pools.contains(pool)) {
        for (number, item) in replacement.items.iter().enumerate() {
            workload.replicas = item.replicas.or(workload.replicas);
            workload.upgrade_strategy = item.upgrade_strategy.or(workload.upgrade_strategy);
            let rule = format!("replacements[{index}].items[{number}]");
            let source = Source { object: object.to_owned(), rule };
            edits.extend(changes(item, pool).into_iter().map(|change| Edit { source: source.clone(), change }));
        }
    }
    (edits, workload)
}

fn changes(item: &Item, pool: &str) -> Vec<Change> {
    let named = |text: &str| text.replace(POOL_PLACEHOLDER, pool);
    let refer = |kind, from: &str, to: &str| Change::Refer { kind, from: named(from), to: named(to) };
    let image = item
        .image
        .as_ref()
        .map(|image| Change::SetImage { container: named(&image.container_name), image: named(&image.image_claim) });
    let env = item.env.as_ref().map(|env| Change::SetEnv {
        container: named(&env.container_name),
        variables: env.env_claim.iter().map(|(name, value)| (named(name), named(value))).collect(),
    });
    let config_map = item.config_map.as_ref();
    let config_map =
        config_map.map(|map| refer(ReferenceKind::ConfigMap, &map.config_map_source, &map.config_map_target));
    let secret = item.secret.as_ref();
    let secret = secret.map(|secret| refer(ReferenceKind::Secret, &secret.secret_source, &secret.secret_target));
    let claim = item.persistent_volume_claim.as_ref();
    let claim = claim.map(|claim| refer(ReferenceKind::PersistentVolumeClaim, &claim.pvc_source, &claim.pvc_target));
    [image, config_map, secret, env, claim].into_iter().flatten().collect()
}
