//! Objects read as their types. What cannot be read is told with its field, in the words of this project: nobody who writes
//! an object need know what a sequence or a variant is.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::verdict::{FieldError, Reason};

/// Reads an object as its type. What cannot be read is one error, since nothing is known of what comes behind it.
pub fn read<T: DeserializeOwned>(object: &Value) -> Result<T, FieldError> {
    // Keeping track of where one is takes as long as reading, and only who cannot go on wants to know.
    if let Ok(read) = T::deserialize(object) {
        return Ok(read);
    }
    serde_path_to_error::deserialize(object).map_err(|error| told(error.path(), &error.inner().to_string()))
}

/// An error of serde's at a path, as people are told of it.
pub(crate) fn told(path: &serde_path_to_error::Path, message: &str) -> FieldError {
    let path = path.to_string();
    // How the library writes the path to the whole.
    let field = if path == "." { String::new() } else { path };
    let (missing, unknown) = (quoted(message, "missing field `"), quoted(message, "unknown field `"));
    if let Some((missing, _)) = missing {
        let field = if field.is_empty() { missing.to_owned() } else { format!("{field}.{missing}") };
        return FieldError { field, reason: Reason::Required, text: "this is required".to_owned() };
    }
    if let Some((_, known)) = unknown {
        let text = format!(
            "there is no such field{}",
            choices(known).map(|all| format!("; there are {all}")).unwrap_or_default()
        );
        return FieldError { field, reason: Reason::NotSupported, text };
    }
    let is_choice = message.starts_with("unknown variant");
    let reason = if is_choice { Reason::NotSupported } else { Reason::Invalid };
    FieldError { field, reason, text: in_plain_words(message) }
}

/// An error of serde's without its words. What types say themselves stays as it is.
pub fn in_plain_words(message: &str) -> String {
    if let Some((found, known)) = quoted(message, "unknown variant `") {
        return format!(
            "{found:?} is not possible here: write {}",
            choices(known).unwrap_or_else(|| "another".to_owned())
        );
    }
    if let Some((missing, _)) = quoted(message, "missing field `") {
        return format!("{missing} is required");
    }
    let parts = |kind: &str| message.strip_prefix(kind)?.rsplit_once(", expected ");
    if let Some((found, expected)) = parts("invalid type: ") {
        return match shape(expected) {
            Some(expected) => format!("this must be {expected}, and it is {}", kind(found)),
            None => format!("this cannot be {}", kind(found)),
        };
    }
    if let Some((found, expected)) = parts("invalid value: ") {
        let found = found.split_once(['`', '"']).map_or(found, |(_, value)| value.trim_end_matches(['`', '"']));
        return match range(expected).or_else(|| shape(expected).map(str::to_owned)) {
            Some(expected) => format!("this must be {expected}, and it is {found}"),
            None => format!("this cannot be {found}"),
        };
    }
    message.to_owned()
}

/// What stands in backticks behind a beginning, and the rest.
fn quoted<'a>(message: &'a str, beginning: &str) -> Option<(&'a str, &'a str)> {
    let inside = message.strip_prefix(beginning)?;
    // What was written may look like anything; what is expected never has these words in it.
    inside.rsplit_once("`, expected ").or_else(|| inside.rsplit_once('`'))
}

/// "a, b or c", out of "one of `a`, `b`, `c`" and the like.
fn choices(known: &str) -> Option<String> {
    let all: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    let (last, first) = all.split_last()?;
    Some(if first.is_empty() { (*last).to_owned() } else { format!("{} or {last}", first.join(", ")) })
}

/// What kind of value was found, as [`crate::manifest::kind_of`] says it.
fn kind(found: &str) -> &'static str {
    match found.split([' ', '`', '"']).next().unwrap_or_default() {
        "boolean" => "a boolean",
        "integer" | "floating" => "a number",
        "string" | "character" => "text",
        "sequence" => "a list",
        "map" | "struct" => "an object",
        "null" | "unit" | "Option" => "null",
        _ => "something else",
    }
}

