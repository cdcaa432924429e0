//! The HTTP client of all measurements.

use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Method, Request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

type AnyBody = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// A client with a connection pool.
#[derive(Clone, Debug)]
pub(crate) struct Client(hyper_util::client::legacy::Client<HttpConnector, AnyBody>);

/// Headers of a request.
pub(crate) type Headers<'a> = &'a [(&'a str, &'a str)];

impl Client {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector))
    }

    /// Sends a request and reads the whole answer. Statuses other than 2xx are errors.
    pub(crate) async fn call(
        &self,
        method: Method,
        url: &str,
        headers: Headers<'_>,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Bytes> {
        let body = Full::new(body.into()).boxed_unsync();
        let response = self.send(method, url, headers, body).await?;
        Ok(response.into_body().collect().await?.to_bytes())
    }

    /// Sends `size` bytes.
    pub(crate) async fn upload(
        &self,
        method: Method,
        url: &str,
        headers: Headers<'_>,
        size: u64,
    ) -> anyhow::Result<()> {
        let body = Repeated::new(size).boxed_unsync();
        let response = self.send(method, url, headers, body).await?;
        response.into_body().collect().await?;
        Ok(())
    }

    /// Reads an answer to its end and counts its bytes.
    pub(crate) async fn download(&self, url: &str, headers: Headers<'_>) -> anyhow::Result<u64> {
        let empty = Full::new(Bytes::new()).boxed_unsync();
        let response = self.send(Method::GET, url, headers, empty).await?;
        let mut body = response.into_body();
        let mut size = 0;
        while let Some(frame) = body.frame().await {
            size += frame?.data_ref().map_or(0, |data| data.len() as u64);
        }
        Ok(size)
    }

    /// Posts a body, and returns the lines of the answer as they come.
    pub(crate) async fn lines(
        &self,
        url: &str,
        headers: Headers<'_>,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Lines> {
        let body = Full::new(body.into()).boxed_unsync();
        let response = self.send(Method::POST, url, headers, body).await?;
        Ok(Lines {
            body: response.into_body(),
            read: Vec::new(),
        })
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        headers: Headers<'_>,
        body: AnyBody,
    ) -> anyhow::Result<http::Response<hyper::body::Incoming>> {
        let mut request = Request::builder().method(&method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.0.request(request.body(body)?).await;
        let response = response.with_context(|| format!("{method} {url}"))?;
        let status = response.status();
        if !status.is_success() {
            let said = response.into_body().collect().await?.to_bytes();
            let said = String::from_utf8_lossy(&said);
            ensure!(false, "{method} {url} answered {status}: {said}");
            unreachable!("a failure is an error");
        }
        Ok(response)
    }
}

/// The lines of an answer.
pub(crate) struct Lines {
    body: hyper::body::Incoming,
    read: Vec<u8>,
}

impl Lines {
    /// The next line, without its end; none at the end of the answer.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.pop();
                return Ok(Some(line));
            }
            match self.body.frame().await {
                Some(frame) => self.read.extend(frame?.into_data().unwrap_or_default()),
                None => return Ok(None),
            }
        }
    }
}

/// A body that repeats one block, so that producing it costs nothing.
struct Repeated {
    block: Bytes,
    left: u64,
}

impl Repeated {
    const BLOCK: usize = 256 * 1024;

    fn new(size: u64) -> Self {
        // Not zeros, which a file system may store as a hole.
        let block: Vec<u8> = (0..=255).cycle().take(Self::BLOCK).collect();
        Self {
            block: block.into(),
            left: size,
        }
    }
}

impl Body for Repeated {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let size = most.min(self.block.len());
        self.left -= size as u64;
        let frame = (size > 0).then(|| Ok(Frame::data(self.block.slice(..size))));
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
