//! The key that seals the secrets of sessions, in a file of the data directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::Context;
use shoal_sessions::SealingKey;

/// The file's name in the data directory, and its temporary name.
const FILE: &str = "secrets-key";
const NEW: &str = "secrets-key.new";

/// One byte more than a key in hexadecimal with a line end. Bounds the read of another file.
const LONGEST: u64 = 2 * SealingKey::BYTES as u64 + 2;

/// Reads the key, and makes it when there is none.
///
/// # Errors
/// When the file cannot be read or written, is no key, or other users may read it.
pub(crate) fn ensure(data: &Path) -> anyhow::Result<SealingKey> {
    let path = data.join(FILE);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            write(data).with_context(|| format!("cannot write {}", path.display()))?;
            File::open(&path)
        }
        opened => opened,
    };
    let what = || format!("cannot read {}", path.display());
    let file = file.with_context(what)?;
    let metadata = file.metadata().with_context(what)?;
    let mode = metadata.permissions().mode() & 0o777;
    anyhow::ensure!(
        metadata.is_file() && mode & 0o077 == 0,
        "{} has mode {mode:03o}, so other users may read it: chmod 600 it, and set the secrets of sessions again",
        path.display()
    );
    let mut text = String::new();
    file.take(LONGEST)
        .read_to_string(&mut text)
        .with_context(what)?;
    let key = hex::decode(text.trim_end()).ok();
    key.and_then(|key| SealingKey::new(&key)).with_context(|| {
        format!(
            "{} is no key: restore it from a backup, or remove it and set the secrets of sessions again",
            path.display()
        )
    })
}

/// Writes a new key atomically and syncs it.
fn write(data: &Path) -> anyhow::Result<()> {
    let key = SealingKey::generate()?;
    let new = data.join(NEW);
    // A leftover of an earlier start may have another mode.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    writeln!(file, "{}", hex::encode(*key))?;
    file.sync_all()?;
    fs::rename(&new, data.join(FILE))?;
    File::open(data)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn the_key_is_made_once_and_nobody_else_reads_it() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join(FILE);
        fs::write(data.path().join(NEW), "half").unwrap();
        ensure(data.path()).unwrap();
        let made = fs::read_to_string(&path).unwrap();
        assert_eq!(made.trim_end().len(), 64);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        ensure(data.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), made);

        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let refused = ensure(data.path()).unwrap_err().to_string();
        assert!(
            refused.contains("mode 640") && refused.contains("chmod 600"),
            "{refused}"
        );
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        ensure(data.path()).unwrap();
        for bad in ["", "zz", &made[..10], &format!("{}00", made.trim_end())] {
            fs::remove_file(&path).unwrap();
            fs::write(&path, bad).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            let refused = ensure(data.path()).unwrap_err().to_string();
            assert!(
                refused.contains("is no key") && !refused.contains(made.trim_end()),
                "{refused}"
            );
        }
    }
}
