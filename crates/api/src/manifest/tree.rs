//! From the parser's events to values with their places, within limits.

use std::collections::HashMap;

use granit_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::Value;

use super::error::{ManifestError, Position, Problem, SHOWN_CHARACTERS, shown};
use super::locate::{Inside, Mark};
use super::object::Fields;
use super::{MAX_BYTES, MAX_DEPTH, MAX_VALUES, scalar, syntax};

/// A value with its places.
pub(super) struct Document {
    pub(super) value: Value,
    pub(super) mark: Mark,
}

impl Document {
    /// The entries of the list at `items`.
    pub(super) fn into_items(mut self) -> Vec<Self> {
        let Some(Value::Array(values)) = self.value.get_mut("items").map(Value::take) else { return Vec::new() };
        let marks = self.mark.into_field("items").into_items(values.len());
        values.into_iter().zip(marks).map(|(value, mark)| Self { value, mark }).collect()
    }
}

/// The documents of a file, without empty ones.
pub(super) fn documents(file: &str, text: &str) -> Result<Vec<Document>, ManifestError> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let events = Parser::new_from_str_with_options(text, options);
    let mut reader = Reader {
        file,
        text,
        events,
        depth: 0,
        anchors: HashMap::new(),
        values: 0,
        repeated: 0,
        end: Marker::new(0, 1, 0),
    };
    let mut documents = Vec::new();
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentEnd => {}
            Event::DocumentStart(..) => reader.anchors.clear(),
            Event::StreamEnd => return Ok(documents),
            event => {
                let (value, inside) = reader.value(event, span)?;
                if !value.is_null() {
                    documents.push(Document { value, mark: Mark::new(position(span.start), inside) });
                }
            }
        }
    }
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    events: Parser<'a, StrInput<'a>>,
    /// How many lists and objects are open.
    depth: usize,
    anchors: HashMap<usize, Anchored>,
    /// How many values there are so far, copies included.
    values: usize,
    /// How many bytes of text have been copied.
    repeated: usize,
    /// Where the last event ended.
    end: Marker,
}

/// A value that aliases may repeat.
struct Anchored {
    value: Value,
    size: Size,
}

