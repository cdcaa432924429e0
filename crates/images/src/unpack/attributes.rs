//! The extended attributes that an archive may set.

use std::os::fd::BorrowedFd;

use rustix::fs::{XattrFlags, fsetxattr};
use rustix::io::Errno;

use super::{Dialect, Refusal};

/// Makes overlayfs hide the contents of lower layers in a directory.
pub const OPAQUE: &str = "trusted.overlay.opaque";

/// The access control lists of a file, which only matter inside the sandbox.
const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// The treatment of an attribute.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    Drop,
    Refuse,
}

/// Whether an export has this attribute.
pub fn is_exported(name: &[u8]) -> bool {
    verdict(Dialect::Upper { users: 0 }, name) == Verdict::Keep
}

fn verdict(dialect: Dialect, name: &[u8]) -> Verdict {
    if name.starts_with(b"trusted.") || name.starts_with(b"user.overlay.") {
        Verdict::Refuse
    } else if name == b"security.capability" || name.starts_with(b"user.") {
        Verdict::Keep
    } else if let Dialect::Upper { .. } = dialect {
        if ACCESS_LISTS.contains(&name) {
            Verdict::Keep
        } else {
            Verdict::Refuse
        }
    } else {
        // Labels of another machine's security module, and its access lists, have no meaning here.
        Verdict::Drop
    }
}

/// An attribute's name and value.
pub(crate) type Attribute = (Vec<u8>, Vec<u8>);

/// The attributes of `member` to set.
pub(super) fn kept<'a>(
    dialect: Dialect,
    member: &str,
    all: &'a [Attribute],
) -> Result<Vec<&'a Attribute>, Refusal> {
    let mut kept = Vec::new();
    for attribute in all {
        let (name, _) = attribute;
        match verdict(dialect, name) {
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

/// Makes a directory hide the contents of lower layers.
pub(super) fn make_opaque(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    fsetxattr(directory, OPAQUE, b"y", XattrFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_cannot_set_overlayfs_attributes() {
        for (name, expected) in [
            ("trusted.overlay.redirect", Verdict::Refuse),
            ("trusted.x", Verdict::Refuse),
            ("user.overlay.opaque", Verdict::Refuse),
            ("user.note", Verdict::Keep),
            ("security.capability", Verdict::Keep),
            ("security.selinux", Verdict::Drop),
            ("system.posix_acl_access", Verdict::Drop),
        ] {
            assert_eq!(verdict(Dialect::Layer, name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn an_export_has_only_attributes_that_its_sandbox_could_set() {
        for (name, expected) in [
            ("trusted.overlay.redirect", Verdict::Refuse),
            ("trusted.overlay.opaque", Verdict::Refuse),
            ("user.overlay.opaque", Verdict::Refuse),
            ("security.selinux", Verdict::Refuse),
            ("security.ima", Verdict::Refuse),
            ("user.note", Verdict::Keep),
            ("security.capability", Verdict::Keep),
            ("system.posix_acl_access", Verdict::Keep),
            ("system.posix_acl_default", Verdict::Keep),
        ] {
            let upper = Dialect::Upper { users: 1 };
            assert_eq!(verdict(upper, name.as_bytes()), expected, "{name}");
        }
    }
}
