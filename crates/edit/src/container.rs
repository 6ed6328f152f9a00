//! Changes to containers: images, commands, arguments and environment.

use serde_json::{Map, Value, json};

use crate::edit::{EditProblem, WordList, WordOperator};
use crate::image::{Component, Image, Operation};
use crate::plain::{missing_part, pointer};

/// The lists of containers in a pod template, in the order in which a name is looked for.
pub(crate) const LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Why a container cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContainerError {
    /// There is none of this name.
    #[error("the template has no container {wanted:?}; it has: {known}")]
    Missing {
        /// The name that was asked for.
        wanted: String,
        /// The names that there are.
        known: String,
    },
    /// There is no image at a path.
    #[error("there is no image at {path}: {reason}")]
    NoImage {
        /// The path.
        path: String,
        /// Which part of it is missing.
        reason: String,
    },
    /// A list of words is something else.
    #[error("{list} of container {container:?} is not a list of words")]
    NotWords {
        /// The container.
        container: String,
        /// The list.
        list: &'static str,
    },
}

/// Visits every container of every list.
pub(crate) fn each(template: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let spec = template.get_mut("spec").and_then(Value::as_object_mut);
    let lists = spec.into_iter().flat_map(|spec| spec.iter_mut()).filter(|(name, _)| LISTS.contains(&name.as_str()));
    let items = lists.filter_map(|(_, list)| list.as_array_mut()).flatten();
    items.filter_map(Value::as_object_mut)
}

/// The container of this name.
fn named<'a>(template: &'a mut Value, name: &str) -> Result<&'a mut Map<String, Value>, ContainerError> {
    let name_of = |container: &Map<String, Value>| container.get("name").and_then(Value::as_str).map(str::to_owned);
    let known: Vec<String> = each(template).filter_map(|container| name_of(container)).collect();
    let found = each(template).find(|container| name_of(container).as_deref() == Some(name));
    found.ok_or_else(|| ContainerError::Missing { wanted: name.to_owned(), known: known.join(", ") })
}

/// What is at a field; nothing there, or null, becomes an empty list.
pub(crate) fn vacant_list<'a>(object: &'a mut Map<String, Value>, field: &str) -> &'a mut Value {
    let value = object.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = json!([]);
    }
    value
}

/// Changes a part of the image at `only_at`, or of every container's, init containers aside.
pub(crate) fn change_images(
    template: &mut Value,
    only_at: Option<&str>,
    component: Component,
    operation: Operation<'_>,
) -> Result<(), EditProblem> {
    let paths: Vec<String> = match only_at {
        Some(path) => vec![path.to_owned()],
        None => {
            let count = template["spec"]["containers"].as_array().map_or(0, Vec::len);
            (0..count).map(|index| format!("/spec/containers/{index}/image")).collect()
        }
    };
    for path in paths {
        // Only what is an image may be changed like one.
        let is_image = path.ends_with("/image");
        let at = pointer(&path)?;
        let missing = missing_part(template, &at, false);
        let found = at.resolve_mut(template).ok().filter(|_| is_image);
        let Some(Value::String(name)) = found else {
            let reason = missing.unwrap_or_else(|| "it is something else".to_owned());
            return Err(ContainerError::NoImage { path, reason }.into());
        };
        let wrong = |error| EditProblem::Image { path: path.clone(), error };
        let mut image: Image = name.parse().map_err(wrong)?;
        image.change(component, operation).map_err(wrong)?;
        *name = image.to_string();
    }
    Ok(())
}

/// Adds words to a container's command or arguments, or takes some away. No words change nothing.
pub(crate) fn change_words(
    template: &mut Value,
    container: &str,
    list: WordList,
    operator: WordOperator,
    words: &[String],
) -> Result<(), ContainerError> {
    let field = match list {
        WordList::Command => "command",
        WordList::Args => "args",
    };
    let found = named(template, container)?;
    if words.is_empty() {
        return Ok(());
    }
    let not_words = || ContainerError::NotWords { container: container.to_owned(), list: field };
    match operator {
        WordOperator::Add => {
            let known = vacant_list(found, field).as_array_mut().ok_or_else(not_words)?;
            known.extend(words.iter().map(|word| json!(word)));
        }
        WordOperator::Remove => {
            let Some(known) = found.get_mut(field).filter(|known| !known.is_null()) else { return Ok(()) };
            let known = known.as_array_mut().ok_or_else(not_words)?;
            known.retain(|known| !words.iter().any(|word| known == word));
        }
    }
    Ok(())
}

/// Gives a container another image.
pub(crate) fn set_image(template: &mut Value, container: &str, image: &str) -> Result<(), ContainerError> {
    named(template, container)?.insert("image".to_owned(), json!(image));
    Ok(())
}

/// Sets environment variables. One that took its value from elsewhere takes it from here now; new ones come last.
pub(crate) fn set_env(
    template: &mut Value,
    container: &str,
    variables: &[(String, String)],
) -> Result<(), ContainerError> {
    let not_words = || ContainerError::NotWords { container: container.to_owned(), list: "env" };
    let found = named(template, container)?;
    if variables.is_empty() {
        return Ok(());
    }
    let env = vacant_list(found, "env").as_array_mut().ok_or_else(not_words)?;
    for (name, value) in variables {
        let wanted = json!({"name": name, "value": value});
        match env.iter_mut().find(|known| known["name"] == json!(name)) {
            Some(known) => *known = wanted,
            None => env.push(wanted),
        }
    }
    Ok(())
}
