//! The operator's file with the secret that seals exported snapshots.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use shoal_core::driver::ExportKey;

/// Longer than any secret. Bounds the read of an endless file.
const LONGEST: u64 = 4096;

/// Reads the secret in a file.
///
/// # Errors
/// When it is unreadable, too short, or readable by other users.
pub(crate) fn read(path: &Path) -> anyhow::Result<ExportKey> {
    let what = || format!("snapshots.export_key: cannot read {}", path.display());
    let file = File::open(path).with_context(what)?;
    let metadata = file.metadata().with_context(what)?;
    let mode = metadata.permissions().mode() & 0o777;
    anyhow::ensure!(
        metadata.is_file() && mode & 0o077 == 0,
        "snapshots.export_key: {} has mode {mode:03o}, so other users may read it: chmod 600 it",
        path.display()
    );
    let mut secret = Vec::new();
    file.take(LONGEST)
        .read_to_end(&mut secret)
        .with_context(what)?;
    ExportKey::from_secret(&secret)
        .with_context(|| format!("snapshots.export_key: {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn a_secret_is_long_and_readable_by_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read(&path)
        };
        let one = write(&"a".repeat(64), 0o600).unwrap();
        assert_eq!(write(&format!("{}\n", "a".repeat(64)), 0o400).unwrap(), one);
        let refused = |text: &str, mode, word: &str| {
            let why = format!("{:#}", write(text, mode).unwrap_err());
            assert!(why.contains(word), "{why}");
        };
        refused(&"a".repeat(64), 0o640, "chmod 600");
        refused("short", 0o600, "at least 32 bytes");
        fs::remove_file(&path).unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("cannot read"));
    }
}
