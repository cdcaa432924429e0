//! What a client has begun to say, which it must say soon.
//!
//! Before a request's head is read, somebody has to find out whether the client speaks HTTP/1.1 or
//! HTTP/2, and waits for its first bytes for ever. A client that connects and says nothing, or says
//! `PRI` and no more, would hold a descriptor for nothing. So would one that begins a head and does
//! not end it. A client that rests between two requests is another matter: clients keep connections
//! for as long as they like to, and one that is closed just when it is used again is a request that
//! has failed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

use super::turn::{Turn, Whose};

/// What an HTTP/2 client begins with (RFC 9113, 3.4). What begins otherwise is known at once to
/// be something else.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose client may be waited for.
#[derive(Debug)]
pub(super) struct Opening<T> {
    inner: T,
    /// How long is waited for what has been begun.
    within: Duration,
    /// Gone when nothing has been begun.
    patience: Option<Pin<Box<Sleep>>>,
    /// How much of [`PREFACE`] has been read; none when it is known what the client speaks.
    read: Option<usize>,
    turn: Turn,
    /// Its place among all connections, for as long as the connection is open.
    _place: Option<OwnedSemaphorePermit>,
}

impl<T> Opening<T> {
    pub(super) fn new(
        inner: T,
        patience: Duration,
        turn: Turn,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            inner,
            within: patience,
            patience: Some(Box::pin(sleep(patience))),
            read: Some(0),
            turn,
            _place: place,
        }
    }

    /// Takes note of what the client has said.
    fn see(&mut self, bytes: &[u8]) {
        if let Some(read) = self.read {
            let expected = PREFACE[read..].iter();
            let same = expected.zip(bytes).take_while(|(a, b)| a == b).count();
            let read = read + same;
            if read == PREFACE.len() {
                self.read = None;
                self.turn.speak_http2();
            } else if same < bytes.len() {
                self.read = None;
            } else {
                self.read = Some(read);
                return;
            }
        }
        if self.turn.is_clients() && !bytes.is_empty() {
            // The head of a request has begun: its end is waited for from now on.
            self.turn.begin();
            self.patience = Some(Box::pin(sleep(self.within)));
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
        if this.read.is_none() && this.turn.get() != Whose::Head {
            this.patience = None;
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
    use http::{Method, Response, StatusCode};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// What a server sees of a client that sends `first`, says nothing for a minute, and then
    /// sends more.
    async fn read_after(first: &[u8], read: impl FnOnce(&Turn)) -> io::Result<usize> {
        let (mut client, server) = duplex(256);
        let turn = Turn::default();
        let mut server = Opening::new(server, PATIENCE, turn.clone(), None);
        client.write_all(first).await.unwrap();
        let mut buffer = [0; 256];
        let mut seen = 0;
        while seen < first.len() {
            seen += server.read(&mut buffer).await?;
        }
        read(&turn);
        let late = async {
            sleep(Duration::from_secs(60)).await;
            client.write_all(b"late").await.unwrap();
        };
        tokio::join!(server.read(&mut buffer), late).0
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_say_what_he_speaks_is_not_waited_for() {
        let begun = [b"G".as_slice(), b"GET / HTTP/1.1\r\nHost: x\r\n", b"PRIOR"];
        for first in [b"".as_slice(), b"P", b"PRI * HTTP/2.0\r\n"]
            .into_iter()
            .chain(begun)
        {
            let error = read_after(first, |_| ()).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{first:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_said_all_of_it_is_left_to_other_bounds() {
        let http1 = b"GET / HTTP/1.1\r\n\r\n".as_slice();
        let answered = |turn: &Turn| {
            drop(turn.answering(&Method::GET).until_sent(Response::default()));
            assert!(turn.is_clients());
        };
        let answering = |turn: &Turn| std::mem::forget(turn.answering(&Method::GET));
        assert_eq!(read_after(http1, answering).await.unwrap(), 4);
        assert_eq!(read_after(http1, answered).await.unwrap(), 4);
        assert_eq!(read_after(PREFACE, |_| ()).await.unwrap(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_switched_protocols_may_be_silent() {
        let switched = |turn: &Turn| {
            let exchange = turn.answering(&Method::GET);
            let mut answer = Response::default();
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            drop(exchange.until_sent(answer));
            assert!(!turn.is_clients());
        };
        let upgrade = b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
        assert_eq!(read_after(upgrade, switched).await.unwrap(), 4);
    }
}
