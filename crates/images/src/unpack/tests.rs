use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use proptest::prelude::*;
use rustix::fs::{lgetxattr, llistxattr};
use tar::{EntryType, Header};

use super::*;

const SMALL: Limits = Limits {
    bytes: 4 << 20,
    file_bytes: 4 << 20,
    entries: 1000,
    reserve_bytes: 0,
    reserve_inodes: 0,
};

/// An archive under construction, which may contain anything that a hostile one would.
#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn member(self, kind: EntryType, path: &str, link: &str, data: &[u8]) -> Self {
        let mut header = Header::new_ustar();
        // The crate's own setters refuse the values tested here.
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_uid(u64::from(rustix::process::getuid().as_raw()));
        header.set_gid(u64::from(rustix::process::getgid().as_raw()));
        header.set_mtime(1_000_000);
        header.set_size(data.len() as u64);
        self.raw(&mut header, data)
    }

    fn raw(mut self, header: &mut Header, data: &[u8]) -> Self {
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, path: &str, data: &[u8]) -> Self {
        self.member(EntryType::Regular, path, "", data)
    }

    fn directory(self, path: &str) -> Self {
        self.member(EntryType::Directory, path, "", b"")
    }

    fn symlink(self, path: &str, target: &str) -> Self {
        self.member(EntryType::Symlink, path, target, b"")
    }

    fn hard_link(self, path: &str, target: &str) -> Self {
        self.member(EntryType::Link, path, target, b"")
    }

    fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut data = Vec::new();
        for (key, value) in records {
            let body = key.len() + value.len() + 3;
            let mut length = body + 1;
            while length.to_string().len() + body != length {
                length += 1;
            }
            data.extend_from_slice(format!("{length} {key}=").as_bytes());
            data.extend_from_slice(value);
            data.push(b'\n');
        }
        self.member(EntryType::XHeader, "pax", "", &data)
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

struct Out(tempfile::TempDir);

impl Out {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("fs").join(name)
    }

    fn take(&self, archive: &[u8]) -> Result<Unpacked, UnpackError> {
        fs::create_dir_all(self.path("")).unwrap();
        unpack_bytes(archive, &self.path(""), &SMALL)
    }

    /// No file may appear outside the target directory.
    fn is_contained(&self) -> bool {
        fs::read_dir(self.0.path()).unwrap().count() == 1
    }
}

fn refusal(archive: Archive) -> Refusal {
    let out = Out::new();
    let error = out.take(&archive.end()).unwrap_err();
    assert!(out.is_contained());
    match error {
        UnpackError::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: {what} needs root");
    }
    root
}

#[test]
fn files_directories_and_links_arrive_with_modes_and_times() {
    let out = Out::new();
    let archive = Archive::default()
        .directory("./")
        .directory("./usr/")
        .file("./usr/tool", b"#!/bin/sh\n")
        .hard_link("usr/same", "usr/tool")
        .symlink("usr/link", "../anywhere/at/all")
        .member(EntryType::Fifo, "pipe", "", b"")
        .file("/rooted", b"x");
    let unpacked = out.take(&archive.end()).unwrap();
    assert_eq!((unpacked.entries, unpacked.bytes), (7, 11));
    let tool = fs::metadata(out.path("usr/tool")).unwrap();
    assert_eq!(
        (tool.mode() & 0o7777, tool.mtime(), tool.nlink()),
        (0o755, 1_000_000, 2)
    );
    let target = fs::read_link(out.path("usr/link")).unwrap();
    assert_eq!(target, Path::new("../anywhere/at/all"));
    let link = fs::symlink_metadata(out.path("usr/link")).unwrap();
    assert_eq!(link.mtime(), 1_000_000);
    assert!(
        fs::symlink_metadata(out.path("pipe"))
            .unwrap()
            .file_type()
            .is_fifo()
    );
    assert_eq!(fs::read(out.path("rooted")).unwrap(), b"x");
}

