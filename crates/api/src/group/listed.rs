//! The kinds that users add to those whose objects may ask for policies: ConfigMap `groupmanagement-config`, key `applications`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::kinds::{NATIVE, POD, find};
use crate::manifest;

/// The ConfigMap, in dapple's own namespace.
pub const CONFIG: &str = "groupmanagement-config";
/// Its key.
pub const APPLICATIONS: &str = "applications";
/// At most so many: each is watched.
const MOST: usize = 50;

/// A kind whose objects may ask for policies, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedKind {
    /// Its API group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// The field that has its pod template, such as `spec.template`.
    pub template_field: String,
    /// The field that has how many pods it should have, such as `spec.replicas`.
    pub replicas_field: String,
}

impl ListedKind {
    /// With its group and version, as people know it.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("{} of {}/{}", self.kind, self.group, self.version)
    }
}

/// Reads the list. Whatever is wrong with one item, none counts: half a list would be another one than what is meant.
pub fn read_listed(text: &str) -> Result<Vec<ListedKind>, String> {
    // Files of objects are read, so the list is made a field of one.
    let indented: String = text.lines().map(|line| format!("  {line}\n")).collect();
    let wrapped = format!("{APPLICATIONS}:\n{indented}");
    let read = manifest::read(APPLICATIONS, wrapped.as_bytes()).map_err(|error| error.to_string())?;
    let items = match read.first().map(|object| &object.value()[APPLICATIONS]) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(format!("{APPLICATIONS} is not a list")),
    };
    if items.len() > MOST {
        return Err(format!("{APPLICATIONS} lists {} kinds; at most {MOST} are followed", items.len()));
    }
    let mut known = BTreeSet::new();
    let mut listed = Vec::new();
    for (number, item) in items.iter().enumerate() {
        let kind = read_item(item).map_err(|error| format!("{APPLICATIONS}[{number}]: {error}"))?;
        if !known.insert((kind.group.clone(), kind.kind.clone())) {
            return Err(format!("{APPLICATIONS}[{number}]: {} is listed twice, in whatever version", kind.shown()));
        }
        listed.push(kind);
    }
    Ok(listed)
}

const FIELDS: [&str; 5] = ["group", "version", "kind", "podTemplatePath", "replicasPath"];

fn read_item(item: &Value) -> Result<ListedKind, String> {
    let fields = item.as_object().ok_or("it is not an object")?;
    if let Some(unknown) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(format!("there is no field {unknown:?}; there is: {}", FIELDS.join(", ")));
    }
    let text = |field: &str| match &item[field] {
        Value::String(text) if !text.is_empty() => Ok(text.clone()),
        Value::Null | Value::String(_) => Err(format!("{field} is missing")),
        _ => Err(format!("{field} is not text")),
    };
    let (group, version, kind) = (text("group")?, text("version")?, text("kind")?);
    let is_known = NATIVE.iter().any(|native| native.at.group == group && native.at.kind == kind)
        || (&*group, &*kind) == (POD.group, POD.kind);
    if is_known {
        return Err(format!("{kind} need not be listed: such objects may ask for policies anyway"));
    }
    if find(&group, &kind).is_some() {
        return Err(format!("{kind} of {group} is dapple's own, and cannot ask for policies"));
    }
    Ok(ListedKind {
        template_field: field_path(&text("podTemplatePath")?).map_err(|error| format!("podTemplatePath {error}"))?,
        replicas_field: field_path(&text("replicasPath")?).map_err(|error| format!("replicasPath {error}"))?,
        group,
        version,
        kind,
    })
}

/// A path of fields, with dots between them. Slashes do as well, and one of either before the first.
fn field_path(text: &str) -> Result<String, String> {
    let path = text.strip_prefix(['.', '/']).unwrap_or(text).replace('/', ".");
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if path.split('.').all(is_name) {
        return Ok(path);
    }
    Err(format!("is {text:?}, which is no path of fields, such as spec.template"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAME: &str = "- group: games.example.com\n  version: v1\n  kind: GameServer\n  podTemplatePath: spec.template\n  \
                        replicasPath: spec.replicas\n";

    #[test]
    fn kinds_are_read_with_their_paths() {
        let listed = read_listed(GAME).unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].shown(), "GameServer of games.example.com/v1");
        assert_eq!((&*listed[0].template_field, &*listed[0].replicas_field), ("spec.template", "spec.replicas"));
        for path in ["/spec/template", ".spec.template", "spec/template"] {
            let other = GAME.replace("spec.template", path);
            assert_eq!(read_listed(&other).unwrap(), listed, "{path}");
        }
        assert_eq!(read_listed("[]"), Ok(Vec::new()));
        assert_eq!(read_listed(""), Ok(Vec::new()));
        assert_eq!(
            read_listed(
                r#"[{"group": "games.example.com", "version": "v1", "kind": "GameServer",
            "podTemplatePath": "spec.template", "replicasPath": "spec.replicas"}]"#
            ),
            Ok(listed),
            "JSON is YAML"
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let error = |text: &str| read_listed(text).unwrap_err();
        assert_eq!(error(&GAME.replace("kind: GameServer", "kind: 7")), "applications[0]: kind is not text");
        assert_eq!(error(&GAME.replace("  version: v1\n", "")), "applications[0]: version is missing");
        assert!(
            error(&GAME.replace("replicasPath", "replicaPath")).contains("no field \"replicaPath\"; there is: group")
        );
        assert!(error(&GAME.replace("spec.template", "spec..template")).contains("no path of fields"));
        assert!(error(&GAME.replace("spec.template", "spec.list[0]")).contains("no path of fields"));
        assert!(
            error(&format!("{GAME}{GAME}"))
                .contains("applications[1]: GameServer of games.example.com/v1 is listed twice")
        );
        let native = GAME.replace("games.example.com", "apps").replace("GameServer", "Deployment");
        assert!(error(&native).contains("Deployment need not be listed"));
        assert!(error("kind: GameServer").contains("not a list"));
        assert!(!error("- {group: [").is_empty());
    }
}
