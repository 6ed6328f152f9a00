//! From bytes to text, with the checks that need no parser.

use super::MAX_BYTES;
use super::error::{ManifestError, Position, Problem};

const BYTE_ORDER_MARK: char = '\u{FEFF}';

/// The text of a file, without a byte order mark.
pub(super) fn checked<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, ManifestError> {
    let start = Position { line: 1, column: 1 };
    if bytes.len() > MAX_BYTES {
        return Err(ManifestError::new(name, start, Problem::TooLarge));
    }
    if bytes.starts_with(&[0xFE, 0xFF]) || bytes.starts_with(&[0xFF, 0xFE]) {
        return Err(ManifestError::new(name, start, Problem::Utf16));
    }
    let chunk = bytes.utf8_chunks().next();
    let valid = chunk.as_ref().map_or("", |chunk| chunk.valid());
    let text = valid.strip_prefix(BYTE_ORDER_MARK).unwrap_or(valid);
    if let Some(byte) = chunk.and_then(|chunk| chunk.invalid().first().copied()) {
        let problem = Problem::NotUtf8 { byte, offset: valid.len() };
        return Err(ManifestError::new(name, end_of(text), problem));
    }
    if let Some((offset, character)) = text.char_indices().find(|(_, character)| is_forbidden(*character)) {
        let before = text.get(..offset).unwrap_or_default();
        return Err(ManifestError::new(name, end_of(before), Problem::Control { character: character.into() }));
    }
    Ok(text)
}

/// Whether YAML forbids a character. The parser would take NUL for the end of the file.
fn is_forbidden(character: char) -> bool {
    character.is_control() && !matches!(character, '\t' | '\n' | '\r' | '\u{85}')
}

/// Where text ends, its lines ended as on any system.
fn end_of(text: &str) -> Position {
    let mut end = Position { line: 1, column: 1 };
    let mut previous = '\0';
    for character in text.chars() {
        match (previous, character) {
            ('\r', '\n') => {}
            (_, '\n' | '\r') => end = Position { line: end.line + 1, column: 1 },
            _ => end.column += 1,
        }
        previous = character;
    }
    end
}
