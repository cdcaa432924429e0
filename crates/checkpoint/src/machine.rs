//! The processor of a node.

use std::collections::BTreeSet;

/// Features that the kernel reports and that change without a change of the processor.
const VOLATILE: [&str; 3] = ["arch_capabilities", "md_clear", "flush_l1d"];

/// The features of the processor, from the text of `/proc/cpuinfo`: `flags` on x86, `Features` on ARM. Only what all
/// processors have counts.
#[must_use]
pub fn features(cpuinfo: &str) -> BTreeSet<String> {
    let mut common: Option<BTreeSet<String>> = None;
    for line in cpuinfo.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        if !matches!(key.trim(), "flags" | "Features") {
            continue;
        }
        let found: BTreeSet<String> = value
            .split_whitespace()
            .filter(|feature| !VOLATILE.contains(feature))
            .map(str::to_owned)
            .collect();
        common = Some(match common {
            Some(common) => common.intersection(&found).cloned().collect(),
            None => found,
        });
    }
    common.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_those_of_all_processors() {
        let text =
            "processor\t: 0\nflags\t\t: fpu avx avx2 md_clear\nprocessor: 1\nflags\t: fpu avx\n";
        let expected: BTreeSet<String> = ["avx", "fpu"].map(str::to_owned).into();
        assert_eq!(features(text), expected);
        assert_eq!(
            features("Features : fp asimd\n"),
            ["asimd", "fp"].map(str::to_owned).into()
        );
        assert_eq!(features(""), BTreeSet::new());
    }
}
