//! The files of a step, and their hash.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use flate2::read::GzDecoder;

use shoal_dockerfile::{CopyFiles, Source};

use super::super::archive;
use super::super::context::{Context, Entries, Gathered};

fn files(sources: &[&str], dest: &str) -> CopyFiles {
    CopyFiles {
        sources: sources
            .iter()
            .map(|path| Source::Path((*path).to_owned()))
            .collect(),
        dest: dest.to_owned(),
        unpacks: false,
    }
}

fn tree(paths: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for path in paths {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("of {}", path.file_name().unwrap().display())).unwrap();
    }
    root
}

fn gather(root: &Path, sources: &[&str], dest: &str) -> Result<Gathered, String> {
    Context::open(root, None)
        .unwrap()
        .gather(&files(sources, dest))
}

/// The names in the archive, without the destination directory.
fn names(gathered: &Gathered) -> Vec<&str> {
    let names = gathered.entries.keys().map(|name| name.to_str().unwrap());
    names.filter(|name| *name != ".").collect()
}

/// The members of an archive: permissions, and contents or link targets.
pub(super) fn members(packed: impl Read) -> BTreeMap<String, (u32, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(packed));
    let members = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!(
            (
                header.uid().unwrap(),
                header.gid().unwrap(),
                header.mtime().unwrap()
            ),
            (0, 0, 0)
        );
        let mode = header.mode().unwrap();
        let name = entry.path().unwrap().display().to_string();
        let link = entry
            .link_name()
            .unwrap()
            .map(|link| link.display().to_string());
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (name, (mode, link.unwrap_or(text)))
    });
    members.collect()
}

fn packed(entries: &Entries) -> BTreeMap<String, (u32, String)> {
    members(archive::pack(entries).unwrap().0)
}

#[test]
fn one_file_keeps_its_name_and_all_else_is_laid_out_as_it_shall_be() {
    let root = tree(&["a.txt", "b.txt", "src/main.rs", "src/deep/x", "docs/y"]);
    let root = root.path();
    for (sources, dest, source, expected) in [
        (&["a.txt"][..], "/x", "a.txt", &["a.txt"][..]),
        (&["./src/../src/main.rs"], "/x", "main.rs", &["main.rs"]),
        (&["/a.txt"], "/x", "a.txt", &["a.txt"]),
        (&["a*"], "/x", "a.txt", &["a.txt"]),
        (&["*.txt"], "/x/", ".", &["a.txt", "b.txt"]),
        (&["src"], "/x", ".", &["deep", "deep/x", "main.rs"]),
        (
            &["src/", "docs", "a.txt"],
            "/x/",
            ".",
            &["a.txt", "deep", "deep/x", "main.rs", "y"],
        ),
        (&["*/[m-x]*"], "/x/", "main.rs", &["main.rs"]),
        (&["s?c/*"], "/x/", ".", &["main.rs", "x"]),
    ] {
        let gathered = gather(root, sources, dest).unwrap();
        assert_eq!(gathered.source, source, "{sources:?}");
        assert_eq!(names(&gathered), expected, "{sources:?}");
    }
    let all = gather(root, &["."], "/x").unwrap();
    assert_eq!(names(&all).len(), 8);
    for sources in [
        &["no"][..],
        &["*.no"],
        &["../a"],
        &["src/../../a"],
        &["a.txt/b"],
        &["[a"],
    ] {
        assert!(gather(root, sources, "/x/").is_err(), "{sources:?}");
    }
    assert!(gather(root, &["*.txt"], "/x").is_err());
}

#[test]
fn what_is_left_out_is_not_copied_and_what_is_taken_back_is() {
    let root = tree(&[
        ".git/config",
        "target/a/b",
        "target/keep/c",
        "src/x.rs",
        "src/x.tmp",
    ]);
    fs::write(
        root.path().join(".dockerignore"),
        ".git\ntarget\n!target/keep\n**/*.tmp\n",
    )
    .unwrap();
    let all = gather(root.path(), &["."], "/").unwrap();
    assert_eq!(
        names(&all),
        [
            ".dockerignore",
            "src",
            "src/x.rs",
            "target",
            "target/keep",
            "target/keep/c"
        ]
    );
    assert!(gather(root.path(), &["src/x.tmp"], "/").is_err());
    assert_eq!(
        names(&gather(root.path(), &["src/*"], "/").unwrap()),
        ["x.rs"]
    );
    assert_eq!(
        names(&gather(root.path(), &["target"], "/").unwrap()),
        ["keep", "keep/c"]
    );
    // The Dockerfile's own ignore file takes precedence over the context's.
    let file = root.path().join("Other");
    fs::write(root.path().join("Other.dockerignore"), "*\n!src\n").unwrap();
    let other = Context::open(root.path(), Some(&file)).unwrap();
    let all = other.gather(&files(&["."], "/")).unwrap();
    assert_eq!(names(&all), ["src", "src/x.rs", "src/x.tmp"]);
}

