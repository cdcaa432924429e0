//! Users of the sandbox, from its `/etc/passwd` and `/etc/group`.
//!
//! The daemon parses the files itself: it is linked statically and cannot load NSS modules, which
//! an image need not have anyway. The files are untrusted, so parsing is bounded and invalid lines
//! are skipped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::foreign_file;

/// Bytes read of either file: some hundred thousand lines.
const MAX_FILE: u64 = 8 << 20;

/// Limit of supplementary groups, the kernel's.
const MAX_GROUPS: usize = 65_536;

/// Exists in every system.
const ROOT: &str = "root";

/// A user of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// User name.
    pub(crate) name: String,
    /// User id.
    pub(crate) uid: u32,
    /// Primary group id.
    pub(crate) gid: u32,
    /// Home directory.
    pub(crate) home: String,
}

/// A snapshot of all users and groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Directory {
    users: HashMap<String, User>,
    user_names: HashMap<u32, String>,
    group_names: HashMap<u32, String>,
    memberships: HashMap<String, Vec<u32>>,
}

impl Directory {
    /// Parses both files. The first line with a name or id wins, as in the C library.
    pub(crate) fn parse(passwd: &[u8], group: &[u8]) -> Self {
        let mut directory = Self::default();
        for user in lines(passwd).filter_map(parse_user) {
            let names = directory.user_names.entry(user.uid);
            names.or_insert_with(|| user.name.clone());
            directory.users.entry(user.name.clone()).or_insert(user);
        }
        for (name, gid, members) in lines(group).filter_map(parse_group) {
            directory
                .group_names
                .entry(gid)
                .or_insert_with(|| name.to_owned());
            for member in members.split(',').filter(|member| !member.is_empty()) {
                let groups = directory.memberships.entry(member.to_owned()).or_default();
                if !groups.contains(&gid) && groups.len() < MAX_GROUPS - 1 {
                    groups.push(gid);
                }
            }
        }
        directory.add_root();
        directory
    }

    /// Adds root if missing: an image with a single static binary has no such files.
    fn add_root(&mut self) {
        let root = || User {
            name: ROOT.to_owned(),
            uid: 0,
            gid: 0,
            home: "/".to_owned(),
        };
        self.users.entry(ROOT.to_owned()).or_insert_with(root);
        let name = || ROOT.to_owned();
        self.user_names.entry(0).or_insert_with(name);
    }

    /// Adds the daemon's own user under its number if it has no name: a pod may run as any number.
    fn add_own(&mut self) {
        let uid = rustix::process::geteuid().as_raw();
        if let Entry::Vacant(name) = self.user_names.entry(uid) {
            let own = User {
                name: uid.to_string(),
                uid,
                gid: rustix::process::getegid().as_raw(),
                home: "/".to_owned(),
            };
            name.insert(own.name.clone());
            self.users.entry(own.name.clone()).or_insert(own);
        }
    }

    /// Looks up a user by name.
    pub(crate) fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// All groups of a user, the primary one first.
    pub(crate) fn groups(&self, user: &User) -> Vec<u32> {
        let more = self.memberships.get(&user.name).into_iter().flatten();
        let more = more.copied().filter(|gid| *gid != user.gid);
        std::iter::once(user.gid).chain(more).collect()
    }

    /// The name of a user id, or the id as text.
    pub(crate) fn user_name(&self, uid: u32) -> String {
        let name = self.user_names.get(&uid).cloned();
        name.unwrap_or_else(|| uid.to_string())
    }

    /// The name of a group id, or the id as text.
    pub(crate) fn group_name(&self, gid: u32) -> String {
        let name = self.group_names.get(&gid).cloned();
        name.unwrap_or_else(|| gid.to_string())
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &str> {
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line).ok())
}

/// `name:password:uid:gid:comment:home:shell`.
fn parse_user(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let home = fields.nth(1)?;
    Some(User {
        name: name.to_owned(),
        uid,
        gid,
        home: if home.starts_with('/') { home } else { "/" }.to_owned(),
    })
}

/// `name:password:gid:member,member`.
fn parse_group(line: &str) -> Option<(&str, u32, &str)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let gid = fields.nth(1)?.parse().ok()?;
    Some((name, gid, fields.next().unwrap_or_default()))
}

/// Identifies a version of a file without reading it: device, inode, size and times of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp([i64; 6]);

/// The stamps of both files, and the directory parsed from them.
type CachedDirectory = ([Option<Stamp>; 2], Arc<Directory>);

/// The current users. The files are parsed again when they change.
pub(crate) struct Users {
    passwd: PathBuf,
    group: PathBuf,
    cached: Mutex<Option<CachedDirectory>>,
}

