//! Quantities of resources: `500m`, `1.5`, `2Gi`, `1e3`. They are compared by value, not by text.

use serde_json::Value;

/// The factor of each suffix, in billionths.
const NANO: i128 = 1_000_000_000;
const SUFFIXES: [(&str, i128); 16] = [
    ("Ki", NANO << 10),
    ("Mi", NANO << 20),
    ("Gi", NANO << 30),
    ("Ti", NANO << 40),
    ("Pi", NANO << 50),
    ("Ei", NANO << 60),
    ("n", 1),
    ("u", 1_000),
    ("m", 1_000_000),
    ("k", NANO * 1_000),
    ("M", NANO * 1_000_000),
    ("G", NANO * 1_000_000_000),
    ("T", NANO * 1_000_000_000_000),
    ("P", NANO * 1_000_000_000_000_000),
    ("E", NANO * 1_000_000_000_000_000_000),
    ("", NANO),
];

/// The value of a quantity in billionths. Digits beyond them are cut.
#[must_use]
pub fn nano(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let factor = factor(suffix)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(9)];
    let read = |digits: &str| -> Option<i128> {
        if digits.is_empty() {
            return Some(0);
        }
        digits.parse().ok()
    };
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let value = read(whole)?
        .checked_mul(factor)?
        .checked_add(read(fraction)?.checked_mul(factor)? / scale)?;
    Some(if negative { -value } else { value })
}

fn factor(suffix: &str) -> Option<i128> {
    if let Some((_, factor)) = SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        return Some(*factor);
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    if exponent < 0 {
        return Some(NANO / power);
    }
    NANO.checked_mul(power)
}

/// The value of a quantity in JSON, which is a text or a number.
#[must_use]
pub fn nano_of(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => nano(text),
        Value::Number(number) => nano(&number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_quantities_have_equal_values() {
        for (one, other) in [
            ("500m", "0.5"),
            ("1", "1000m"),
            ("1Gi", "1024Mi"),
            ("1G", "1000M"),
            ("1e3", "1k"),
            ("1.5Gi", "1536Mi"),
            (".5", "500m"),
            ("2.", "2"),
            ("5e-1", "500m"),
        ] {
            assert_eq!(nano(one), nano(other), "{one} {other}");
            assert!(nano(one).is_some(), "{one}");
        }
        assert!(nano("999m") < nano("1"));
        assert!(nano("-1") < nano("0"));
    }

    #[test]
    fn other_texts_are_no_quantities() {
        for text in ["", "m", "1x", "1.2.3", "1 Gi", "--1", "e3", "1e", "1e99"] {
            assert_eq!(nano(text), None, "{text:?}");
        }
    }

    #[test]
    fn numbers_in_json_are_quantities() {
        assert_eq!(nano_of(&json!(2)), nano("2"));
        assert_eq!(nano_of(&json!(0.5)), nano("500m"));
        assert_eq!(nano_of(&json!([])), None);
    }
}
