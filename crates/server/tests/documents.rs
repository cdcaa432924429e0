//! The documents name only files that exist.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

/// Folders without sources of ours.
const SKIPPED: [&str; 4] = ["target", ".git", "node_modules", ".venv"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Paths of all sources, relative to the repository, each with a leading slash.
fn sources(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}/{name}");
        if entry.file_type().unwrap().is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                sources(&entry.path(), &path, found);
            }
        } else {
            found.push(path);
        }
    }
}

/// The files between backticks that end in `.rs` or `.py`, without patterns such as `<name>.rs`.
fn named(page: &str) -> impl Iterator<Item = &str> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter(|text| {
        let source = [".rs", ".py"].iter().any(|end| text.ends_with(end));
        source && !text.contains(['<', '*', ' '])
    })
}

#[test]
fn every_source_that_a_document_names_exists() {
    let mut files = Vec::new();
    sources(&root(), "", &mut files);
    let mut missing = Vec::new();
    for page in ["SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let mut count = 0;
        for name in named(&text) {
            count += 1;
            let end = format!("/{name}");
            if !files.iter().any(|file| file.ends_with(&end)) {
                missing.push(format!("{page}: {name}"));
            }
        }
        assert!(
            count > 0,
            "{page} names no source: is it read as it is written?"
        );
    }
    assert!(missing.is_empty(), "files that do not exist: {missing:#?}");
}
