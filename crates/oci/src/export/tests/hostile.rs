//! Exports made by an attacker.

use std::io::Write;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use shoal_images::unpack::{Mark, Segment};
use tar::EntryType;

use super::*;

fn directory(path: &str) -> Entry {
    Entry {
        kind: EntryType::Directory,
        mode: 0o755,
        ..Entry::file(path, 0)
    }
}

fn link(kind: EntryType, path: &str, target: &str) -> Entry {
    Entry {
        kind,
        link: target.into(),
        ..Entry::file(path, 0)
    }
}

/// The reason why an export with these files is refused.
fn refused(files: &[Entry]) -> String {
    let fixture = Fixture::new(&[]);
    let sealed = fixture.archive(&key(b'a'), |archive| {
        for entry in files {
            archive.member(entry, io::empty()).unwrap();
        }
    });
    fixture.refused(&sealed)
}

#[test]
fn nothing_stands_in_the_place_of_the_directories_of_a_sandbox() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    for first in [
        link(EntryType::Symlink, "files", target),
        link(EntryType::Symlink, "work", target),
        link(EntryType::Symlink, "files/work", target),
        directory("work"),
        directory("upper"),
        directory("files/upper"),
        directory("./files"),
        directory("/files"),
        directory("filesystem"),
        Entry::file("files", 0),
    ] {
        let why = refused(&[first]);
        assert!(why.contains("is where files belongs"), "{why}");
    }
    for second in [
        link(EntryType::Symlink, "work", target),
        directory("work"),
        directory("filesystem"),
        Entry::file("envd", 0),
        Entry::file("manifest.json", 0),
        Entry::file("memory/pages.img", 0),
    ] {
        let why = refused(&[directory("files"), second]);
        assert!(why.contains("is not in files"), "{why}");
    }
    assert_eq!(names(outside.path()), [""; 0]);
}

#[test]
fn no_name_and_no_link_leads_out_of_the_files() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    for (file, word) in [
        (Entry::file("files/../work/x", 0), "upwards"),
        (Entry::file("files/a/../../x", 0), "upwards"),
        (Entry::file("files/link/x", 0), "not a directory"),
        (directory("files/link/x"), "not a directory"),
        (
            link(EntryType::Link, "files/x", "/etc/passwd"),
            "is not in files",
        ),
        (link(EntryType::Link, "files/x", "envd"), "is not in files"),
        (
            link(EntryType::Link, "files/x", "files/../envd"),
            "hard link",
        ),
        (
            link(EntryType::Link, "files/x", "files/link/y"),
            "hard link",
        ),
        (
            link(EntryType::Symlink, "files", target),
            "place of a directory",
        ),
        (
            Entry::file(&format!("files/{}", "n".repeat(256)), 0),
            "too long",
        ),
        (
            directory(&format!("files/{}", "d/".repeat(300))),
            "too deep",
        ),
    ] {
        let bad = link(EntryType::Symlink, "files/link", target);
        let why = refused(&[directory("files"), bad, file]);
        assert!(why.contains(word), "{why}");
    }
    assert_eq!(names(outside.path()), [""; 0]);
}

