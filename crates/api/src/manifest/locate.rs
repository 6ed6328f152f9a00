//! Where the parts of a value are written, kept beside the value.

use serde_json::Value;

use super::error::Position;

/// Where a value is written: of a field the place of its name, of an item that of the item.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    line: u32,
    column: u32,
    inside: Inside,
}

/// The places inside a value.
#[derive(Debug, Clone)]
pub(super) enum Inside {
    /// A scalar, or the copy that an alias made.
    Nothing,
    /// The items of a list.
    Items(Vec<Mark>),
    /// The fields of an object.
    Fields(Vec<(Box<str>, Mark)>),
}

impl Mark {
    pub(super) fn new(position: Position, inside: Inside) -> Self {
        // Files are far smaller than 4 GiB, and a million marks are kept.
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: narrow(position.line), column: narrow(position.column), inside }
    }

    pub(super) fn position(&self) -> Position {
        Position { line: self.line as usize, column: self.column as usize }
    }

    /// The mark of a field, or what is nearest around it.
    pub(super) fn into_field(self, name: &str) -> Self {
        let (line, column) = (self.line, self.column);
        let fields = if let Inside::Fields(fields) = self.inside { fields } else { Vec::new() };
        let field = fields.into_iter().find(|(field, _)| &**field == name);
        field.map_or(Self { line, column, inside: Inside::Nothing }, |(_, mark)| mark)
    }

    /// The marks of `count` items, or what is nearest around them.
    pub(super) fn into_items(self, count: usize) -> Vec<Self> {
        match self.inside {
            Inside::Items(items) if items.len() == count => items,
            _ => vec![Self { inside: Inside::Nothing, ..self }; count],
        }
    }
}

/// The place that `path` leads to, or the nearest around it.
///
/// The value steers the reading of the path, for a name may contain dots and brackets too: the longest that fits wins.
pub(super) fn locate(mark: &Mark, value: &Value, path: &str) -> Position {
    let (mut mark, mut value, mut path) = (mark, value, path);
    while let Some(inner) = step(mark, value, path) {
        (mark, value, path) = inner;
    }
    mark.position()
}

/// One step further in.
fn step<'a>(mark: &'a Mark, value: &'a Value, path: &'a str) -> Option<(&'a Mark, &'a Value, &'a str)> {
    if path.is_empty() {
        return None;
    }
    match &mark.inside {
        Inside::Nothing => None,
        Inside::Items(items) => {
            let (index, rest) = item(value.as_array()?, path.strip_prefix('[')?)?;
            Some((items.get(index)?, value.get(index)?, rest))
        }
        Inside::Fields(fields) => {
            let path = path.strip_prefix('.').unwrap_or(path);
            let follows = |(name, mark): &'a (Box<str>, Mark)| {
                let rest = path.strip_prefix(&**name)?;
                (rest.is_empty() || rest.starts_with(['.', '['])).then_some((name, mark, rest))
            };
            let (name, mark, rest) = fields.iter().filter_map(follows).min_by_key(|(_, _, rest)| rest.len())?;
            Some((mark, value.get(&**name)?, rest))
        }
    }
}

/// The item that `path` names, as in `0].rest` or `name=agent].rest`, and the rest.
fn item<'a>(items: &[Value], path: &'a str) -> Option<(usize, &'a str)> {
    if let Some((number, rest)) = path.split_once(']')
        && let Ok(index) = number.parse()
    {
        return Some((index, rest));
    }
    let (key, path) = path.split_once('=')?;
    let follows = |(index, item): (usize, &Value)| {
        let rest = match item.get(key)? {
            Value::String(text) => path.strip_prefix(text.as_str()),
            other => path.strip_prefix(&other.to_string()),
        };
        Some((index, rest?.strip_prefix(']')?))
    };
    items.iter().enumerate().filter_map(follows).min_by_key(|(_, rest)| rest.len())
}
