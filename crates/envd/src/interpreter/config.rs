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

/// Default of [`InterpreterConfig::start`].
const DEFAULT_START: [&str; 1] = ["python"];

/// Default of [`InterpreterConfig::on_demand`], if `start` has its default too. Deno's kernel takes some 90 MiB in
/// every sandbox, and most sandboxes never use it.
const DEFAULT_ON_DEMAND: [&str; 1] = ["javascript"];

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
    /// Languages whose default context and kernel start with the server. By default Python, if it has a kernel.
    pub(super) start: Option<Vec<String>>,
    /// Languages whose default context exists from the start, while its kernel starts with the first execution.
    /// By default JavaScript, if it has a kernel and `start` is not given.
    pub(super) on_demand: Option<Vec<String>>,
}

impl InterpreterConfig {
    /// Languages whose kernels start with the server.
    pub(super) fn start(&self) -> InitialLanguages {
        InitialLanguages::new(self.start.as_deref(), &DEFAULT_START)
    }

    /// Languages whose kernels start with the first execution.
    pub(super) fn on_demand(&self) -> InitialLanguages {
        match (&self.on_demand, &self.start) {
            (None, Some(_)) => InitialLanguages::default(),
            (on_demand, _) => InitialLanguages::new(on_demand.as_deref(), &DEFAULT_ON_DEMAND),
        }
    }
}

/// Languages of initial contexts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InitialLanguages {
    /// Names.
    pub(super) languages: Vec<String>,
    /// Whether the template names them. Then each must have a kernel.
    pub(super) named: bool,
}

impl InitialLanguages {
    fn new(named: Option<&[String]>, defaults: &[&str]) -> Self {
        Self {
            languages: named.map_or_else(
                || defaults.iter().map(|&name| name.to_owned()).collect(),
                <[String]>::to_vec,
            ),
            named: named.is_some(),
        }
    }
}

impl Default for InterpreterConfig {
    fn default() -> Self {
        Self {
            kernels: DEFAULT_KERNEL_DIRECTORIES.map(PathBuf::from).to_vec(),
            user: "root".to_owned(),
            cwd: "/home/user".to_owned(),
            start: None,
            on_demand: None,
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
        assert!(config.on_demand().languages.is_empty());
        assert!(of(Some("[1]")).is_err());
    }

    #[test]
    fn kernels_of_javascript_start_on_demand_unless_the_template_says_otherwise() {
        for (text, start, on_demand) in [
            ("{}", "python?", "javascript?"),
            (r#"{"start": ["javascript"]}"#, "javascript!", ""),
            (r#"{"on_demand": ["r"]}"#, "python?", "r!"),
            (
                r#"{"start": ["python"], "on_demand": ["r"]}"#,
                "python!",
                "r!",
            ),
        ] {
            let config = of(Some(text)).unwrap().unwrap();
            let told = [config.start(), config.on_demand()].map(|found| {
                let mark = if found.named { "!" } else { "?" };
                let names = found.languages.iter();
                names
                    .map(|name| format!("{name}{mark}"))
                    .collect::<String>()
            });
            assert_eq!(told, [start, on_demand], "{text}");
        }
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
