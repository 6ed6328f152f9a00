//! Why a change was made, as kubectl keeps it: in an annotation of what was changed.

use std::collections::BTreeMap;

/// The annotation that says why a change was made.
pub const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// An object's annotations after going back: why the later change was made is not true of the earlier state.
pub fn annotations(before: Option<BTreeMap<String, String>>, cause: Option<&str>) -> Option<BTreeMap<String, String>> {
    let mut annotations = before.unwrap_or_default();
    match cause {
        Some(cause) => _ = annotations.insert(CHANGE_CAUSE.to_owned(), cause.to_owned()),
        None => _ = annotations.remove(CHANGE_CAUSE),
    }
    Some(annotations).filter(|left| !left.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_the_later_change_goes_with_it() {
        let of = |text: &str| Some(BTreeMap::from([(CHANGE_CAUSE.to_owned(), text.to_owned())]));
        assert_eq!(annotations(of("later"), Some("earlier")), of("earlier"));
        assert_eq!(annotations(of("later"), None), None);
        assert_eq!(annotations(None, None), None);
    }
}
