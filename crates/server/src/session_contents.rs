//! The store of session files: the data directory, or a bucket.
//!
//! A file of the data directory says in which bucket they are. So a changed setting is refused: without their contents, files
//! of sessions would be lost.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use shoal_contents::{Bucket, ObjectContents};
use shoal_core::store::StoreError;

/// The directory of contents in the data directory.
const DIRECTORY: &str = "sessions";

/// The file that names the bucket, and its temporary name.
const NOTE: &str = "sessions-bucket";
const NEW: &str = "sessions-bucket.new";

/// How long the start waits for a bucket.
const PATIENCE: Duration = Duration::from_secs(15);

/// The contents of the installation in `data`, where the setting says that they are.
///
/// # Errors
/// When they are elsewhere, the bucket belongs to another installation, or it refuses. A bucket that does not answer is no error:
/// calls try it again.
pub(crate) async fn open(data: &Path, bucket: Option<&Bucket>) -> anyhow::Result<ObjectContents> {
    let directory = data.join(DIRECTORY);
    let noted = noted(data)?;
    let Some(bucket) = bucket else {
        if let Some((other, _)) = noted {
            anyhow::bail!(
                "the contents of session files are in {other}, as {} says: set sessions.contents to it. To move them, copy all \
                 objects but `owner` into {}, and then delete that file",
                data.join(NOTE).display(),
                directory.display()
            );
        }
        return Ok(ObjectContents::in_directory(&directory)?);
    };
    let installation = match noted {
        Some((other, installation)) if other == bucket.to_string() => installation,
        Some((other, _)) => anyhow::bail!(
            "the contents of session files are in {other}, as {} says, and not in {bucket}: set sessions.contents to it. To move \
             them, copy all objects but `owner` into {bucket}, and then delete that file",
            data.join(NOTE).display()
        ),
        None => {
            check_empty(&directory, bucket)?;
            note(data, bucket).context("cannot note where the contents of session files are")?
        }
    };
    let contents = ObjectContents::in_bucket(bucket, &installation)?;
    claim(&contents, bucket).await?;
    Ok(contents)
}

/// Makes the installation the owner of the bucket, if it answers.
async fn claim(contents: &ObjectContents, bucket: &Bucket) -> anyhow::Result<()> {
    let away = match tokio::time::timeout(PATIENCE, contents.claim()).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error @ StoreError::Unavailable(_))) => anyhow::Error::from(error),
        Ok(Err(error)) => return Err(error).context("sessions.contents cannot be used"),
        Err(late) => late.into(),
    };
    let error = format_args!("{away:#}");
    tracing::warn!(%bucket, %error, "the contents of session files cannot be reached: calls that need them fail until they can");
    Ok(())
}

/// The bucket that the data directory names, and the id under which it is owned.
fn noted(data: &Path) -> anyhow::Result<Option<(String, String)>> {
    let path = data.join(NOTE);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let words: Vec<_> = text.split_whitespace().collect();
    let [bucket, installation] = words[..] else {
        anyhow::bail!(
            "{} has to have a bucket and the id of this installation: restore it from a backup",
            path.display()
        );
    };
    Ok(Some((bucket.to_owned(), installation.to_owned())))
}

/// Notes the bucket before anything is written to it. Returns the id of the installation.
fn note(data: &Path, bucket: &Bucket) -> anyhow::Result<String> {
    let mut id = [0; 16];
    getrandom::fill(&mut id)?;
    let id = hex::encode(id);
    let new = data.join(NEW);
    fs::write(&new, format!("{bucket} {id}\n"))?;
    File::open(&new)?.sync_all()?;
    fs::rename(&new, data.join(NOTE))?;
    File::open(data)?.sync_all()?;
    Ok(id)
}

/// Whether no contents are in the data directory, which the bucket would not have.
fn check_empty(directory: &Path, bucket: &Bucket) -> anyhow::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot read {}", directory.display()))?,
    };
    for entry in entries {
        // Deleting a file keeps its directory.
        let path = entry?.path();
        anyhow::ensure!(
            path.is_dir() && fs::read_dir(&path)?.next().is_none(),
            "{} has the contents of session files, and {bucket} does not: copy all that is in it into {bucket}, with the \
             same names, and then delete the directory",
            directory.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(text: &str) -> Bucket {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn contents_are_not_left_behind_by_a_changed_setting() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        open(data, None).await.unwrap();
        let directory = data.join(DIRECTORY);
        fs::create_dir(directory.join("ab")).unwrap();
        let one = bucket("s3://one/files");
        check_empty(&directory, &one).unwrap();
        fs::write(directory.join("ab/abcd"), "text").unwrap();
        let refused = open(data, Some(&one)).await.unwrap_err().to_string();
        assert!(
            refused.contains("copy") && refused.contains("s3://one/files"),
            "{refused}"
        );
        assert!(noted(data).unwrap().is_none());

        let id = note(data, &one).unwrap();
        assert_eq!(noted(data).unwrap(), Some((one.to_string(), id)));
        for other in [None, Some(bucket("s3://one"))] {
            let refused = open(data, other.as_ref()).await.unwrap_err().to_string();
            assert!(
                refused.contains("are in s3://one/files") && refused.contains(NOTE),
                "{refused}"
            );
        }
        fs::write(data.join(NOTE), "s3://one\n").unwrap();
        assert!(noted(data).is_err());
    }

    #[test]
    fn each_installation_has_an_id_of_its_own() {
        let data = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let one = bucket("s3://one");
        let ids = data.map(|data| note(data.path(), &one).unwrap());
        assert_ne!(ids[0], ids[1]);
    }
}
