//! envd, the daemon inside sandboxes, kept as a read-only layer.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::saved::FileName;

/// The path of envd in every sandbox: in a separate directory, so that no directory of the image is
/// merged with ours.
pub const ENVD_PATH: &str = "/.shoal/envd";

/// The directory of the layers with envd.
pub fn envd_layers(data: &Path) -> PathBuf {
    data.join("envd")
}

/// Stores the daemon `program` as a layer, named after its content. A sandbox keeps the daemon that
/// it started with, whatever is installed later. Returns the layer's name.
///
/// # Errors
/// When the program cannot be read, or the layer cannot be written.
pub fn envd_layer(data: &Path, program: &Path) -> io::Result<FileName> {
    let text = |e: io::Error| {
        io::Error::new(
            e.kind(),
            format!("cannot read the daemon {}: {e}", program.display()),
        )
    };
    let bytes = fs::read(program).map_err(text)?;
    let digest: FileName = hex::encode(&Sha256::digest(&bytes)[..8])
        .parse()
        .map_err(io::Error::other)?;
    let layer = envd_layers(data).join(&digest);
    if layer.exists() {
        return Ok(digest);
    }
    let beside = envd_layers(data).join(format!("{digest}.new"));
    let file = beside.join(ENVD_PATH.trim_start_matches('/'));
    let directory = file.parent().unwrap_or(&beside);
    let written = fs::create_dir_all(directory).and_then(|()| fs::write(&file, bytes));
    written.map_err(|e| {
        let text = format!("cannot write {}: {e}", file.display());
        io::Error::new(e.kind(), text)
    })?;
    for path in [file.as_path(), directory, &beside] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    // A saved sandbox survives a power failure, so its daemon must survive one too.
    for path in [file.as_path(), directory, &beside] {
        fs::File::open(path)?.sync_all()?;
    }
    fs::rename(&beside, &layer)?;
    fs::File::open(envd_layers(data))?.sync_all()?;
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_stored_once_for_each_content() {
        let data = tempfile::tempdir().unwrap();
        let program = data.path().join("program");
        fs::write(&program, b"one").unwrap();
        let one = envd_layer(data.path(), &program).unwrap();
        assert_eq!(envd_layer(data.path(), &program).unwrap(), one);
        let one_at = envd_layers(data.path()).join(&one);
        assert_eq!(fs::read(one_at.join(".shoal/envd")).unwrap(), b"one");
        fs::write(&program, b"two").unwrap();
        assert_ne!(envd_layer(data.path(), &program).unwrap(), one);
        assert!(one_at.exists());
    }
}
