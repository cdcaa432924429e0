//! A writable layer survives an export and an import unchanged.
#![allow(clippy::too_many_lines, reason = "a scenario reads from top to bottom")]

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr, mknodat,
    setxattr, utimensat,
};

use super::*;

/// The entries below a directory: kind, mode, owner, time, content and attributes of each name, and
/// the first name of its inode.
fn described(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        let kind = found.file_type();
        let content = if kind.is_file() {
            let content = fs::read(&path).unwrap();
            format!(
                "{} bytes {}",
                content.len(),
                blake3::hash(&content).to_hex()
            )
        } else if kind.is_symlink() {
            format!("to {}", fs::read_link(&path).unwrap().display())
        } else {
            format!("device {}", found.rdev())
        };
        // The time of a whiteout has no meaning.
        let changed = match kind.is_char_device() {
            true => (0, 0),
            false => (found.mtime(), found.mtime_nsec()),
        };
        let about = format!(
            "{:o} {}:{} {changed:?} {content} {:?}",
            found.mode(),
            found.uid(),
            found.gid(),
            attributes(&path)
        );
        if kind.is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        all.insert(path.strip_prefix(root).unwrap().to_owned(), about);
    }
    all
}

fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut list = vec![0; 65536];
    let length = llistxattr(path, &mut list[..]).unwrap();
    let names = list[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names
        .map(|name| {
            let name = String::from_utf8(name.to_vec()).unwrap();
            let mut value = vec![0; 65536];
            let length = lgetxattr(path, &name, &mut value[..]).unwrap();
            value.truncate(length);
            (name, value)
        })
        .collect()
}

