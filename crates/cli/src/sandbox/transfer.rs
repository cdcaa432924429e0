//! Streams files into and out of a sandbox.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use connectrpc::ErrorCode;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http_body_util::StreamBody;
use hyper::body::Frame;
use indicatif::ProgressBar;
use shoal_protocol::client::{BodyError, Command, EnvdClient, Output, RequestBody, Upload};
use shoal_protocol::filesystem::{EntryInfo, FileType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::copy::{join, local};
use crate::failure::Failure;
use crate::{output, progress, stdin};

/// The number of parallel transfers.
const AT_ONCE: usize = 8;

/// The read size.
const CHUNK: usize = 256 << 10;

/// The default permissions of an uploaded file.
const STANDARD_MODE: u32 = 0o644;

/// The number of files for one `chmod`.
const CHMOD_FILES: usize = 200;

/// The number of copied files and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// Copies to and from one sandbox.
pub(super) struct Transfer {
    envd: EnvdClient,
}

/// A file of a tree.
struct Item {
    here: PathBuf,
    inside: String,
    size: u64,
    mode: u32,
}

impl Transfer {
    pub(super) fn new(envd: EnvdClient) -> Self {
        Self { envd }
    }

    /// Whether a path is an existing directory.
    pub(super) async fn is_directory(&self, path: &str) -> Result<bool, Failure> {
        match self.envd.stat(path).await {
            Err(error) if error.is_not_found() => Ok(false),
            entry => Ok(is_directory(&entry?)),
        }
    }

    /// Whether a path is a directory.
    ///
    /// # Errors
    /// When it does not exist.
    pub(super) async fn is_directory_for_sure(&self, path: &str) -> Result<bool, Failure> {
        Ok(is_directory(&self.envd.stat(path).await?))
    }

    pub(super) async fn upload_file(&self, from: &Path, to: &str) -> Result<Tally, Failure> {
        let item = item(from.to_owned(), to.to_owned())?;
        self.upload(vec![item]).await
    }

    pub(super) async fn upload_tree(&self, from: &Path, to: &str) -> Result<Tally, Failure> {
        let mut items = Vec::new();
        let mut rest = vec![(from.to_owned(), to.to_owned())];
        while let Some((here, inside)) = rest.pop() {
            self.make_directory(&inside).await?;
            let entries = std::fs::read_dir(&here).map_err(|error| local(&here, &error))?;
            for entry in entries {
                let entry = entry.map_err(|error| local(&here, &error))?;
                let path = entry.path();
                let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                    return Err(Failure::other(format!(
                        "the name of {} is not UTF-8",
                        path.display()
                    )));
                };
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                let inside = join(&inside, &name);
                match std::fs::metadata(&path) {
                    Ok(meta) if meta.is_dir() && !is_link => rest.push((path, inside)),
                    Ok(meta) if meta.is_file() => items.push(item(path, inside)?),
                    _ => left_out(&path.display().to_string()),
                }
            }
        }
        self.upload(items).await
    }

    async fn upload(&self, items: Vec<Item>) -> Result<Tally, Failure> {
        let bar = progress::transfer("uploading", Some(items.iter().map(|i| i.size).sum()));
        let bytes = Arc::new(AtomicU64::new(0));
        let sent = stream::iter(&items)
            .map(|item| self.send(item, &bar, &bytes))
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<(u32, String)>>()
            .await;
        bar.finish_and_clear();
        let sent = sent?;
        self.set_modes(&sent).await;
        Ok(Tally {
            files: sent.len() as u64,
            bytes: bytes.load(Ordering::Relaxed),
        })
    }

    /// Uploads a file and returns its path.
    async fn send(
        &self,
        item: &Item,
        bar: &ProgressBar,
        sent: &Arc<AtomicU64>,
    ) -> Result<(u32, String), Failure> {
        let opened = tokio::fs::File::open(&item.here).await;
        let file = opened.map_err(|error| local(&item.here, &error))?;
        let (bar, sent) = (bar.clone(), Arc::clone(sent));
        let frames = stream::try_unfold(file, move |mut file| {
            let (bar, sent) = (bar.clone(), Arc::clone(&sent));
            async move {
                let mut chunk = Vec::with_capacity(CHUNK);
                let mut some = (&mut file).take(CHUNK as u64);
                let read = some.read_to_end(&mut chunk).await? as u64;
                bar.inc(read);
                sent.fetch_add(read, Ordering::Relaxed);
                Ok::<_, BodyError>((read > 0).then(|| (Frame::data(Bytes::from(chunk)), file)))
            }
        });
        let body = RequestBody::new(StreamBody::new(frames));
        let entry = self.envd.upload(&Upload::to(&item.inside), body).await?;
        Ok((item.mode, entry.path))
    }

    pub(super) async fn stdin_to(&self, to: &str) -> Result<Tally, Failure> {
        let bar = progress::transfer("uploading", None);
        let seen = bar.clone();
        let chunks = stream::unfold(stdin::read(), |mut input| async move {
            let chunk = input.recv().await?;
            Some((chunk, input))
        });
        let frames = chunks.map(move |chunk| {
            let chunk = chunk.map_err(BodyError::from)?;
            seen.inc(chunk.len() as u64);
            Ok(Frame::data(chunk))
        });
        let body = RequestBody::new(StreamBody::new(frames));
        let uploaded = self.envd.upload(&Upload::to(to), body).await;
        let bytes = bar.position();
        bar.finish_and_clear();
        uploaded?;
        Ok(Tally { files: 1, bytes })
    }

    pub(super) async fn stdout_from(&self, from: &str) -> Result<(), Failure> {
        let mut download = self.envd.download(from).await?;
        let mut out = io::stdout().lock();
        while let Some(bytes) = download.chunk().await? {
            out.write_all(&bytes)?;
        }
        Ok(out.flush()?)
    }

    pub(super) async fn download_file(&self, from: &str, to: &Path) -> Result<Tally, Failure> {
        let entry = self.envd.stat(from).await?;
        if !is_file(&entry) {
            return Err(Failure::usage(format!(
                "{from} is neither a file nor a directory"
            )));
        }
        self.download(vec![received(&entry, to.to_owned(), from.to_owned())])
            .await
    }

    pub(super) async fn download_tree(&self, from: &str, to: &Path) -> Result<Tally, Failure> {
        let mut items = Vec::new();
        let mut rest = vec![(from.to_owned(), to.to_owned())];
        while let Some((inside, here)) = rest.pop() {
            std::fs::create_dir_all(&here).map_err(|error| local(&here, &error))?;
            for entry in self.envd.list_dir(&inside, 1).await? {
                // Names from the sandbox must not lead out of the directory.
                if !is_plain_name(&entry.name) {
                    left_out(&output::plain(&entry.name));
                    continue;
                }
                let (path, below) = (join(&inside, &entry.name), here.join(&entry.name));
                if is_directory(&entry) && entry.symlink_target.is_none() {
                    rest.push((path, below));
                } else if is_file(&entry) {
                    items.push(received(&entry, below, path));
                } else {
                    left_out(&output::plain(&path));
                }
            }
        }
        self.download(items).await
    }

    async fn download(&self, items: Vec<Item>) -> Result<Tally, Failure> {
        let bar = progress::transfer("downloading", Some(items.iter().map(|i| i.size).sum()));
        let received = stream::iter(&items)
            .map(|item| self.receive(item, &bar))
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<u64>>()
            .await;
        bar.finish_and_clear();
        let received = received?;
        Ok(Tally {
            files: received.len() as u64,
            bytes: received.iter().sum(),
        })
    }

    /// Writes to a temporary file first, so that a partial file is never mistaken for a complete one.
    async fn receive(&self, item: &Item, bar: &ProgressBar) -> Result<u64, Failure> {
        let name = item.here.file_name().unwrap_or_default().to_string_lossy();
        let part = format!(".{name}.{}.part", std::process::id());
        let part = item.here.with_file_name(part);
        let written = self.write(item, &part, bar).await;
        let whole = match written {
            Ok(bytes) => std::fs::rename(&part, &item.here)
                .map(|()| bytes)
                .map_err(|error| local(&item.here, &error)),
            Err(failure) => Err(failure),
        };
        if whole.is_err() {
            // It may not exist.
            let _ = std::fs::remove_file(&part);
        }
        whole
    }

    async fn write(&self, item: &Item, part: &Path, bar: &ProgressBar) -> Result<u64, Failure> {
        let failed = |error: io::Error| local(&item.here, &error);
        let mut download = self.envd.download(&item.inside).await?;
        let mut file = tokio::fs::File::create(part).await.map_err(failed)?;
        let mut bytes = 0;
        while let Some(chunk) = download.chunk().await? {
            file.write_all(&chunk).await.map_err(failed)?;
            bytes += chunk.len() as u64;
            bar.inc(chunk.len() as u64);
        }
        file.flush().await.map_err(failed)?;
        let mode = std::fs::Permissions::from_mode(item.mode);
        file.set_permissions(mode).await.map_err(failed)?;
        Ok(bytes)
    }

    async fn make_directory(&self, path: &str) -> Result<(), Failure> {
        match self.envd.make_dir(path).await {
            Err(error) if error.code() == Some(ErrorCode::AlreadyExists) => Ok(()),
            made => Ok(made.map(drop)?),
        }
    }

    /// Copies permissions, if the image has `chmod`.
    async fn set_modes(&self, sent: &[(u32, String)]) {
        let mut by_mode: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for (mode, path) in sent.iter().filter(|(mode, _)| *mode != STANDARD_MODE) {
            by_mode.entry(*mode).or_default().push(path);
        }
        for (mode, paths) in by_mode {
            for some in paths.chunks(CHMOD_FILES) {
                if !self.chmod(mode, some).await {
                    eprintln!("shoal: permissions were not copied: chmod failed in the sandbox");
                    return;
                }
            }
        }
    }

    async fn chmod(&self, mode: u32, paths: &[&str]) -> bool {
        let mut args = vec![format!("{mode:o}"), "--".to_owned()];
        args.extend(paths.iter().map(|path| (*path).to_owned()));
        let Ok(mut process) = self.envd.start(Command::new("chmod", args)).await else {
            return false;
        };
        while let Ok(Some(output)) = process.next().await {
            if let Output::Exit(exit) = output {
                return exit.exited && exit.code == 0;
            }
        }
        false
    }
}

