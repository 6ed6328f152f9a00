//! What a scalar means. As `sigs.k8s.io/yaml` reads it, but for numbers that it would change.

use granit_parser::{ScalarStyle, Tag};
use serde_json::{Number, Value};

use super::error::{Problem, SHOWN_CHARACTERS, kind_of, shown};

/// The value of a scalar.
pub(super) fn value(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, Problem> {
    match tag {
        Some(tag) => tagged(text, tag),
        None if style == ScalarStyle::Plain => plain(text),
        None => Ok(Value::from(text)),
    }
}

/// A value as the key of an object, for which JSON has only text.
pub(super) fn key(value: Value) -> Result<String, Problem> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(_) => Ok(value.to_string()),
        Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
        Value::Number(_) => Err(Problem::Key { found: "a number with a fraction" }),
        Value::Null => Err(Problem::Key { found: "null" }),
        Value::Array(_) | Value::Object(_) => Err(Problem::NestedKey { found: kind_of(&value) }),
    }
}

fn tagged(text: &str, tag: &Tag) -> Result<Value, Problem> {
    let fits: fn(&Value) -> bool = match tag.core_suffix() {
        Some("str") => return Ok(Value::from(text)),
        Some("null") => Value::is_null,
        Some("bool") => Value::is_boolean,
        Some("int") => |value| value.is_i64() || value.is_u64(),
        Some("float") => Value::is_number,
        // A lone `!` says: this is what it looks like, text.
        _ if tag.original() == "!" => return Ok(Value::from(text)),
        _ => return Err(Problem::Tag { tag: shown(&tag.original(), SHOWN_CHARACTERS) }),
    };
    let value = plain(text)?;
    if fits(&value) {
        Ok(value)
    } else {
        Err(Problem::TagMismatch { tag: tag.original(), text: shown(text, SHOWN_CHARACTERS) })
    }
}

fn plain(text: &str) -> Result<Value, Problem> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Ok(Value::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Ok(Value::Bool(true)),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Ok(Value::Bool(false)),
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf"
        | "-.INF" => Err(Problem::NotFinite { text: text.to_owned() }),
        _ if text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) => {
            number(text).map(|number| number.map_or_else(|| Value::from(text), Value::Number))
        }
        _ => Ok(Value::from(text)),
    }
}

/// The number that `text` is, if it is one.
fn number(text: &str) -> Result<Option<Number>, Problem> {
    let bare = text.replace('_', "");
    let too_large = || Problem::Number { text: shown(text, SHOWN_CHARACTERS) };
    let (is_negative, unsigned) = match bare.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, bare.strip_prefix('+').unwrap_or(&bare)),
    };
    let (radix, digits) = split_radix(unsigned);
    if !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix)) {
        let size = u64::from_str_radix(digits, radix).map_err(|_| too_large())?;
        return if is_negative {
            let value = i64::try_from(-i128::from(size)).map_err(|_| too_large())?;
            Ok(Some(value.into()))
        } else {
            Ok(Some(size.into()))
        };
    }
    if !is_decimal(unsigned) {
        return Ok(None);
    }
    let value: f64 = bare.parse().map_err(|_| too_large())?;
    // JSON does not tell 1.0 from 1, and Kubernetes reads it as an integer.
    match format!("{value}").parse::<i64>() {
        Ok(integer) => Ok(Some(integer.into())),
        Err(_) => Number::from_f64(value).map(Some).ok_or_else(too_large),
    }
}

/// The base of an unsigned integer, and its digits.
fn split_radix(text: &str) -> (u32, &str) {
    let prefixed = |prefix: &str| {
        let (head, digits) = text.split_at_checked(prefix.len())?;
        head.eq_ignore_ascii_case(prefix).then_some(digits)
    };
    if let Some(digits) = prefixed("0x") {
        (16, digits)
    } else if let Some(digits) = prefixed("0b") {
        (2, digits)
    } else if let Some(digits) = prefixed("0o") {
        (8, digits)
    } else if text.len() > 1 && text.starts_with('0') && text.bytes().all(|digit| matches!(digit, b'0'..=b'7')) {
        (8, text)
    } else {
        (10, text)
    }
}

/// Whether this is an unsigned number with a fraction or an exponent.
fn is_decimal(text: &str) -> bool {
    let is_digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(left, right)| (left, Some(right)));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && is_digits(exponent)
    });
    is_digits(whole) && is_digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && exponent_fits
}