#[test]
fn fields_that_were_left_empty_are_zero() {
    let mut header = Header::new_gnu();
    header.set_path("empty").unwrap();
    let out = Out::new();
    if rustix::process::geteuid().is_root() {
        out.take(&Archive::default().raw(&mut header, b"").end())
            .unwrap();
        let empty = fs::metadata(out.path("empty")).unwrap();
        assert_eq!((empty.uid(), empty.mode() & 0o7777, empty.len()), (0, 0, 0));
    }
    header.as_old_mut().mode = *b"rwxr-xr-";
    let odd = Out::new().take(&Archive::default().raw(&mut header, b"").end());
    assert!(matches!(odd, Err(UnpackError::Corrupt(_))));
}

#[test]
fn a_directory_keeps_its_time_when_entries_are_added() {
    let out = Out::new();
    let archive = Archive::default()
        .directory("a")
        .file("a/one", b"")
        .directory("b")
        .file("a/two", b"")
        .file("a/implied/three", b"")
        .file("b/four", b"");
    out.take(&archive.end()).unwrap();
    for name in ["a", "b"] {
        assert_eq!(
            fs::metadata(out.path(name)).unwrap().mtime(),
            1_000_000,
            "{name}"
        );
    }
    let implied = fs::metadata(out.path("a/implied")).unwrap();
    assert_eq!((implied.mtime(), implied.mode() & 0o7777), (0, 0o755));
}

#[test]
fn a_later_member_replaces_an_earlier_one() {
    let out = Out::new();
    let archive = Archive::default()
        .file("x", b"old")
        .hard_link("kept", "x")
        .file("x", b"new")
        .symlink("y", "/etc/passwd")
        .file("y", b"mine")
        .directory("d")
        .file("d/inner", b"")
        .directory("d");
    out.take(&archive.end()).unwrap();
    assert_eq!(fs::read(out.path("x")).unwrap(), b"new");
    assert_eq!(fs::read(out.path("kept")).unwrap(), b"old");
    assert_eq!(fs::read(out.path("y")).unwrap(), b"mine");
    assert!(fs::symlink_metadata(out.path("y")).unwrap().is_file());
    assert!(out.path("d/inner").exists());
    let over = Archive::default().directory("d").file("d", b"");
    assert_eq!(refusal(over), Refusal::ReplacesDirectory("/d".into()));
}

#[test]
fn a_name_that_leads_upwards_is_refused() {
    for name in ["../x", "a/../../x", "..", "/../x", "a/.."] {
        let refused = refusal(Archive::default().file(name, b"x"));
        let upwards = matches!(
            refused,
            Refusal::Name {
                why: BadPath::Upwards,
                ..
            }
        );
        assert!(upwards, "{name}: {refused}");
        let pax = Archive::default()
            .pax(&[("path", name.as_bytes())])
            .file("x", b"");
        assert!(matches!(refusal(pax), Refusal::Name { .. }), "{name}");
    }
}

#[test]
fn nothing_is_written_through_a_link() {
    for target in ["/tmp", "..", "../..", "inside", "/proc/self/root/tmp"] {
        let archive = Archive::default()
            .directory("inside")
            .symlink("link", target)
            .file("link/shoal-escaped", b"x");
        let refused = refusal(archive);
        assert!(
            matches!(refused, Refusal::NotBelowDirectory(_)),
            "{target}: {refused}"
        );
    }
    assert!(!Path::new("/tmp/shoal-escaped").exists());
    let below_file = Archive::default().file("f", b"").file("f/x", b"");
    assert!(matches!(refusal(below_file), Refusal::NotBelowDirectory(_)));
    let deep = Archive::default().symlink("a", "/tmp").file("a/b/c/x", b"");
    assert!(matches!(refusal(deep), Refusal::NotBelowDirectory(_)));
}

#[test]
fn a_hard_link_reaches_only_files_of_its_own_layer() {
    for target in [
        "/etc/passwd",
        "../../etc/passwd",
        "a/../x",
        "missing",
        "dir",
        "x",
        "",
    ] {
        let archive = Archive::default().directory("dir").hard_link("x", target);
        let refused = refusal(archive);
        assert!(
            matches!(refused, Refusal::HardLink(..)),
            "{target}: {refused}"
        );
    }
    let through = Archive::default()
        .symlink("l", "/etc")
        .hard_link("x", "l/passwd");
    assert!(matches!(refusal(through), Refusal::HardLink(..)));
}

