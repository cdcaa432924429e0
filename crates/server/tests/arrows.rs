//! The dependencies between crates: the manifests against the table of ARCHITECTURE.md.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The dependencies of each crate on ours. A new arrow is a decision: it comes with a reason in
/// ARCHITECTURE.md.
const ARROWS: &[(&str, &[&str])] = &[
    ("agent", &["checkpoint", "crds"]),
    ("api", &["core", "dockerfile", "mcp", "protocol"]),
    ("checkpoint", &[]),
    ("cli", &["core", "crds", "dockerfile", "protocol"]),
    ("cluster", &["core", "crds", "protocol", "tasks"]),
    ("contents", &["core"]),
    ("core", &["session-files"]),
    ("crds", &[]),
    ("dockerfile", &["core", "protocol"]),
    ("engine", &["core", "protocol", "tasks"]),
    ("envd", &["protocol", "session-files"]),
    ("gateway", &["core", "protocol"]),
    ("images", &["core", "node"]),
    ("mcp", &["core"]),
    ("node", &["core"]),
    ("oci", &["core", "images", "node"]),
    ("operator", &["checkpoint", "crds", "protocol", "tasks"]),
    ("protocol", &["core", "session-files"]),
    ("router", &["core", "gateway"]),
    ("runsc", &["checkpoint"]),
    (
        "server",
        &[
            "agent", "api", "cli", "cluster", "contents", "core", "crds", "engine", "gateway",
            "images", "mcp", "node", "oci", "operator", "router", "sessions", "ssh", "tasks", "ui",
        ],
    ),
    ("session-files", &[]),
    ("sessions", &["core", "session-files"]),
    ("ssh", &["core", "session-files"]),
    ("tasks", &[]),
    ("ui", &[]),
];

/// Forbidden dependencies of a crate: they would bring in what the crate is free of.
const BANNED: &[(&str, &[&str])] = &[
    // Pure rules: no runtime, no network, no files, no database.
    ("core", &["tokio", "hyper", "axum", "reqwest", "rusqlite"]),
    // It is in the daemon, too.
    (
        "session-files",
        &["tokio", "hyper", "regex", "shoal-core", "shoal-protocol"],
    ),
    // Types and their conversion: a client of any kind can use them.
    ("crds", &["tokio", "hyper", "kube", "reqwest"]),
    ("engine", &["axum", "kube", "oci-spec", "rtnetlink"]),
    // Drivers without an OCI runtime use it: no bundles, no registries.
    ("node", &["oci-spec", "reqwest", "tar"]),
    // It runs at each step of each container.
    ("runsc", &["tokio", "hyper", "kube", "clap"]),
    // It is in every sandbox, in memory each time.
    ("envd", &["reqwest", "rusqlite", "axum", "clap"]),
];

type Manifests = BTreeMap<String, toml::Table>;

fn manifests() -> Manifests {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::read_dir(crates)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let text = fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, text.parse().unwrap())
        })
        .collect()
}

/// The names in the tables of dependencies that end up in the product.
fn dependencies(manifest: &toml::Table) -> BTreeSet<&str> {
    ["dependencies", "build-dependencies"]
        .iter()
        .filter_map(|table| manifest.get(*table)?.as_table())
        .flat_map(|table| table.keys().map(String::as_str))
        .collect()
}

#[test]
fn crates_use_only_what_the_table_of_arrows_allows() {
    let manifests = manifests();
    let mut wrong = Vec::new();
    for (name, manifest) in &manifests {
        let Some((_, allowed)) = ARROWS.iter().find(|(of, _)| of == name) else {
            wrong.push(format!("crates/{name} is not in the table"));
            continue;
        };
        for used in dependencies(manifest) {
            if let Some(ours) = used.strip_prefix("shoal-")
                && !allowed.contains(&ours)
            {
                wrong.push(format!("{name} -> {ours}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "arrows that ARCHITECTURE.md does not have: {wrong:?}"
    );
}

#[test]
fn crates_stay_free_of_what_they_promise_to_be_free_of() {
    let manifests = manifests();
    let mut wrong = Vec::new();
    for (name, banned) in BANNED {
        let used = dependencies(&manifests[*name]);
        wrong.extend(
            banned
                .iter()
                .filter(|banned| used.contains(**banned))
                .map(|banned| format!("{name} -> {banned}")),
        );
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_table_has_no_way_round() {
    // A crate of the table may use only those that are reached in fewer steps.
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
