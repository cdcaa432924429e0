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

/// Copies the files of a checkpoint into another store, as they come from elsewhere.
fn copied<'a>(from: &Store, id: &CheckpointId, to: &'a Store) -> (Staged<'a>, Vec<u8>) {
    let staged = to.stage(id.key()).unwrap();
    fs::create_dir(staged.path().join("main")).unwrap();
    for file in ["pages.img", "main/files.img"] {
        let place = from.place("ns", id.key()).unwrap();
        fs::copy(place.join(file), staged.path().join(file)).unwrap();
    }
    (staged, from.read_manifest("ns", id.key()).unwrap())
}

#[test]
fn a_copy_is_the_checkpoint_or_is_not_there() {
    let (_directory, source, id) = published();
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path());
    store.prepare().unwrap();
    let (staged, manifest) = copied(&source, &id, &store);
    staged.publish_copy("ns", &id, &manifest).unwrap();
    assert_eq!(verified(&store, &id).unwrap().len(), 2);
    let oldest = store.oldest_copy(None).unwrap();
    assert_eq!(oldest, Some(("ns".to_owned(), id.key().clone())));
    assert_eq!(source.oldest_copy(None).unwrap(), None);
    store.remove("ns", id.key()).unwrap();

    let refused = |change: &dyn Fn(&Path), namespace: &str, manifest: &[u8]| {
        let (staged, _) = copied(&source, &id, &store);
        change(staged.path());
        let seen = staged.publish_copy(namespace, &id, manifest);
        assert!(store.list().unwrap().is_empty());
        assert!(
            fs::read_dir(directory.path().join(NEW))
                .unwrap()
                .next()
                .is_none()
        );
        seen.unwrap_err().to_string()
    };
    let pages = |path: &Path| fs::write(path.join("pages.img"), "memory of the pox").unwrap();
    assert!(refused(&pages, "ns", &manifest).contains("pages.img"));
    let gone = |path: &Path| fs::remove_file(path.join("main/files.img")).unwrap();
    assert!(refused(&gone, "ns", &manifest).contains("main/files.img"));
    let more = |path: &Path| fs::write(path.join("more"), "").unwrap();
    assert!(refused(&more, "ns", &manifest).contains("added"));
    assert!(refused(&|_| (), "other", &manifest).contains("another namespace"));
    assert!(refused(&|_| (), "ns", b"{}").contains("manifest.json"));
}

#[test]
fn a_fetch_says_how_it_is_getting_on() {
    let (_directory, store, id) = published();
    let state = || store.fetch(id.key()).unwrap();
    assert_eq!(state(), Fetch::None);
    let running = store.begin_fetch(id.key()).unwrap();
    assert_eq!(state(), Fetch::Running);
    running.fail("the bucket is away").unwrap();
    assert_eq!(state(), Fetch::Failed("the bucket is away".to_owned()));
    running.begin().unwrap();
    assert_eq!(state(), Fetch::Running);
    drop(running);
    assert_eq!(state(), Fetch::None);
    let _running = store.begin_fetch(id.key()).unwrap();
    // The next agent begins again.
    store.prepare().unwrap();
    assert_eq!(state(), Fetch::None);
}
