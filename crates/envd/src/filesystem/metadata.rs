//! Custom metadata of files, stored in extended attributes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use shoal_protocol::files::METADATA_ATTRIBUTE_PREFIX as PREFIX;

/// Longest name list and longest value: the kernel's limits.
const MAX_XATTR: usize = 64 << 10;

/// The metadata of a file. Empty if it is unreadable or unsupported, because the rest of a file's
/// description is useful without it. Processes may set attributes too, so values that are not UTF-8
/// are skipped.
pub(crate) fn read(path: &Path) -> BTreeMap<String, String> {
    let mut names = Vec::new();
    let listed = fill(&mut names, |buffer| rustix::fs::listxattr(path, buffer));
    if listed.is_err() {
        return BTreeMap::new();
    }
    let mut value = Vec::new();
    own_names(&names)
        .filter_map(|name| {
            let full = format!("{PREFIX}{name}");
            let read = |buffer: &mut [u8]| rustix::fs::getxattr(path, full.as_str(), buffer);
            fill(&mut value, read).ok()?;
            let text = std::str::from_utf8(&value).ok()?;
            Some((name.to_owned(), text.to_owned()))
        })
        .collect()
}

/// Replaces all metadata of an open file.
///
/// # Errors
/// If the file system is full or has no attributes (see [`is_unsupported`]).
pub(crate) fn replace(file: impl AsFd, metadata: &BTreeMap<String, String>) -> io::Result<()> {
    let mut names = Vec::new();
    match fill(&mut names, |buffer| rustix::fs::flistxattr(&file, buffer)) {
        // Nothing to write or clear.
        Err(Errno::NOTSUP | Errno::PERM) if metadata.is_empty() => return Ok(()),
        listed => listed?,
    }
    for name in own_names(&names).filter(|name| !metadata.contains_key(*name)) {
        match rustix::fs::fremovexattr(&file, format!("{PREFIX}{name}")) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for (name, value) in metadata {
        let name = format!("{PREFIX}{name}");
        rustix::fs::fsetxattr(&file, name, value.as_bytes(), XattrFlags::empty())?;
    }
    Ok(())
}

/// Whether the file system does not support attributes.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOTSUP | libc::EPERM | libc::ENOSYS)
    )
}

/// Names with our prefix in a null-separated list.
fn own_names(names: &[u8]) -> impl Iterator<Item = &str> {
    names
        .split(|byte| *byte == 0)
        .filter_map(|name| std::str::from_utf8(name).ok()?.strip_prefix(PREFIX))
        .filter(|name| !name.is_empty())
}

/// Reads into a buffer that starts small: most files have no attributes.
fn fill(
    buffer: &mut Vec<u8>,
    read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<()> {
    for size in [256, MAX_XATTR] {
        buffer.resize(size, 0);
        match read(buffer) {
            Err(Errno::RANGE) => {}
            Err(error) => return Err(error),
            Ok(length) => {
                buffer.truncate(length);
                return Ok(());
            }
        }
    }
    Err(Errno::RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let entries = entries.iter();
        entries
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn new_metadata_replaces_old_and_keeps_other_attributes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let flags = XattrFlags::empty();
        if rustix::fs::fsetxattr(file.as_file(), "user.other", b"x", flags).is_err() {
            eprintln!("skipped: no attributes on this file system");
            return;
        }
        let long = "v".repeat(1000);
        let first = map(&[("a", "1"), ("b", &long)]);
        replace(file.as_file(), &first).unwrap();
        assert_eq!(read(file.path()), first);
        replace(file.as_file(), &map(&[("c", "3")])).unwrap();
        assert_eq!(read(file.path()), map(&[("c", "3")]));
        replace(file.as_file(), &BTreeMap::new()).unwrap();
        assert_eq!(read(file.path()), BTreeMap::new());
        let mut value = [0; 1];
        rustix::fs::fgetxattr(file.as_file(), "user.other", &mut value).unwrap();
    }

    #[test]
    fn values_that_are_not_utf8_are_skipped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let flags = XattrFlags::empty();
        let set = rustix::fs::fsetxattr(file.as_file(), "user.e2b.bad", b"\xff", flags);
        if set.is_err() {
            eprintln!("skipped: no attributes on this file system");
            return;
        }
        assert_eq!(read(file.path()), BTreeMap::new());
    }

    #[test]
    fn a_missing_path_has_no_metadata() {
        assert_eq!(read(Path::new("/no/such")), BTreeMap::new());
    }
}
