use shoal_core::id::ExecutionId;
use shoal_core::resources::Resources;
use shoal_core::snapshot::{Contents, Saved};

use super::*;
use crate::disk::DiskConfig;

fn parts() -> Parts {
    Parts {
        source: "ia".parse().unwrap(),
        execution: ExecutionId::from_entropy([1; 16]),
        saved: Saved {
            contents: Contents::Memory,
            runtime: "runsc".parse().unwrap(),
            freeze: std::time::Duration::from_millis(1),
            memory_bytes: 0,
            file_bytes: 0,
            copied: "not".to_owned(),
        },
        runtime_build: "b".to_owned(),
        image: "base:1".parse().unwrap(),
        layers: vec!["sha256:00".to_owned()],
        envd: "e".parse().unwrap(),
        resources: Resources::default(),
    }
}

struct Fixture {
    _data: tempfile::TempDir,
    disk: Disk,
    place: SavedDirectory,
}

fn fixture() -> Fixture {
    let data = tempfile::tempdir().unwrap();
    let disk = Disk::open(data.path(), &DiskConfig::Plain).unwrap();
    let place = SavedDirectory::of_paused(&disk, &"ia".parse().unwrap());
    Fixture {
        _data: data,
        disk,
        place,
    }
}

/// A save that is not published yet.
fn new(Fixture { disk, place, .. }: &Fixture) -> SavedDirectory {
    let new = place.prepare(disk).unwrap();
    fs::create_dir(new.memory()).unwrap();
    fs::write(new.memory().join("pages.img"), vec![7; 3 << 20]).unwrap();
    fs::write(new.memory().join("checkpoint.img"), b"state").unwrap();
    new
}

fn publish_with(fixture: &Fixture, digests: Digests) -> SavedManifest {
    let new = new(fixture);
    let published = new.publish(parts(), &fixture.disk, &fixture.place, digests);
    published.unwrap()
}

fn publish(fixture: &Fixture) -> SavedManifest {
    publish_with(fixture, Digests::Now)
}

fn publish_undigested(fixture: &Fixture) -> SavedManifest {
    publish_with(fixture, Digests::Later)
}

/// Flips a bit of the pages.
fn damage(place: &SavedDirectory) {
    let pages = place.memory().join("pages.img");
    let mut bytes = fs::read(&pages).unwrap();
    bytes[1 << 20] ^= 1;
    fs::write(&pages, &bytes).unwrap();
}

#[test]
fn a_published_save_is_read_back_and_every_byte_is_verified() {
    let fixture = fixture();
    let place = &fixture.place;
    let manifest = publish(&fixture);
    assert_eq!(manifest.saved.memory_bytes, (3 << 20) + 5);
    assert_eq!(SavedManifest::read(place.directory()).unwrap(), manifest);
    manifest.verify(place.directory()).unwrap();
    let stamp = manifest.stamp(place.directory());

    damage(place);
    assert_ne!(manifest.stamp(place.directory()), stamp);
    manifest.check_lengths(place.directory()).unwrap();
    let damaged = manifest.verify(place.directory()).unwrap_err();
    assert_eq!(damaged.to_string(), "pages.img is damaged: its content");

    let pages = place.memory().join("pages.img");
    let bytes = fs::read(&pages).unwrap();
    fs::write(&pages, &bytes[1..]).unwrap();
    let short = manifest.check_lengths(place.directory()).unwrap_err();
    assert_eq!(short.to_string(), "pages.img is damaged: its length");
    fs::remove_file(&pages).unwrap();
    let gone = manifest.verify(place.directory()).unwrap_err();
    assert_eq!(gone.to_string(), "pages.img is damaged: it is not there");
}

