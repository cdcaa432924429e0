//! Recipes of images.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::beneath::TreePath;
use crate::digest::Digest;

/// The maximum number of packages, files and patterns of a recipe; the builtin template has a tenth
/// of it.
const ITEMS_MAX: usize = 2000;

/// The maximum size of a file in a recipe, in bytes. Larger ones belong into a package.
const CONTENT_MAX: usize = 1 << 20;

/// The maximum size of a recipe, in bytes.
const RECIPE_MAX: usize = 8 << 20;

/// Why a text of a recipe is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRecipe(String);

/// How an image is built from a distribution's packages.
///
/// ```toml
/// suite = "bookworm"
/// packages = ["python3"]
/// exclude = ["/usr/share/doc/*"]
/// remove = ["/usr/lib/python3*/EXTERNALLY-MANAGED"]
/// workdir = "/home/user"
///
/// [env]
/// LANG = "C.UTF-8"
///
/// [user]
/// name = "user"
/// uid = 1000
/// home = "/home/user"
/// shell = "/bin/bash"
/// sudo = true
///
/// [files."/etc/motd"]
/// content = "hello\n"
/// mode = "0644"
/// owner = "root"
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The release, for example `bookworm`.
    pub suite: Suite,
    /// Packages in addition to those of every system. Recommended packages are not installed.
    #[serde(default)]
    pub packages: BTreeSet<PackageName>,
    /// Package files that are never unpacked, as dpkg's `path-exclude`.
    #[serde(default)]
    pub exclude: Vec<PathPattern>,
    /// Exceptions that are unpacked, as dpkg's `path-include`.
    #[serde(default)]
    pub include: Vec<PathPattern>,
    /// Files that are removed at the end: patterns in which `*` matches a part of a name, and `**`
    /// any number of directories.
    #[serde(default)]
    pub remove: Vec<PathPattern>,
    /// Environment of its processes.
    #[serde(default)]
    pub env: BTreeMap<EnvName, String>,
    /// The working directory of its processes.
    #[serde(default)]
    pub workdir: Option<ImagePath>,
    /// A user to create, which runs its processes.
    #[serde(default)]
    pub user: Option<UserSpec>,
    /// Files to write, replacing those of packages.
    #[serde(default)]
    pub files: BTreeMap<ImagePath, FileSpec>,
}

/// A user to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserSpec {
    /// Its name, and its group's.
    pub name: UserName,
    /// Its user id and group id.
    pub uid: u32,
    /// Its home, created from `/etc/skel`.
    pub home: ImagePath,
    /// Its login shell.
    pub shell: ImagePath,
    /// Whether it may use `sudo` without a password.
    #[serde(default)]
    pub sudo: bool,
}

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// Its contents.
    pub content: String,
    /// Its mode.
    #[serde(default)]
    pub mode: Mode,
    /// Its owner.
    #[serde(default)]
    pub owner: Owner,
}

/// The owner of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// Root.
    #[default]
    Root,
    /// The recipe's user.
    User,
}

/// A file's mode in octal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode(u32);

impl Mode {
    /// The bits.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl Default for Mode {
    fn default() -> Self {
        Self(0o644)
    }
}

impl TryFrom<String> for Mode {
    type Error = InvalidRecipe;

    fn try_from(text: String) -> Result<Self, InvalidRecipe> {
        let digits = (3..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        u32::from_str_radix(&text, 8)
            .ok()
            .filter(|_| digits)
            .map(Self)
            .ok_or_else(|| InvalidRecipe(format!("{text:?} is not a mode as 0644")))
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        format!("{:04o}", mode.0)
    }
}

/// A text of a recipe that is validated when it is parsed.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $good:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidRecipe;

