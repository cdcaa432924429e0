//! What a step copies from another stage, as an archive on the node.
//!
//! A stage that has a shell packs it itself. One that is nothing but a program, as the images of some
//! tools are, is read file by file through the daemon.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use shoal_core::build::{Action, BuildFailure, LogLevel};
use tempfile::TempPath;

use super::run::{Ground, Run};
use super::scripts;
use super::workshop::{Place, Workshop};
use crate::guest::{GuestEntry, GuestError, GuestFileKind};

/// Where the archive lies in the sandbox of the stage.
const ARCHIVE: &str = "/tmp/.shoal-stage.tar";

/// How many files are read one by one.
const FILES_MAX: usize = 10_000;

/// How many files are named that are not copied as they are.
const REMARKS_MAX: usize = 10;

/// How deep directories are read. A link may lead to one that it is in.
const DEPTH_MAX: usize = 32;

impl Run<'_> {
    /// Packs what a step copies from another stage.
    pub(super) async fn pack(
        &self,
        from: &Ground,
        action: &Action,
        place: Place,
    ) -> Result<TempPath, BuildFailure> {
        let Action::Copy { path, .. } = action else {
            return Err(place.failure("only a copy is from another stage"));
        };
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
        let path = &parts.collect::<Vec<_>>().join("/");
        let spec = from.spec.clone();
        let source = Workshop::open(self.engine, self.principal, spec, place).await?;
        let file = match source.look("/bin/sh").await {
            Err(GuestError::NotFound(_)) => self.pack_by_name(&source, path, place).await?,
            _ => self.pack_there(&source, path, place).await?,
        };
        source.close().await;
        Ok(file)
    }

    async fn pack_there(
        &self,
        source: &Workshop,
        path: &str,
        place: Place,
    ) -> Result<TempPath, BuildFailure> {
        source
            .script(self.build, place, scripts::PACK, &[ARCHIVE, path])
            .await?;
        let file = self.engine.shared.uploads.temporary();
        let file = file.map_err(|e| place.failure(e))?;
        let mut left = self.engine.shared.config.upload_max;
        source.get(place, ARCHIVE, &file, &mut left).await?;
        Ok(file)
    }

    async fn pack_by_name(
        &self,
        source: &Workshop,
        path: &str,
        place: Place,
    ) -> Result<TempPath, BuildFailure> {
        if path.is_empty() || scripts::without_pattern(path) != path {
            return Err(place.failure(format_args!(
                "/{path}: the stage has no /bin/sh to list its files: name the file or the directory"
            )));
        }
        if scripts::is_of_sandbox(path, path) {
            return Err(place.failure(format_args!("/{path}: there is no such file or directory")));
        }
        let found = self.read(source, path, place).await?;
        let archive = self.engine.shared.uploads.temporary();
        let archive = archive.map_err(|e| place.failure(e))?;
        let target = archive.to_path_buf();
        let written = tokio::task::spawn_blocking(move || write(&target, &found)).await;
        written
            .map_err(|e| place.failure(e))?
            .map_err(|e| place.failure(e))?;
        Ok(archive)
    }

    /// Reads what lies at a path and below it.
    async fn read(
        &self,
        source: &Workshop,
        path: &str,
        place: Place,
    ) -> Result<Vec<Found>, BuildFailure> {
        let top = source.look(&format!("/{path}")).await;
        let mut open = vec![(0, top.map_err(|e| place.failure(e))?)];
        let (mut found, mut remarks, mut seen) = (Vec::new(), Vec::new(), 0);
        // Of all files together: each is as large as whoever built the stage likes.
        let mut left = self.engine.shared.config.upload_max;
        while let Some((depth, entry)) = open.pop() {
            seen += 1;
            if seen > FILES_MAX || depth > DEPTH_MAX {
                return Err(place.failure(format_args!(
                    "/{path}: more than {FILES_MAX} files, or deeper than {DEPTH_MAX} directories, \
                     are not copied from a stage without /bin/sh"
                )));
            }
            remarks.extend(remark(&entry));
            let contents = match entry.kind {
                GuestFileKind::File => {
                    let file = self.engine.shared.uploads.temporary();
                    let file = file.map_err(|e| place.failure(e))?;
                    source.get(place, &entry.path, &file, &mut left).await?;
                    Some(file)
                }
                GuestFileKind::Directory => {
                    let listed = source.list(&entry.path).await;
                    let mut listed = listed.map_err(|e| place.failure(e))?;
                    listed.retain(|entry| {
                        !scripts::is_of_sandbox(entry.path.trim_start_matches('/'), path)
                    });
                    open.extend(listed.into_iter().map(|entry| (depth + 1, entry)));
                    None
                }
                GuestFileKind::Other => continue,
            };
            found.push(Found { entry, contents });
        }
        self.tell(&remarks, place);
        Ok(found)
    }

    fn tell(&self, remarks: &[String], place: Place) {
        for remark in remarks.iter().take(REMARKS_MAX) {
            self.say(LogLevel::Warn, place.part, remark);
        }
        if let Some(more @ 1..) = remarks.len().checked_sub(REMARKS_MAX) {
            let more = format!("and {more} more that are links or no files");
            self.say(LogLevel::Warn, place.part, &more);
        }
    }
}

/// What is to be said of what is not copied as it is.
fn remark(entry: &GuestEntry) -> Option<String> {
    let path = &entry.path;
    match (entry.kind, entry.link) {
        (GuestFileKind::Other, true) => Some(format!("{path} is left out: the link leads nowhere")),
        (GuestFileKind::Other, false) => Some(format!("{path} is left out: it is no file")),
        (_, true) => Some(format!("{path} is a link: what it leads to is copied")),
        (_, false) => None,
    }
}

/// A file or a directory that was read.
struct Found {
    entry: GuestEntry,
    /// A file's.
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
