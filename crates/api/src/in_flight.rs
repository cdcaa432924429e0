//! Limits on calls in flight: their number, and the bytes of their bodies, which stay in memory
//! until the response.
//!
//! All teams share both limits. A team may use at most twice as much as it leaves free, so that
//! calls of other teams find room.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use shoal_core::auth::Principal;
use shoal_core::id::TeamId;

use crate::error::ApiError;

/// The limit on bytes of bodies in memory.
const BYTES: usize = 192 << 20;

/// The limits on concurrent calls and their bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// Calls, until their response is completely sent.
    pub calls: usize,
    /// Bytes of bodies, until the response starts.
    pub bytes: usize,
}

impl Default for InFlight {
    /// A thousand calls, with the bodies of twelve of the largest calls.
    fn default() -> Self {
        Self {
            calls: 1000,
            bytes: BYTES,
        }
    }
}

/// A limited quantity that all teams share.
#[derive(Debug)]
struct Shared {
    most: usize,
    taken: usize,
    by_team: HashMap<TeamId, usize>,
}

impl Shared {
    fn of(most: usize) -> Self {
        Self {
            most,
            taken: 0,
            by_team: HashMap::new(),
        }
    }

    /// Takes `much` for a team; returns whether that was available.
    fn take(&mut self, team: TeamId, much: usize) -> bool {
        let Some(left) = self.most.checked_sub(self.taken + much) else {
            return false;
        };
        let of_team = self.by_team.entry(team).or_default();
        if *of_team > 0 && *of_team + much > 2 * left {
            return false;
        }
        *of_team += much;
        self.taken += much;
        true
    }

    fn give_back(&mut self, team: TeamId, much: usize) {
        self.taken -= much;
        if let Some(of_team) = self.by_team.get_mut(&team) {
            *of_team -= much;
            if *of_team == 0 {
                self.by_team.remove(&team);
            }
        }
    }
}

/// The calls of all teams.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    calls: Arc<Mutex<Shared>>,
    bytes: Arc<Mutex<Shared>>,
}

impl Calls {
    pub(crate) fn new(most: InFlight) -> Self {
        Self {
            calls: Arc::new(Mutex::new(Shared::of(most.calls))),
            bytes: Arc::new(Mutex::new(Shared::of(most.bytes))),
        }
    }

    fn begin(&self, team: TeamId) -> Option<Call> {
        self.calls.lock().take(team, 1).then(|| {
            Call(Arc::new(UnderWay {
                calls: self.clone(),
                team,
                bytes: AtomicUsize::new(0),
                refused: AtomicBool::new(false),
            }))
        })
    }
}

/// A call in flight, until its last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Call(Arc<UnderWay>);

#[derive(Debug)]
struct UnderWay {
    calls: Calls,
    team: TeamId,
    bytes: AtomicUsize,
    refused: AtomicBool,
}

impl Call {
    /// Counts more bytes of the body; returns whether they fit.
    fn hold(&self, bytes: usize) -> bool {
        let call = &self.0;
        let held = call.calls.bytes.lock().take(call.team, bytes);
        if held {
            call.bytes.fetch_add(bytes, Ordering::AcqRel);
        } else {
            call.refused.store(true, Ordering::Release);
        }
        held
    }

    /// Releases the bytes of the body.
    fn let_go(&self) {
        let call = &self.0;
        let bytes = call.bytes.swap(0, Ordering::AcqRel);
        if bytes > 0 {
            call.calls.bytes.lock().give_back(call.team, bytes);
        }
    }

    /// The reason why the body could not be read, if the limit was exceeded.
    pub(crate) fn refusal(&self) -> Option<ApiError> {
        self.0.refused.load(Ordering::Acquire).then(|| {
            too_many("the bodies of your team's calls fill the server's memory for them: try again")
        })
    }

    /// Counts a body's bytes while it is read.
    pub(crate) fn counted(&self, body: Body) -> Body {
        Body::new(Counted {
            inner: body,
            call: self.clone(),
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        if bytes > 0 {
            self.calls.bytes.lock().give_back(self.team, bytes);
        }
        self.calls.calls.lock().give_back(self.team, 1);
    }
}

fn too_many(message: &str) -> ApiError {
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).with_retry_after(1)
}

/// Admits a call unless its team has too many in flight.
pub(crate) async fn count(
    State(calls): State<Calls>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(team) = request.extensions().get::<Principal>().map(|who| who.team) else {
        return next.run(request).await;
    };
    let Some(call) = calls.begin(team) else {
        return too_many("your team has as many calls under way as it may: try again")
            .into_response();
    };
    request.extensions_mut().insert(call.clone());
    let response = next.run(request).await;
    call.let_go();
    response.map(|body| {
        Body::new(Answer {
            inner: body,
            _call: call,
        })
    })
}

/// A response body that ends its call.
struct Answer {
    inner: Body,
    _call: Call,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A request's body.
struct Counted {
    inner: Body,
    call: Call,
}

/// The bodies in flight exceed the limit.
#[derive(Debug, thiserror::Error)]
#[error("there is no room for the body")]
struct NoSpaceForBody;

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && !self.call.hold(data.len())
        {
            return Poll::Ready(Some(Err(axum::Error::new(NoSpaceForBody))));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn team(number: u8) -> TeamId {
        TeamId::from_entropy([number; 16])
    }

    #[test]
    fn one_team_leaves_a_third_to_others_and_what_is_over_is_given_back() {
        let calls = Calls::new(InFlight {
            calls: 30,
            bytes: 30,
        });
        let mut under_way = Vec::new();
        while let Some(call) = calls.begin(team(1)) {
            under_way.push(call);
        }
        assert_eq!(under_way.len(), 20);
        let other = calls.begin(team(2)).unwrap();
        assert!(under_way[0].hold(15) && under_way[1].hold(5));
        assert!(!under_way[2].hold(1));
        assert!(under_way[2].refusal().is_some() && under_way[0].refusal().is_none());
        assert!(other.hold(6));
        under_way[0].let_go();
        assert!(under_way[2].hold(1));
        drop((under_way, other));
        assert!(calls.calls.lock().by_team.is_empty());
        assert_eq!(calls.bytes.lock().taken, 0);
    }

    #[test]
    fn one_large_body_fits_when_there_is_room_for_it() {
        let calls = Calls::new(InFlight {
            calls: 3,
            bytes: 30,
        });
        let first = calls.begin(team(1)).unwrap();
        assert!(first.hold(28));
        assert!(!calls.begin(team(2)).unwrap().hold(3));
        assert!(!first.hold(1));
    }
}
