//! What the daemon in a sandbox writes: its log.
//!
//! A named pipe in the sandbox's directory. The sandbox holds both of its ends open, so that it
//! never meets a closed one when the server is away, and the server opens it again when it is
//! back. What comes through it is from an attacker as much as from a friend: lines, and the rate
//! at which they are taken, are bounded, and a pipe that is not read fast enough is full for the
//! one who writes.

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
/// The longest line that is passed on; the rest of a longer one is dropped.
const LINE_MAX: usize = 16 * 1024;
/// What is read at once, and then waited for: 1.3 MB a second at most.
const BATCH: usize = 64 * 1024;
const PACE: Duration = Duration::from_millis(50);

/// Makes the pipe and opens it for the sandbox.
///
/// # Errors
/// When the file system refuses.
pub fn create(directory: &Path) -> io::Result<OwnedFd> {
    let path = directory.join(FILE);
    match nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR) {
        // Of an earlier run; nobody else can put one there.
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

/// Opens the pipe to read what the sandbox writes.
///
/// # Errors
/// When there is none.
pub fn open(directory: &Path) -> io::Result<Receiver> {
    PipeOptions::new().open_receiver(directory.join(FILE))
}

/// Reads what a sandbox writes.
#[derive(Debug)]
pub struct Reader {
    pipe: Receiver,
    lines: Lines,
    /// Whether much came at once, so that the next batch is to wait.
    busy: bool,
}

impl Reader {
    /// Reads from a pipe that [`open`] has opened.
    pub fn new(pipe: Receiver) -> Self {
        Self {
            pipe,
            lines: Lines::default(),
            busy: false,
        }
    }

    /// The next whole lines; none when the sandbox has ended.
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

/// Cuts bytes into lines.
#[derive(Debug, Default)]
struct Lines {
    begun: Vec<u8>,
    /// The rest of the present line is dropped.
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
