//! Versions of runtimes that are known to let a container out.

use super::Kind;

/// The least release of each line of runc in which the known ways out are closed; later lines are newer
/// than all of them.
const RUNC_LEAST: [(u32, u32, u32); 3] = [(1, 2, 8), (1, 3, 3), (1, 4, 0)];

/// What older ones are known for.
const RUNC_WHY: &str = "CVE-2024-21626 (a leaked descriptor of the machine's file system), \
    CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881 (races over masked paths and /dev/console)";

/// Why a runtime of this version is not safe with hostile code; none where nothing is known. What a
/// distribution has mended under an old version cannot be seen in it.
pub(crate) fn weakness(kind: Kind, version: &str) -> Option<String> {
    if kind != Kind::Runc {
        return None;
    }
    let found = numbers(version)?;
    let (major, minor, _) = found;
    let line = RUNC_LEAST
        .iter()
        .find(|least| (least.0, least.1) == (major, minor));
    let least = match line {
        Some(least) => *least,
        None if found > RUNC_LEAST[RUNC_LEAST.len() - 1] => return None,
        None => RUNC_LEAST[0],
    };
    (found < least).then(|| {
        let (major, minor, patch) = least;
        format!(
            "{version} is older than {major}.{minor}.{patch}: {RUNC_WHY}, unless the distribution has \
             mended it"
        )
    })
}

/// The three numbers that a version begins with.
fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let digits = version.split(|c: char| !c.is_ascii_digit());
    let mut numbers = digits.map_while(|digits| digits.parse().ok());
    Some((numbers.next()?, numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_releases_of_runc_are_told_with_the_reason_and_mended_ones_are_not() {
        for old in ["1.1.5+ds1", "1.1.12", "1.0.0", "1.2.7", "1.3.2"] {
            let why = weakness(Kind::Runc, old).unwrap();
            assert!(why.contains(old) && why.contains("CVE-2024-21626"), "{why}");
        }
        for good in [
            "1.2.8", "1.3.3", "1.3.10", "1.4.0", "1.5.1", "2.0.0", "unknown", "",
        ] {
            assert_eq!(weakness(Kind::Runc, good), None, "{good}");
        }
        assert_eq!(weakness(Kind::Runsc, "1.1.5"), None);
    }
}
