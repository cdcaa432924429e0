//! Drains request bodies that the handler did not read.
//!
//! A request may be refused by its head: a wrong key, an unknown route, a missing sandbox. On HTTP/1.1
//! the server can then stop reading the body only by closing the connection. A client that is still
//! writing sees a broken pipe instead of the answer (Node's usually does). So the server reads and
//! discards the rest of the body, within bounds, while it sends the answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::EXPECT;
use http::{Request, Version};
use hyper::body::{Body, Bytes, Frame, SizeHint};

use super::conn_phase::RequestGuard;

/// The maximum to discard: as much as any body except uploads, some of which have over 100 MiB. A
/// refused client that sends more sees its connection close.
const MAX: u64 = 16 << 20;

/// The time for discarding. Clients stop sending soon after they have the answer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A body that is drained when it is dropped.
#[derive(Debug)]
pub(crate) struct DrainBody<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    /// None after its end.
    inner: Option<B>,
    /// Whether to drain.
    drain: bool,
    /// Keeps the request running until the body has been read.
    guard: Option<RequestGuard>,
}

/// Drains the body of a request when it is dropped.
///
/// Except on HTTP/2, where a stream can be reset alone, and with `Expect: 100-continue`: reading would
/// request the body.
pub(super) fn drain_on_drop<B>(request: Request<B>, guard: RequestGuard) -> Request<DrainBody<B>>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    let drain = request.version() < Version::HTTP_2 && !request.headers().contains_key(EXPECT);
    request.map(|body| DrainBody {
        inner: Some(body),
        drain,
        guard: Some(guard),
    })
}

impl<B> Body for DrainBody<B>
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
            self.guard = None;
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

impl<B> Drop for DrainBody<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    fn drop(&mut self) {
        let Some(body) = self.inner.take() else {
            return;
        };
        let too_large = body.size_hint().lower() > MAX;
        if !self.drain || body.is_end_stream() || too_large {
            return;
        }
        // A runtime that is shutting down accepts no tasks.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let guard = self.guard.take();
            runtime.spawn(async move {
                let _ = tokio::time::timeout(DRAIN_TIMEOUT, discard(body)).await;
                drop(guard);
            });
        }
    }
}

/// Discards a body, up to [`MAX`].
async fn discard<B>(mut body: B)
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut left = MAX;
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
    use crate::listen::conn_phase::ConnPhase;

    /// A server that refuses every request by its head.
    fn refusing() -> DuplexStream {
        let (client, server) = tokio::io::duplex(1024);
        let service = service_fn(async |request: Request<Incoming>| {
            let guard = ConnPhase::default().answering(request.method());
            drop(drain_on_drop(request, guard));
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
    async fn a_refused_client_may_finish_the_body_and_send_another_request() {
        let mut client = refusing();
        for _ in 0..3 {
            let head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
            client.write_all(head).await.unwrap();
            assert!(answer(&mut client).await.starts_with("HTTP/1.1 404"));
            client.write_all(&[b'x'; 100_000]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn chunked_bodies_are_drained_too() {
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
    async fn a_client_that_expects_100_continue_gets_none() {
        let mut client = refusing();
        let head =
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
        client.write_all(head).await.unwrap();
        assert!(answer(&mut client).await.starts_with("HTTP/1.1 404"));
    }

    #[tokio::test]
    async fn a_body_that_is_announced_as_too_large_is_not_drained() {
        let mut client = refusing();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            MAX + 1
        );
        client.write_all(head.as_bytes()).await.unwrap();
        assert!(answer(&mut client).await.starts_with("HTTP/1.1 404"));
        assert_eq!(
            client.read(&mut [0; 16]).await.unwrap(),
            0,
            "the body continues"
        );
    }
}
