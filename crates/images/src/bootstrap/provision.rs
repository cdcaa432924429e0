//! The recipe's additions to the packages.

use std::fs;
use std::os::fd::AsFd;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::Fault;
use super::accounts::Accounts;
use super::recipe::{Owner, PathPattern, Recipe, UserSpec};
use super::sources::{SourceFiles, SourceList};
use crate::beneath::{FileOwner, Tree, TreePath, child, look, names, remove};

/// The largest file of an image that is read for a change.
const FILE_MAX: u64 = 4 << 20;

/// Files of the build that are useless in an image, or that differ between builds.
const LEFTOVERS: [&str; 9] = [
    "/etc/apt/sources.list.d/0000*",
    "/etc/hostname",
    "/etc/resolv.conf",
    "/var/cache/apt/*.bin",
    "/var/cache/debconf/*-old",
    "/var/cache/ldconfig/aux-cache",
    "/var/lib/dpkg/*-old",
    "/var/log/**/*.log",
    "/var/log/apt/*",
];

/// Applies the recipe's additions and removals.
pub(super) fn provision(tree: &Tree, recipe: &Recipe, sources: &SourceFiles) -> Result<(), Fault> {
    remove_all(tree, &recipe.remove)?;
    if let SourceFiles::Listed(sources) = sources {
        write_sources(tree, sources)?;
    }
    if let Some(user) = &recipe.user {
        add_user(tree, user)?;
    }
    for (path, file) in &recipe.files {
        let owner = match (&recipe.user, file.owner) {
            (Some(user), Owner::User) => FileOwner {
                uid: user.uid,
                gid: user.uid,
            },
            _ => FileOwner::ROOT,
        };
        let path = path.in_tree();
        write(
            tree,
            &path,
            file.content.as_bytes(),
            file.mode.bits(),
            owner,
        )?;
    }
    Ok(())
}

/// Configures the image's own apt with this machine's sources.
fn write_sources(tree: &Tree, sources: &SourceList) -> Result<(), Fault> {
    let mut text = sources.text.clone();
    for (from, to) in &sources.keys {
        let path = parsed(to)?;
        if tree.read(&path, FILE_MAX).is_err() {
            let key = fs::read(from).map_err(|e| Fault::io("read", from, e))?;
            write(tree, &path, &key, 0o644, FileOwner::ROOT)?;
        }
        text = text.replace(&*from.to_string_lossy(), to);
    }
    let list = parsed("/etc/apt/sources.list")?;
    write(tree, &list, text.as_bytes(), 0o644, FileOwner::ROOT)
}

/// A file with users or groups: its path, its mode, and its field in [`Accounts`].
type AccountFile = (&'static str, u32, fn(&mut Accounts) -> &mut String);

const ACCOUNT_FILES: [AccountFile; 4] = [
    ("/etc/passwd", 0o644, |accounts| &mut accounts.passwd),
    ("/etc/group", 0o644, |accounts| &mut accounts.group),
    ("/etc/shadow", 0o640, |accounts| &mut accounts.shadow),
    ("/etc/gshadow", 0o640, |accounts| &mut accounts.gshadow),
];

fn add_user(tree: &Tree, user: &UserSpec) -> Result<(), Fault> {
    let mut accounts = Accounts::default();
    for (path, _, text) in ACCOUNT_FILES {
        let bytes = match tree.read(&parsed(path)?, FILE_MAX) {
            Ok(bytes) => bytes,
            Err(Errno::NOENT) => Vec::new(),
            Err(e) => return Err(Fault::io("read", path.as_ref(), e.into())),
        };
        let read = String::from_utf8(bytes);
        *text(&mut accounts) = read.map_err(|_| Fault::refused(format!("{path} is not text")))?;
    }
    accounts
        .add(user)
        .map_err(|e| Fault::refused(e.to_string()))?;
    for (path, mode, text) in ACCOUNT_FILES {
        tree.replace(&parsed(path)?, text(&mut accounts).as_bytes(), mode)
            .map_err(|e| Fault::io("write", path.as_ref(), e.into()))?;
    }
    make_home(tree, user)?;
    if user.sudo {
        let path = parsed(&format!("/etc/sudoers.d/{}", user.name))?;
        let rule = format!("{} ALL=(ALL:ALL) NOPASSWD:ALL\n", user.name);
        write(tree, &path, rule.as_bytes(), 0o440, FileOwner::ROOT)?;
    }
    Ok(())
}

/// Creates the user's home with the distribution's skeleton files.
fn make_home(tree: &Tree, user: &UserSpec) -> Result<(), Fault> {
    let home = user.home.in_tree();
    let owner = FileOwner {
        uid: user.uid,
        gid: user.uid,
    };
    let failed = |e: Errno| Fault::io("make", &home.to_path(), e.into());
    let directory = tree.make_directories(&home).map_err(failed)?;
    owner.take(directory.as_fd()).map_err(failed)?;
    let skeleton = parsed("/etc/skel")?;
    let Ok(from) = tree.directory(&skeleton) else {
        return Ok(());
    };
    for name in names(from.as_fd()).map_err(failed)? {
        // Only regular files: a skeleton has nothing else.
        let content = tree.read(&skeleton.join(&name), FILE_MAX).map_err(failed)?;
        write(tree, &home.join(&name), &content, 0o644, owner)?;
    }
    Ok(())
}

fn write(
    tree: &Tree,
    path: &TreePath,
    content: &[u8],
    mode: u32,
    owner: FileOwner,
) -> Result<(), Fault> {
    tree.write(path, content, mode, owner)
        .map_err(|e| Fault::io("write", &path.to_path(), e.into()))
}

fn parsed(path: &str) -> Result<TreePath, Fault> {
    TreePath::parse(path.as_bytes()).map_err(|why| Fault::refused(format!("{path}: {why}")))
}

/// Removes the files that these patterns and [`LEFTOVERS`] match.
fn remove_all(tree: &Tree, patterns: &[PathPattern]) -> Result<(), Fault> {
    let mut builder = GlobSetBuilder::new();
    let wanted = patterns.iter().map(PathPattern::as_str);
    for pattern in wanted.chain(LEFTOVERS) {
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        builder.add(glob.map_err(|e| Fault::refused(e.to_string()))?);
    }
    let set = builder.build().map_err(|e| Fault::refused(e.to_string()))?;
    remove_matching(tree.root(), &TreePath::root(), &set)
        .map_err(|e| Fault::io("remove from", "/".as_ref(), e.into()))
}

fn remove_matching(
    directory: std::os::fd::BorrowedFd<'_>,
    path: &TreePath,
    set: &GlobSet,
) -> Result<(), Errno> {
    for name in names(directory)? {
        let path = path.join(&name);
        if set.is_match(std::path::Path::new("/").join(path.to_path())) {
            remove(directory, &name)?;
            continue;
        }
        let stat = look(directory, &name)?;
        if stat.is_some_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory) {
            remove_matching(child(directory, &name)?.as_fd(), &path, set)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