/// What a value should be, out of what types say that they expect; nothing if that is told by no simple word.
fn shape(expected: &str) -> Option<&'static str> {
    let first = expected.split([' ', '<']).next().unwrap_or_default();
    Some(match expected {
        "a boolean" => "a boolean",
        "IntOrString" => "a whole number or text",
        "Quantity" => "an amount, such as 500Mi",
        "Time" | "MicroTime" => "a time, such as 2026-01-31T12:00:00Z",
        _ if range(expected).is_some() || expected.ends_with("integer") => "a whole number",
        "f32" | "f64" => "a number",
        _ if ["a string", "a borrowed string", "str", "string or map", "variant identifier"].contains(&expected) => {
            "text"
        }
        _ if first == "enum" || expected.contains("string") => "text",
        _ if expected.contains("sequence") || first == "tuple" || expected.contains("array") => "a list",
        // Types of Kubernetes say their name alone.
        _ if first == "struct" || expected.contains("map") || is_type_name(expected) => "an object",
        _ => return None,
    })
}

fn is_type_name(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_uppercase())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The whole numbers of a type.
fn range(of: &str) -> Option<String> {
    let (least, most) = match of {
        "i32" => (i64::from(i32::MIN), i64::from(i32::MAX)),
        "u8" => (0, i64::from(u8::MAX)),
        "u16" => (0, i64::from(u16::MAX)),
        "u32" => (0, i64::from(u32::MAX)),
        "i64" | "u64" | "usize" => (if of == "i64" { i64::MIN } else { 0 }, i64::MAX),
        _ => return None,
    };
    Some(format!("a whole number from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, Debug)]
    #[serde(rename_all = "camelCase")]
    #[allow(dead_code, reason = "only read")]
    struct Typed {
        text: String,
        #[serde(default)]
        list: Vec<i32>,
        #[serde(default)]
        map: BTreeMap<String, bool>,
        choice: Option<Choice>,
        selector: Option<LabelSelector>,
        inner: Option<Box<Typed>>,
    }

    #[derive(Deserialize, Debug)]
    enum Choice {
        One,
        Two,
        Three,
    }

    fn told(mut object: Value) -> String {
        if object.get("text").is_none() {
            object["text"] = json!("a");
        }
        read::<Typed>(&object).expect_err("wrong").to_string()
    }

    #[test]
    fn errors_have_a_field_and_no_words_of_the_reader() {
        for (object, expected) in [
            (json!({"text": 1}), "text: this must be text, and it is a number"),
            (json!({"text": null}), "text: this must be text, and it is null"),
            (json!({"list": {}}), "list: this must be a list, and it is an object"),
            (json!({"list": "x"}), "list: this must be a list, and it is text"),
            (json!({"list": [1, "x, expected y"]}), "list[1]: this must be a whole number, and it is text"),
            (json!({"list": [1.5]}), "list[0]: this must be a whole number, and it is a number"),
            (
                json!({"list": [5_000_000_000_i64]}),
                "list[0]: this must be a whole number from -2147483648 to 2147483647, and it is 5000000000",
            ),
            (json!({"map": []}), "map: this must be an object, and it is a list"),
            (json!({"map": {"a": 1}}), "map.a: this must be a boolean, and it is a number"),
            (
                json!({"choice": "Four`, expected"}),
                "choice: \"Four`, expected\" is not possible here: write One, Two or Three",
            ),
            (json!({"choice": 1}), "choice: this must be text, and it is a number"),
            (json!({"selector": []}), "selector: this must be an object, and it is a list"),
            (json!({"inner": {}}), "inner.text: this is required"),
            (json!({"inner": 7}), "inner: this must be an object, and it is a number"),
        ] {
            assert_eq!(told(object.clone()), expected, "{object}");
        }
        let missing = read::<Typed>(&json!({})).expect_err("nothing there");
        assert_eq!((missing.to_string().as_str(), missing.reason), ("text: this is required", Reason::Required));
        assert_eq!(read::<Typed>(&json!({"text": "a", "choice": "x"})).expect_err("x").reason, Reason::NotSupported);
    }
}