            fn try_from(text: String) -> Result<Self, InvalidRecipe> {
                let good: fn(&str) -> bool = $good;
                if text.len() <= 1000 && good(&text) {
                    return Ok(Self(text));
                }
                let shown: String = text.chars().take(80).collect();
                Err(InvalidRecipe(format!(concat!("{:?} is not ", $expected), shown)))
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidRecipe;

            fn from_str(text: &str) -> Result<Self, InvalidRecipe> {
                text.to_owned().try_into()
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

checked_text!(
    /// The name of a release, which becomes a program argument and a part of a URL.
    Suite,
    |text| word(text, "+.-"),
    "the name of a release"
);

checked_text!(
    /// The name of a package. apt would interpret a trailing minus as a removal, and a pattern as
    /// several packages.
    PackageName,
    |text| word(text, "+.-") && text.len() > 1 && !text.ends_with('-'),
    "the name of a package"
);

checked_text!(
    /// The name of a user, as the distribution's tools accept it.
    UserName,
    |text| word(text, "_-") && text.len() <= 32 && !text.as_bytes()[0].is_ascii_digit(),
    "the name of a user"
);

checked_text!(
    /// The name of an environment variable.
    EnvName,
    |text| !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !text.as_bytes()[0].is_ascii_digit(),
    "the name of a variable"
);

checked_text!(
    /// An absolute path in an image, other than its root.
    ImagePath,
    |text| text.starts_with('/')
        && plain(text)
        && !text.contains(':')
        && TreePath::parse(text.as_bytes()).is_ok_and(|path| path != TreePath::root()),
    "an absolute path without `..`"
);

checked_text!(
    /// A pattern of absolute paths.
    PathPattern,
    |text| text.starts_with('/') && text.len() > 1 && plain(text) && !text.contains("/../"),
    "an absolute pattern of paths"
);

/// Lower-case letters and digits, and the characters of `also` except at the start.
fn word(text: &str, also: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.bytes().next().is_some_and(plain)
        && text
            .bytes()
            .all(|b| plain(b) || also.as_bytes().contains(&b))
}

/// One line of text.
fn plain(text: &str) -> bool {
    !text.contains(char::is_control)
}

impl ImagePath {
    /// The path for access to a file.
    pub(crate) fn in_tree(&self) -> TreePath {
        // It was validated when it was parsed.
        TreePath::parse(self.0.as_bytes()).unwrap_or_else(|_| TreePath::root())
    }
}

impl Recipe {
    /// The recipe of the smallest system of a release that can install packages.
    #[must_use]
    pub fn minimal(suite: Suite) -> Self {
        Self {
            suite,
            packages: BTreeSet::new(),
            exclude: Vec::new(),
            include: Vec::new(),
            remove: Vec::new(),
            env: BTreeMap::new(),
            workdir: None,
            user: None,
            files: BTreeMap::new(),
        }
    }

    /// Parses a recipe.
    ///
    /// # Errors When it is invalid or too long.
    pub fn from_toml(text: &str) -> Result<Self, InvalidRecipe> {
        if text.len() > RECIPE_MAX {
            return Err(InvalidRecipe(format!(
                "it has more than {RECIPE_MAX} bytes"
            )));
        }
        let recipe: Self = toml::from_str(text).map_err(|e| InvalidRecipe(e.to_string()))?;
        recipe.check()?;
        Ok(recipe)
    }

    /// A digest that is equal for equal recipes.
    pub(crate) fn fingerprint(&self) -> Digest {
        Digest::of(format!("{self:?}").as_bytes())
    }

    /// Checks the limits.
    pub(crate) fn check(&self) -> Result<(), InvalidRecipe> {
        let wrong = |text: &str| Err(InvalidRecipe(text.to_owned()));
        let patterns = self.exclude.len() + self.include.len() + self.remove.len();
        let items = [
            self.packages.len(),
            patterns,
            self.env.len(),
            self.files.len(),
        ];
        if items.iter().any(|count| *count > ITEMS_MAX) {
            return wrong("it has too many items");
        }
        if self
            .files
            .values()
            .any(|file| file.content.len() > CONTENT_MAX)
        {
            return wrong("one of its files is too long");
        }
        if self.env.values().any(|value| value.contains('\0')) {
            return wrong("its environment has a zero byte");
        }
        let user_files = self.files.values().any(|file| file.owner == Owner::User);
        match &self.user {
            None if user_files => wrong("a file is a user's, and it has no user"),
            Some(user) if user.uid == 0 || user.uid == u32::MAX => {
                wrong("its user has a number that is another's")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
