//! Which part of the engine may use which: the paths in its source against a table.
//!
//! The services below take what they need in their constructors, and depend one way. The modules that
//! put them together, [`ABOVE`], may use all of them; no service may use one of those.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The parts that depend one way, each with those that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("access", &["config", "random", "work"]),
    ("build_records", &["drivers"]),
    (
        "builds",
        &[
            "access",
            "build_records",
            "config",
            "guest",
            "images",
            "plan",
            "random",
            "resolve",
            "sandboxes",
            "templates",
            "uploads",
            "work",
        ],
    ),
    ("catalogue", &["work"]),
    ("config", &[]),
    (
        "create",
        &[
            "access",
            "build_records",
            "config",
            "drivers",
            "plan",
            "pool",
            "resolve",
            "sandboxes",
            "work",
        ],
    ),
    ("drivers", &[]),
    ("guest", &[]),
    ("images", &["work"]),
    ("plan", &["access", "drivers"]),
    (
        "pool",
        &[
            "access",
            "catalogue",
            "drivers",
            "guest",
            "images",
            "plan",
            "random",
            "resolve",
            "sandboxes",
            "telemetry",
            "work",
        ],
    ),
    ("random", &[]),
    (
        "resolve",
        &["access", "catalogue", "config", "images", "snapshots"],
    ),
    (
        "sandboxes",
        &[
            "access",
            "catalogue",
            "config",
            "drivers",
            "guest",
            "random",
            "snapshots",
            "telemetry",
            "work",
        ],
    ),
    ("snapshots", &["access", "drivers", "work"]),
    (
        "snapshotter",
        &[
            "access",
            "config",
            "drivers",
            "random",
            "sandboxes",
            "snapshots",
            "templates",
            "work",
        ],
    ),
    ("store", &[]),
    ("system_clock", &[]),
    ("telemetry", &[]),
    (
        "templates",
        &[
            "access",
            "build_records",
            "images",
            "random",
            "sandboxes",
            "snapshots",
        ],
    ),
    ("uploads", &["access", "build_records", "config"]),
    ("work", &[]),
];

/// The use cases that go through several services, and the engine that puts them together.
const ABOVE: &[&str] = &["engine", "ports", "recover", "test_util"];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The source files of a module and of its folder.
fn files_below(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file without its comments and its unit tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = product.lines();
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    code.collect::<Vec<_>>().join("\n")
}

/// The names that follow `prefix` in a text, where `prefix` begins a path.
fn after<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices(prefix) {
        let begins = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        if begins {
            let rest = &text[at + prefix.len()..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            names.push(&rest[..end.unwrap_or(rest.len())]);
        }
    }
    names
}

/// The dependencies of each module of the crate's root on the others.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let source = source();
    let mut files = Vec::new();
    files_below(&source, &mut files);
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        let inside = file.strip_prefix(&source).unwrap().with_extension("");
        let parts: Vec<&str> = inside.iter().map(|part| part.to_str().unwrap()).collect();
        let module = parts[0].to_owned();
        if module == "lib" || parts.last() == Some(&"tests") {
            continue;
        }
        let code = code(&file);
        // As many steps up as the file is deep lead to the root.
        let root = "super::".repeat(parts.len());
        let used = after(&code, "crate::")
            .into_iter()
            .chain(after(&code, &root));
        let used: Vec<String> = used
            .filter(|name| *name != module)
            .map(str::to_owned)
            .collect();
        arrows.entry(module).or_default().extend(used);
    }
    arrows
}

#[test]
fn services_use_only_what_the_table_allows() {
    let arrows = arrows();
    let mut wrong = Vec::new();
    for (module, allowed) in ARROWS {
        for used in &arrows[*module] {
            if !allowed.contains(&used.as_str()) {
                wrong.push(format!("{module} -> {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that the table lacks: {wrong:?}");
}

#[test]
fn every_module_has_its_place() {
    for module in arrows().keys() {
        let services = ARROWS.iter().filter(|(name, _)| name == module).count();
        let above = ABOVE.iter().filter(|name| *name == module).count();
        assert_eq!(
            services + above,
            1,
            "{module} is in neither table, or in both"
        );
    }
}

#[test]
fn the_table_has_no_way_round() {
    let mut settled: BTreeSet<&str> = BTreeSet::new();
    while settled.len() < ARROWS.len() {
        let next: Vec<&str> = ARROWS
            .iter()
            .filter(|(name, uses)| {
                !settled.contains(name) && uses.iter().all(|used| settled.contains(used))
            })
            .map(|(name, _)| *name)
            .collect();
        assert!(!next.is_empty(), "only {settled:?} are not in a circle");
        settled.extend(next);
    }
}
