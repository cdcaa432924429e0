//! The identity of a clone: files with the name of its original are corrected before it runs.
//!
//! Files that the original's root wrote there are hostile input: no link is
//! followed, and no file is read beyond a bound.

use std::io;
use std::path::Path;

use shoal_images::beneath::{Tree, TreePath};

use crate::bundle::own_files;

/// The largest table of host names that is changed.
const HOSTS_MAX: u64 = 1 << 20;

/// Puts the name `new` in the place of `old` in what a sandbox has written.
pub(super) fn replace(upper: &Path, old: &str, new: &str) -> io::Result<()> {
    let tree = Tree::open(upper)?;
    for (name, text) in own_files(new) {
        let path = TreePath::parse(format!("etc/{name}").as_bytes()).map_err(io::Error::other)?;
        let text = match name {
            "hosts" => match tree.read(&path, HOSTS_MAX) {
                Ok(known) => with_name(&known, old, new),
                Err(_) => text.into_bytes(),
            },
            "resolv.conf" => continue,
            _ => text.into_bytes(),
        };
        // One that the sandbox has made a directory, or led away, is its own affair.
        if let Err(errno) = tree.replace(&path, &text, 0o644) {
            tracing::debug!(%errno, name, "a clone keeps a file of its original");
        }
    }
    Ok(())
}

/// A table of host names in which the host called `old` is called `new`.
fn with_name(table: &[u8], old: &str, new: &str) -> Vec<u8> {
    let table = String::from_utf8_lossy(table);
    let mut text = String::with_capacity(table.len());
    for line in table.split_inclusive('\n') {
        let mut rest = line;
        while let Some(at) = rest.find(|c: char| !c.is_whitespace()) {
            let (blank, word) = rest.split_at(at);
            let end = word.find(char::is_whitespace).unwrap_or(word.len());
            text.push_str(blank);
            text.push_str(if &word[..end] == old {
                new
            } else {
                &word[..end]
            });
            rest = &word[end..];
        }
        text.push_str(rest);
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_clone_has_names_of_its_own_and_keeps_what_was_added() {
        let upper = tempfile::tempdir().unwrap();
        fs::create_dir(upper.path().join("etc")).unwrap();
        let read = |name: &str| fs::read_to_string(upper.path().join("etc").join(name)).unwrap();
        fs::write(
            upper.path().join("etc/hosts"),
            "10.0.0.2\tiold  iolder\n# kept\n10.0.0.3 db\n",
        )
        .unwrap();
        fs::write(upper.path().join("etc/hostname"), "iold\n").unwrap();
        fs::write(upper.path().join("etc/resolv.conf"), "nameserver 9.9.9.9\n").unwrap();
        replace(upper.path(), "iold", "inew").unwrap();
        assert_eq!(
            read("hosts"),
            "10.0.0.2\tinew  iolder\n# kept\n10.0.0.3 db\n"
        );
        assert_eq!(read("hostname"), "inew\n");
        assert_eq!(read("resolv.conf"), "nameserver 9.9.9.9\n");
        let first = read("machine-id");
        assert_eq!(first.trim().len(), 32);
        replace(upper.path(), "inew", "iother").unwrap();
        assert_ne!(read("machine-id"), first);
    }

    #[test]
    fn no_link_of_the_original_leads_outside() {
        let upper = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        fs::write(&victim, "safe").unwrap();
        fs::create_dir(upper.path().join("etc")).unwrap();
        symlink(&victim, upper.path().join("etc/hostname")).unwrap();
        symlink("/proc/self/environ", upper.path().join("etc/hosts")).unwrap();
        replace(upper.path(), "iold", "inew").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "safe");
        fs::remove_dir_all(upper.path().join("etc")).unwrap();
        symlink(outside.path(), upper.path().join("etc")).unwrap();
        replace(upper.path(), "iold", "inew").unwrap();
        assert!(!outside.path().join("machine-id").exists());
    }
}
