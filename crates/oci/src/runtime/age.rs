//! Versions of runtimes with known container escapes.

use super::Kind;

/// The first release of each line of runc in which the known escapes are fixed; later lines have
/// all fixes.
const RUNC_LEAST: [(u32, u32, u32); 3] = [(1, 2, 8), (1, 3, 3), (1, 4, 0)];

/// The vulnerabilities of older releases.
const RUNC_WHY: &str = "CVE-2024-21626 (a leaked descriptor of the machine's file system), \
    CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881 (races over masked paths and /dev/console)";

/// Why a runtime of this version is unsafe with hostile code; `None` if no reason is known. Fixes
/// that a distribution backported to an old version cannot be detected.
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

/// The first three numbers of a version.
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
