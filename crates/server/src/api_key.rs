//! The first key of an installation, in a file for its owner.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use shoal_engine::Engine;

/// The file's name in the data directory, and what it is called until it is whole.
const FILE: &str = "api-key";
const NEW: &str = "api-key.new";

/// Makes the first key when there is none, and returns what the file holds.
///
/// # Errors
/// When the key cannot be made or the file not be written: the next start makes it then.
pub(crate) async fn ensure(engine: &Engine, data: &Path) -> anyhow::Result<Option<String>> {
    let minted = engine
        .mint_first_key(|key| write(data, key.reveal()))
        .await?;
    if let Some(key) = minted {
        return Ok(Some(key.reveal().to_owned()));
    }
    match fs::read_to_string(data.join(FILE)) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|key| !key.is_empty())),
        // Its owner has taken it away.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes the file as a whole, so that it is on the disk when this returns.
fn write(data: &Path, key: &str) -> io::Result<()> {
    let new = data.join(NEW);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    writeln!(file, "{key}")?;
    file.sync_all()?;
    fs::rename(&new, data.join(FILE))?;
    File::open(data)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use shoal_core::auth::ApiKey;
    use shoal_engine::test_util;

    use super::*;

    #[tokio::test]
    async fn a_first_key_that_was_not_written_is_made_at_the_next_start() {
        let data = tempfile::tempdir().unwrap();
        let start = async || {
            let engine = test_util::open(test_util::parts(data.path())).await;
            let key = ensure(&engine, data.path()).await;
            (engine, key)
        };
        // In the way of the file.
        fs::create_dir(data.path().join(FILE)).unwrap();
        let (_, refused) = start().await;
        assert!(refused.is_err());
        fs::remove_dir(data.path().join(FILE)).unwrap();

        let (engine, key) = start().await;
        let key = key.unwrap().unwrap();
        let known = engine.authenticate(&ApiKey::parse(&key).unwrap()).await;
        assert!(known.unwrap().unwrap().admin);
        let metadata = fs::metadata(data.path().join(FILE)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        drop(engine);
        assert_eq!(start().await.1.unwrap(), Some(key));
        fs::write(data.path().join(FILE), "").unwrap();
        assert_eq!(start().await.1.unwrap(), None, "an empty key is none");
    }
}
