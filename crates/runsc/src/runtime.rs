//! The real runsc.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use shoal_checkpoint::Digested;

use crate::failure::Failure;

/// The real runsc: beside this program.
pub(crate) fn path() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::io("/proc/self/exe", error))?;
    Ok(own.with_file_name("runsc"))
}

/// The digest of the real runsc. It is read once, and again when the file changes.
pub(crate) fn digest(state: &Path) -> Result<String, Failure> {
    let path = path()?;
    let failed = |error| Failure::io(path.display(), error);
    let file = File::open(&path).map_err(failed)?;
    let known = state.join("runtime.json");
    if let Some(read) = read_known(&known)
        && read.is_unchanged(&file).map_err(failed)?
    {
        return Ok(read.digest);
    }
    let read = Digested::read(&file).map_err(failed)?;
    // Without it the next container reads the file again.
    let _ = remember(&known, &read);
    Ok(read.digest)
}

fn read_known(path: &Path) -> Option<Digested> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn remember(path: &Path, read: &Digested) -> io::Result<()> {
    let unfinished = path.with_extension(std::process::id().to_string());
    fs::write(&unfinished, serde_json::to_vec(read)?)?;
    fs::rename(unfinished, path)
}
