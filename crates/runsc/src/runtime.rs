//! The real runsc.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::Mode;
use shoal_checkpoint::Digested;

use crate::failure::Failure;

/// The mask of file modes that the shim gave this program.
static UMASK: OnceLock<Mode> = OnceLock::new();

/// Keeps the mask for the real runsc: it makes mount points for users that are not root.
pub(crate) fn keep_umask(mask: Mode) {
    // It is kept once, at the start.
    let _ = UMASK.set(mask);
}

/// A call of the real runsc, as the shim would make it. Files that this program writes from now on have the shim's mask.
pub(crate) fn command() -> Result<Command, Failure> {
    if let Some(mask) = UMASK.get() {
        rustix::process::umask(*mask);
    }
    Ok(Command::new(path()?))
}

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