#[test]
fn neither_devices_nor_words_to_overlayfs_are_taken() {
    let with = |xattr: &str| Entry {
        xattrs: vec![(xattr.into(), b"/".to_vec())],
        ..Entry::file("files/x", 0)
    };
    for (file, word) in [
        (link(EntryType::Char, "files/x", ""), "is a device"),
        (link(EntryType::Block, "files/dev/x", ""), "is a device"),
        (with("trusted.overlay.redirect"), "trusted.overlay.redirect"),
        (with("trusted.overlay.opaque"), "trusted.overlay.opaque"),
        (with("trusted.x"), "trusted.x"),
        (with("user.overlay.redirect"), "user.overlay.redirect"),
        (with("security.ima"), "security.ima"),
        (
            Entry {
                xattrs: vec![(b"trusted.x".to_vec(), b"1".to_vec())],
                ..directory("files/x")
            },
            "trusted.x",
        ),
        (
            Entry {
                mark: Some(Mark::Opaque),
                ..Entry::file("files/x", 0)
            },
            "not a directory",
        ),
        (
            Entry {
                uid: 1 << 16,
                ..Entry::file("files/x", 0)
            },
            "65536",
        ),
        (
            Entry {
                gid: u32::MAX - 1,
                ..directory("files/x")
            },
            "4294967294",
        ),
    ] {
        let why = refused(&[directory("files"), file]);
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn what_is_compressed_is_no_export() {
    let fixture = Fixture::new(&[]);
    let plain = fixture.export(&key(b'a'));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&plain).unwrap();
    let zstd = zstd::encode_all(&plain[..], 19).unwrap();
    for bomb in [gzip.finish().unwrap(), zstd] {
        let why = fixture.refused(&bomb);
        assert!(why.contains("no export of a snapshot"), "{why}");
    }
    assert_eq!(names(&fixture.target()), [""; 0], "nothing was unpacked");
}

#[test]
fn an_export_is_bounded_in_bytes_and_members_and_its_holes_use_no_space() {
    let fixture = Fixture::new(&[]);
    let own = key(b'a');
    let full = Limits {
        bytes: 64 << 10,
        entries: 20,
        ..LIMITS
    };
    let sealed = |files: &[Entry]| {
        fixture.archive(&own, |archive| {
            archive.member(&directory("files"), io::empty()).unwrap();
            for file in files {
                archive.member(file, io::repeat(1)).unwrap();
            }
        })
    };
    let many: Vec<_> = (0..20)
        .map(|n| Entry::file(&format!("files/{n}"), 0))
        .collect();
    let hole = |size| Entry {
        segments: Some(vec![Segment {
            offset: size - 1,
            length: 1,
        }]),
        ..Entry::file("files/hole", size)
    };
    for (files, word) in [
        (
            vec![Entry::file("files/large", 65 << 10)],
            "more than 65536 bytes",
        ),
        (many, "more than 20 members"),
        (vec![hole((1 << 40) + 1)], "more than 1099511627776 bytes"),
    ] {
        let refused = fixture
            .receive(&sealed(&files), &own, false, &full)
            .unwrap_err();
        assert!(refused.to_string().contains(word), "{refused}");
        fs::remove_dir_all(fixture.target()).unwrap();
        fs::create_dir(fixture.target()).unwrap();
    }
    let received = fixture
        .receive(&sealed(&[hole(1 << 40)]), &own, false, &full)
        .unwrap();
    assert!(received.manifest.saved.file_bytes <= 64 << 10);
    let reserve = Limits {
        reserve_bytes: u64::MAX,
        ..LIMITS
    };
    fs::remove_dir_all(fixture.target()).unwrap();
    fs::create_dir(fixture.target()).unwrap();
    let refused = fixture
        .receive(&sealed(&[]), &own, false, &reserve)
        .unwrap_err();
    assert!(matches!(refused, DriverError::NoSpace), "{refused}");
}

#[test]
fn no_name_in_a_manifest_leads_to_a_file_of_the_machine() {
    let fixture = Fixture::new(&[("pages.img", b"memory")]);
    let outside = tempfile::tempdir().unwrap();
    let pipe = outside.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let text = serde_json::to_string(&fixture.manifest).unwrap();
    let own = key(b'a');
    for name in [
        format!("../../../../../../../../../..{}", pipe.display()),
        pipe.display().to_string(),
        "..".to_owned(),
        "a/b".to_owned(),
    ] {
        let mut archive = Archive::new(Vec::new(), Stop::never());
        let head = serde_json::to_vec(&Head::new(String::new(), &own)).unwrap();
        archive.small(EXPORT, &head).unwrap();
        archive
            .small(MANIFEST, text.replace("pages.img", &name).as_bytes())
            .unwrap();
        archive.small(ENVD, DAEMON).unwrap();
        archive.small(&format!("memory/{name}"), b"memory").unwrap();
        archive.member(&directory("files"), io::empty()).unwrap();
        let why = fixture.refused(&archive.finish(&own).unwrap());
        assert!(why.contains("not the name of a file"), "{why}");
        // A name that already exists is refused too, and not opened.
        let place = fixture.place.directory().join("manifest.json");
        fs::write(place, text.replace("pages.img", &name)).unwrap();
        assert!(SavedManifest::read(fixture.place.directory()).is_err());
    }
}

#[test]
fn memory_is_plain_files_that_the_manifest_lists() {
    let fixture = Fixture::new(&[("pages.img", b"memory")]);
    let own = key(b'a');
    let with = |member: &Entry, data: &[u8]| {
        let mut archive = Archive::new(Vec::new(), Stop::never());
        write_head(
            &mut archive,
            &Head::new(String::new(), &own),
            &fixture.manifest,
        )
        .unwrap();
        archive.small(ENVD, DAEMON).unwrap();
        archive.member(member, data).unwrap();
        archive.member(&directory("files"), io::empty()).unwrap();
        let why = fixture.refused(&archive.finish(&own).unwrap());
        fs::remove_dir_all(fixture.target()).unwrap();
        fs::create_dir(fixture.target()).unwrap();
        why
    };
    for (member, data, word) in [
        (
            link(EntryType::Fifo, "memory/pages.img", ""),
            &b""[..],
            "is where the file",
        ),
        (
            link(EntryType::Symlink, "memory/pages.img", "/dev/zero"),
            b"",
            "is where the file",
        ),
        (
            Entry::file("memory/other.img", 6),
            b"memory",
            "is where the file",
        ),
        (
            Entry::file("memory/../memory/pages.img", 6),
            b"memory",
            "is where the file",
        ),
        (Entry::file("memory/pages.img", 5), b"memor", "its length"),
        (Entry::file("memory/pages.img", 6), b"hidden", "its content"),
    ] {
        let why = with(&member, data);
        assert!(why.contains(word), "{why}");
    }
    let files = Fixture::new(&[]);
    let mut claims = fixture.manifest.clone();
    claims.saved.contents = Contents::Filesystem;
    let mut archive = Archive::new(Vec::new(), Stop::never());
    write_head(&mut archive, &Head::new(String::new(), &own), &claims).unwrap();
    archive.small(ENVD, DAEMON).unwrap();
    let why = files.refused(&archive.finish(&own).unwrap());
    assert!(why.contains("says that it has none"), "{why}");
}

#[test]
fn what_another_installation_exported_needs_trust_and_what_was_changed_has_none() {
    let fixture = Fixture::new(&[("pages.img", b"memory")]);
    let (own, other) = (key(b'a'), key(b'b'));
    let foreign = fixture.export(&other);
    let refused = fixture.receive(&foreign, &own, false, &LIMITS).unwrap_err();
    assert!(matches!(refused, DriverError::Untrusted), "{refused}");
    assert!(refused.to_string().contains("--trust"));
    assert_eq!(names(&fixture.target()), [""; 0], "nothing was unpacked");
    fixture.receive(&foreign, &own, true, &LIMITS).unwrap();
    let again = || {
        fs::remove_dir_all(fixture.target()).unwrap();
        fs::create_dir(fixture.target()).unwrap();
    };
    again();

    // All digests are right, but the attacker does not have this installation's key.
    let mut forged = Archive::new(Vec::new(), Stop::never());
    write_head(
        &mut forged,
        &Head::new(String::new(), &own),
        &fixture.manifest,
    )
    .unwrap();
    forged.small(ENVD, b"another daemon").unwrap();
    forged.small("memory/pages.img", b"memory").unwrap();
    forged.member(&directory("files"), io::empty()).unwrap();
    let forged = forged.finish(&other).unwrap();
    for trust in [false, true] {
        let refused = fixture.receive(&forged, &own, trust, &LIMITS).unwrap_err();
        assert!(
            refused.to_string().contains("its seal is wrong"),
            "{refused}"
        );
        again();
    }

    let good = fixture.export(&own);
    for at in [
        20,
        good.len() / 2,
        good.len() - 600,
        good.len() - 100,
        good.len() - 30,
    ] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        for trust in [false, true] {
            let taken = fixture.receive(&bad, &own, trust, &LIMITS);
            taken.unwrap_err();
            again();
        }
    }
    for cut in [0, 100, good.len() / 2, good.len() - 1] {
        fixture.refused(&good[..cut]);
        again();
    }
    let longer = [&good[..], b"more"].concat();
    fixture.refused(&longer);
    again();
    fixture.receive(&good, &own, false, &LIMITS).unwrap();
}

