//! Sizes with their units.

use shoal_core::resources::Mib;

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
    fn sizes_need_a_unit() {
        assert_eq!(parse_size("512MiB"), Some(Mib(512)));
        assert_eq!(parse_size("10 GiB"), Some(Mib(10_240)));
        for bad in ["", "10", "0M", "10k", "-1G", "9999999999G"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }
}
