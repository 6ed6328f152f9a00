//! What tells two documents apart, as a place.

use serde_json::Value;

use crate::document::Document;
use crate::leaves::differences;
use crate::path::Path;

/// The first place at which two documents differ. Items of lists are told apart by their names, where they have any.
pub fn first_difference(kind: Document, one: &Value, other: &Value) -> Option<Path> {
    differences(one, other, kind.shape()).into_iter().map(|(place, ..)| place.path().clone()).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_place_goes_down_to_what_differs() {
        let with = |image: &str| {
            let containers = json!([{"name": "first", "image": "a"}, {"name": "web", "image": image}]);
            json!({"spec": {"template": {"spec": {"containers": containers}}}})
        };
        let place = |one: &Value, other: &Value| {
            first_difference(Document::Deployment, one, other).map(|path| path.to_string())
        };
        let named = Some("spec.template.spec.containers[name=web].image".to_owned());
        assert_eq!(place(&with("a"), &with("b")), named);
        assert_eq!(place(&json!({"spec": {"paused": true}}), &json!({"spec": {}})), Some("spec.paused".to_owned()));
        assert_eq!(place(&with("a"), &with("a")), None);
    }
}
