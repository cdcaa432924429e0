//! An OCI layout in a directory.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::Errno;

use super::{Files, Part};
use crate::beneath::{Tree, TreePath};
use crate::fault::Fault;

/// The files below a directory. The directory is the caller's, but its contents may have been
/// unpacked from anywhere. Links may not lead out of it, and only regular files are read, because
/// others may never end.
pub(super) struct Directory(Tree);

impl Directory {
    pub(super) fn open(path: &Path) -> Result<Self, Fault> {
        Tree::open(path)
            .map(Self)
            .map_err(|e| Fault::io("open", path, e))
    }
}

impl Files for Directory {
    fn open(&self, path: &str) -> Result<Option<Part>, Fault> {
        let inside = TreePath::parse(path.as_bytes())
            .map_err(|why| Fault::refused(format!("it names {path:?}: {why}")))?;
        let failed = |e: Errno| Fault::io("read", &inside.to_path(), e.into());
        let file = match self.0.open_within(&inside, OFlags::RDONLY) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::XDEV | Errno::LOOP) => {
                return Err(Fault::refused(format!("{path} leads out of it")));
            }
            Err(error) => return Err(failed(error)),
        };
        let stat = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Fault::refused(format!("{path} is not a file")));
        }
        Ok(Some(Part {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            reader: Box::new(File::from(file)),
        }))
    }
}
