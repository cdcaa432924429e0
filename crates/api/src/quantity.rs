//! Quantities as Kubernetes writes them: `500m`, `1.5`, `512Mi`, `2G`.

use shoal_core::resources::{Mib, MilliCpu};

/// The most digits that are read on each side of the point.
const DIGITS_MAX: usize = 9;

/// Processors, rounded up to the next thousandth; none when the text says none, or no more than
/// nothing.
pub(crate) fn cpu(text: &str) -> Option<MilliCpu> {
    let (number, thousandths) = match text.strip_suffix('m') {
        Some(number) => (number, 1),
        None => (text, 1000),
    };
    scaled(number, thousandths).map(MilliCpu)
}

/// Memory, rounded up to the next mebibyte; a bare number is bytes. None as above.
pub(crate) fn memory(text: &str) -> Option<Mib> {
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
    let mib = u32::try_from(bytes.div_ceil(1 << 20)).ok()?;
    (mib > 0).then_some(Mib(mib))
}

fn scaled(number: &str, unit: u32) -> Option<u32> {
    let value = u32::try_from(parts(number)?.scale(u128::from(unit))?).ok()?;
    (value > 0).then_some(value)
}

/// A decimal number: its digits as a whole, and what they are to be divided by.
struct Decimal {
    digits: u128,
    divisor: u128,
}

impl Decimal {
    /// So many times this, rounded up.
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
}
