use std::fs;

use super::*;

const CREATE: EventType = EventType::EVENT_TYPE_CREATE;
const WRITE: EventType = EventType::EVENT_TYPE_WRITE;
const REMOVE: EventType = EventType::EVENT_TYPE_REMOVE;
const RENAME: EventType = EventType::EVENT_TYPE_RENAME;
const CHMOD: EventType = EventType::EVENT_TYPE_CHMOD;

fn watch(root: &Path, recursive: bool) -> Watch {
    let options = Options {
        recursive,
        include_entry: false,
        allow_network: true,
    };
    Watch::open(root, options).unwrap()
}

/// All pending changes. The kernel queues an event before the causing call returns.
fn changes(watch: &mut Watch) -> Vec<(String, EventType)> {
    let (mut all, mut more) = (Vec::new(), true);
    while more {
        let (events, left) = watch.next_batch(&Directory::default()).unwrap();
        all.extend(
            events
                .into_iter()
                .map(|event| (event.name, event.r#type.as_known().unwrap())),
        );
        more = left;
    }
    all
}

fn expect(found: &[(String, EventType)], expected: &[(&str, EventType)]) {
    let found: Vec<_> = found
        .iter()
        .map(|(name, kind)| (name.as_str(), *kind))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn each_change_has_its_kind() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = watch(dir.path(), false);
    let file = dir.path().join("f");
    fs::write(&file, "x").unwrap();
    expect(&changes(&mut watch), &[("f", CREATE), ("f", WRITE)]);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&file, mode).unwrap();
    expect(&changes(&mut watch), &[("f", CHMOD)]);
    fs::rename(&file, dir.path().join("g")).unwrap();
    expect(&changes(&mut watch), &[("f", RENAME), ("g", CREATE)]);
    fs::remove_file(dir.path().join("g")).unwrap();
    expect(&changes(&mut watch), &[("g", REMOVE)]);
}

#[test]
fn only_a_recursive_watch_reports_subdirectories() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    let mut flat = watch(dir.path(), false);
    let mut deep = watch(dir.path(), true);
    fs::write(dir.path().join("sub/f"), "").unwrap();
    expect(&changes(&mut flat), &[]);
    expect(&changes(&mut deep), &[("sub/f", CREATE)]);
}

#[test]
fn a_new_directory_is_watched_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = watch(dir.path(), true);
    fs::create_dir(dir.path().join("new")).unwrap();
    expect(&changes(&mut watch), &[("new", CREATE)]);
    fs::write(dir.path().join("new/f"), "x").unwrap();
    expect(&changes(&mut watch), &[("new/f", CREATE), ("new/f", WRITE)]);
}

#[test]
fn contents_of_a_new_directory_are_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = watch(dir.path(), true);
    fs::create_dir_all(dir.path().join("a/b")).unwrap();
    fs::write(dir.path().join("a/b/f"), "x").unwrap();
    fs::write(dir.path().join("a/empty"), "").unwrap();
    let mut found = changes(&mut watch);
    assert_eq!(found.remove(0), ("a".to_owned(), CREATE));
    found.sort_by(|one, other| one.0.cmp(&other.0));
    expect(
        &found,
        &[
            ("a/b", CREATE),
            ("a/b/f", CREATE),
            ("a/b/f", WRITE),
            ("a/empty", CREATE),
        ],
    );
    fs::remove_file(dir.path().join("a/empty")).unwrap();
    fs::write(dir.path().join("a/empty"), "").unwrap();
    expect(
        &changes(&mut watch),
        &[("a/empty", REMOVE), ("a/empty", CREATE)],
    );
}

#[test]
fn a_moved_directory_is_watched_under_its_new_name_until_moved_out() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("old/deep")).unwrap();
    let mut watch = watch(dir.path(), true);
    fs::rename(dir.path().join("old"), dir.path().join("new")).unwrap();
    let found = changes(&mut watch);
    expect(&found[..2], &[("old", RENAME), ("new", CREATE)]);
    fs::write(dir.path().join("new/deep/f"), "").unwrap();
    expect(&changes(&mut watch), &[("new/deep/f", CREATE)]);
    fs::rename(dir.path().join("new"), outside.path().join("x")).unwrap();
    expect(&changes(&mut watch), &[("new", RENAME)]);
    fs::write(outside.path().join("x/deep/g"), "").unwrap();
    expect(&changes(&mut watch), &[]);
    assert_eq!(watch.directories.len(), 1);
}

#[test]
fn removal_of_the_watched_directory_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let mut watch = watch(&root, true);
    fs::remove_dir(&root).unwrap();
    expect(&changes(&mut watch), &[(".", REMOVE)]);
}

#[test]
fn only_directories_are_watched_and_links_to_them() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        recursive: true,
        include_entry: false,
        allow_network: false,
    };
    let open = |name: &str| Watch::open(&dir.path().join(name), options);
    fs::write(dir.path().join("file"), "").unwrap();
    fs::create_dir(dir.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
    assert!(matches!(open("none"), Err(FileError::NotFound(_))));
    assert!(matches!(open("file"), Err(FileError::NotDirectory(_))));
    let mut linked = open("link").unwrap();
    fs::write(dir.path().join("real/f"), "").unwrap();
    expect(&changes(&mut linked), &[("f", CREATE)]);
}

#[test]
fn an_entry_is_described_unless_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        recursive: false,
        include_entry: true,
        allow_network: true,
    };
    let mut watch = Watch::open(dir.path(), options).unwrap();
    fs::write(dir.path().join("f"), "xy").unwrap();
    let (events, _) = watch.next_batch(&Directory::default()).unwrap();
    assert_eq!(events[0].entry.as_option().unwrap().size, 2);
    fs::rename(dir.path().join("f"), dir.path().join("g")).unwrap();
    fs::remove_file(dir.path().join("g")).unwrap();
    let (events, _) = watch.next_batch(&Directory::default()).unwrap();
    assert!(events.iter().all(|event| event.entry.is_unset()));
}

#[test]
fn no_change_is_lost_across_batches() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = watch(dir.path(), false);
    for number in 0..BATCH_SIZE * 3 {
        fs::create_dir(dir.path().join(number.to_string())).unwrap();
    }
    assert_eq!(changes(&mut watch).len(), BATCH_SIZE * 3);
}
