//! Installed kernels.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::foreign_file;

/// Longest `kernel.json`.
const MAX_FILE: u64 = 1 << 20;

/// Limit of kernels per directory.
const MAX_KERNELS: usize = 256;

/// How a kernel is interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Interrupt {
    /// By a signal to its process group.
    #[default]
    Signal,
    /// By a message.
    Message,
}

/// Contents of `kernel.json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct File {
    argv: Vec<String>,
    language: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    interrupt_mode: Interrupt,
    #[serde(default)]
    metadata: Metadata,
}

/// Free-form metadata, limited to our section.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Metadata {
    shoal: OfShoal,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct OfShoal {
    holds_output: bool,
    startup: Option<String>,
}

/// An installed kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kernelspec {
    /// Directory name in lower case.
    pub(super) name: String,
    /// Declared language in lower case.
    pub(super) language: String,
    /// Command line with the placeholder `{connection_file}`.
    pub(super) argv: Vec<String>,
    /// Environment.
    pub(super) env: BTreeMap<String, String>,
    /// How to interrupt it.
    pub(super) interrupt: Interrupt,
    /// Whether it blocks on unread output instead of dropping it.
    pub(super) holds_output: bool,
    /// Code to execute before the first user code.
    pub(super) startup: Option<String>,
    /// Directory of the kernel.
    pub(super) directory: PathBuf,
}

/// Normalises a requested language: lower case, aliases expanded.
pub(super) fn language(asked: &str) -> String {
    match asked.trim().to_lowercase().as_str() {
        "" => "python".to_owned(),
        "js" => "javascript".to_owned(),
        "ts" => "typescript".to_owned(),
        other => other.to_owned(),
    }
}

/// Finds the kernels in several directories. The first with a name wins.
pub(super) fn find(directories: &[PathBuf]) -> Vec<Kernelspec> {
    let mut found: Vec<Kernelspec> = Vec::new();
    for directory in directories {
        let Ok(entries) = std::fs::read_dir(directory) else {
            continue;
        };
        let entries = entries.filter_map(Result::ok).take(MAX_KERNELS);
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        for kernel in paths.iter().filter_map(|path| read(path)) {
            if found.iter().all(|other| other.name != kernel.name) {
                found.push(kernel);
            }
        }
    }
    found
}

/// Chooses a kernel for a language: by name, else by declared language. JavaScript and TypeScript
/// substitute for each other.
pub(super) fn choose<'a>(kernels: &'a [Kernelspec], language: &str) -> Option<&'a Kernelspec> {
    let by = |language: &str| {
        let named = kernels.iter().find(|kernel| kernel.name == language);
        named.or_else(|| kernels.iter().find(|kernel| kernel.language == language))
    };
    by(language).or_else(|| match language {
        "javascript" => by("typescript"),
        "typescript" => by("javascript"),
        _ => None,
    })
}

/// Languages with a kernel.
pub(super) fn languages(kernels: &[Kernelspec]) -> BTreeSet<String> {
    let spoken = kernels.iter().map(|kernel| kernel.language.clone());
    let mut languages: BTreeSet<String> = spoken.collect();
    for both in ["javascript", "typescript"] {
        if choose(kernels, both).is_some() {
            languages.insert(both.to_owned());
        }
    }
    languages
}

fn read(directory: &Path) -> Option<Kernelspec> {
    let text = foreign_file::read(&directory.join("kernel.json"), MAX_FILE).ok()?;
    let file: File = serde_json::from_slice(&text).ok()?;
    if file.argv.is_empty() {
        return None;
    }
    Some(Kernelspec {
        name: directory.file_name()?.to_string_lossy().to_lowercase(),
        language: file.language.to_lowercase(),
        argv: file.argv,
        env: file.env,
        interrupt: file.interrupt_mode,
        holds_output: file.metadata.shoal.holds_output,
        startup: file.metadata.shoal.startup,
        directory: directory.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let directory = root.join(name);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("kernel.json"), text).unwrap();
    }

    #[test]
    fn kernels_are_found_and_invalid_ones_skipped() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let good = r#"{"argv": ["python", "-f", "{connection_file}"], "language": "Python",
            "display_name": "x", "env": {"A": "1"}, "metadata": {}}"#;
        write(one.path(), "Python3", good);
        write(one.path(), "broken", "{");
        write(one.path(), "empty", r#"{"argv": [], "language": "x"}"#);
        std::fs::write(one.path().join("file"), "").unwrap();
        std::fs::create_dir(one.path().join("pipe")).unwrap();
        let pipe = one.path().join("pipe/kernel.json");
        rustix::fs::mkfifoat(rustix::fs::CWD, pipe, 0o600.into()).unwrap();
        write(
            two.path(),
            "python3",
            r#"{"argv": ["other"], "language": "x"}"#,
        );
        let message = r#"{"argv": ["deno"], "language": "typescript", "interrupt_mode": "message",
            "metadata": {"other": 1, "shoal": {"holds_output": true, "startup": "let x"}}}"#;
        write(two.path(), "deno", message);
        let none = PathBuf::from("/no/such");
        let found = find(&[one.path().to_owned(), none, two.path().to_owned()]);
        let names: Vec<&str> = found.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["python3", "deno"]);
        assert_eq!(found[0].argv.len(), 3);
        assert_eq!(found[0].language, "python");
        assert_eq!(found[0].interrupt, Interrupt::Signal);
        assert_eq!(found[1].interrupt, Interrupt::Message);
        assert!(found[1].holds_output && !found[0].holds_output);
        let startup = |kernel: &Kernelspec| kernel.startup.clone();
        assert_eq!(startup(&found[1]).as_deref(), Some("let x"));
        assert_eq!(startup(&found[0]), None);

        let of = |language: &str| choose(&found, language).map(|kernel| kernel.name.as_str());
        assert_eq!(of("python"), Some("python3"));
        assert_eq!(of("typescript"), Some("deno"));
        assert_eq!(of("javascript"), Some("deno"));
        assert_eq!(of("r"), None);
        let spoken: Vec<String> = languages(&found).into_iter().collect();
        assert_eq!(spoken, ["javascript", "python", "typescript"]);
    }

    #[test]
    fn a_kernel_named_like_the_language_is_preferred() {
        let kernel = |name: &str, language: &str| Kernelspec {
            name: name.to_owned(),
            language: language.to_owned(),
            argv: vec!["x".to_owned()],
            env: BTreeMap::new(),
            interrupt: Interrupt::Signal,
            holds_output: false,
            startup: None,
            directory: PathBuf::new(),
        };
        let kernels = [
            kernel("deno", "typescript"),
            kernel("javascript", "javascript"),
        ];
        assert_eq!(choose(&kernels, "javascript").unwrap().name, "javascript");
        assert_eq!(choose(&kernels, "typescript").unwrap().name, "deno");
    }

    #[test]
    fn language_aliases_are_expanded() {
        for (asked, meant) in [
            ("", "python"),
            ("JS", "javascript"),
            ("ts", "typescript"),
            ("R", "r"),
            ("Python", "python"),
        ] {
            assert_eq!(language(asked), meant);
        }
    }
}
