//! Amounts, such as `500m` and `2Gi`.

use serde_json::Value;

/// Suffixes, and what they stand for in thousandths.
const SUFFIXES: [(&str, i128); 14] = [
    ("Ki", 1000 << 10),
    ("Mi", 1000 << 20),
    ("Gi", 1000 << 30),
    ("Ti", 1000 << 40),
    ("Pi", 1000 << 50),
    ("Ei", 1000 << 60),
    ("m", 1),
    ("k", 1_000_000),
    ("M", 1_000_000_000),
    ("G", 1_000_000_000_000),
    ("T", 1_000_000_000_000_000),
    ("P", 1_000_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000_000),
    ("", 1000),
];

/// An amount in thousandths. What cannot be read is nothing.
pub(super) fn thousandths(amount: &Value) -> i128 {
    match amount {
        Value::Number(number) => number.as_i64().map_or(0, |number| i128::from(number) * 1000),
        Value::String(text) => read(text).unwrap_or(0),
        _ => 0,
    }
}

fn read(text: &str) -> Option<i128> {
    let (digits, unit) = SUFFIXES.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let scale = 10_i128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let number: i128 = format!("{whole}{part}").parse().ok()?;
    Some(number.checked_mul(unit)? / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_are_read() {
        for (amount, expected) in [
            (json!("100m"), 100),
            (json!("1"), 1000),
            (json!(2), 2000),
            (json!("1.5"), 1500),
            (json!("1Ki"), 1_024_000),
            (json!("0.5Gi"), 1000 << 29),
            (json!("2k"), 2_000_000),
            (json!("nonsense"), 0),
        ] {
            assert_eq!(thousandths(&amount), expected, "{amount}");
        }
    }
}
