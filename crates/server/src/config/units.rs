//! Sizes, times and processors.

pub(super) use shoal_core::quantity::duration;
use shoal_core::resources::{Mib, MilliCpu};

/// Parses `512MiB` or `10GiB`; `M` and `G` mean the same.
pub(super) fn parse_size(text: &str) -> Option<Mib> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let mebibytes = match unit.trim() {
        "M" | "MB" | "MiB" => 1,
        "G" | "GB" | "GiB" => 1024,
        "T" | "TB" | "TiB" => 1024 * 1024,
        _ => return None,
    };
    number
        .parse::<u32>()
        .ok()?
        .checked_mul(mebibytes)
        .filter(|n| *n > 0)
        .map(Mib)
}

/// Parses a number of processors.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked"
)]
pub(super) fn parse_processors(text: &str) -> Option<MilliCpu> {
    let number: f64 = text.parse().ok()?;
    (0.001..=1e6)
        .contains(&number)
        .then_some(MilliCpu((number * 1000.0) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_need_a_unit() {
        assert_eq!(parse_size("512MiB"), Some(Mib(512)));
        assert_eq!(parse_size("10 GiB"), Some(Mib(10_240)));
        for bad in ["", "10", "0M", "10k", "-1G", "9999999999G"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }
}
