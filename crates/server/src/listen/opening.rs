//! The first bytes of a connection, which must come soon.
//!
//! Before a request's head is read, with its own bound on time, somebody has to find out whether
//! the client speaks HTTP/1.1 or HTTP/2, and waits for its first bytes for ever. A client that
//! connects and says nothing, or says `PRI` and no more, would hold a descriptor for nothing.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What an HTTP/2 client begins with (RFC 9113, 3.4). What begins otherwise is known at once to
/// be something else.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose first bytes are being waited for.
#[derive(Debug)]
pub(super) struct Opening<T> {
    inner: T,
    /// Gone when it is known what the client speaks.
    patience: Option<Pin<Box<Sleep>>>,
    /// How much of [`PREFACE`] has been read.
    read: usize,
}

impl<T> Opening<T> {
    pub(super) fn new(inner: T, patience: Duration) -> Self {
        Self {
            inner,
            patience: Some(Box::pin(sleep(patience))),
            read: 0,
        }
    }

    fn see(&mut self, bytes: &[u8]) {
        let expected = PREFACE[self.read..].iter();
        let same = expected.zip(bytes).take_while(|(a, b)| a == b).count();
        self.read += same;
        if same < bytes.len() || self.read == PREFACE.len() {
            self.patience = None;
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Opening<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(cx, buffer);
        if this.patience.is_none() {
            return read;
        }
        if read.is_ready() {
            this.see(&buffer.filled()[before..]);
            return read;
        }
        match this
            .patience
            .as_mut()
            .map(|patience| patience.as_mut().poll(cx))
        {
            Some(Poll::Ready(())) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Some(Poll::Pending) | None => Poll::Pending,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Opening<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// What a server sees of a client that sends `first`, says nothing for a minute, and then
    /// sends more.
    async fn read_after(first: &[u8]) -> io::Result<usize> {
        let (mut client, server) = duplex(256);
        let mut server = Opening::new(server, PATIENCE);
        client.write_all(first).await.unwrap();
        let mut buffer = [0; 256];
        let mut seen = 0;
        while seen < first.len() {
            seen += server.read(&mut buffer).await?;
        }
        let late = async {
            sleep(Duration::from_secs(60)).await;
            client.write_all(b"late").await.unwrap();
        };
        tokio::join!(server.read(&mut buffer), late).0
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_say_what_he_speaks_is_not_waited_for() {
        for first in [b"".as_slice(), b"P", b"PRI * HTTP/2.0\r\n"] {
            let error = read_after(first).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{first:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_begun_is_left_to_other_bounds() {
        let http1 = b"GET / HTTP/1.1\r\n\r\n".as_slice();
        for first in [http1, b"POST", b"G", PREFACE] {
            assert_eq!(read_after(first).await.unwrap(), 4, "{first:?}");
        }
    }
}
