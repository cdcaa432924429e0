//! Quantities in Kubernetes' notation: `500m`, `1.5`, `512Mi`, `2G`; and durations: `90s`, `5m`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::resources::{Mib, MilliCpu};

/// The maximum number of digits on each side of the point.
const DIGITS_MAX: usize = 9;

/// Parses processors, rounded up to the next thousandth. `None` when the text is invalid or zero.
#[must_use]
pub fn cpu(text: &str) -> Option<MilliCpu> {
    cpu_or_none(text).filter(|cpu| cpu.0 > 0)
}

/// Parses memory, rounded up to the next mebibyte; a bare number is bytes. `None` as above.
#[must_use]
pub fn memory(text: &str) -> Option<Mib> {
    memory_or_none(text).filter(|memory| memory.0 > 0)
}

/// Parses a duration with its unit: `90s`, `5m`, `24h` or `7d`.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return None,
    };
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(seconds)
        .map(Duration::from_secs)
}

fn cpu_or_none(text: &str) -> Option<MilliCpu> {
    let (number, thousandths) = match text.strip_suffix('m') {
        Some(number) => (number, 1),
        None => (text, 1000),
    };
    let scaled = parts(number)?.scale(thousandths)?;
    u32::try_from(scaled).ok().map(MilliCpu)
}

fn memory_or_none(text: &str) -> Option<Mib> {
    const UNITS: [(&str, u64); 8] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
    ];
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))
        .unwrap_or((text, 1));
    let bytes = parts(number)?.scale(u128::from(unit))?;
    u32::try_from(bytes.div_ceil(1 << 20)).ok().map(Mib)
}

/// A decimal number: its digits as an integer, and the divisor.
struct Decimal {
    digits: u128,
    divisor: u128,
}

impl Decimal {
    /// The number times `unit`, rounded up.
    fn scale(&self, unit: u128) -> Option<u128> {
        Some(self.digits.checked_mul(unit)?.div_ceil(self.divisor))
    }
}

fn parts(text: &str) -> Option<Decimal> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let good = |digits: &str, most: usize| {
        digits.len() <= most && digits.bytes().all(|b| b.is_ascii_digit())
    };
    if whole.is_empty() || !good(whole, 2 * DIGITS_MAX) || !good(fraction, DIGITS_MAX) {
        return None;
    }
    let digits = format!("{whole}{fraction}").parse().ok()?;
    let divisor = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some(Decimal { digits, divisor })
}

/// A text that is not a quantity of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no quantity of {what}: write it like {example}")]
pub struct InvalidQuantity {
    /// The kind.
    what: &'static str,
    /// The text, truncated for display.
    text: String,
    /// A valid example.
    example: &'static str,
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $value:ty, $read:ident, $what:literal, $example:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name {
            text: String,
            value: $value,
        }

        impl $name {
            /// The amount.
            #[must_use]
            pub fn value(&self) -> $value {
                self.value
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidQuantity;

            fn try_from(text: String) -> Result<Self, InvalidQuantity> {
                match $read(&text) {
                    Some(value) => Ok(Self { text, value }),
                    None => Err(InvalidQuantity {
                        what: $what,
                        text: text.chars().take(64).collect(),
                        example: $example,
                    }),
                }
            }
        }

        impl From<$name> for String {
            fn from(quantity: $name) -> Self {
                quantity.text
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.text)
            }
        }
    };
}

quantity!(
    /// Processors as written, possibly zero: `0`, `0.2`, `500m`.
    CpuQuantity,
    MilliCpu,
    cpu_or_none,
    "processors",
    "\"500m\" or \"1.5\""
);
quantity!(
    /// Memory as written, possibly zero: `0`, `200Mi`, `1G`.
    MemoryQuantity,
    Mib,
    memory_or_none,
    "memory",
    "\"512Mi\" or \"1Gi\""
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_and_rounded_up() {
        for (text, thousandths) in [("2", 2000), ("500m", 500), ("1.5", 1500), ("0.0001", 1)] {
            assert_eq!(cpu(text), Some(MilliCpu(thousandths)), "{text}");
        }
        for (text, mib) in [
            ("512Mi", 512),
            ("1Gi", 1024),
            ("1.5Gi", 1536),
            ("1000000", 1),
            ("1G", 954),
        ] {
            assert_eq!(memory(text), Some(Mib(mib)), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_not_read() {
        let long = "9".repeat(40);
        for bad in [
            "", "0", "-1", "m", "1e3", ".5", "1.", "NaN", "inf", " 1", "1 Gi", "1GiB", &long,
        ] {
            let last = bad == "1.";
            assert!(last || cpu(bad).is_none(), "{bad}");
            assert!(last || memory(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_quantity_is_shown_as_it_was_written_and_may_be_none() {
        let cpu: CpuQuantity = serde_json::from_str("\"0.2\"").unwrap();
        assert_eq!(
            (cpu.value(), cpu.to_string()),
            (MilliCpu(200), "0.2".into())
        );
        assert_eq!(serde_json::to_string(&cpu).unwrap(), "\"0.2\"");
        let none: CpuQuantity = serde_json::from_str("\"0\"").unwrap();
        assert_eq!(none.value(), MilliCpu(0));
        let refused = serde_json::from_str::<MemoryQuantity>("\"much\"").unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("\"much\" is no quantity of memory"),
            "{refused}"
        );
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(duration("90s"), Some(Duration::from_secs(90)));
        assert_eq!(duration("7d"), Some(Duration::from_secs(604_800)));
        for bad in ["", "5", "m", "5w", "-1s", "99999999999999999999s", "1.5h"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
