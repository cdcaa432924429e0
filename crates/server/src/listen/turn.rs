//! Whose turn it is on a connection, and for how long the client is waited for.

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

/// Whose turn it is to speak on a connection of HTTP/1.1.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn(Arc<Mutex<Speaker>>);

#[derive(Debug, Default)]
struct Speaker {
    whose: Whose,
    is_http2: bool,
    /// How many requests there have been.
    exchanges: u64,
    /// How many of them are not done yet.
    under_way: usize,
    /// When the last of them was done, or HTTP/2 began.
    rests_since: Option<Instant>,
    /// Whether a stream of HTTP/2 was made a tunnel, which is no request any more.
    has_tunnel: bool,
}

impl Speaker {
    /// Since when nothing is under way on the connection.
    fn rests_since(&self) -> Option<Instant> {
        self.rests_since
            .filter(|_| self.under_way == 0 && !self.has_tunnel)
    }
}

/// How long clients are waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rests {
    /// For the first request on a connection of HTTP/2.
    pub(super) first: Duration,
    /// For each that follows.
    pub(super) idle: Duration,
    /// For the next request on any connection, when others wait for its place.
    pub(super) crowded: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Whose {
    /// The client's, and it has not begun.
    #[default]
    Clients,
    /// The client's, and it is in the middle of a head.
    Head,
    /// The server's, or the rest of a request's body is still on its way.
    Servers,
    /// Nobody's in particular: it is no HTTP/1.1, or not any more.
    Nobodys,
}

impl Turn {
    pub(super) fn get(&self) -> Whose {
        self.0.lock().whose
    }

    pub(super) fn is_clients(&self) -> bool {
        self.get() == Whose::Clients
    }

    pub(super) fn begin(&self) {
        let mut speaker = self.0.lock();
        if speaker.whose == Whose::Clients {
            speaker.whose = Whose::Head;
        }
    }

    pub(super) fn give_up(&self) {
        self.0.lock().whose = Whose::Nobodys;
    }

    pub(super) fn speak_http2(&self) {
        let mut speaker = self.0.lock();
        speaker.whose = Whose::Nobodys;
        speaker.is_http2 = true;
        speaker.rests_since = Some(Instant::now());
    }

    /// Ends when the client has been waited for long enough. Of HTTP/1.1 the connection has bounds of
    /// its own, and ends here only when places are scarce, which `scarce` says.
    pub(super) async fn overstayed(&self, rests: Rests, scarce: &Notify) {
        // By then it is known what the client speaks.
        let mut look = Some(Instant::now() + rests.first);
        loop {
            let looked = async {
                match look {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let is_scarce = tokio::select! {
                () = looked => false,
                () = scarce.notified() => true,
            };
            let speaker = self.0.lock();
            let rested = |long: Duration| {
                let since = speaker.rests_since();
                since.is_some_and(|since| since.elapsed() >= long)
            };
            if is_scarce {
                if rested(rests.crowded) {
                    return;
                }
                continue;
            }
            if !speaker.is_http2 || speaker.has_tunnel {
                look = None;
                continue;
            }
            let most = if speaker.exchanges == 0 {
                rests.first
            } else {
                rests.idle
            };
            if rested(most) {
                return;
            }
            let since = speaker.rests_since().unwrap_or_else(Instant::now);
            look = Some(since + most);
        }
    }

    /// A head has been read to its end. It is the client's turn again when all that is returned is
    /// gone: the body of the request has one, and its answer another.
    pub(super) fn answering(&self, method: &Method) -> Exchange {
        let mut speaker = self.0.lock();
        if speaker.whose != Whose::Nobodys {
            speaker.whose = Whose::Servers;
        }
        speaker.has_tunnel |= method == Method::CONNECT;
        speaker.exchanges += 1;
        speaker.under_way += 1;
        Exchange(Arc::new(UnderWay {
            turn: self.clone(),
            number: speaker.exchanges,
        }))
    }
}

/// A request whose body, or whose answer, is not done yet.
#[derive(Debug, Clone)]
pub(super) struct Exchange(Arc<UnderWay>);

#[derive(Debug)]
struct UnderWay {
    turn: Turn,
    number: u64,
}

impl Exchange {
    /// Lets the request be under way until all of the answer has been sent.
    pub(super) fn until_sent(self, answer: Response<Body>) -> Response<Body> {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.0.turn.give_up();
            return answer;
        }
        answer.map(|inner| {
            Body::new(Answered {
                inner,
                _exchange: self,
            })
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut speaker = self.turn.0.lock();
        speaker.under_way -= 1;
        if speaker.under_way == 0 {
            speaker.rests_since = Some(Instant::now());
        }
        // Whoever holds on to a body for too long says nothing of the next request.
        if speaker.whose == Whose::Servers && speaker.exchanges == self.number {
            speaker.whose = Whose::Clients;
        }
    }
}

/// The body of an answer, behind which it is the client's turn.
#[derive(Debug)]
struct Answered {
    inner: Body,
    _exchange: Exchange,
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

    const PATIENCE: Duration = Duration::from_secs(5);
    const RESTS: Rests = Rests {
        first: PATIENCE,
        idle: Duration::from_secs(600),
        crowded: PATIENCE,
    };

    #[tokio::test(start_paused = true)]
    async fn a_client_that_rests_makes_room_when_places_are_scarce() {
        let (turn, scarce) = (Turn::default(), Notify::new());
        let mut overstayed = std::pin::pin!(turn.overstayed(RESTS, &scarce));
        let exchange = turn.answering(&Method::GET);
        let soon = Duration::from_secs(20);
        timeout(soon, &mut overstayed).await.unwrap_err();
        scarce.notify_waiters();
        timeout(soon, &mut overstayed).await.unwrap_err();
        drop(exchange);
        // It has only just been answered.
        scarce.notify_waiters();
        timeout(soon, &mut overstayed).await.unwrap_err();
        scarce.notify_waiters();
        timeout(soon, &mut overstayed).await.unwrap();
    }

    #[test]
    fn the_turn_is_the_clients_when_body_and_answer_are_done() {
        let turn = Turn::default();
        turn.begin();
        let body = turn.answering(&Method::GET);
        drop(body.clone().until_sent(Response::default()));
        assert!(!turn.is_clients());
        drop(body);
        assert!(turn.is_clients());
        // A body that is kept too long is of a request that is over.
        let late = turn.answering(&Method::GET);
        let next = turn.answering(&Method::GET);
        drop(late);
        assert!(!turn.is_clients());
        drop(next);
        assert!(turn.is_clients());
    }
}