fn item(here: PathBuf, inside: String) -> Result<Item, Failure> {
    let meta = std::fs::metadata(&here).map_err(|error| local(&here, &error))?;
    Ok(Item {
        size: meta.len(),
        mode: meta.permissions().mode() & 0o777,
        here,
        inside,
    })
}

fn received(entry: &EntryInfo, here: PathBuf, inside: String) -> Item {
    Item {
        here,
        inside,
        size: u64::try_from(entry.size).unwrap_or(0),
        // Never setuid and setgid bits.
        mode: entry.mode & 0o777,
    }
}

fn left_out(path: &str) {
    eprintln!("shoal: skipped {path}: it is neither a file nor a directory");
}

fn is_directory(entry: &EntryInfo) -> bool {
    entry.r#type.as_known() == Some(FileType::FILE_TYPE_DIRECTORY)
}

fn is_file(entry: &EntryInfo) -> bool {
    entry.r#type.as_known() == Some(FileType::FILE_TYPE_FILE)
}

/// Whether a name is a single normal path component.
fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_a_sandbox_cannot_lead_elsewhere() {
        for good in ["a", "a b", "...", "-rf", "é"] {
            assert!(is_plain_name(good), "{good}");
        }
        for bad in ["", ".", "..", "../x", "a/b", "/etc", "a\0"] {
            assert!(!is_plain_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn what_is_received_never_runs_as_somebody_else() {
        let entry = EntryInfo {
            mode: 0o104_755,
            size: -1,
            ..EntryInfo::default()
        };
        let item = received(&entry, "x".into(), "x".into());
        assert_eq!((item.mode, item.size), (0o755, 0));
    }
}