impl Users {
    /// The users of the system below `root`.
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            passwd: root.join("etc/passwd"),
            group: root.join("etc/group"),
            cached: Mutex::new(None),
        }
    }

    /// The name of the daemon's own user.
    pub(crate) fn own_name(&self) -> String {
        self.directory()
            .user_name(rustix::process::geteuid().as_raw())
    }

    /// The current directory. An unreadable file counts as empty.
    pub(crate) fn directory(&self) -> Arc<Directory> {
        let stamps = [stamp(&self.passwd), stamp(&self.group)];
        let mut cached = self.cached.lock();
        if let Some((seen, directory)) = cached.as_ref()
            && *seen == stamps
        {
            return Arc::clone(directory);
        }
        let passwd = foreign_file::read(&self.passwd, MAX_FILE).unwrap_or_default();
        let group = foreign_file::read(&self.group, MAX_FILE).unwrap_or_default();
        let mut directory = Directory::parse(&passwd, &group);
        directory.add_own();
        let directory = Arc::new(directory);
        *cached = Some((stamps, Arc::clone(&directory)));
        directory
    }
}

#[expect(
    clippy::cast_possible_wrap,
    reason = "only compared with itself for equality"
)]
fn stamp(path: &Path) -> Option<Stamp> {
    let meta = std::fs::metadata(path).ok()?;
    Some(Stamp([
        meta.dev() as i64,
        meta.ino() as i64,
        meta.size() as i64,
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime_nsec() ^ meta.ctime(),
    ]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/bash\n\
        # a comment: with: colons\n\
        user:x:1000:1000:,,,:/home/user:/bin/bash\n\
        user:x:1001:1001::/elsewhere:/bin/sh\n\
        short:x:5\n\
        nan:x:many:0::/:/bin/sh\n\
        huge:x:4294967296:0::/:/bin/sh\n\
        \xff\xfe:x:7:7::/:/bin/sh\n\
        nohome:x:8:8:::\n\
        :x:9:9::/:/bin/sh\n";
    const GROUP: &[u8] = b"root:x:0:\nsudo:x:27:user,other\nuser:x:1000:user\nempty:x:50\n\
        docker:x:999:user,,user\nbad:x:a:user\n";

    #[test]
    fn users_are_found_by_their_first_line() {
        let directory = Directory::parse(PASSWD, GROUP);
        let user = directory.user("user").unwrap();
        assert_eq!((user.uid, user.gid), (1000, 1000));
        assert_eq!(user.home, "/home/user");
        assert_eq!(directory.user("nohome").unwrap().home, "/");
    }

    #[test]
    fn invalid_lines_are_skipped() {
        let directory = Directory::parse(PASSWD, GROUP);
        for name in ["short", "nan", "huge", "", "# a comment", "\u{fffd}"] {
            assert_eq!(directory.user(name), None, "{name}");
        }
    }

    #[test]
    fn groups_start_with_the_primary_without_duplicates() {
        let directory = Directory::parse(PASSWD, GROUP);
        let user = directory.user("user").unwrap();
        assert_eq!(directory.groups(user), [1000, 27, 999]);
        assert_eq!(directory.groups(directory.user("root").unwrap()), [0]);
    }

    #[test]
    fn root_exists_without_any_file() {
        let empty = Directory::parse(b"", b"");
        let root = empty.user("root").unwrap();
        assert_eq!((root.uid, root.gid, &*root.home), (0, 0, "/"));
        assert_eq!(empty.user_name(0), "root");
    }

    #[test]
    fn an_unknown_id_is_shown_as_a_number() {
        let directory = Directory::parse(PASSWD, GROUP);
        assert_eq!(directory.user_name(1000), "user");
        assert_eq!(directory.user_name(4242), "4242");
        assert_eq!(directory.group_name(27), "sudo");
        assert_eq!(directory.group_name(4242), "4242");
    }

    #[test]
    fn a_changed_file_is_read_again() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let users = Users::new(root.path());
        assert_eq!(users.directory().user("user"), None);
        std::fs::write(root.path().join("etc/passwd"), PASSWD).unwrap();
        assert!(users.directory().user("user").is_some());
        assert!(Arc::ptr_eq(&users.directory(), &users.directory()));
    }

    #[test]
    fn a_pipe_in_place_of_passwd_does_not_block() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let path = root.path().join("etc/passwd");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(Users::new(root.path()).directory().user("user"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics_the_parser(
            passwd in proptest::collection::vec(any::<u8>(), 0..500),
            group in "[a-z:0-9,\n]{0,500}",
        ) {
            let directory = Directory::parse(&passwd, group.as_bytes());
            for user in directory.users.values() {
                prop_assert!(user.home.starts_with('/'));
                prop_assert_eq!(directory.groups(user)[0], user.gid);
            }
        }
    }
}
