//! The first key of an installation, in a file for its owner.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use shoal_engine::Engine;

/// The file's name in the data directory.
const FILE: &str = "api-key";

/// Makes the first key when there is none, and returns what the file holds.
///
/// # Errors
/// When the key cannot be made or the file not be written.
pub(crate) async fn ensure(engine: &Engine, data: &Path) -> anyhow::Result<Option<String>> {
    let path = data.join(FILE);
    if let Some(key) = engine.mint_first_key().await? {
        write(&path, key.reveal())?;
    }
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        // Its owner has taken it away.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn write(path: &Path, key: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{key}")?;
    file.sync_all()
}