#[test]
fn devices_are_skipped_below_dev_and_refused_elsewhere() {
    let out = Out::new();
    let archive = Archive::default()
        .directory("dev")
        .member(EntryType::Char, "dev/null", "", b"")
        .member(EntryType::Block, "./dev/disk/sda", "", b"");
    out.take(&archive.end()).unwrap();
    assert_eq!(fs::read_dir(out.path("dev")).unwrap().count(), 0);
    for kind in [EntryType::Char, EntryType::Block] {
        let archive = Archive::default().member(kind, "etc/sda", "", b"");
        assert_eq!(refusal(archive), Refusal::Device("/etc/sda".into()));
    }
}

#[test]
fn attributes_that_deceive_overlayfs_are_refused() {
    for name in [
        "trusted.overlay.redirect",
        "trusted.overlay.opaque",
        "user.overlay.opaque",
    ] {
        let key = format!("SCHILY.xattr.{name}");
        for kind in [EntryType::Regular, EntryType::Directory] {
            let archive = Archive::default()
                .pax(&[(&key, b"y")])
                .member(kind, "x", "", b"");
            assert!(matches!(refusal(archive), Refusal::Attribute(..)), "{name}");
        }
    }
}

#[test]
fn capabilities_owners_and_setuid_are_kept() {
    if !is_root("giving files away") {
        return;
    }
    // Effective cap_net_raw, revision 2.
    let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let records: &[(&str, &[u8])] = &[
        ("SCHILY.xattr.security.capability", &capability),
        ("SCHILY.xattr.security.selinux", b"other_t"),
        ("mtime", b"1700000000.25"),
        ("uid", b"100000"),
    ];
    let mut header = Header::new_ustar();
    header.set_path("ping").unwrap();
    header.set_mode(0o6755);
    header.set_uid(12);
    header.set_gid(34);
    header.set_size(0);
    let out = Out::new();
    out.take(&Archive::default().pax(records).raw(&mut header, b"").end())
        .unwrap();
    let ping = fs::metadata(out.path("ping")).unwrap();
    assert_eq!(
        (ping.uid(), ping.gid(), ping.mode() & 0o7777),
        (100_000, 34, 0o6755)
    );
    assert_eq!(
        (ping.mtime(), ping.mtime_nsec()),
        (1_700_000_000, 250_000_000)
    );
    let mut value = [0; 64];
    let n = lgetxattr(out.path("ping"), "security.capability", &mut value[..]).unwrap();
    assert_eq!(value[..n], capability);
    let mut names = [0; 256];
    let n = llistxattr(out.path("ping"), &mut names[..]).unwrap();
    assert!(!String::from_utf8_lossy(&names[..n]).contains("selinux"));
}

fn is_whiteout(path: &Path) -> bool {
    let found = fs::symlink_metadata(path).unwrap();
    found.file_type().is_char_device() && found.rdev() == 0
}

fn is_opaque(path: &Path) -> bool {
    let mut value = [0; 8];
    lgetxattr(path, "trusted.overlay.opaque", &mut value[..]).is_ok_and(|n| value[..n] == *b"y")
}

#[test]
fn whiteouts_are_translated_for_overlayfs() {
    if !is_root("marking a directory opaque") {
        return;
    }
    let out = Out::new();
    let archive = Archive::default()
        .directory("etc")
        .file("etc/.wh.gone", b"")
        .file("cache/.wh..wh..opq", b"")
        .file("cache/new", b"")
        .file(".wh..wh.plnk", b"")
        .file(".wh.replaced", b"")
        .directory("replaced")
        .file(".wh.implied", b"")
        .file("implied/file", b"")
        .file("both", b"kept")
        .file(".wh.both", b"")
        .directory("dir")
        .file(".wh.dir", b"");
    out.take(&archive.end()).unwrap();
    assert!(is_whiteout(&out.path("etc/gone")));
    assert_eq!(fs::metadata(out.path("etc")).unwrap().mtime(), 1_000_000);
    for name in ["cache", "replaced", "implied", "dir"] {
        assert!(is_opaque(&out.path(name)), "{name}");
    }
    assert!(!is_opaque(&out.path("etc")));
    assert!(out.path("implied/file").exists());
    assert_eq!(fs::read(out.path("both")).unwrap(), b"kept");
    assert!(!out.path(".wh..wh.plnk").exists());
}

