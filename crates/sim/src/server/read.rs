//! Reading: one object, and lists in pages.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use serde_json::{Value, json};

use super::failure::{Failure, Fault};
use super::kinds::Kind;
use super::output::list_text;
use super::request::{Query, Shape, Target};
use super::selector::Selector;
use super::store::{Object, State};

const INCONSISTENT: &str = "The provided continue parameter is too old to display a consistent list result. You can \
    start a new list without the continue parameter, or use the continue token in this response to retrieve the \
    remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
    created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// Where the next page begins: the version of the first page and the last key so far. No version: the newest.
struct Token {
    version: Option<u64>,
    after: String,
}

impl Token {
    fn write(&self) -> String {
        format!("{}.{}", self.version.map_or_else(String::new, |version| version.to_string()), self.after)
    }

    fn read(text: &str) -> Option<Self> {
        let (version, after) = text.split_once('.')?;
        let version = if version.is_empty() { None } else { Some(version.parse().ok()?) };
        Some(Self { version, after: after.to_owned() })
    }
}

pub(super) fn get<'s>(state: &'s State, target: &Target<'_>) -> Result<&'s Object, Failure> {
    state.get(target.kind, &target.key()).ok_or_else(|| Failure::not_found(target.kind, target.name))
}

/// A list, as text.
pub(super) fn list(state: &State, target: &Target<'_>, query: &Query, shape: Shape) -> Result<Vec<u8>, Failure> {
    let selector = Selector::read(target, query)?;
    check(query)?;
    let token = match query.proceed.as_str() {
        "" => None,
        text => Some(Token::read(text).ok_or_else(|| Failure::bad_request("continue key is not valid"))?),
    };
    let (version, objects) = snapshot(state, target.kind, query, token.as_ref())?;
    let after = token.as_ref().map_or(Bound::Unbounded, |token| Bound::Excluded(token.after.as_str()));
    let wanted = |(key, object): &(&String, &Object)| selector.has_key(key) && selector.matches(&object.value);
    let mut found = objects.range::<str, _>((after, Bound::Unbounded)).filter(wanted);
    let limit = if query.limit == 0 { usize::MAX } else { query.limit.min(state.longest_page) };
    let page: Vec<(&String, &Object)> = found.by_ref().take(limit).collect();
    let left = found.count();
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if target.kind.is_custom() && shape == Shape::Whole {
        metadata["continue"] = json!("");
    }
    if let (Some((last, _)), 1..) = (page.last(), left) {
        let next = Token { version: Some(version), after: (*last).clone() };
        metadata["continue"] = json!(next.write());
        if selector.is_everything() {
            metadata["remainingItemCount"] = json!(left);
        }
    }
    let items: Vec<Object> = page.into_iter().map(|(_, object)| object.clone()).collect();
    Ok(list_text(target.kind, shape, &metadata, &items))
}

type Objects = BTreeMap<String, Object>;

/// The version to list at, and what there was.
fn snapshot<'s>(
    state: &'s State,
    kind: &Kind,
    query: &Query,
    token: Option<&Token>,
) -> Result<(u64, Cow<'s, Objects>), Failure> {
    let newest = state.version();
    let past = match token {
        Some(Token { version: Some(version), after }) if *version < state.compacted() => {
            let anew = Token { version: None, after: after.clone() };
            return Err(Failure::expired(INCONSISTENT, Some(anew.write())));
        }
        Some(token) => token.version,
        None => {
            let asked = query.version()?;
            if asked > newest {
                return Err(Failure::too_new(asked, newest));
            }
            // Without a word on how to match, a page at a version is a page of exactly that version.
            let is_exact = query.version_match == "Exact" || (query.version_match.is_empty() && query.limit > 0);
            let exact = Some(asked).filter(|asked| *asked > 0 && is_exact);
            if let Some(expired) = exact.filter(|exact| *exact < state.compacted()) {
                return Err(Failure::expired(format!("too old resource version: {expired}"), None));
            }
            exact
        }
    };
    Ok(match past {
        Some(version) if version < newest => (version, Cow::Owned(state.all_at(kind.store, version))),
        _ => (newest, Cow::Borrowed(state.all(kind.store))),
    })
}

fn check(query: &Query) -> Result<(), Failure> {
    let field = "resourceVersionMatch";
    if query.version_match.is_empty() {
        return Ok(());
    }
    let mut faults = Vec::new();
    if query.version.is_empty() {
        faults.push(Fault::forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
    }
    if !query.proceed.is_empty() {
        faults.push(Fault::forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
    }
    if !["Exact", "NotOlderThan"].contains(&query.version_match.as_str()) {
        let known = ["Exact", "NotOlderThan", ""].map(Value::from);
        faults.push(Fault::unsupported(field, &json!(query.version_match), &known));
    }
    if query.version_match == "Exact" && query.version == "0" {
        let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
        faults.push(Fault::forbidden(field, why));
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::invalid("meta.k8s.io", "ListOptions", "", &faults)) }
}
