//! Secrets of a session: variables whose values are never shown.

use std::fmt;
use std::str::FromStr;

use zeroize::Zeroizing;

use crate::id::SandboxId;

/// The longest name of a secret, in bytes.
const NAME_MAX: usize = 128;

/// The longest value of a secret, in bytes.
pub const VALUE_MAX: usize = 32 << 10;

/// Values with fewer bytes are not masked in output: they are part of too many other words.
pub const MASKED_MIN: usize = 4;

/// Variables that the machine, bash or the loader of programs need. Another value breaks the windows, or runs code.
const RESERVED: &[&str] = &[
    "_",
    "COLUMNS",
    "DIRSTACK",
    "ENV",
    "EUID",
    "GLIBC_TUNABLES",
    "GROUPS",
    "HISTCMD",
    "HISTCONTROL",
    "HISTFILE",
    "HOME",
    "HOSTNAME",
    "IFS",
    "LINENO",
    "LINES",
    "LOGNAME",
    "OLDPWD",
    "OPTARG",
    "OPTIND",
    "PATH",
    "PPID",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "PUBLIC_HOSTNAME",
    "PWD",
    "RANDOM",
    "REPLY",
    "SECONDS",
    "SHELL",
    "SHELLOPTS",
    "SHLVL",
    "TERM",
    "TMOUT",
    "UID",
    "USER",
];

/// The prefixes of reserved variables.
const RESERVED_PREFIXES: &[&str] = &["BASH", "LD_", "__shoal"];

/// Why a name or a value is not a secret's. The value is in no text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// The name is not that of a variable.
    #[error(
        "{0:?} is not the name of a secret: 1 to {NAME_MAX} of letters, digits and `_`, no digit first"
    )]
    Name(String),
    /// The name has another use.
    #[error("the variable {0} is reserved: choose another name")]
    Reserved(String),
    /// The value is empty.
    #[error("the value is empty: delete the secret instead")]
    Empty,
    /// The value is too long.
    #[error("the value has more than {VALUE_MAX} bytes: a variable is for keys and passwords")]
    Long,
    /// No variable has such a value.
    #[error("the value contains a NUL, which no variable can")]
    Nul,
}

/// The name of a secret, and of its variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(String);

impl SecretName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let starts = text.bytes().next().is_some_and(|b| !b.is_ascii_digit());
        if !starts || text.len() > NAME_MAX || !text.bytes().all(good) {
            let shown = text.chars().take(NAME_MAX).collect();
            return Err(InvalidSecret::Name(shown));
        }
        let begins = |prefix: &&str| text.starts_with(*prefix);
        if RESERVED.contains(&text) || RESERVED_PREFIXES.iter().any(begins) {
            return Err(InvalidSecret::Reserved(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The value of a secret. It is wiped from memory when it is dropped, and `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Zeroizing<String>);

impl SecretValue {
    /// Checks a value.
    ///
    /// # Errors
    /// When it is empty, too long, or contains a NUL.
    pub fn new(text: String) -> Result<Self, InvalidSecret> {
        let value = Zeroizing::new(text);
        if value.is_empty() {
            return Err(InvalidSecret::Empty);
        }
        if value.len() > VALUE_MAX {
            return Err(InvalidSecret::Long);
        }
        if value.contains('\0') {
            return Err(InvalidSecret::Nul);
        }
        Ok(Self(value))
    }

    /// The value itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

/// Where a secret is active. No activation outlives its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activation {
    /// In the machine that starts next: there was none.
    Next,
    /// In this machine.
    Machine(SandboxId),
}

impl Activation {
    /// Whether the secret is active in a session whose machine is `machine`.
    #[must_use]
    pub fn holds(&self, machine: Option<&SandboxId>) -> bool {
        match self {
            Self::Next => true,
            Self::Machine(bound) => Some(bound) == machine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r2_102_a_name_is_that_of_a_variable() {
        for good in ["A", "_a", "API_KEY_2", "token", "LDAP", "HOMEPAGE"] {
            assert_eq!(good.parse::<SecretName>().unwrap().as_str(), good);
        }
        let long = "A".repeat(129);
        for bad in ["", "2A", "A-B", "A B", "A=B", "Ä", "A\n", long.as_str()] {
            let refused = bad.parse::<SecretName>();
            assert!(matches!(refused, Err(InvalidSecret::Name(_))), "{bad:?}");
        }
        for reserved in ["PATH", "HOME", "PUBLIC_HOSTNAME", "LD_PRELOAD", "BASH_ENV"] {
            let refused = reserved.parse::<SecretName>().unwrap_err();
            assert_eq!(refused, InvalidSecret::Reserved(reserved.to_owned()));
            assert!(refused.to_string().contains(reserved));
        }
    }

    #[test]
    fn r2_104_a_value_is_in_no_debug_output_and_no_error() {
        let value = SecretValue::new("hunter2".to_owned()).unwrap();
        assert_eq!(format!("{value:?}"), "SecretValue(…)");
        assert_eq!(value.reveal(), "hunter2");
        let nul = SecretValue::new("hunter2\0".to_owned()).unwrap_err();
        assert!(!format!("{nul} {nul:?}").contains("hunter2"));
        let refused = |text: String| SecretValue::new(text).unwrap_err();
        assert_eq!(refused(String::new()), InvalidSecret::Empty);
        assert_eq!(refused("x".repeat(VALUE_MAX + 1)), InvalidSecret::Long);
        assert!(SecretValue::new("x".repeat(VALUE_MAX)).is_ok());
    }

    #[test]
    fn r2_106_an_activation_ends_with_its_machine() {
        let (one, other) = (
            SandboxId::from_entropy([1; 16]),
            SandboxId::from_entropy([2; 16]),
        );
        let bound = Activation::Machine(one.clone());
        assert!(bound.holds(Some(&one)));
        assert!(!bound.holds(Some(&other)) && !bound.holds(None));
        assert!(Activation::Next.holds(None));
    }
}
