//! Which distribution a release belongs to.

/// A distribution that `mmdebstrap` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distribution {
    Debian,
    Ubuntu,
}

/// Debian's releases and the names that move from one to the next. A release that is not here
/// yet is taken for one of the distribution that this machine runs.
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

/// Ubuntu's.
const UBUNTU: [&str; 9] = [
    "bionic", "focal", "jammy", "noble", "oracular", "plucky", "questing", "resolute", "devel",
];

/// Releases that are never finished.
const ROLLING: [&str; 4] = ["sid", "unstable", "experimental", "rc-buggy"];

/// What a suite adds to its release's name.
const POCKETS: [&str; 6] = [
    "-updates",
    "-security",
    "/updates",
    "-proposed-updates",
    "-proposed",
    "-backports",
];

impl Distribution {
    /// The distribution of a release whose name is known.
    pub(super) fn of_suite(name: &str) -> Option<Self> {
        if DEBIAN.contains(&name) {
            Some(Self::Debian)
        } else if UBUNTU.contains(&name) {
            Some(Self::Ubuntu)
        } else {
            None
        }
    }

    /// The distribution of the machine with this `/etc/os-release`.
    pub(super) fn of_os_release(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID="))?;
        match id.trim_matches(['"', '\'']) {
            "debian" => Some(Self::Debian),
            "ubuntu" => Some(Self::Ubuntu),
            _ => None,
        }
    }
}

/// Whether there are no updates beside it.
pub(super) fn is_rolling(suite: &str) -> bool {
    ROLLING.contains(&suite)
}

/// The release that a suite belongs to as it is, or with updates: packages from elsewhere
/// (backports, proposed) do not get into an image unasked, so those are releases of their own.
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
