//! The first token: read from standard input before the daemon listens.
//!
//! A pipe is visible in no argument list, environment or file, and its data is gone once read: no
//! process that starts later can find the token.

use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use shoal_protocol::token::{AccessToken, MAX_TOKEN};

/// Reads the token line from standard input and then replaces that by `/dev/null`.
///
/// Blocks until the line is complete. Must run after hardening and before threads start.
///
/// # Errors
/// If the line is missing or is not a valid token.
pub(crate) fn token_from_stdin() -> io::Result<AccessToken> {
    let line = first_line()?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    let text = String::from_utf8(line).map_err(|_| refused("not UTF-8"))?;
    AccessToken::parse(text).map_err(|error| refused(&error.to_string()))
}

fn first_line() -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(MAX_TOKEN + 1);
    let mut piece = [0; 128];
    loop {
        let count = match rustix::io::read(rustix::stdio::stdin(), &mut piece) {
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let read = piece.get(..count).unwrap_or_default();
        if let Some(end) = memchr::memchr(b'\n', read) {
            line.extend_from_slice(read.get(..end).unwrap_or_default());
            return Ok(line);
        }
        line.extend_from_slice(read);
        if count == 0 || line.len() > MAX_TOKEN {
            return Err(refused("line incomplete or too long"));
        }
    }
}

fn refused(why: &str) -> io::Error {
    let text = format!("no access token on standard input: {why}");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
