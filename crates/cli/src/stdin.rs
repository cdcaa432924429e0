//! Standard input, read beside everything else.

use std::io::{self, Read};

use bytes::Bytes;
use tokio::sync::mpsc;

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// How many chunks wait to be sent.
const WAITING: usize = 4;

/// Reads standard input on a thread of its own, which the program does not wait for at its end: a
/// read cannot be given up.
pub(crate) fn read() -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(WAITING);
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        let mut buffer = vec![0; CHUNK];
        loop {
            let read = match input.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => Ok(Bytes::copy_from_slice(&buffer[..read])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = read.is_err();
            if sender.blocking_send(read).is_err() || failed {
                return;
            }
        }
    });
    receiver
}