#[test]
fn a_whiteout_of_no_name_is_refused() {
    for name in [".wh.", ".wh..", ".wh...", "a/.wh..."] {
        let refused = refusal(Archive::default().file(name, b""));
        assert!(matches!(refused, Refusal::Name { .. }), "{name}: {refused}");
    }
}

#[test]
fn long_names_are_read_from_gnu_and_pax_headers() {
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(255));
    let gnu = Archive::default()
        .member(
            EntryType::GNULongName,
            "././@LongLink",
            "",
            format!("{long}\0").as_bytes(),
        )
        .file("short", b"gnu");
    let pax = Archive::default()
        .pax(&[("path", long.as_bytes())])
        .file("short", b"pax");
    for (archive, content) in [(gnu, "gnu"), (pax, "pax")] {
        let out = Out::new();
        out.take(&archive.end()).unwrap();
        assert_eq!(fs::read_to_string(out.path(&long)).unwrap(), content);
        assert!(!out.path("short").exists());
    }
    let target = "t".repeat(1000);
    let out = Out::new();
    let archive = Archive::default()
        .pax(&[("linkpath", target.as_bytes())])
        .symlink("l", "x");
    out.take(&archive.end()).unwrap();
    assert_eq!(fs::read_link(out.path("l")).unwrap(), Path::new(&target));
    let name = "n".repeat(256);
    let archive = Archive::default()
        .pax(&[("path", name.as_bytes())])
        .file("x", b"");
    assert!(matches!(
        refusal(archive),
        Refusal::Name {
            why: BadPath::TooLong,
            ..
        }
    ));
}

#[test]
fn an_archive_that_asks_for_too_much_is_refused() {
    let many = (0..1001).fold(Archive::default(), |archive, n| {
        archive.file(&n.to_string(), b"")
    });
    assert_eq!(refusal(many), Refusal::TooManyEntries(1000));
    let headers = (0..1001).fold(Archive::default(), |archive, _| {
        archive.member(EntryType::XGlobalHeader, "g", "", b"")
    });
    assert_eq!(refusal(headers), Refusal::TooManyEntries(1000));
    // A declared size, so that no data has to be sent.
    let mut header = Header::new_gnu();
    header.set_path("big").unwrap();
    header.set_size(1 << 60);
    assert_eq!(
        refusal(Archive::default().raw(&mut header, b"")),
        Refusal::TooManyBytes(SMALL.bytes)
    );
    header.set_entry_type(EntryType::XHeader);
    header.set_size(2 << 20);
    assert_eq!(
        refusal(Archive::default().raw(&mut header, b"")),
        Refusal::LongHeader(2 << 20)
    );
}

#[test]
fn a_bomb_stops_at_the_limit() {
    let zeros = vec![0; 8 << 20];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let bomb = Archive::default()
        .file("bomb", &zeros[..3 << 20])
        .file("more", &zeros[..2 << 20]);
    gzip.write_all(&bomb.end()).unwrap();
    let bomb = gzip.finish().unwrap();
    let zstd_bomb = {
        let whole = Archive::default().file("bomb", &zeros).end();
        zstd::encode_all(&whole[..], 3).unwrap()
    };
    let after_the_end = {
        let mut archive = Archive::default().file("x", b"x").end();
        archive.extend_from_slice(&zeros);
        zstd::encode_all(&archive[..], 3).unwrap()
    };
    for bytes in [bomb, zstd_bomb, after_the_end] {
        assert!(bytes.len() < 64 * 1024);
        let error = Out::new().take(&bytes).unwrap_err();
        assert!(
            matches!(error, UnpackError::Refused(Refusal::TooManyBytes(_))),
            "{error}"
        );
    }
}

