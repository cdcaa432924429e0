use std::os::unix::fs::symlink;

use super::*;
use crate::manifest::Contents;

fn key(digit: &str) -> Key {
    digit.repeat(32).parse().unwrap()
}

fn manifest() -> Manifest {
    let text = |text: &str| text.to_owned();
    Manifest::new(text("ns"), text("pod"), text("uid"), Contents::Memory)
}

/// A store with one checkpoint.
fn published() -> (tempfile::TempDir, Store, CheckpointId) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path().join("store"));
    store.prepare().unwrap();
    let staged = store.stage(&key("1")).unwrap();
    fs::write(staged.path().join("pages.img"), b"memory of the pod").unwrap();
    fs::create_dir(staged.path().join("main")).unwrap();
    fs::write(staged.path().join("main/files.img"), b"files").unwrap();
    let id = staged.publish(manifest()).unwrap();
    (directory, store, id)
}

fn verified(store: &Store, id: &CheckpointId) -> Result<Vec<Digested>, StoreError> {
    let manifest = store.manifest("ns", id)?;
    store.verify(&manifest, id.key(), &[])
}

#[test]
fn a_checkpoint_is_visible_when_it_is_complete() {
    let (_directory, store, id) = published();
    let manifest = store.manifest("ns", &id).unwrap();
    let names: Vec<&str> = manifest.files.iter().map(|file| &*file.name).collect();
    assert_eq!(names, ["main/files.img", "pages.img"]);
    assert_eq!(verified(&store, &id).unwrap().len(), 2);
    assert_eq!(store.find("ns", &key("1")).unwrap(), Some(id));
    let staged = store.stage(&key("2")).unwrap();
    fs::write(staged.path().join("pages.img"), b"part").unwrap();
    assert_eq!(store.find("ns", &key("2")).unwrap(), None);
    assert_eq!(store.list().unwrap().len(), 1);
    let path = staged.path().to_owned();
    drop(staged);
    assert!(!path.exists(), "what was given up is gone");
}

#[test]
fn a_checkpoint_is_never_replaced() {
    let (_directory, store, id) = published();
    let again = store.stage(&key("1")).unwrap();
    assert!(again.publish(manifest()).is_err());
    assert!(verified(&store, &id).is_ok());
}

#[test]
fn nobody_else_can_read_it() {
    let (directory, store, id) = published();
    let place = store.place("ns", id.key()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&directory.path().join("store")), 0o700);
    assert_eq!(mode(place.parent().unwrap()), 0o700);
    assert_eq!(mode(&place), 0o700);
    for file in ["manifest.json", "pages.img", "main/files.img"] {
        assert_eq!(mode(&place.join(file)), 0o600, "{file}");
    }
}

#[test]
fn changed_files_are_found_out() {
    for (file, bytes) in [
        ("pages.img", &b"memory of the pox"[..]),
        ("main/files.img", b"file"),
        ("manifest.json", b"{}"),
    ] {
        let (_directory, store, id) = published();
        let place = store.place("ns", id.key()).unwrap();
        fs::write(place.join(file), bytes).unwrap();
        let seen = verified(&store, &id);
        assert!(
            matches!(seen, Err(StoreError::Changed(_))),
            "{file}: {seen:?}"
        );
    }
    let (_directory, store, id) = published();
    fs::remove_file(store.place("ns", id.key()).unwrap().join("pages.img")).unwrap();
    assert!(matches!(verified(&store, &id), Err(StoreError::Changed(_))));
}

#[test]
fn what_is_known_is_not_read_again_unless_it_changed() {
    let (_directory, store, id) = published();
    let known = verified(&store, &id).unwrap();
    let manifest = store.manifest("ns", &id).unwrap();
    let again = store.verify(&manifest, id.key(), &known).unwrap();
    assert_eq!(again, known);
    let pages = store.place("ns", id.key()).unwrap().join("pages.img");
    fs::write(pages, b"memory of the pox").unwrap();
    let seen = store.verify(&manifest, id.key(), &known);
    assert!(matches!(seen, Err(StoreError::Changed(_))));
}

#[test]
fn links_are_not_followed() {
    for (link, target) in [("pages.img", "/etc/hostname"), ("main", "/etc")] {
        let (_directory, store, id) = published();
        let path = store.place("ns", id.key()).unwrap().join(link);
        fs::rename(&path, path.with_extension("moved")).unwrap();
        symlink(target, &path).unwrap();
        assert!(
            matches!(verified(&store, &id), Err(StoreError::Changed(_))),
            "{link}"
        );
    }
    // Not even one to another namespace's checkpoint.
    let (directory, store, id) = published();
    symlink("ns", directory.path().join("store/other")).unwrap();
    assert!(store.manifest("other", &id).is_err());
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn a_namespace_has_its_own_checkpoints() {
    let (_directory, store, id) = published();
    assert!(matches!(
        store.manifest("other", &id),
        Err(StoreError::Missing)
    ));
    for hostile in ["", ".", "..", "../ns", "ns/..", "/", ".new", "ns\0"] {
        let seen = store.manifest(hostile, &id);
        assert!(matches!(seen, Err(StoreError::Namespace(_))), "{hostile:?}");
    }
}

#[test]
fn a_removed_checkpoint_is_gone_and_so_is_what_was_in_transit() {
    let (directory, store, id) = published();
    store.remove("ns", id.key()).unwrap();
    store.remove("ns", id.key()).unwrap();
    assert!(matches!(
        store.manifest("ns", &id),
        Err(StoreError::Missing)
    ));
    assert!(store.list().unwrap().is_empty());
    let left = directory.path().join("store/.new/left");
    fs::create_dir(&left).unwrap();
    store.prepare().unwrap();
    assert!(!left.exists());
}
