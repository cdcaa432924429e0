//! A tar archive whose members are read in place.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{Files, Part};
use crate::beneath::TreePath;
use crate::disk::Stage;
use crate::fault::Fault;
use crate::unpack::{Kind, Limits, Members};

/// The maximum number of members in an archive of images: three for each layer of about fifty
/// images. Their names are kept in memory.
const MEMBERS_MAX: u64 = 20_000;

/// The maximum length of a chain of links. `docker save` links a layer that two images share once.
const LINKS_MAX: usize = 8;

/// The members of an archive by path.
pub(super) struct Archive {
    file: Arc<File>,
    members: HashMap<TreePath, Location>,
    /// The decompressed copy of the archive, if there is one.
    _stage: Option<Stage>,
}

enum Location {
    /// The position of its data.
    At { offset: u64, size: u64 },
    /// A link to another member.
    Link(TreePath),
}

impl Archive {
    pub(super) fn open(file: File, stage: Option<Stage>, limits: &Limits) -> Result<Self, Fault> {
        let limits = Limits {
            entries: MEMBERS_MAX,
            ..*limits
        };
        let mut places = HashMap::new();
        let mut members = Members::seeking(BufReader::new(&file), &limits);
        while let Some(member) = members.next_member()? {
            let path = parsed(&member.path)?;
            let place = match member.kind {
                Kind::File
                    if member.segments.len() == 1 && member.size == member.segments[0].length =>
                {
                    Location::At {
                        offset: members.position(),
                        size: member.size,
                    }
                }
                Kind::HardLink => Location::Link(parsed(&member.link)?),
                Kind::Symlink => Location::Link(beside(&path, &member.link)?),
                _ => continue,
            };
            places.insert(path, place);
        }
        Ok(Self {
            file: Arc::new(file),
            members: places,
            _stage: stage,
        })
    }
}

impl Files for Archive {
    fn open(&self, path: &str) -> Result<Option<Part>, Fault> {
        let mut path = &parsed(path.as_bytes())?;
        for _ in 0..LINKS_MAX {
            match self.members.get(path) {
                Some(Location::Link(target)) => path = target,
                Some(Location::At { offset, size }) => {
                    return Ok(Some(Part {
                        size: *size,
                        reader: Box::new(Slice {
                            file: Arc::clone(&self.file),
                            at: *offset,
                            left: *size,
                        }),
                    }));
                }
                None => return Ok(None),
            }
        }
        Err(Fault::refused(format!("{path} leads in circles")))
    }
}

fn parsed(path: &[u8]) -> Result<TreePath, Fault> {
    TreePath::parse(path).map_err(|why| {
        Fault::refused(format!(
            "it has a member {:?}: {why}",
            path.escape_ascii().to_string()
        ))
    })
}

/// The target of a symbolic link at `path`. `docker save` writes `../<other>/layer.tar`.
fn beside(path: &TreePath, target: &[u8]) -> Result<TreePath, Fault> {
    let (mut at, _) = path.split().unwrap_or_else(|| (TreePath::root(), b""));
    let mut rest = target;
    while let Some(after) = rest.strip_prefix(b"../") {
        rest = after;
        at = at
            .split()
            .map(|(above, _)| above)
            .ok_or_else(|| Fault::refused(format!("{path} leads out of it")))?;
    }
    parsed(rest).map(|rest| rest.names().fold(at, |at, name| at.join(name)))
}

/// A part of a file.
struct Slice {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Slice {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).map_or(into.len(), |left| left.min(into.len()));
        let n = self.file.read_at(&mut into[..most], self.at)?;
        self.at += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}
