//! JSON as Go's encoder writes it, byte for byte.
//!
//! The API server compares the `data` of a ControllerRevision as bytes, keeps what was sent when it was made, and writes it
//! anew in Go's form whenever somebody patches it. So what is sent in another form, though it means the same, can never be
//! changed again: not by us, nor by kubectl, nor by the garbage collector.

use std::fmt::Write as _;

use serde_json::{Number, Value};

use crate::compact::{Form, write};

/// The smallest number that Go writes without an exponent, and the first that it writes with one again.
const PLAIN: std::ops::Range<f64> = 1e-6..1e21;

/// The bytes that Go writes for this value once it has read it. Read again by Go, they give the same.
pub fn encode(value: &Value) -> String {
    let mut out = String::new();
    write::<Go>(&mut out, value);
    out
}

/// Whether other encoders write it in the same form, as long as they have its keys in order.
pub fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::Number(number) => number.is_i64(),
        Value::String(text) => is_plain_text(text),
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(map) => map.iter().all(|(key, value)| is_plain_text(key) && is_plain(value)),
    }
}

fn is_plain_text(text: &str) -> bool {
    // Of control characters, versions of Go differ in two.
    !text.contains(|char: char| char.is_ascii_control() && !"\n\r\t".contains(char) || is_escaped(char))
}

/// Whether Go writes a character as an escape that JSON itself does not ask for, so that it does no harm in a web page.
fn is_escaped(char: char) -> bool {
    matches!(char, '&' | '<' | '>' | '\u{2028}' | '\u{2029}')
}

/// As Go's encoder writes it.
struct Go;

impl Form for Go {
    /// Whole numbers of 64 bits with a sign stay what they are; Kubernetes reads every other as a floating-point number.
    fn write_number(out: &mut String, number: &Number) {
        if let Some(whole) = number.as_i64() {
            _ = write!(out, "{whole}");
            return;
        }
        let value = number.as_f64().unwrap_or_default();
        if value == 0.0 {
            // The minus of a zero does not outlast being read.
            out.push('0');
            return;
        }
        if value < 0.0 {
            out.push('-');
        }
        let (digits, point) = shortest(value.abs());
        match usize::try_from(point) {
            Ok(whole) if PLAIN.contains(&value.abs()) && whole >= digits.len() => {
                out.push_str(&digits);
                out.push_str(&"0".repeat(whole - digits.len()));
            }
            Ok(whole) if PLAIN.contains(&value.abs()) && whole > 0 => {
                let (whole, part) = digits.split_at(whole);
                _ = write!(out, "{whole}.{part}");
            }
            _ if PLAIN.contains(&value.abs()) => {
                _ = write!(out, "0.{}{digits}", "0".repeat(usize::try_from(-point).unwrap_or(0)));
            }
            _ => {
                let (first, rest) = digits.split_at(1);
                let dot = if rest.is_empty() { "" } else { "." };
                _ = write!(out, "{first}{dot}{rest}e{:+}", point - 1);
            }
        }
    }

    fn write_text(out: &mut String, text: &str) {
        out.push('"');
        for char in text.chars() {
            match char {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                char if char < ' ' || is_escaped(char) => _ = write!(out, "\\u{:04x}", u32::from(char)),
                char => out.push(char),
            }
        }
        out.push('"');
    }
}

/// The fewest digits that stand for a number, and how many of them are before its point. Of two that are as near, the
/// even one, as Go has it: the standard library takes the other.
fn shortest(value: f64) -> (String, i32) {
    let text = Number::from_f64(value).map(|number| number.to_string()).unwrap_or_default();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{part}");
    let digits = all.trim_start_matches('0');
    let before = i32::try_from(whole.len()).unwrap_or(0) - i32::try_from(all.len() - digits.len()).unwrap_or(0);
    (digits.trim_end_matches('0').to_owned(), before + exponent.parse::<i32>().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_go_writes_otherwise() {
        for (value, expected) in [
            (json!("a && b > c < d"), r#""a \u0026\u0026 b \u003e c \u003c d""#),
            (json!("\u{2028}\u{2029}"), r#""\u2028\u2029""#),
            (json!("\u{8}\u{c}\u{1}\u{7f}"), "\"\\b\\f\\u0001\u{7f}\""),
            (json!("\"\\\n\r\t/é漢🦀"), r#""\"\\\n\r\t/é漢🦀""#),
            (json!({"b": 1, "a&": [], "A": {}}), r#"{"A":{},"a\u0026":[],"b":1}"#),
            (json!(1.0), "1"),
            (json!(1e3), "1000"),
            (json!(-0.0), "0"),
            (json!(1.5e-7), "1.5e-7"),
            (json!(1e21), "1e+21"),
            (json!(123_456_789_012_345_680_000.0), "123456789012345680000"),
            (json!(-872_456_803_073_213.2), "-872456803073213.2"),
            (json!(0.001), "0.001"),
            (json!(1e-6), "0.000001"),
            (json!(100.0), "100"),
            (json!(9_007_199_254_740_993_i64), "9007199254740993"),
            (json!(u64::MAX), "18446744073709552000"),
            (json!(i64::MIN), "-9223372036854775808"),
        ] {
            assert_eq!(encode(&value), expected);
            // What we read back is written as it was: so is what the API server keeps.
            let read: Value = serde_json::from_str(expected).unwrap();
            assert_eq!(encode(&read), expected);
        }
    }

    #[test]
    fn plain_is_what_every_encoder_writes_alike() {
        for value in [json!(null), json!([1, "x\n", true]), json!({"é/\"": {"b": [-1]}})] {
            assert!(is_plain(&value), "{value}");
            assert_eq!(encode(&value), value.to_string());
        }
        for value in [json!(["a & b"]), json!({"<": 1}), json!(1.0), json!(u64::MAX), json!("\u{8}"), json!("\u{2028}")]
        {
            assert!(!is_plain(&value), "{value}");
        }
    }
}
