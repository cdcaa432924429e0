//! The bodies of requests that are answered before they have been read.
//!
//! A request may be refused by its head alone: a wrong key, no such route, a sandbox that is gone.
//! On HTTP/1.1 a body that is still under way then leaves the server only one way to stop reading,
//! to close the connection. A client that is just writing sees a broken pipe instead of the answer
//! (Node's does so most of the time). So what nobody reads is read to its end and forgotten, within
//! bounds, while the answer is on its way.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::EXPECT;
use http::{Request, Version};
use hyper::body::{Body, Bytes, Frame, SizeHint};

use super::turn::Exchange;

/// How much is read in vain: as much as any body but an upload, of which some take 100 MiB and more.
/// Who sends more than this to be refused sees the connection end.
const MOST: u64 = 16 << 20;

/// How long it is read in vain. A client that has its answer stops sending much sooner.
const PATIENCE: Duration = Duration::from_secs(5);

/// A body that is read to its end, whoever drops it when.
#[derive(Debug)]
pub(super) struct Unread<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    /// Gone when it has ended.
    inner: Option<B>,
    /// Whether the rest is read when nobody wants it.
    drain: bool,
    /// It is not the client's turn before all of it has been read. Gone when it has.
    exchange: Option<Exchange>,
}

/// Sees that the body of a request is read.
///
/// Not over HTTP/2, where a stream can be refused by itself, and not when the client waits to be
/// asked for the body: to read it would be to ask.
pub(super) fn finish<B>(request: Request<B>, exchange: Exchange) -> Request<Unread<B>>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    let drain = request.version() < Version::HTTP_2 && !request.headers().contains_key(EXPECT);
    request.map(|body| Unread {
        inner: Some(body),
        drain,
        exchange: Some(exchange),
    })
}

impl<B> Body for Unread<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.inner else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.inner = None;
            self.exchange = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let of_nothing = || SizeHint::with_exact(0);
        self.inner.as_ref().map_or_else(of_nothing, Body::size_hint)
    }
}

impl<B> Drop for Unread<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    fn drop(&mut self) {
        let Some(body) = self.inner.take() else {
            return;
        };
        let too_large = body.size_hint().lower() > MOST;
        if !self.drain || body.is_end_stream() || too_large {
            return;
        }
        // A runtime that is ending has dropped its requests, and takes no tasks.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let exchange = self.exchange.take();
            runtime.spawn(async move {
                let _ = tokio::time::timeout(PATIENCE, read_in_vain(body)).await;
                drop(exchange);
            });
        }
    }
}

/// Reads a body to its end, unless that is too far.
async fn read_in_vain<B>(mut body: B)
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut left = MOST;
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(Ok(frame)) = frame else { return };
        let size = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(rest) = left.checked_sub(size) else {
            return;
        };
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::listen::turn::Turn;

    /// A server that refuses everything by its head.
    fn refusing() -> DuplexStream {
        let (client, server) = tokio::io::duplex(1024);
        let service = service_fn(async |request: Request<Incoming>| {
            let exchange = Turn::default().answering(request.method());
            drop(finish(request, exchange));
            let body = axum::body::Body::from("no");
            Ok::<_, Infallible>(Response::builder().status(404).body(body).unwrap())
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(server), service);
        tokio::spawn(connection);
        client
    }

    async fn answer(client: &mut DuplexStream) -> String {
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\nno") {
            assert_ne!(client.read_buf(&mut seen).await.unwrap(), 0, "it closed");
        }
        String::from_utf8(seen).unwrap()
    }

    #[tokio::test]
    async fn who_is_refused_may_finish_the_body_and_ask_again() {
        let mut client = refusing();
        for _ in 0..3 {
            let head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
            client.write_all(head).await.unwrap();
            assert!(answer(&mut client).await.starts_with("HTTP/1.1 404"));
            client.write_all(&[b'x'; 100_000]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn chunks_are_read_too() {
        let mut client = refusing();
        for _ in 0..2 {
            let head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
            client.write_all(head).await.unwrap();
            client.write_all(b"5\r\nhello\r\n").await.unwrap();
            assert!(answer(&mut client).await.starts_with("HTTP/1.1 404"));
            client.write_all(b"3\r\nyou\r\n0\r\n\r\n").await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_client_that_waits_to_be_asked_is_not_asked() {
        let mut client = refusing();
        let head =
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
        client.write_all(head).await.unwrap();
        assert!(answer(&mut client).await.starts_with("HTTP/1.1 404"));
    }

    #[tokio::test]
    async fn what_is_announced_as_too_large_is_not_read() {
        let mut client = refusing();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            MOST + 1
        );
        client.write_all(head.as_bytes()).await.unwrap();
        assert!(answer(&mut client).await.starts_with("HTTP/1.1 404"));
        assert_eq!(client.read(&mut [0; 16]).await.unwrap(), 0, "it goes on");
    }
}
