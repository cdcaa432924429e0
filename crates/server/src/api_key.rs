//! The first key of an installation, in a file for the operator.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use shoal_engine::Engine;

/// The file's name in the data directory, and its temporary name.
const FILE: &str = "api-key";
const NEW: &str = "api-key.new";

/// The first key, as a start reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FirstKey {
    /// This start created it, and prints it once.
    Made(String),
    /// It is in this file.
    InFile(PathBuf),
    /// The operator removed the file.
    Gone,
}

/// Creates the first key if there is none, and returns its place.
///
/// # Errors
/// When the key or the file cannot be written. The next start tries again.
pub(crate) async fn ensure(engine: &Engine, data: &Path) -> anyhow::Result<FirstKey> {
    let minted = engine
        .mint_first_key(|key| write(data, key.reveal()))
        .await?;
    if let Some(key) = minted {
        return Ok(FirstKey::Made(key.reveal().to_owned()));
    }
    let file = data.join(FILE);
    match fs::metadata(&file) {
        Ok(metadata) if metadata.len() > 0 => Ok(FirstKey::InFile(file)),
        Ok(_) => Ok(FirstKey::Gone),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FirstKey::Gone),
        Err(error) => Err(error.into()),
    }
}

/// Writes the file atomically and syncs it.
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
    async fn a_first_key_that_was_not_written_is_created_at_the_next_start() {
        let data = tempfile::tempdir().unwrap();
        let start = async || {
            let engine = test_util::open(test_util::parts(data.path())).await;
            let key = ensure(&engine, data.path()).await;
            (engine, key)
        };
        // A directory blocks the file.
        fs::create_dir(data.path().join(FILE)).unwrap();
        let (_, refused) = start().await;
        assert!(refused.is_err());
        fs::remove_dir(data.path().join(FILE)).unwrap();

        let (engine, key) = start().await;
        let FirstKey::Made(key) = key.unwrap() else {
            panic!("it was not made");
        };
        let known = engine.authenticate(&ApiKey::parse(&key).unwrap()).await;
        assert!(known.unwrap().unwrap().admin);
        let metadata = fs::metadata(data.path().join(FILE)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        drop(engine);
        let file = data.path().join(FILE);
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), key);
        let later = start().await.1.unwrap();
        assert_eq!(later, FirstKey::InFile(file.clone()), "it is told once");
        fs::write(&file, "").unwrap();
        assert_eq!(start().await.1.unwrap(), FirstKey::Gone);
        fs::remove_file(&file).unwrap();
        assert_eq!(start().await.1.unwrap(), FirstKey::Gone);
    }
}
