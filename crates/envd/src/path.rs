//! Resolution of paths in requests.

use std::path::{Component, Path, PathBuf};

use crate::user::User;

/// Longest path accepted, the kernel's limit.
const MAX_PATH: usize = 4096;

/// Invalid path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidPath {
    /// `~user` is not supported, only `~`.
    #[error("cannot expand user-specific home dir: '{0}'")]
    OtherHome(String),
    /// The kernel would truncate it at the zero byte.
    #[error("path contains a zero byte")]
    Zero,
    /// The kernel would reject it.
    #[error("path is longer than {MAX_PATH} bytes")]
    Long,
}

/// Makes a path absolute. An empty path is the default working directory, or the home directory.
/// `~` is the home directory. Other relative paths are relative to the home directory, not the
/// working directory, as in E2B. Absolute paths are unchanged.
///
/// # Errors
/// If the path is `~user` or invalid.
pub(crate) fn resolve(
    path: &str,
    user: &User,
    default: Option<&str>,
) -> Result<PathBuf, InvalidPath> {
    let path = match (path, default) {
        ("", Some(default)) => default,
        (path, _) => path,
    };
    if path.contains('\0') {
        return Err(InvalidPath::Zero);
    }
    if path.len() > MAX_PATH {
        return Err(InvalidPath::Long);
    }
    if path.starts_with('/') {
        return Ok(PathBuf::from(path));
    }
    let below = match path.strip_prefix('~') {
        None => path,
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.trim_start_matches('/'),
        Some(_) => return Err(InvalidPath::OtherHome(path.to_owned())),
    };
    Ok(clean(&Path::new(&user.home).join(below)))
}

/// Resolves `.` and `..` lexically, as E2B does for relative paths.
fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(part) => cleaned.push(part),
            Component::ParentDir => {
                cleaned.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    cleaned
}

/// The last component of a path; `/` for the root.
pub(crate) fn base_name(path: &Path) -> String {
    match path.file_name() {
        Some(name) => name.to_string_lossy().into_owned(),
        None if path.ends_with("..") => "..".to_owned(),
        None => "/".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user() -> User {
        User {
            name: "user".into(),
            uid: 1000,
            gid: 1000,
            home: "/home/user".into(),
        }
    }

    fn resolved(path: &str, default: Option<&str>) -> String {
        let path = resolve(path, &user(), default).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn each_form_is_parsed() {
        assert_eq!(resolved("", None), "/home/user");
        assert_eq!(resolved("", Some("/code")), "/code");
        assert_eq!(resolved("", Some("~/code")), "/home/user/code");
        assert_eq!(resolved("~", Some("/code")), "/home/user");
        assert_eq!(resolved("~/", None), "/home/user");
        assert_eq!(resolved("~//a", None), "/home/user/a");
        assert_eq!(resolved("a/b", Some("/code")), "/home/user/a/b");
        assert_eq!(resolved("../x/./y", None), "/home/x/y");
        assert_eq!(resolved("../../../../etc", None), "/etc");
        assert_eq!(resolved("/a/../b", None), "/a/../b");
        assert_eq!(resolved("a~", None), "/home/user/a~");
    }

    #[test]
    fn other_homes_and_invalid_paths_are_rejected() {
        assert_eq!(
            resolve("~root/x", &user(), None),
            Err(InvalidPath::OtherHome("~root/x".into()))
        );
        assert_eq!(resolve("a\0b", &user(), None), Err(InvalidPath::Zero));
        let long = "x".repeat(MAX_PATH + 1);
        assert_eq!(resolve(&long, &user(), None), Err(InvalidPath::Long));
    }

    #[test]
    fn the_last_part_of_the_root_is_the_root() {
        assert_eq!(base_name(Path::new("/")), "/");
        assert_eq!(base_name(Path::new("/a/b/")), "b");
        assert_eq!(base_name(Path::new("/a/..")), "..");
    }

    proptest! {
        #[test]
        fn resolved_paths_are_absolute(path in "\\PC{0,40}") {
            if let Ok(path) = resolve(&path, &user(), None) {
                prop_assert!(path.is_absolute());
            }
        }
    }
}