/// What a copy costs.
#[derive(Clone, Copy, Default)]
struct Size {
    values: usize,
    bytes: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), ManifestError> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                self.end = span.end;
                Ok((event, span))
            }
            Some(Err(error)) => Err(self.error(*error.marker(), syntax::problem(error.kind()))),
            None => Err(self.error(self.end, syntax::ends_too_early())),
        }
    }

    fn error(&self, at: Marker, problem: Problem) -> ManifestError {
        ManifestError::new(self.file, position(at), problem)
    }

    /// The value that begins with `event`.
    fn value(&mut self, event: Event<'a>, span: Span) -> Result<(Value, Inside), ManifestError> {
        self.count(Size { values: 1, ..Size::default() }, span.start)?;
        self.node(event, span)
    }

    /// The value or key that begins with `event`.
    fn node(&mut self, event: Event<'a>, span: Span) -> Result<(Value, Inside), ManifestError> {
        let at = span.start;
        let (anchor, (value, inside)) = match event {
            Event::Alias(id) => return Ok((self.alias(id, span)?, Inside::Nothing)),
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar::value(&text, style, tag.as_deref()).map_err(|problem| self.error(at, problem))?;
                (anchor, (value, Inside::Nothing))
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.enter(at, tag.as_deref(), "seq")?;
                (anchor, self.list()?)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.enter(at, tag.as_deref(), "map")?;
                (anchor, self.object()?)
            }
            // Anything else is where a value should be.
            _ => return Err(self.error(at, syntax::ends_too_early())),
        };
        self.keep(anchor, &value, at)?;
        Ok((value, inside))
    }

    /// Begins a list or an object, for which `core` is the only tag.
    fn enter(&mut self, at: Marker, tag: Option<&Tag>, core: &str) -> Result<(), ManifestError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(at, Problem::TooDeep));
        }
        match tag {
            Some(tag) if !tag.is_yaml_core_schema_tag(core) => {
                Err(self.error(at, Problem::Tag { tag: shown(&tag.original(), SHOWN_CHARACTERS) }))
            }
            _ => Ok(()),
        }
    }

    fn list(&mut self) -> Result<(Value, Inside), ManifestError> {
        let mut values = Vec::new();
        let mut marks = Vec::new();
        loop {
            let index = values.len();
            let (event, span) = self.next().map_err(|error| error.in_item(index))?;
            if event == Event::SequenceEnd {
                break;
            }
            let (value, inside) = self.value(event, span).map_err(|error| error.in_item(index))?;
            values.push(value);
            marks.push(Mark::new(position(span.start), inside));
        }
        self.depth -= 1;
        Ok((Value::Array(values), Inside::Items(marks)))
    }

    fn object(&mut self) -> Result<(Value, Inside), ManifestError> {
        let mut fields = Fields::default();
        loop {
            let (event, span) = self.next()?;
            let at = span.start;
            if event == Event::MappingEnd {
                break;
            }
            if is_merge(&event) {
                fields.begin_merge(position(at)).map_err(|problem| self.error(at, problem).in_field("<<"))?;
                let (value, _) = self.field("<<")?;
                fields.merge(value).map_err(|problem| self.error(at, problem).in_field("<<"))?;
                continue;
            }
            let (key, _) = self.node(event, span)?;
            let key = scalar::key(key).map_err(|problem| self.error(at, problem))?;
            fields.admit(&key).map_err(|problem| self.error(at, problem).in_field(&key))?;
            let (value, inside) = self.field(&key)?;
            fields.insert(key, value, Mark::new(position(at), inside));
        }
        self.depth -= 1;
        Ok(fields.finish())
    }

    /// The value of a field.
    fn field(&mut self, name: &str) -> Result<(Value, Inside), ManifestError> {
        let value = self.next().and_then(|(event, span)| self.value(event, span));
        value.map_err(|error| error.in_field(name))
    }

    /// Keeps a value for its aliases.
    fn keep(&mut self, anchor: usize, value: &Value, at: Marker) -> Result<(), ManifestError> {
        if anchor != 0 {
            let size = size(value);
            self.count(size, at)?;
            self.anchors.insert(anchor, Anchored { value: value.clone(), size });
        }
        Ok(())
    }

    /// A copy of the value that an alias repeats.
    fn alias(&mut self, id: usize, span: Span) -> Result<Value, ManifestError> {
        let Some(size) = self.anchors.get(&id).map(|anchored| anchored.size) else {
            let alias = shown(span.slice(self.text).unwrap_or_default(), SHOWN_CHARACTERS);
            return Err(self.error(span.start, Problem::AliasInside { alias }));
        };
        if self.depth + size.depth > MAX_DEPTH {
            return Err(self.error(span.start, Problem::TooDeep));
        }
        self.count(size, span.start)?;
        Ok(self.anchors.get(&id).map(|anchored| anchored.value.clone()).unwrap_or_default())
    }

    /// Takes a value or a copy from the budget.
    fn count(&mut self, size: Size, at: Marker) -> Result<(), ManifestError> {
        self.values += size.values;
        self.repeated += size.bytes;
        if self.values > MAX_VALUES {
            return Err(self.error(at, Problem::TooManyValues));
        }
        if self.repeated > MAX_BYTES {
            return Err(self.error(at, Problem::TooMuchRepeated));
        }
        Ok(())
    }
}

fn is_merge(event: &Event<'_>) -> bool {
    matches!(event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<")
}

fn size(value: &Value) -> Size {
    let sum = |sum: Size, inner: Size| Size {
        values: sum.values + inner.values,
        bytes: sum.bytes + inner.bytes,
        depth: sum.depth.max(inner.depth + 1),
    };
    let empty = Size { values: 1, bytes: 0, depth: 1 };
    match value {
        Value::String(text) => Size { values: 1, bytes: text.len(), depth: 0 },
        Value::Array(items) => items.iter().map(size).fold(empty, sum),
        Value::Object(fields) => fields.iter().map(|(key, value)| size(value).with_bytes(key.len())).fold(empty, sum),
        Value::Null | Value::Bool(_) | Value::Number(_) => Size { values: 1, ..Size::default() },
    }
}

impl Size {
    fn with_bytes(self, bytes: usize) -> Self {
        Self { bytes: self.bytes + bytes, ..self }
    }
}

/// The parser counts columns from zero.
fn position(marker: Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}
