//! Finds the programs that are installed.

use std::path::{Path, PathBuf};

use super::InstallError;

const WRAPPER: &str = "shoal-runsc";

/// Where gVisor's programs are searched below the root, after `PATH`.
const USUAL: [&str; 4] = [
    "usr/local/bin",
    "usr/bin",
    "usr/local/sbin",
    "opt/gvisor/bin",
];

/// A program: at the path of its flag, in `PATH`, or in a usual directory of the root.
pub(super) fn find(
    name: &'static str,
    flag: &'static str,
    named: Option<&Path>,
    root: &Path,
) -> Result<(PathBuf, &'static str), InstallError> {
    let found = match named {
        Some(path) => Some(path.to_owned()).filter(|path| path.is_file()),
        None => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path)
                .chain(USUAL.iter().map(|directory| root.join(directory)))
                .map(|directory| directory.join(name))
                .find(|file| file.is_file())
        }
    };
    let missing = || InstallError::Missing {
        name,
        place: if named.is_some() {
            "at the given path"
        } else {
            "in PATH, nor in a usual directory of the root"
        },
        flag,
        hint: ". gVisor's releases have it: https://gvisor.dev/docs/user_guide/install",
    };
    found.map(|path| (path, name)).ok_or_else(missing)
}

/// The wrapper: at the path of its flag, or beside this program.
pub(super) fn wrapper(named: Option<&Path>) -> Result<(PathBuf, &'static str), InstallError> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name(WRAPPER));
    let found = named.map(Path::to_owned).or_else(beside);
    let missing = || InstallError::Missing {
        name: WRAPPER,
        place: if named.is_some() {
            "at the given path"
        } else {
            "beside this program"
        },
        flag: "wrapper",
        hint: "",
    };
    let found = found.filter(|path| path.is_file());
    found.map(|path| (path, WRAPPER)).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn programs_of_the_node_are_found() {
        const NAME: &str = "shoal-program-that-path-has-not";
        let root = tempfile::tempdir().unwrap();
        assert!(find(NAME, "shim", None, root.path()).is_err());
        let usual = root.path().join("opt/gvisor/bin");
        fs::create_dir_all(&usual).unwrap();
        fs::write(usual.join(NAME), "").unwrap();
        let found = find(NAME, "shim", None, root.path()).unwrap();
        assert_eq!(found, (usual.join(NAME), NAME));
    }
}
