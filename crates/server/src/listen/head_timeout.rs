//! The timeout of a connection's first bytes and of each request head.
//!
//! hyper waits forever for the first bytes, which distinguish HTTP/1.1 from HTTP/2, and its own head timeout
//! also runs between requests. A client that sends nothing, a partial preface (`PRI`) or a partial head
//! would hold a descriptor. A client that is idle between two requests is legitimate: closing its
//! connection just when it sends the next request would fail that request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

use super::conn_phase::{ConnPhase, Phase};

/// The preface of HTTP/2 (RFC 9113, 3.4). Any other beginning is HTTP/1.1.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection with a timeout for request heads.
#[derive(Debug)]
pub(super) struct HeadTimeout<T> {
    inner: T,
    /// The timeout.
    timeout: Duration,
    /// The running timer; none while no head is pending.
    timer: Option<Pin<Box<Sleep>>>,
    /// How much of [`PREFACE`] has been read; none when the protocol is known.
    read: Option<usize>,
    phase: ConnPhase,
    /// Its slot among all connections.
    _place: Option<OwnedSemaphorePermit>,
}

impl<T> HeadTimeout<T> {
    pub(super) fn new(
        inner: T,
        timeout: Duration,
        phase: ConnPhase,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            inner,
            timeout,
            timer: Some(Box::pin(sleep(timeout))),
            read: Some(0),
            phase,
            _place: place,
        }
    }

    /// Tracks the received bytes.
    fn observe(&mut self, bytes: &[u8]) {
        if let Some(read) = self.read {
            let expected = PREFACE[read..].iter();
            let same = expected.zip(bytes).take_while(|(a, b)| a == b).count();
            let read = read + same;
            if read == PREFACE.len() {
                self.read = None;
                self.phase.became_http2();
            } else if same < bytes.len() {
                self.read = None;
            } else {
                self.read = Some(read);
                return;
            }
        }
        if self.phase.awaits_request() && !bytes.is_empty() {
            // The head's first byte starts the timeout.
            self.phase.head_begins();
            self.timer = Some(Box::pin(sleep(self.timeout)));
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for HeadTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(cx, buffer);
        if this.read.is_none() && this.phase.get() != Phase::ReadsHead {
            this.timer = None;
        }
        if read.is_ready() {
            this.observe(&buffer.filled()[before..]);
            return read;
        }
        match this.timer.as_mut().map(|timer| timer.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Some(Poll::Pending) | None => Poll::Pending,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for HeadTimeout<T> {
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

    const HEAD: Duration = Duration::from_secs(5);

    /// The bytes that a server reads from a client which sends `first`, pauses for a minute, and then sends more.
    async fn read_after(first: &[u8], read: impl FnOnce(&ConnPhase)) -> io::Result<usize> {
        let (mut client, server) = duplex(256);
        let phase = ConnPhase::default();
        let mut server = HeadTimeout::new(server, HEAD, phase.clone(), None);
        client.write_all(first).await.unwrap();
        let mut buffer = [0; 256];
        let mut seen = 0;
        while seen < first.len() {
            seen += server.read(&mut buffer).await?;
        }
        read(&phase);
        let late = async {
            sleep(Duration::from_secs(60)).await;
            client.write_all(b"late").await.unwrap();
        };
        tokio::join!(server.read(&mut buffer), late).0
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_finish_its_preface_or_head_times_out() {
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
    async fn a_complete_head_or_preface_has_no_head_timeout() {
        let http1 = b"GET / HTTP/1.1\r\n\r\n".as_slice();
        let answered = |phase: &ConnPhase| {
            drop(
                phase
                    .answering(&Method::GET)
                    .until_sent(Response::default()),
            );
            assert!(phase.awaits_request());
        };
        let answering = |phase: &ConnPhase| std::mem::forget(phase.answering(&Method::GET));
        assert_eq!(read_after(http1, answering).await.unwrap(), 4);
        assert_eq!(read_after(http1, answered).await.unwrap(), 4);
        assert_eq!(read_after(PREFACE, |_| ()).await.unwrap(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_switched_protocols_has_no_timeout() {
        let switched = |phase: &ConnPhase| {
            let guard = phase.answering(&Method::GET);
            let mut answer = Response::default();
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            drop(guard.until_sent(answer));
            assert!(!phase.awaits_request());
        };
        let upgrade = b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
        assert_eq!(read_after(upgrade, switched).await.unwrap(), 4);
    }
}
