//! The system of a session's machine, for people.

/// The file in which a system names itself.
pub const OS_RELEASE: &str = "/etc/os-release";

/// How many bytes of that file are read.
pub const OS_RELEASE_MAX: usize = 4096;

/// The longest name, in characters. A machine chooses it.
const NAME_MAX: usize = 100;

/// The name of a system by its [`OS_RELEASE`]. If it is not Ubuntu, the name says so, with the reason in `note` if there is one.
#[must_use]
pub fn described(os_release: &str, note: Option<&str>) -> String {
    let value = |key: &str| {
        let lines = os_release.lines();
        let found = lines
            .filter_map(|line| line.split_once('='))
            .find(|(name, _)| *name == key);
        let value = found.map(|(_, value)| value.trim().trim_matches(['"', '\'']));
        value.filter(|value| !value.is_empty())
    };
    let id = value("ID");
    let name = value("PRETTY_NAME").or(value("NAME")).or(id);
    let name = name.unwrap_or("an unknown system").chars();
    let name: String = name.filter(|c| !c.is_control()).take(NAME_MAX).collect();
    match (note, id) {
        (Some(note), _) => format!("{name} ({note})"),
        (None, Some("ubuntu")) => name,
        (None, _) => format!("{name} (its template has no Ubuntu)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str =
        "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian\"\nID=debian\n";

    #[test]
    fn r2_002_a_system_that_is_not_ubuntu_says_so() {
        let ubuntu =
            "NAME=\"Ubuntu\"\nPRETTY_NAME=\"Ubuntu 24.04 LTS\"\nID=ubuntu\nID_LIKE=debian\n";
        assert_eq!(described(ubuntu, None), "Ubuntu 24.04 LTS");
        assert_eq!(
            described(DEBIAN, None),
            "Debian GNU/Linux 12 (bookworm) (its template has no Ubuntu)"
        );
        assert_eq!(
            described(DEBIAN, Some("session-v1 is being built")),
            "Debian GNU/Linux 12 (bookworm) (session-v1 is being built)"
        );
        assert_eq!(described("ID=ubuntu", None), "ubuntu");
        assert_eq!(
            described("", None),
            "an unknown system (its template has no Ubuntu)"
        );
    }

    #[test]
    fn a_machine_cannot_make_its_name_long_or_move_the_cursor() {
        let named = described(
            &format!("PRETTY_NAME=\u{1b}[2J{}\nID=ubuntu", "x".repeat(500)),
            None,
        );
        assert_eq!(named.chars().count(), NAME_MAX);
        assert!(!named.contains('\u{1b}'));
    }
}