#[tokio::test]
async fn an_import_that_nobody_waits_for_ends() {
    let fixture = Fixture::new(&[]);
    let sealed = fixture.export(&key(b'a'));
    let transfers = Transfers::default();
    let (stop, dropped) = transfers.begin().await;
    drop(dropped);
    let terms = Terms {
        key: &key(b'a'),
        trust: false,
        limits: LIMITS,
        accept: &|_| Ok(1),
        make_files: &|path| fs::create_dir(path),
        stop: &stop,
    };
    let ended = receive(&sealed[..], sealed.len() as u64, &fixture.target(), &terms);
    assert!(ended.unwrap_err().to_string().contains("nobody waits"));
    assert_eq!(names(&fixture.target()), [""; 0]);
}

#[test]
fn an_export_of_an_earlier_version_says_what_to_do() {
    let fixture = Fixture::new(&[]);
    let mut archive = Archive::new(Vec::new(), Stop::never());
    let head = br#"{"format": "shoal-snapshot-export", "version": 1, "files": "0", "note": "x"}"#;
    archive.small(EXPORT, head).unwrap();
    let why = fixture.refused(&archive.finish(&key(b'a')).unwrap());
    assert!(
        why.contains("of version 1") && why.contains("export the snapshot again"),
        "{why}"
    );
}

#[test]
fn a_file_that_its_sandbox_led_away_is_not_exported() {
    let fixture = Fixture::new(&[]);
    let secret = fixture.data.path().join("secret");
    fs::write(&secret, "of the machine").unwrap();
    symlink(&secret, fixture.upper().join("link")).unwrap();
    symlink("/", fixture.upper().join("root")).unwrap();
    let sealed = fixture.export(&key(b'a'));
    let text = b"of the machine";
    assert!(!sealed.windows(text.len()).any(|window| window == text));
    fixture
        .receive(&sealed, &key(b'a'), false, &LIMITS)
        .unwrap();
    let link = fixture.target().join("files/upper/link");
    assert_eq!(fs::read_link(link).unwrap(), secret);
}
