//! Bodies that end when their sandbox does.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use shoal_core::BoxFuture;

use crate::limit::Slot;
use crate::upstream::{BoxError, ForwardedBody, Stream2};

/// The sandbox ended while it was answering: the stream is cut, not closed, so that no client
/// takes half an answer for a whole one.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox has ended")]
pub(crate) struct SandboxEnded;

/// What a request holds until its answer is read: its place among those of the sandbox, and its
/// part of a connection that others share.
pub(crate) type Held = (Slot, Option<Stream2>);

/// An answer that is cut when its sandbox ends, and that holds its place among the sandbox's
/// connections until it is read.
pub(crate) struct Guarded {
    body: ForwardedBody,
    ended: Option<BoxFuture<'static, ()>>,
    _held: Held,
}

impl Guarded {
    pub(crate) fn new(body: ForwardedBody, ended: BoxFuture<'static, ()>, held: Held) -> Self {
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
        // What has come is passed on first: a last word before the end is not lost.
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame);
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
