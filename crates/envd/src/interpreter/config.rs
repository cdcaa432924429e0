//! Interpreter configuration of a template, `/etc/shoal/interpreter.json`.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::foreign_file;

/// Path of the file.
const FILE: &str = "etc/shoal/interpreter.json";

/// Bytes read of the file.
const MAX_FILE: u64 = 64 << 10;

/// Default kernel directories, Jupyter's system-wide ones.
const DEFAULT_KERNEL_DIRECTORIES: [&str; 2] = [
    "/usr/local/share/jupyter/kernels",
    "/usr/share/jupyter/kernels",
];

/// Languages whose context starts with the server by default.
pub(super) const DEFAULT_START: [&str; 2] = ["python", "javascript"];

/// The configuration. All fields are optional.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct InterpreterConfig {
    /// Kernel directories.
    pub(super) kernels: Vec<PathBuf>,
    /// User of the kernels. Root by default, as in E2B: user code may write everywhere.
    pub(super) user: String,
    /// Default working directory.
    pub(super) cwd: String,
    /// Languages whose context starts with the server. By default those of [`DEFAULT_START`] that have a
    /// kernel.
    pub(super) start: Option<Vec<String>>,
}

impl Default for InterpreterConfig {
    fn default() -> Self {
        Self {
            kernels: DEFAULT_KERNEL_DIRECTORIES.map(PathBuf::from).to_vec(),
            user: "root".to_owned(),
            cwd: "/home/user".to_owned(),
            start: None,
        }
    }
}

/// Reads the configuration below `root`. `None` if there is no file.
///
/// # Errors
/// If the file is invalid.
pub(super) fn read(root: &Path) -> io::Result<Option<InterpreterConfig>> {
    let text = match foreign_file::read(&root.join(FILE), MAX_FILE) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(serde_json::from_slice(&text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: Option<&str>) -> io::Result<Option<InterpreterConfig>> {
        let root = tempfile::tempdir().unwrap();
        if let Some(text) = text {
            let path = root.path().join(FILE);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        read(root.path())
    }

    #[test]
    fn a_missing_file_disables_the_interpreter_and_an_empty_object_means_defaults() {
        assert_eq!(of(None).unwrap(), None);
        assert_eq!(of(Some("{}")).unwrap(), Some(InterpreterConfig::default()));
    }

    #[test]
    fn configured_values_are_used() {
        let said = r#"{"kernels": ["/k"], "user": "user", "cwd": "/", "start": [], "new": 1}"#;
        let config = of(Some(said)).unwrap().unwrap();
        assert_eq!(config.kernels, [PathBuf::from("/k")]);
        assert_eq!((config.user.as_str(), config.cwd.as_str()), ("user", "/"));
        assert_eq!(config.start, Some(Vec::new()));
        assert!(of(Some("[1]")).is_err());
    }

    #[test]
    fn a_pipe_in_place_of_the_configuration_does_not_block() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(FILE);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        assert_eq!(
            read(root.path()).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
