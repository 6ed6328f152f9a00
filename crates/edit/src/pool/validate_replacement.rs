//! What is to be said of a YurtAppConfigurationReplacement, the names of its images included.

use dapple_api::pool::{self, POOL_PLACEHOLDER, YurtAppConfigurationReplacement};
use dapple_api::verdict::Verdict;

use crate::image::Image;

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
    verdict
}
