//! The distributions of releases.

/// A distribution that `mmdebstrap` can build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distribution {
    Debian,
    Ubuntu,
}

/// Debian's releases and aliases. An unknown release is assumed to belong to this machine's
/// distribution.
const DEBIAN: [&str; 14] = [
    "buster",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "unstable",
    "testing",
    "stable",
    "oldstable",
    "oldoldstable",
    "experimental",
    "rc-buggy",
];

/// Ubuntu's releases and aliases.
const UBUNTU: [&str; 9] = [
    "bionic", "focal", "jammy", "noble", "oracular", "plucky", "questing", "resolute", "devel",
];

/// Rolling releases.
const ROLLING: [&str; 4] = ["sid", "unstable", "experimental", "rc-buggy"];

/// The suffixes of a release's suites.
const POCKETS: [&str; 6] = [
    "-updates",
    "-security",
    "/updates",
    "-proposed-updates",
    "-proposed",
    "-backports",
];

impl Distribution {
    /// The distribution of a known release.
    pub(super) fn of_suite(name: &str) -> Option<Self> {
        if DEBIAN.contains(&name) {
            Some(Self::Debian)
        } else if UBUNTU.contains(&name) {
            Some(Self::Ubuntu)
        } else {
            None
        }
    }

    /// The distribution in a machine's `/etc/os-release`.
    pub(super) fn of_os_release(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID="))?;
        match id.trim_matches(['"', '\'']) {
            "debian" => Some(Self::Debian),
            "ubuntu" => Some(Self::Ubuntu),
            _ => None,
        }
    }
}

/// Whether a release has no separate updates.
pub(super) fn is_rolling(suite: &str) -> bool {
    ROLLING.contains(&suite)
}

/// The release of a suite, without the suffix for updates. Optional suites (backports, proposed)
/// count as releases of their own, so that their packages do not get into an image.
pub(super) fn base(suite: &str) -> &str {
    let wanted = ["-updates", "-security", "/updates"];
    let unasked = POCKETS.iter().filter(|pocket| !wanted.contains(pocket));
    if unasked.clone().any(|pocket| suite.ends_with(pocket)) {
        return suite;
    }
    wanted
        .iter()
        .find_map(|pocket| suite.strip_suffix(pocket))
        .unwrap_or(suite)
}