#[test]
fn links_stay_links_within_a_directory_and_lead_nowhere_else() {
    let outside = tree(&["secret"]);
    let root = tree(&["d/file"]);
    symlink("file", root.path().join("d/link")).unwrap();
    symlink(outside.path(), root.path().join("d/out")).unwrap();
    symlink(outside.path().join("secret"), root.path().join("secret")).unwrap();
    symlink("d", root.path().join("to-d")).unwrap();
    let gathered = gather(root.path(), &["d"], "/x").unwrap();
    let members = packed(&gathered.entries);
    assert_eq!(members["link"].1, "file");
    assert_eq!(members["."].0, 0o755);
    assert_eq!(members["out"].1, outside.path().display().to_string());
    assert!(!members.contains_key("out/secret"));
    // A symbolic link as a source means its target, only within the context.
    assert_eq!(
        names(&gather(root.path(), &["to-d"], "/x").unwrap()),
        ["file", "link", "out"]
    );
    assert_eq!(
        gather(root.path(), &["d/link"], "/x").unwrap().source,
        "link"
    );
    for source in ["secret", "d/out", "d/out/secret", "d/out/*"] {
        assert!(gather(root.path(), &[source], "/x").is_err(), "{source}");
    }
}

#[test]
fn archives_for_add_are_refused_and_texts_are_files() {
    let root = tree(&["plain"]);
    fs::write(root.path().join("a.tgz"), b"\x1f\x8b rest").unwrap();
    let context = Context::open(root.path(), None).unwrap();
    let mut add = files(&["a.tgz"], "/x");
    assert!(context.gather(&add).is_ok());
    add.unpacks = true;
    assert!(context.gather(&add).unwrap_err().contains("tar -xf"));
    let inline = |name: &str| CopyFiles {
        sources: vec![Source::Inline {
            name: name.to_owned(),
            text: "hello\n".to_owned(),
        }],
        dest: "/etc/x".to_owned(),
        unpacks: false,
    };
    let gathered = context.gather(&inline("EOF")).unwrap();
    assert_eq!(
        packed(&gathered.entries)["EOF"],
        (0o644, "hello\n".to_owned())
    );
    assert!(context.gather(&inline("a/b")).is_err());
}

#[test]
fn a_hash_is_of_words_names_permissions_and_contents() {
    let hash = |root: &Path, args: &[&str], source: &str| {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        archive::hash(&args, &gather(root, &[source], "/x").unwrap().entries).unwrap()
    };
    let root = tree(&["d/a", "d/b"]);
    let same = tree(&["d/b", "d/a"]);
    let first = hash(root.path(), &["d", "/x"], "d");
    assert_eq!(first.len(), 64);
    assert_eq!(first, hash(same.path(), &["d", "/x"], "d"));
    assert_ne!(first, hash(root.path(), &["d", "/y"], "d"));
    assert_ne!(first, hash(root.path(), &["d/", "x"], "d"));
    let a = same.path().join("d/a");
    fs::set_permissions(&a, fs::Permissions::from_mode(0o755)).unwrap();
    let executable = hash(same.path(), &["d", "/x"], "d");
    assert_ne!(first, executable);
    fs::write(&a, "of A").unwrap();
    assert_ne!(executable, hash(same.path(), &["d", "/x"], "d"));
    fs::rename(&a, same.path().join("d/c")).unwrap();
    assert_ne!(executable, hash(same.path(), &["d", "/x"], "d"));
}

#[test]
fn an_archive_is_the_same_bytes_each_time_and_holds_long_names() {
    let long = format!("d/{}/{}", "n".repeat(120), "m".repeat(120));
    let root = tree(&["d/a", &long]);
    let entries = gather(root.path(), &["d"], "/x").unwrap().entries;
    let bytes = || {
        let (mut file, length) = archive::pack(&entries).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, length);
        bytes
    };
    assert_eq!(bytes(), bytes());
    assert!(packed(&entries).contains_key(long.strip_prefix("d/").unwrap()));
}
