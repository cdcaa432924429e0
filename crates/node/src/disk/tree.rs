//! Copying and measuring directory trees on a disk without btrfs.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// Copies a tree with owners, attributes, links and holes. Runs `cp`, which shares blocks where the
/// file system can.
pub(super) fn copy(source: &Path, target: &Path) -> io::Result<()> {
    let output = Command::new("cp")
        .args(["--archive", "--reflink=auto", "--no-target-directory", "--"])
        .args([source, target])
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    // Do not leave a partial copy.
    let _ = fs::remove_dir_all(target);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("No space left") || said.contains("quota exceeded") {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let said: String = said.chars().take(400).collect();
    Err(io::Error::other(format!("cp failed: {}", said.trim())))
}

/// The bytes allocated below `path`; mounts and links are not followed.
pub(super) fn bytes(path: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;

    let mut total = 0;
    let mut waiting = vec![path.to_owned()];
    while let Some(directory) = waiting.pop() {
        let entries = match fs::read_dir(&directory) {
            // It was deleted during the count.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            total += metadata.blocks() * 512;
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    Ok(total)
}
