//! What is to be said of a YurtAppConfigurationReplacement, the names of its images included.

use dapple_api::pool::{self, Item, POOL_PLACEHOLDER, Replacement, YurtAppConfigurationReplacement};
use dapple_api::verdict::Verdict;

use crate::image::Image;
use crate::overruled::{Rule, warn_overruled};

/// Everything that is to be said of a YurtAppConfigurationReplacement by itself.
pub fn validate_replacement(object: &YurtAppConfigurationReplacement) -> Verdict {
    let mut verdict = pool::validate_replacement(object);
    for (index, replacement) in object.replacements.iter().enumerate() {
        for (number, item) in replacement.items.iter().enumerate() {
            let claim = item.image.as_ref().map(|image| image.image_claim.replace(POOL_PLACEHOLDER, "pool"));
            // That there is none is an error, and told of already.
            let claim = claim.filter(|claim| !claim.trim().is_empty());
            if let Some(Err(error)) = claim.map(|claim| claim.parse::<Image>()) {
                // Kubernetes takes any text for an image; its pods just never start.
                let field = format!("replacements[{index}].items[{number}].image.imageClaim");
                verdict.warn(&field, format_args!("no image can be pulled by this name: {error}"));
            }
        }
    }
    let rules: Vec<Rule> = object.replacements.iter().enumerate().map(|(index, one)| compared(one, index)).collect();
    warn_overruled("replacements", &rules, &mut verdict);
    verdict
}

/// What a replacement sets, for comparing it with others.
fn compared(replacement: &Replacement, index: usize) -> Rule {
    let names = replacement.pools.names();
    let targets = (!names.contains("*")).then(|| names.into_iter().map(str::to_owned).collect());
    let what = |item: &Item| -> Vec<String> {
        match item {
            Item { image: Some(image), .. } => vec![format!("image {}", image.container_name)],
            Item { env: Some(env), .. } => {
                env.env_claim.keys().map(|name| format!("env {} {name}", env.container_name)).collect()
            }
            Item { config_map: Some(map), .. } => vec![format!("ConfigMap {}", map.config_map_source)],
            Item { secret: Some(secret), .. } => vec![format!("Secret {}", secret.secret_source)],
            Item { persistent_volume_claim: Some(claim), .. } => vec![format!("claim {}", claim.pvc_source)],
            Item { replicas: Some(_), .. } => vec!["replicas".to_owned()],
            Item { upgrade_strategy: Some(_), .. } => vec!["upgradeStrategy".to_owned()],
            _ => Vec::new(),
        }
    };
    let items = replacement.items.iter().enumerate();
    let changes = items.map(|(number, item)| (format!("replacements[{index}].items[{number}]"), what(item)));
    let changes: Vec<_> = changes.filter(|(_, what)| !what.is_empty()).collect();
    let sets = changes.iter().flat_map(|(_, what)| what.iter().cloned()).collect();
    Rule { targets, changes, sets }
}
