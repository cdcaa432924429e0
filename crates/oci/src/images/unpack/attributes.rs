//! Which extended attributes a layer may set.

use std::os::fd::BorrowedFd;

use rustix::fs::{XattrFlags, fsetxattr};
use rustix::io::Errno;

use super::Refusal;

/// Tells overlayfs that a directory hides what lies below it.
const OPAQUE: &str = "trusted.overlay.opaque";

/// What becomes of an attribute.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    Drop,
    Refuse,
}

fn verdict(name: &[u8]) -> Verdict {
    if name.starts_with(b"trusted.") || name.starts_with(b"user.overlay.") {
        Verdict::Refuse
    } else if name == b"security.capability" || name.starts_with(b"user.") {
        Verdict::Keep
    } else {
        // Labels of another machine's security module and its access lists mean nothing here.
        Verdict::Drop
    }
}

/// An attribute's name and value.
pub(crate) type Attribute = (Vec<u8>, Vec<u8>);

/// The attributes of `member` that are to be set.
pub(super) fn kept<'a>(member: &str, all: &'a [Attribute]) -> Result<Vec<&'a Attribute>, Refusal> {
    let mut kept = Vec::new();
    for attribute in all {
        let (name, _) = attribute;
        match verdict(name) {
            Verdict::Keep => kept.push(attribute),
            Verdict::Drop => (),
            Verdict::Refuse => {
                let name = name.escape_ascii().to_string();
                return Err(Refusal::Attribute(member.to_owned(), name));
            }
        }
    }
    Ok(kept)
}

/// Sets attributes.
pub(super) fn set(file: BorrowedFd<'_>, attributes: &[&Attribute]) -> Result<(), Errno> {
    attributes
        .iter()
        .try_for_each(|(name, value)| fsetxattr(file, &name[..], value, XattrFlags::empty()))
}

/// Lets a directory hide what lies below it.
pub(super) fn make_opaque(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    fsetxattr(directory, OPAQUE, b"y", XattrFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_cannot_speak_to_overlayfs() {
        for (name, expected) in [
            ("trusted.overlay.redirect", Verdict::Refuse),
            ("trusted.x", Verdict::Refuse),
            ("user.overlay.opaque", Verdict::Refuse),
            ("user.note", Verdict::Keep),
            ("security.capability", Verdict::Keep),
            ("security.selinux", Verdict::Drop),
            ("system.posix_acl_access", Verdict::Drop),
        ] {
            assert_eq!(verdict(name.as_bytes()), expected, "{name}");
        }
    }
}
