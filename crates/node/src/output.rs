//! The log that a sandbox's envd writes.
//!
//! It is a named pipe in the sandbox's directory. The sandbox holds both ends open, so it never
//! gets `EPIPE` while the server is away; the server opens the pipe again when it is back. The
//! content may come from an attacker, so line lengths and the read rate are bounded. A pipe that is
//! read too slowly fills up and blocks the writer.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nix::sys::stat::Mode;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{OpenOptions as PipeOptions, Receiver};

/// The pipe's name in the sandbox's directory.
const FILE: &str = "log";
/// The longest line that is passed on; the rest of a line is dropped.
const LINE_MAX: usize = 16 * 1024;
/// Bytes read at a time, followed by a wait: at most 1.3 MB per second.
const BATCH: usize = 64 * 1024;
const PACE: Duration = Duration::from_millis(50);

/// Creates the pipe and opens it for the sandbox.
///
/// # Errors
/// When the file system refuses.
pub fn create(directory: &Path) -> io::Result<OwnedFd> {
    let path = directory.join(FILE);
    match nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR) {
        // From an earlier execution; only the server can create files there.
        Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let both = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    Ok(both.into())
}

/// Opens the pipe to read the sandbox's log.
///
/// # Errors
/// When it does not exist.
pub fn open(directory: &Path) -> io::Result<Receiver> {
    PipeOptions::new().open_receiver(directory.join(FILE))
}

/// Reads a sandbox's log.
#[derive(Debug)]
pub struct Reader {
    pipe: Receiver,
    lines: Lines,
    /// The last batch was large, so the next one waits.
    busy: bool,
}

impl Reader {
    /// Reads from a pipe opened by [`open`].
    pub fn new(pipe: Receiver) -> Self {
        Self {
            pipe,
            lines: Lines::default(),
            busy: false,
        }
    }

    /// The next complete lines; `None` when the sandbox has ended.
    pub async fn next(&mut self) -> Option<Vec<String>> {
        let mut buffer = Vec::with_capacity(BATCH);
        loop {
            if self.busy {
                tokio::time::sleep(PACE).await;
            }
            buffer.clear();
            match self.pipe.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => self.lines.take(&buffer),
            }
            self.busy = buffer.len() >= BATCH / 2;
            let whole = self.lines.whole();
            if !whole.is_empty() {
                return Some(whole);
            }
        }
    }
}

/// Splits bytes into lines.
#[derive(Debug, Default)]
struct Lines {
    begun: Vec<u8>,
    /// The rest of the current line is dropped.
    too_long: bool,
    whole: Vec<String>,
}

impl Lines {
    fn take(&mut self, bytes: &[u8]) {
        for (number, part) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if number > 0 {
                self.end_line();
            }
            let room = LINE_MAX.saturating_sub(self.begun.len());
            if !self.too_long {
                self.begun.extend_from_slice(&part[..part.len().min(room)]);
                self.too_long = part.len() > room;
            }
        }
    }

    fn end_line(&mut self) {
        if !self.begun.is_empty() {
            self.whole
                .push(String::from_utf8_lossy(&self.begun).into_owned());
        }
        self.begun.clear();
        self.too_long = false;
    }

    fn whole(&mut self) -> Vec<String> {
        std::mem::take(&mut self.whole)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_are_joined_over_reads_and_cut_when_too_long() {
        let mut lines = Lines::default();
        lines.take(b"one\ntw");
        assert_eq!(lines.whole(), ["one"]);
        lines.take(b"o\n\n\xffx\n");
        assert_eq!(lines.whole(), ["two", "\u{fffd}x"]);
        lines.take(&vec![b'a'; LINE_MAX - 1]);
        lines.take(b"bc");
        lines.take(b"d\nnext\n");
        let whole = lines.whole();
        assert_eq!(whole[0].len(), LINE_MAX);
        assert!(whole[0].ends_with("ab"));
        assert_eq!(whole[1], "next");
    }

    #[tokio::test]
    async fn a_pipe_is_read_again_by_the_next_server_and_ends_with_its_writer() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = std::fs::File::from(create(directory.path()).unwrap());
        drop(open(directory.path()).unwrap());
        writer.write_all(b"while nobody read\n").unwrap();
        let pipe = open(directory.path()).unwrap();
        writer.write_all(b"and after\n").unwrap();
        drop(writer);
        let mut reader = Reader::new(pipe);
        let mut seen = Vec::new();
        while let Some(lines) = reader.next().await {
            seen.extend(lines);
        }
        assert_eq!(seen, ["while nobody read", "and after"]);
    }
}