#[test]
fn a_truncated_or_damaged_archive_is_corrupt() {
    let whole = Archive::default()
        .file("a", &[7; 2000])
        .file("b", b"x")
        .end();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&whole).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(&whole[..], 3).unwrap();
    let mut damaged = whole.clone();
    damaged[10] ^= 1;
    for bytes in [
        &whole[..100],
        &whole[..1500],
        &gzip[..gzip.len() - 9],
        &zstd[..zstd.len() - 3],
        &damaged[..],
        b"this is no archive, whatever it is named",
    ] {
        let error = Out::new().take(bytes).unwrap_err();
        assert!(matches!(error, UnpackError::Corrupt(_)), "{error}");
    }
    Out::new().take(&gzip).unwrap();
    Out::new().take(&zstd).unwrap();
    Out::new().take(b"").unwrap();
}

#[test]
fn zeros_become_holes() {
    let mut data = vec![0; 1 << 20];
    data[..4].copy_from_slice(b"head");
    let out = Out::new();
    let unpacked = out
        .take(&Archive::default().file("disk", &data).end())
        .unwrap();
    assert_eq!(fs::read(out.path("disk")).unwrap(), data);
    assert!(unpacked.bytes < 200_000);
    assert!(fs::metadata(out.path("disk")).unwrap().blocks() * 512 < 200_000);
}

/// A file of 1 MiB with `b"data"` at its end and at 4096, in each sparse format of tar.
#[test]
fn sparse_files_of_every_format_are_read() {
    let stored = [&b"data"[..], b"data"].concat();
    let mut expected = vec![0; 1 << 20];
    expected[4096..4100].copy_from_slice(b"data");
    expected[(1 << 20) - 4..].copy_from_slice(b"data");
    let end = ((1 << 20) - 4).to_string();
    let size = (1_u64 << 20).to_string();
    let sparse = |key: &str| format!("GNU.sparse.{key}");
    let oldest: Vec<(String, String)> = [
        ("size", size.as_str()),
        ("offset", "4096"),
        ("numbytes", "4"),
        ("offset", &end),
        ("numbytes", "4"),
        ("name", "disk"),
    ]
    .map(|(key, value)| (sparse(key), value.to_owned()))
    .to_vec();
    let older = vec![
        (sparse("size"), size.clone()),
        (sparse("map"), format!("4096,4,{end},4")),
        (sparse("name"), "disk".to_owned()),
    ];
    let newest = vec![
        (sparse("major"), "1".to_owned()),
        (sparse("minor"), "0".to_owned()),
        (sparse("realsize"), size),
        (sparse("name"), "disk".to_owned()),
    ];
    let mut with_map = format!("2\n4096\n4\n{end}\n4\n").into_bytes();
    with_map.resize(512, 0);
    with_map.extend_from_slice(&stored);
    for (records, data) in [(oldest, &stored), (older, &stored), (newest, &with_map)] {
        let records: Vec<(&str, &[u8])> = records
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_bytes()))
            .collect();
        let out = Out::new();
        let archive = Archive::default()
            .pax(&records)
            .file("GNUSparseFile.0/disk", data);
        out.take(&archive.file("after", b"!").end()).unwrap();
        assert!(fs::read(out.path("disk")).unwrap() == expected);
        assert_eq!(fs::read(out.path("after")).unwrap(), b"!");
    }
    let lies = Archive::default()
        .pax(&[("GNU.sparse.size", b"100"), ("GNU.sparse.map", b"0,4,2,4")])
        .file("x", &stored);
    assert!(matches!(
        Out::new().take(&lies.end()),
        Err(UnpackError::Corrupt(_))
    ));
    let huge = Archive::default()
        .pax(&[
            ("GNU.sparse.size", b"99999999999999"),
            ("GNU.sparse.map", b"0,8"),
        ])
        .file("x", &stored);
    assert!(matches!(refusal(huge), Refusal::LongFile(_)));
}

