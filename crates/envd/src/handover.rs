//! The first token: handed over on standard input, before anything listens.
//!
//! A pipe shows in no argument list, environment or file, and what was read from it is gone: no
//! process that starts later can find the token there.

use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use shoal_protocol::token::{AccessToken, MAX_TOKEN};

/// Reads the token, a line of standard input, and puts `/dev/null` in the place of that.
///
/// Blocks until the line has come. Must run once the daemon is sealed, and before it has threads.
///
/// # Errors
/// When there is no such line, or it is no token.
pub(crate) fn token_from_stdin() -> io::Result<AccessToken> {
    let line = first_line()?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    let text = String::from_utf8(line).map_err(|_| refused("it is not text"))?;
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
            return Err(refused("the line has no end"));
        }
    }
}

fn refused(why: &str) -> io::Error {
    let text = format!("no access token on standard input: {why}");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
