//! Packs the files that a step copies from another stage into an archive on the node.
//!
//! A stage with a shell packs them itself. The files of a stage without one, such as the image of a
//! single static program, are read one by one through the daemon.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use shoal_core::build::{Action, BuildFailure, LogLevel};
use tempfile::TempPath;

use super::run::{Run, StageBase};
use super::sandbox::{BuildLocation, BuildSandbox};
use super::scripts;
use shoal_core::ports::inside::{DirEntry, FileKind, InsideError};

/// The path of the archive in the sandbox of the stage.
const ARCHIVE: &str = "/tmp/.shoal-stage.tar";

/// The maximum number of files that are read one by one.
const FILES_MAX: usize = 10_000;

/// How many warnings about links and special files are logged.
const REMARKS_MAX: usize = 10;

/// How deep directories are read. A link may lead to a directory that contains it.
const DEPTH_MAX: usize = 32;

impl Run<'_> {
    /// Packs the files that a step copies from another stage.
    pub(super) async fn pack(
        &self,
        from: &StageBase,
        action: &Action,
        at: BuildLocation,
    ) -> Result<TempPath, BuildFailure> {
        let Action::Copy { path, .. } = action else {
            return Err(at.failure("only a copy is from another stage"));
        };
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
        let path = &parts.collect::<Vec<_>>().join("/");
        let spec = from.spec.clone();
        let source = self.start_sandbox(spec, at).await?;
        let file = match source.look("/bin/sh").await {
            Err(InsideError::NotFound(_)) => self.pack_file_by_file(&source, path, at).await?,
            _ => self.pack_in_sandbox(&source, path, at).await?,
        };
        source.close().await;
        Ok(file)
    }

    async fn pack_in_sandbox(
        &self,
        source: &BuildSandbox,
        path: &str,
        at: BuildLocation,
    ) -> Result<TempPath, BuildFailure> {
        source
            .script(self.build, at, scripts::PACK, &[ARCHIVE, path])
            .await?;
        let file = self.builds.parts.uploads.temporary().await;
        let file = file.map_err(|e| at.failure(e))?;
        let mut left = self.builds.parts.uploads.max_bytes();
        source.get(at, ARCHIVE, &file, &mut left).await?;
        Ok(file)
    }

    async fn pack_file_by_file(
        &self,
        source: &BuildSandbox,
        path: &str,
        at: BuildLocation,
    ) -> Result<TempPath, BuildFailure> {
        if path.is_empty() || scripts::without_pattern(path) != path {
            return Err(at.failure(format_args!(
                "/{path}: the stage has no /bin/sh to list its files: name the file or the directory"
            )));
        }
        if scripts::is_of_sandbox(path, path) {
            return Err(at.failure(format_args!("/{path}: there is no such file or directory")));
        }
        let found = self.read(source, path, at).await?;
        let archive = self.builds.parts.uploads.temporary().await;
        let archive = archive.map_err(|e| at.failure(e))?;
        let target = archive.to_path_buf();
        let written = tokio::task::spawn_blocking(move || write(&target, &found)).await;
        written
            .map_err(|e| at.failure(e))?
            .map_err(|e| at.failure(e))?;
        Ok(archive)
    }

    /// Reads the file at a path, or the directory with everything below it.
    async fn read(
        &self,
        source: &BuildSandbox,
        path: &str,
        at: BuildLocation,
    ) -> Result<Vec<Found>, BuildFailure> {
        let top = source.look(&format!("/{path}")).await;
        let mut open = vec![(0, top.map_err(|e| at.failure(e))?)];
        let (mut found, mut remarks, mut seen) = (Vec::new(), Vec::new(), 0);
        // The limit covers all files together: the author of the stage chooses their sizes.
        let mut left = self.builds.parts.uploads.max_bytes();
        while let Some((depth, entry)) = open.pop() {
            seen += 1;
            if seen > FILES_MAX || depth > DEPTH_MAX {
                return Err(at.failure(format_args!(
                    "/{path}: more than {FILES_MAX} files, or deeper than {DEPTH_MAX} directories, \
                     are not copied from a stage without /bin/sh"
                )));
            }
            remarks.extend(remark(&entry));
            let contents = match entry.kind {
                FileKind::File => {
                    let file = self.builds.parts.uploads.temporary().await;
                    let file = file.map_err(|e| at.failure(e))?;
                    source.get(at, &entry.path, &file, &mut left).await?;
                    Some(file)
                }
                FileKind::Directory => {
                    let listed = source.list(&entry.path).await;
                    let mut listed = listed.map_err(|e| at.failure(e))?;
                    listed.retain(|entry| {
                        !scripts::is_of_sandbox(entry.path.trim_start_matches('/'), path)
                    });
                    open.extend(listed.into_iter().map(|entry| (depth + 1, entry)));
                    None
                }
                FileKind::Other => continue,
            };
            found.push(Found { entry, contents });
        }
        self.tell(&remarks, at);
        Ok(found)
    }

    fn tell(&self, remarks: &[String], at: BuildLocation) {
        for remark in remarks.iter().take(REMARKS_MAX) {
            self.say(LogLevel::Warn, at.part, remark);
        }
        if let Some(more @ 1..) = remarks.len().checked_sub(REMARKS_MAX) {
            let more = format!("and {more} more that are links or no files");
            self.say(LogLevel::Warn, at.part, &more);
        }
    }
}

/// The warning about an entry that is not copied as it is.
fn remark(entry: &DirEntry) -> Option<String> {
    let path = &entry.path;
    match (entry.kind, entry.link) {
        (FileKind::Other, true) => Some(format!("{path} is left out: the link leads nowhere")),
        (FileKind::Other, false) => Some(format!("{path} is left out: it is no file")),
        (_, true) => Some(format!("{path} is a link: what it leads to is copied")),
        (_, false) => None,
    }
}

/// A file or directory that was read.
struct Found {
    entry: DirEntry,
    /// The contents of a file; none for a directory.
    contents: Option<TempPath>,
}

fn write(target: &Path, found: &[Found]) -> io::Result<()> {
    let mut archive = tar::Builder::new(File::create(target)?);
    for Found { entry, contents } in found {
        let mut header = tar::Header::new_gnu();
        header.set_mode(entry.mode & 0o7777);
        let name = PathBuf::from(entry.path.trim_start_matches('/'));
        match contents {
            Some(file) => {
                let file = File::open(file)?;
                header.set_size(file.metadata()?.len());
                archive.append_data(&mut header, name, file)?;
            }
            None => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_size(0);
                archive.append_data(&mut header, name, io::empty())?;
            }
        }
    }
    archive.into_inner()?.sync_all()
}