#[test]
fn digests_that_are_added_later_are_those_of_a_save_that_had_them_at_once() {
    let fixture = fixture();
    let place = &fixture.place;
    let first = publish_undigested(&fixture);
    assert!(!first.has_digests());
    assert_eq!(first.saved.memory_bytes, (3 << 20) + 5);
    assert_eq!(SavedManifest::read(place.directory()).unwrap(), first);
    first.verify(place.directory()).unwrap();

    let stamp = place.add_digests(|| Ok(())).unwrap().unwrap();
    let complete = SavedManifest::read(place.directory()).unwrap();
    assert!(complete.has_digests());
    assert_eq!(complete.stamp(place.directory()), Some(stamp));
    complete.verify(place.directory()).unwrap();
    let again = place.add_digests(|| panic!("nothing is read"));
    assert_eq!(again.unwrap(), None);
    place.remove(&fixture.disk).unwrap();
    assert_eq!(publish(&fixture), complete);
}

#[test]
fn a_change_before_the_digests_is_found() {
    let fixture = fixture();
    let place = &fixture.place;
    let manifest = publish_undigested(&fixture);
    damage(place);
    for refused in [
        manifest.verify(place.directory()).unwrap_err(),
        place.add_digests(|| Ok(())).unwrap_err(),
    ] {
        assert_eq!(
            refused.to_string(),
            "pages.img is damaged: it was changed after it was saved"
        );
    }
    assert_eq!(SavedManifest::read(place.directory()).unwrap(), manifest);
}

#[test]
fn a_change_while_the_digests_are_computed_is_found() {
    let fixture = fixture();
    let place = &fixture.place;
    let manifest = publish_undigested(&fixture);
    let refused = place.add_digests(|| {
        damage(place);
        Ok(())
    });
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("changed after it was saved"), "{message}");
    assert_eq!(SavedManifest::read(place.directory()).unwrap(), manifest);
}

#[test]
fn digests_that_are_cancelled_leave_the_save_as_it_was() {
    let fixture = fixture();
    let place = &fixture.place;
    let manifest = publish_undigested(&fixture);
    let cancelled = place.add_digests(|| Err(io::ErrorKind::Interrupted.into()));
    assert!(matches!(cancelled, Err(Unreadable::Disk(_))));
    assert_eq!(SavedManifest::read(place.directory()).unwrap(), manifest);
    manifest.verify(place.directory()).unwrap();
}

#[test]
fn a_partial_save_is_never_visible_and_is_removed() {
    let fixture = fixture();
    let Fixture { disk, place, .. } = &fixture;
    let new = place.prepare(disk).unwrap();
    fs::create_dir(new.memory()).unwrap();
    assert!(matches!(
        SavedManifest::read(place.directory()),
        Err(Unreadable::Missing)
    ));
    let kept = SavedDirectory::of_paused(disk, &"ib".parse().unwrap());
    fs::create_dir(kept.directory()).unwrap();
    clear_transient(&disk.paused(), disk).unwrap();
    assert!(!new.directory().exists() && kept.directory().exists());

    publish(&fixture);
    place.remove(disk).unwrap();
    place.remove(disk).unwrap();
    let left: Vec<_> = fs::read_dir(disk.paused()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_complete_save_gets_its_name_and_a_damaged_one_does_not() {
    let fixture = fixture();
    let Fixture { disk, place, .. } = &fixture;
    for publish in [publish, publish_undigested] {
        publish(&fixture);
        let new = SavedDirectory(with_suffix(place.directory(), "new"));
        fs::rename(place.directory(), new.directory()).unwrap();
        show_whole(&disk.paused(), disk).unwrap();
        assert!(place.directory().exists() && !new.directory().exists());
        fs::rename(place.directory(), new.directory()).unwrap();
        damage(&new);
        show_whole(&disk.paused(), disk).unwrap();
        assert!(!place.directory().exists());
    }
}

#[test]
fn an_invalid_manifest_is_refused_with_a_reason() {
    let fixture = fixture();
    publish(&fixture);
    let file = fixture.place.directory().join("manifest.json");
    let text = fs::read_to_string(&file).unwrap();
    for (from, to, word) in [
        ("shoal-saved", "other", "something else"),
        ("\"version\": 1", "\"version\": 9", "of version 9"),
        ("{", "[", "cannot be read"),
    ] {
        fs::write(&file, text.replacen(from, to, 1)).unwrap();
        let refused = SavedManifest::read(fixture.place.directory()).unwrap_err();
        assert!(refused.to_string().contains(word), "{refused}");
    }
}
