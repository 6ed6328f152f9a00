//! What is wrong with a file that is neither YAML nor JSON, in words that need no knowledge of how YAML is read.

use granit_parser::ErrorKind;

use super::error::Problem;

/// A file that ends, or goes on with something else, where a value should be.
pub(super) fn ends_too_early() -> Problem {
    let message = "the file ends, or something else begins, where a value should be".to_owned();
    Problem::Syntax { message }
}

/// What the parser found, and what to do about it.
pub(super) fn problem(found: &ErrorKind) -> Problem {
    use ErrorKind as Kind;
    let message = match found {
        Kind::RecursionLimitExceeded => return Problem::TooDeep,
        Kind::UnexpectedEof | Kind::UnexpectedEofBlockSequence | Kind::UnexpectedEofBlockMapping => {
            return ends_too_early();
        }
        Kind::UnclosedFlowCollection { open } => format!("{open} is never closed"),
        Kind::MismatchedFlowCollectionEnd { open, close } => format!("{open} is closed by {close}"),
        Kind::UnexpectedCharacter { character } => {
            format!("{} cannot stand here: put the text in quotes", character.escape_default())
        }
        other => in_brackets(other).or_else(|| in_lines(other)).unwrap_or_else(|| in_text(other)).to_owned(),
    };
    Problem::Syntax { message }
}

/// What can be wrong with lists in `[ ]` and objects in `{ }`.
fn in_brackets(found: &ErrorKind) -> Option<&'static str> {
    use ErrorKind as Kind;
    Some(match found {
        Kind::MisplacedFlowCollectionEnd => "this bracket closes nothing",
        Kind::UnexpectedEofFlowSequence | Kind::ExpectedFlowSequenceSeparator => "a list in [ ] needs , or ] here",
        Kind::UnexpectedEofFlowMapping
        | Kind::UnexpectedEofImplicitFlowMapping
        | Kind::ExpectedFlowMappingSeparator
        | Kind::FlowMappingValueAdjacentCollection => "an object in { } needs , or } here",
        Kind::BlockEntryInFlowCollection | Kind::PlainScalarStartsWithDashFlowIndicator => {
            "an item in [ ] or { } has no dash before it"
        }
        _ => return None,
    })
}

/// What can be wrong with indentation, and with what stands before and behind names.
fn in_lines(found: &ErrorKind) -> Option<&'static str> {
    use ErrorKind as Kind;
    Some(match found {
        Kind::TabNotAllowed
        | Kind::TabInBlockIndentation
        | Kind::TabInIndentation
        | Kind::TabAtBlockScalarStart
        | Kind::TabInPlainScalar => "a tab cannot stand here: indent with spaces",
        Kind::InvalidIndentation
        | Kind::InvalidBlockScalarIndent
        | Kind::InvalidFlowScalarIndent
        | Kind::ExpectedBlockMappingKey
        | Kind::ExpectedBlockSequenceEntry
        | Kind::BlockSequenceEntryNotAllowed
        | Kind::MappingKeyNotAllowed
        | Kind::InvalidSimpleKey => {
            "this does not fit what stands above it: give fields of one object, and items of one list, the same indentation"
        }
        Kind::SimpleKeyExpected => "a field needs a colon and a space behind its name",
        Kind::MappingValueNotAllowed | Kind::InvalidColonPlacement => {
            "a colon cannot stand here: put the text in quotes, or begin a new line"
        }
        Kind::InvalidMappingValueWhitespace => "a colon needs a space behind it",
        Kind::InvalidBlockEntryWhitespace => "a dash needs a space behind it",
        Kind::ExpectedNodeContent | Kind::UnexpectedEndOfPlainScalar => "there should be a value here",
        Kind::ExpectedDocumentStart | Kind::InvalidDocumentEnd => {
            "an object has ended here: separate documents by a line of ---"
        }
        _ => return None,
    })
}

/// What can be wrong with text, and all that is rare.
fn in_text(found: &ErrorKind) -> &'static str {
    use ErrorKind as Kind;
    match found {
        Kind::UnclosedQuotedScalar => "a quote is never closed",
        Kind::InvalidQuotedScalarIndent | Kind::DocumentIndicatorInQuotedScalar => {
            "this is inside a quote that is still open: close the quote, or indent the line"
        }
        Kind::InvalidTrailingSingleQuotedScalar | Kind::InvalidTrailingDoubleQuotedScalar => {
            "nothing can follow the end of a quote on its line: put all of the text in quotes"
        }
        Kind::UnknownQuotedScalarEscape
        | Kind::InvalidQuotedScalarHexEscape
        | Kind::InvalidLowSurrogateHexEscape
        | Kind::InvalidLowSurrogate
        | Kind::MissingLowSurrogate
        | Kind::UnpairedLowSurrogate
        | Kind::InvalidUnicodeEscape => {
            "there is no such character behind a backslash: write \\\\ for a backslash, or use single quotes"
        }
        Kind::UnknownAnchor => "there is no such anchor: an alias comes after its anchor, in the same document",
        Kind::MissingAnchorOrAliasName => "& and * name an anchor: put the text in quotes if it is meant as such",
        Kind::CommentNotSeparated | Kind::CommentInterceptedScalar => {
            "# begins a comment here: put a space before it, or the text in quotes"
        }
        Kind::ZeroBlockScalarIndent | Kind::InvalidBlockScalarHeader => {
            "nothing but a comment can follow | and > on their line"
        }
        Kind::BomInsideDocument => "a byte order mark can only be at the start of the file: remove it",
        _ => "this is not YAML: put the text in quotes if it is meant as such",
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;

    /// Words of parsers and libraries, which nobody who writes a file need know.
    const WORDS: [&str; 12] = [
        "while",
        "parsing",
        "scanning",
        "scalar",
        "mapping",
        "sequence",
        "flow",
        "block ",
        "node content",
        "token",
        "EOF",
        "simple key",
    ];

    #[test]
    fn no_message_has_words_of_the_parser() {
        for (text, expected) in [
            ("a: [1, 2\n", "1:4: a[1]: [ is never closed"),
            ("a: {b: 1\n", "{ is never closed"),
            ("a: [1}\n", "[ is closed by }"),
            ("a: 1]\nb: 2\n", ""),
            ("a: b: c\n", "1:5: a colon cannot stand here: put the text in quotes, or begin a new line"),
            ("a: 1\n  b: 2\n", ""),
            ("a:\n  b: 1\n c: 2\n", ""),
            ("a:\n\tb: 1\n", ""),
            ("a: 'b\n", ""),
            ("a: \"\\q\"\n", ""),
            ("a: *b\n", ""),
            ("a: @b\n", ""),
            ("a: %b\n", ""),
            ("a: - b\n", ""),
            ("a: 'b' c\n", ""),
            ("a\nb: 1\n", ""),
            ("- a\nb: 1\n", ""),
            ("a: {b: [}\n", ""),
            ("a: !<x y\n", ""),
            ("%YAML 9.9\n%YAML 1\na: 1\n", ""),
            ("a: &\n", ""),
            ("a: |0\n  x\n", ""),
            ("{a: 1} b\n", ""),
        ] {
            let Err(error) = read("f.yaml", text.as_bytes()) else { continue };
            let message = error.to_string();
            assert!(WORDS.iter().all(|word| !message.contains(word)), "{text:?}: {message}");
            assert!(message.contains(expected), "{text:?}: {message}");
        }
    }
}
