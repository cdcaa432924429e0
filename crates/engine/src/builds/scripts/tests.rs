use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use super::*;

/// Packs a path of a small root, and lists the packed names in order; nothing when it fails.
fn packed(path: &str) -> Option<Vec<String>> {
    let (root, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for file in [
        ".shoal/envd",
        ".profile",
        "app/.shoal/mine",
        "app/etc/hosts",
        "dev/null",
        "etc/hosts",
        "etc/hostname",
        "etc/hosts.allow",
        "etc/machine-id",
        "etc/passwd",
        "etc/resolv.conf",
        "proc/self",
        "sys/kernel",
    ] {
        let file = root.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    let archive = aside.path().join("archive.tar");
    let ran = Command::new("/bin/sh")
        .args(["-c", PACK, "sh"])
        .arg(&archive)
        .arg(path)
        .current_dir(root.path())
        .output()
        .unwrap();
    if !ran.status.success() {
        assert!(!ran.stderr.is_empty());
        return None;
    }
    let mut archive = tar::Archive::new(fs::File::open(archive).unwrap());
    let entries = archive.entries().unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.header().entry_type().is_file());
    let names = files.map(|entry| entry.path().unwrap().display().to_string());
    let mut names: Vec<String> = names
        .map(|name| name.trim_start_matches("./").to_owned())
        .collect();
    names.sort();
    Some(names)
}

#[test]
fn files_of_the_sandbox_are_not_packed_for_another_stage() {
    let apps = ["app/.shoal/mine", "app/etc/hosts"];
    let etc = ["etc/hosts.allow", "etc/passwd"];
    let all = [[".profile"].as_slice(), &apps, &etc].concat();
    assert_eq!(packed("").unwrap(), all);
    assert_eq!(packed("*").unwrap(), all[1..]);
    assert_eq!(packed("etc").unwrap(), etc);
    assert_eq!(packed("etc/host*").unwrap(), ["etc/hosts.allow"]);
    assert_eq!(packed("app").unwrap(), apps);
    // A step may name an identity file explicitly.
    assert_eq!(packed("etc/hosts").unwrap(), ["etc/hosts"]);
    for none in [".shoal", ".shoal/envd", ".sh*", "etc/machine*", "none"] {
        assert_eq!(packed(none), None, "{none}");
    }
}

/// The result of a script, when this runs as root.
fn as_root(script: &str, args: &[&str]) -> Option<()> {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("skipped: only root gives files away");
        return None;
    }
    let ran = Command::new("/bin/sh")
        .args(["-c", script, "sh"])
        .args(args)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    Some(())
}

/// The owner and the mode of a path.
fn of(path: &std::path::Path) -> (u32, u32) {
    let about = fs::symlink_metadata(path).unwrap();
    (about.uid(), about.mode() & 0o777)
}

/// Copies a tree with a file in it into an existing directory.
fn copied_to(target: &str, mode: &str) -> Option<tempfile::TempDir> {
    let root = tempfile::tempdir().unwrap();
    let (tree, archive) = (
        root.path().join("from/tree"),
        root.path().join("archive.tar"),
    );
    fs::create_dir_all(&tree).unwrap();
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o750)).unwrap();
    fs::write(tree.join("file"), "").unwrap();
    fs::create_dir(root.path().join("there")).unwrap();
    fs::set_permissions(root.path().join("there"), fs::Permissions::from_mode(0o711)).unwrap();
    let mut packed = tar::Builder::new(fs::File::create(&archive).unwrap());
    packed.append_dir_all("tree", &tree).unwrap();
    packed.finish().unwrap();
    drop(packed);
    let target = root.path().join(target);
    let args = [
        archive.to_str()?,
        "tree",
        target.to_str()?,
        "1234:1234",
        mode,
    ];
    as_root(COPY, &args)?;
    Some(root)
}

#[test]
fn directories_that_a_copy_creates_get_its_owner_and_mode() {
    let Some(root) = copied_to("there/new/tree", "") else {
        return;
    };
    let at = |path: &str| of(&root.path().join(path));
    assert_eq!(at("there"), (0, 0o711), "it was there");
    assert_eq!(at("there/new"), (1234, 0o755));
    assert_eq!(at("there/new/tree"), (1234, 0o750));
    assert_eq!(at("there/new/tree/file").0, 1234);
    let root = copied_to("there/tree", "700").unwrap();
    let at = |path: &str| of(&root.path().join(path));
    assert_eq!(at("there/tree"), (1234, 0o700));
    assert_eq!(at("there/tree/file"), (1234, 0o700));
    let root = copied_to("there", "700").unwrap();
    assert_eq!(of(&root.path().join("there")), (0, 0o711));
}

#[test]
fn a_pattern_stands_for_the_directory_that_it_is_in() {
    for (path, plain) in [
        ("a/b.txt", "a/b.txt"),
        ("./a/", "a"),
        ("a/*.py", "a"),
        ("**/x", ""),
        (".", ""),
        ("/a/b", "a/b"),
    ] {
        assert_eq!(without_pattern(path), plain, "{path}");
    }
}
