//! Bodies that end with their sandbox.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use shoal_core::BoxFuture;
use shoal_core::routes::Visit;

use crate::limit::Slot;
use crate::upstream::{BoxError, Stream2};

/// The sandbox ended during the answer. The stream is aborted, not closed, so that no client takes a
/// partial answer for a complete one.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox has ended")]
pub(crate) struct SandboxEnded;

/// Resources of a request until its answer is read: its slot of the sandbox, its share of a connection,
/// and what keeps the sandbox from being parked.
pub(crate) type Held = (Slot, Option<Stream2>, Visit);

/// An answer that is aborted when its sandbox ends, and that holds its slot until it is read.
pub(crate) struct Guarded {
    body: Incoming,
    ended: Option<BoxFuture<'static, ()>>,
    _held: Held,
}

impl Guarded {
    pub(crate) fn new(body: Incoming, ended: BoxFuture<'static, ()>, held: Held) -> Self {
        Self {
            body,
            ended: Some(ended),
            _held: held,
        }
    }
}

impl Body for Guarded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        // Received data first, so that the last output before the end is not lost.
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match &mut this.ended {
            Some(ended) => match ended.as_mut().poll(cx) {
                Poll::Ready(()) => {
                    this.ended = None;
                    Poll::Ready(Some(Err(SandboxEnded.into())))
                }
                Poll::Pending => Poll::Pending,
            },
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
