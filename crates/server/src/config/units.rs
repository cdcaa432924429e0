//! Times and sizes with their units.

use std::time::Duration;

use shoal_core::resources::Mib;

/// Reads `90s`, `5m`, `24h` or `7d`.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
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

/// Reads `512MiB` or `10GiB`; `M` and `G` mean the same.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_need_a_unit() {
        assert_eq!(parse_duration("90s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("7d"), Some(Duration::from_secs(604_800)));
        for bad in ["", "5", "m", "5w", "-1s", "99999999999999999999s", "1.5h"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
        assert_eq!(parse_size("512MiB"), Some(Mib(512)));
        assert_eq!(parse_size("10 GiB"), Some(Mib(10_240)));
        for bad in ["", "10", "0M", "10k", "-1G", "9999999999G"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }
}