/// The names of hard links.
fn groups(root: &Path) -> Vec<Vec<PathBuf>> {
    let mut groups: HashMap<u64, Vec<PathBuf>> = HashMap::new();
    for name in described(root).into_keys() {
        let found = fs::symlink_metadata(root.join(&name)).unwrap();
        if !found.is_dir() && found.nlink() > 1 {
            groups.entry(found.ino()).or_default().push(name);
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort();
    groups
}

fn set(path: &Path, name: &str, value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// Everything that a sandbox and its overlay may have left.
fn fill(upper: &Path) {
    let at = |name: &str| upper.join(name);
    fs::create_dir_all(at("etc/deep/deeper")).unwrap();
    fs::write(at("etc/plain"), "plain").unwrap();
    fs::set_permissions(at("etc/plain"), Permissions::from_mode(0o4751)).unwrap();
    fs::write(at(".wh.ordinary"), "a file with a name like a whiteout's").unwrap();
    fs::write(at("etc/empty"), "").unwrap();
    let long = format!("{}/{}", "d".repeat(200), "n".repeat(255));
    fs::create_dir(at(&long).parent().unwrap()).unwrap();
    fs::write(at(&long), "long").unwrap();
    symlink("t".repeat(300), at("long link")).unwrap();
    symlink("/etc/passwd", at("etc/link")).unwrap();
    fs::hard_link(at(&long), at("other name")).unwrap();
    fs::hard_link(at("etc/link"), at("etc/link again")).unwrap();
    fs::hard_link(at("etc/plain"), at("etc/deep/plain")).unwrap();
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::create_dir(at("tmp")).unwrap();
    fs::set_permissions(at("tmp"), Permissions::from_mode(0o1777)).unwrap();
    sparse(&at("sparse"));
    set(&at("etc/plain"), "user.note", b"a\n=b\0c");
    set(&at("etc"), "user.note", b"of a directory");
    set(upper, "user.note", b"of the root");
    // A capability in the kernel's second form.
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    set(&at("etc/empty"), "security.capability", &capability);
    set(
        &at("etc/deep/deeper"),
        "system.posix_acl_access",
        &access_list(),
    );
    set(&at("etc/deep"), "trusted.overlay.opaque", b"y");
    mknodat(
        CWD,
        at("etc/hidden"),
        FileType::CharacterDevice,
        Mode::empty(),
        0,
    )
    .unwrap();
    for (name, owner) in [
        ("etc/plain", 1000),
        ("etc/link", 65534),
        ("other name", 12),
        ("tmp", 7),
    ] {
        lchown(at(name), Some(owner), Some(owner + 1)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    // A change of owner clears these.
    fs::set_permissions(at("etc/plain"), Permissions::from_mode(0o4751)).unwrap();
    for (nanos, name) in [
        "etc/deep/deeper",
        "etc/deep",
        "etc/plain",
        "etc/link",
        "etc",
        ".",
    ]
    .into_iter()
    .enumerate()
    {
        let moment = Timespec {
            tv_sec: 1_600_000_000,
            tv_nsec: i64::try_from(nanos).unwrap(),
        };
        let times = Timestamps {
            last_access: moment,
            last_modification: moment,
        };
        utimensat(CWD, at(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// An access control list that lets user 1234 read, in the kernel's format.
fn access_list() -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (kind, may, who) in [
        (1, 7, u32::MAX),
        (2, 4, 1234),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 4, u32::MAX),
    ] {
        list.extend(u16::to_le_bytes(kind));
        list.extend(u16::to_le_bytes(may));
        list.extend(u32::to_le_bytes(who));
    }
    list
}

/// A file with data between holes, and a hole at its end.
fn sparse(path: &Path) {
    let mut file = File::create(path).unwrap();
    for at in [1 << 20, 5 << 20] {
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&[7; 5000]).unwrap();
    }
    file.set_len(64 << 20).unwrap();
}

#[test]
fn what_is_exported_comes_back_as_it_was() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: whiteouts and owners need root");
        return;
    }
    let zeros = [&[0; 200 << 10][..], b"memory"].concat();
    let fixture = Fixture::new(&[("checkpoint.img", b"state"), ("pages.img", &zeros)]);
    fill(&fixture.upper());
    let own = key(b'a');
    let sealed = fixture.export(&own);
    assert!(
        (sealed.len() as u64) < LIMITS.bytes,
        "holes are not written"
    );
    let received = fixture.receive(&sealed, &own, false, &LIMITS).unwrap();
    assert_eq!(received.note, "a note");
    assert_eq!(received.manifest.memory, fixture.manifest.memory);
    assert_eq!(received.manifest.saved.memory_bytes, zeros.len() as u64 + 5);
    assert!(
        received.manifest.saved.file_bytes < 1 << 20,
        "it is counted here"
    );
    received.manifest.verify(&fixture.target()).unwrap();
    assert_eq!(names(&fixture.target()), ["envd", "files", "memory"]);
    assert_eq!(names(&fixture.target().join("files")), ["upper", "work"]);
    assert_eq!(fs::read(fixture.target().join("envd")).unwrap(), DAEMON);

    let back = fixture.target().join("files/upper");
    let (before, after) = (described(&fixture.upper()), described(&back));
    assert_eq!(before, after);
    assert_eq!(groups(&fixture.upper()), groups(&back));
    assert_eq!(groups(&back).len(), 3);
    let hidden = fs::symlink_metadata(back.join("etc/hidden")).unwrap();
    assert!(hidden.file_type().is_char_device() && hidden.rdev() == 0);
    assert!(fs::metadata(back.join("sparse")).unwrap().blocks() * 512 < 1 << 20);
    assert!(
        fs::metadata(fixture.target().join("memory/pages.img"))
            .unwrap()
            .blocks()
            * 512
            < 128 << 10
    );
}

#[test]
fn what_an_export_cannot_hold_is_refused_with_a_word_or_left_out() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: devices need root");
        return;
    }
    let fixture = Fixture::new(&[]);
    let export = || {
        let mut archive = Archive::new(Vec::new(), Stop::never());
        write_upper(&mut archive, &fixture.upper())
    };
    let _listener = std::os::unix::net::UnixListener::bind(fixture.upper().join("socket")).unwrap();
    export().unwrap();
    let device = fixture.upper().join("null");
    mknodat(
        CWD,
        &device,
        FileType::CharacterDevice,
        Mode::empty(),
        rustix::fs::makedev(1, 3),
    )
    .unwrap();
    assert!(export().unwrap_err().to_string().contains("it is a device"));
    fs::remove_file(&device).unwrap();
    set(&fixture.upper(), "trusted.overlay.redirect", b"/x");
    assert!(export().unwrap_err().to_string().contains("elsewhere"));
}
