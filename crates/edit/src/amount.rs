//! Amounts of resources, as Kubernetes reads them.

use serde_json::Value;

/// An amount in billionths, the smallest that Kubernetes knows; nothing if it is none, or beyond all measure.
pub fn nanos(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{}", fraction.trim_end_matches('0'));
    if digits.is_empty() && fraction.is_empty() {
        return None;
    }
    // More dots than one are no digits.
    let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let (factor, exponent) = factor_of(suffix)?;
    let exponent = exponent.checked_add(9)?.checked_sub(i32::try_from(fraction.trim_end_matches('0').len()).ok()?)?;
    let product = mantissa.checked_mul(factor)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    let amount = match (exponent >= 0, power) {
        (true, Some(power)) => product.checked_mul(power)?,
        // What is smaller than the smallest counts as that.
        (false, Some(power)) => product / power + i128::from(product % power > 0),
        (true, None) if product == 0 => 0,
        (true, None) => return None,
        (false, None) => i128::from(product > 0),
    };
    Some(if is_negative { -amount } else { amount })
}

/// What a suffix multiplies with, and by which power of ten.
fn factor_of(suffix: &str) -> Option<(i128, i32)> {
    const STEPS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if let Some(letter) = suffix.strip_suffix('i') {
        let step = STEPS.iter().position(|known| *known == letter)?;
        return Some((1 << (10 * (step + 1)), 0));
    }
    let exponent = match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
    };
    Some((1, exponent))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_read_as_kubernetes_reads_them() {
        const ONE: i128 = 1_000_000_000;
        for (value, expected) in [
            (json!("100m"), Some(ONE / 10)),
            (json!(0.5), Some(ONE / 2)),
            (json!(2), Some(2 * ONE)),
            (json!(".5"), Some(ONE / 2)),
            (json!("5."), Some(5 * ONE)),
            (json!("1Ki"), Some(1024 * ONE)),
            (json!("1.5Gi"), Some(1536 * 1024 * 1024 * ONE)),
            (json!("1k"), Some(1000 * ONE)),
            (json!("1E"), Some(1_000_000_000_000_000_000 * ONE)),
            (json!("1e3"), Some(1000 * ONE)),
            (json!("12E-1"), Some(ONE * 12 / 10)),
            (json!("0"), Some(0)),
            (json!("0.0"), Some(0)),
            (json!("-1"), Some(-ONE)),
            (json!("0.1n"), Some(1)),
            (json!("1e-400"), Some(1)),
            (json!("1e400"), None),
            (json!(""), None),
            (json!("."), None),
            (json!("1.2.3"), None),
            (json!("1 Gi"), None),
            (json!("1mi"), None),
            (json!("Gi"), None),
            (json!("1e"), None),
            (json!(true), None),
        ] {
            assert_eq!(nanos(&value), expected, "{value}");
        }
    }

    proptest! {
        /// Whatever is written, reading it does not panic, and a larger number is a larger amount.
        #[test]
        fn reading_amounts_never_panics(text in "[-+0-9.eEkKmMGin]{0,12}", number in 0..1_000_000_u32) {
            let _ = nanos(&json!(text));
            for suffix in ["", "m", "k", "Mi", "e2"] {
                let amount = |number: u32| nanos(&json!(format!("{number}{suffix}")));
                prop_assert!(amount(number) < amount(number + 1));
            }
        }
    }
}