#[test]
fn archives_of_gnu_tar_are_read() {
    let home = tempfile::tempdir().unwrap();
    let from = home.path().join("from");
    fs::create_dir_all(from.join("sub")).unwrap();
    let mut disk = fs::File::create(from.join("disk")).unwrap();
    disk.write_all(b"start").unwrap();
    disk.set_len(3 << 20).unwrap();
    fs::write(from.join("sub").join("n".repeat(180)), "long").unwrap();
    fs::set_permissions(from.join("sub"), fs::Permissions::from_mode(0o1777)).unwrap();
    for format in ["gnu", "oldgnu", "pax", "posix", "ustar", "v7"] {
        let archive = home.path().join("archive.tar");
        let mut tar = std::process::Command::new("tar");
        tar.arg("--create").arg("--file").arg(&archive);
        tar.arg(format!("--format={format}"))
            .arg("--directory")
            .arg(&from);
        let old = ["ustar", "v7"].contains(&format);
        tar.arg(if old { "--exclude=nnn*" } else { "--sparse" });
        assert!(tar.arg(".").status().unwrap().success());
        let out = Out::new();
        out.take(&fs::read(&archive).unwrap()).unwrap();
        let disk = fs::read(out.path("disk")).unwrap();
        assert_eq!(
            (disk.len(), &disk[..5]),
            (3 << 20, &b"start"[..]),
            "{format}"
        );
        assert_eq!(
            fs::metadata(out.path("sub")).unwrap().mode() & 0o7777,
            0o1777
        );
    }
}

#[test]
fn a_disk_that_must_keep_a_reserve_is_not_filled() {
    let out = Out::new();
    fs::create_dir_all(out.path("")).unwrap();
    let limits = Limits {
        reserve_bytes: u64::MAX,
        ..SMALL
    };
    let archive = Archive::default().file("x", b"x").end();
    let error = unpack_bytes(&archive, &out.path(""), &limits).unwrap_err();
    assert!(matches!(error, UnpackError::NoSpace), "{error}");
}

/// Names from few letters, so that members collide: equal names, or a link as a directory.
fn any_name() -> impl Strategy<Value = String> {
    "(\\.\\./|/|\\./)?[abc](/(\\.\\.|[abc]|\\.wh\\.[abc]|\\.wh\\.\\.wh\\.\\.opq)){0,3}/?"
}

fn any_member() -> impl Strategy<Value = (EntryType, String, String, Vec<u8>)> {
    let kinds = prop::sample::select(vec![
        EntryType::Regular,
        EntryType::Directory,
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Fifo,
        EntryType::Char,
        EntryType::GNULongName,
        EntryType::XHeader,
        EntryType::GNUSparse,
        EntryType::new(b'?'),
    ]);
    let data = prop::collection::vec(any::<u8>(), 0..600);
    (kinds, any_name(), any_name(), data)
}

proptest! {
    #[test]
    fn no_archive_writes_outside_its_directory(
        members in prop::collection::vec(any_member(), 0..12),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let mut bytes = members
            .iter()
            .fold(Archive::default(), |archive, (kind, path, link, data)| {
                archive.member(*kind, path, link, data)
            })
            .end();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let out = Out::new();
        let _ = out.take(&bytes);
        prop_assert!(out.is_contained());
        for entry in fs::read_dir(out.0.path()).unwrap() {
            prop_assert_eq!(entry.unwrap().file_name(), "fs");
        }
    }

    #[test]
    fn the_contents_of_an_archive_are_verified(
        files in prop::collection::btree_map("[a-d]/[e-h]{1,3}", any::<Vec<u8>>(), 0..10),
    ) {
        let files: BTreeMap<String, Vec<u8>> = files;
        let archive = files
            .iter()
            .fold(Archive::default(), |archive, (path, data)| archive.file(path, data));
        let out = Out::new();
        let unpacked = out.take(&archive.end()).unwrap();
        prop_assert_eq!(unpacked.entries, files.len() as u64);
        for (path, data) in &files {
            prop_assert_eq!(&fs::read(out.path(path)).unwrap(), data);
        }
    }
}
