//! Calls of the runtime, through the socket of a sandbox.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_checkpoint::Digested;
use tokio::process::Command;

use crate::failure::Unsaved;

/// containerd's namespace of Kubernetes.
const NAMESPACE: &str = "k8s.io";
/// How long a save may take.
const SAVE: Duration = Duration::from_secs(1800);
/// How long anything else may take.
const CALL: Duration = Duration::from_secs(60);
/// The part of an error that is shown, in bytes.
const TOLD: usize = 600;

/// The runtime of the node's pods.
#[derive(Clone, Debug)]
pub(crate) struct Runsc {
    program: PathBuf,
    root: PathBuf,
    /// The program as it was last read.
    read: Arc<Mutex<Option<Digested>>>,
}

impl Runsc {
    pub(crate) fn new(program: &Path, state: &Path) -> Self {
        Self {
            program: program.to_owned(),
            root: state.join(NAMESPACE),
            read: Arc::default(),
        }
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The digest of the program. A program that is unchanged since the last call is not read again: it has 60 MB.
    pub(crate) fn build(&self) -> io::Result<String> {
        let program = File::open(&self.program)?;
        let mut read = self.read.lock();
        if let Some(known) = &*read
            && known.is_unchanged(&program)?
        {
            return Ok(known.digest.clone());
        }
        let digested = Digested::read(&program)?;
        Ok(read.insert(digested).digest.clone())
    }

    /// Saves all containers of a sandbox, which runs on.
    pub(crate) async fn checkpoint(&self, sandbox: &str, into: &Path) -> Result<(), Unsaved> {
        let image = option("--image-path=", into);
        let flags = ["--leave-running", "--compression=none"].map(OsStr::new);
        let words = flags.into_iter().chain([&*image, OsStr::new(sandbox)]);
        self.call("checkpoint", words, SAVE).await.map(drop)
    }

    /// Saves the files that the containers of a sandbox have written to their roots and volumes.
    pub(crate) async fn save_files(&self, sandbox: &str, into: &Path) -> Result<(), Unsaved> {
        let image = option("--image-path=", into);
        let flags = ["--leave-running", "--path=/", "--path=all-tmpfs"].map(OsStr::new);
        let words = flags.into_iter().chain([&*image, OsStr::new(sandbox)]);
        self.call("fscheckpoint", words, SAVE).await.map(drop)
    }

    /// Stops all processes of a sandbox for a while.
    pub(crate) async fn pause(&self, sandbox: &str) -> Result<(), Unsaved> {
        self.call("pause", [OsStr::new(sandbox)], CALL)
            .await
            .map(drop)
    }

    /// Resumes them.
    pub(crate) async fn resume(&self, sandbox: &str) -> Result<(), Unsaved> {
        self.call("resume", [OsStr::new(sandbox)], CALL)
            .await
            .map(drop)
    }

    /// Ends a sandbox so that all of its containers have ended well. Only a save does that: this one is thrown away.
    pub(crate) async fn end(&self, sandbox: &str, scratch: &Path) -> Result<(), Unsaved> {
        let image = option("--image-path=", scratch);
        let words = [&*image, OsStr::new(sandbox)];
        self.call("checkpoint", words, SAVE).await.map(drop)
    }

    /// The bytes that a sandbox has in memory, files that were written included.
    pub(crate) async fn usage(&self, sandbox: &str) -> Result<u64, Unsaved> {
        let told = self.call("usage", [OsStr::new(sandbox)], CALL).await?;
        let read: Result<serde_json::Value, _> = serde_json::from_str(&told);
        let total = read.ok().and_then(|read| read.get("Total")?.as_u64());
        total.ok_or_else(|| Unsaved::Runsc {
            command: "usage",
            why: format!("it says {told:?}"),
        })
    }

    async fn call<'a>(
        &self,
        command: &'static str,
        words: impl IntoIterator<Item = &'a OsStr>,
        limit: Duration,
    ) -> Result<String, Unsaved> {
        let failed = |why: String| Unsaved::Runsc { command, why };
        let mut call = Command::new(&self.program);
        call.arg(option("--root=", &self.root))
            .arg(command)
            .args(words)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let ended = tokio::time::timeout(limit, call.output()).await;
        let ended = ended.map_err(|_| Unsaved::Slow { command, limit })?;
        let ended = ended.map_err(|error| failed(error.to_string()))?;
        if ended.status.success() {
            return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
        }
        let told = String::from_utf8_lossy(&ended.stderr);
        let told = told.trim();
        let start = told.len().saturating_sub(TOLD);
        let start = (start..=told.len()).find(|at| told.is_char_boundary(*at));
        let why = told.get(start.unwrap_or_default()..).unwrap_or_default();
        Err(failed(format!("{why} ({})", ended.status)))
    }
}

fn option(name: &str, value: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(name);
    option.push(value);
    option
}

#[cfg(test)]
mod tests {
    use std::fs;

    use shoal_checkpoint::file_digest;

    use super::*;

    #[test]
    fn a_replaced_program_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runsc");
        let next = directory.path().join("next");
        fs::write(&path, b"one").unwrap();
        fs::write(&next, b"two").unwrap();
        let digests = [&path, &next].map(|path| file_digest(&File::open(path).unwrap()).unwrap());
        let runsc = Runsc::new(&path, directory.path());
        assert_eq!(runsc.build().unwrap(), digests[0]);
        assert_eq!(runsc.build().unwrap(), digests[0]);
        fs::rename(&next, &path).unwrap();
        assert_eq!(runsc.build().unwrap(), digests[1]);
    }
}
