//! The phase of a connection, and its idle timeouts.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::{Method, Response, StatusCode};
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The phase of a connection, shared between its stream, its requests and their answers.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnPhase(Arc<Mutex<Phases>>);

#[derive(Debug, Default)]
struct Phases {
    phase: Phase,
    is_http2: bool,
    /// The number of requests so far.
    requests: u64,
    /// The number of running requests.
    running: usize,
    /// When the last request ended, or HTTP/2 began.
    idle_since: Option<Instant>,
    /// Whether an HTTP/2 stream became a tunnel, which no longer counts as a request.
    has_tunnel: bool,
}

impl Phases {
    /// Since when the connection is idle.
    fn idle_since(&self) -> Option<Instant> {
        self.idle_since
            .filter(|_| self.running == 0 && !self.has_tunnel)
    }
}

/// Idle timeouts.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleTimeouts {
    /// Before the first request on HTTP/2.
    pub(super) first: Duration,
    /// Between requests on HTTP/2.
    pub(super) idle: Duration,
    /// On any connection while other clients wait for one.
    pub(super) crowded: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// Waiting for a request.
    #[default]
    AwaitsRequest,
    /// In the middle of a request head.
    ReadsHead,
    /// Answering, or receiving the rest of a request body.
    Answers,
    /// HTTP/2 or an upgraded connection: other bounds apply.
    Untimed,
}

impl ConnPhase {
    pub(super) fn get(&self) -> Phase {
        self.0.lock().phase
    }

    pub(super) fn awaits_request(&self) -> bool {
        self.get() == Phase::AwaitsRequest
    }

    /// Whether no request runs or has begun to arrive.
    pub(super) fn is_idle(&self) -> bool {
        let phases = self.0.lock();
        phases.idle_since().is_some() && phases.phase != Phase::ReadsHead
    }

    pub(super) fn head_begins(&self) {
        let mut phases = self.0.lock();
        if phases.phase == Phase::AwaitsRequest {
            phases.phase = Phase::ReadsHead;
        }
    }

    pub(super) fn upgraded(&self) {
        self.0.lock().phase = Phase::Untimed;
    }

    pub(super) fn became_http2(&self) {
        let mut phases = self.0.lock();
        phases.phase = Phase::Untimed;
        phases.is_http2 = true;
        phases.idle_since = Some(Instant::now());
    }

    /// Resolves when the connection has been idle for too long. HTTP/1.1 has hyper's idle timeout, and
    /// ends here only when `crowding` is notified: other clients wait for a connection.
    pub(super) async fn idle_too_long(&self, limits: IdleTimeouts, crowding: &Notify) {
        // The protocol is known by then.
        let mut next_check = Some(Instant::now() + limits.first);
        loop {
            let due = async {
                match next_check {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let is_crowded = tokio::select! {
                () = due => false,
                () = crowding.notified() => true,
            };
            let phases = self.0.lock();
            let idle_for = |long: Duration| {
                let since = phases.idle_since();
                since.is_some_and(|since| since.elapsed() >= long)
            };
            if is_crowded {
                if idle_for(limits.crowded) {
                    return;
                }
                continue;
            }
            if !phases.is_http2 || phases.has_tunnel {
                next_check = None;
                continue;
            }
            let most = if phases.requests == 0 {
                limits.first
            } else {
                limits.idle
            };
            if idle_for(most) {
                return;
            }
            let since = phases.idle_since().unwrap_or_else(Instant::now);
            next_check = Some(since + most);
        }
    }

    /// A head is complete. The connection waits for the next request when all clones of the guard are
    /// dropped: the request body holds one, the answer another.
    pub(super) fn answering(&self, method: &Method) -> RequestGuard {
        let mut phases = self.0.lock();
        if phases.phase != Phase::Untimed {
            phases.phase = Phase::Answers;
        }
        phases.has_tunnel |= method == Method::CONNECT;
        phases.requests += 1;
        phases.running += 1;
        RequestGuard(Arc::new(Running {
            phase: self.clone(),
            number: phases.requests,
        }))
    }
}

/// A request phase body or answer is not complete yet.
#[derive(Debug, Clone)]
pub(super) struct RequestGuard(Arc<Running>);

#[derive(Debug)]
struct Running {
    phase: ConnPhase,
    number: u64,
}

impl RequestGuard {
    /// Keeps the guard until the answer has been sent.
    pub(super) fn until_sent(self, answer: Response<Body>) -> Response<Body> {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.0.phase.upgraded();
            return answer;
        }
        answer.map(|inner| {
            Body::new(Answered {
                inner,
                _guard: self,
            })
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut phases = self.phase.0.lock();
        phases.running -= 1;
        if phases.running == 0 {
            phases.idle_since = Some(Instant::now());
        }
        // A body that was kept too long must not affect the next request.
        if phases.phase == Phase::Answers && phases.requests == self.number {
            phases.phase = Phase::AwaitsRequest;
        }
    }
}

/// The body of an answer, with the guard of its request.
#[derive(Debug)]
struct Answered {
    inner: Body,
    _guard: RequestGuard,
}

impl hyper::body::Body for Answered {
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

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const FIRST: Duration = Duration::from_secs(5);
    const IDLE: IdleTimeouts = IdleTimeouts {
        first: FIRST,
        idle: Duration::from_secs(600),
        crowded: FIRST,
    };

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_closes_when_others_wait() {
        let (phase, crowding) = (ConnPhase::default(), Notify::new());
        let mut idle_too_long = std::pin::pin!(phase.idle_too_long(IDLE, &crowding));
        let guard = phase.answering(&Method::GET);
        let soon = Duration::from_secs(20);
        timeout(soon, &mut idle_too_long).await.unwrap_err();
        crowding.notify_waiters();
        timeout(soon, &mut idle_too_long).await.unwrap_err();
        drop(guard);
        // Its answer was sent just now.
        crowding.notify_waiters();
        timeout(soon, &mut idle_too_long).await.unwrap_err();
        crowding.notify_waiters();
        timeout(soon, &mut idle_too_long).await.unwrap();
    }

    #[test]
    fn a_connection_waits_for_a_request_when_body_and_answer_are_complete() {
        let phase = ConnPhase::default();
        phase.head_begins();
        let body = phase.answering(&Method::GET);
        drop(body.clone().until_sent(Response::default()));
        assert!(!phase.awaits_request());
        drop(body);
        assert!(phase.awaits_request());
        // A body that was kept too long belongs to a finished request.
        let late = phase.answering(&Method::GET);
        let next = phase.answering(&Method::GET);
        drop(late);
        assert!(!phase.awaits_request());
        drop(next);
        assert!(phase.awaits_request());
    }
}
