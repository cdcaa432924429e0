//! Server-sent events: a stream of what happens while a client reads.
//!
//! It begins with `ready`, once the subscription exists. A client that was too slow, or reconnects, gets `lagged`: events
//! are not repeated, so it has to read the current state again. The number of subscriptions is bounded where they are made;
//! the stream buffers no more than the connection takes.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::config::ApiConfig;
#[cfg(test)]
use crate::openapi::operation::RequestHeader;

/// The interval of comments that keep a connection open. Proxies close silent ones after 30 seconds or more.
const ALIVE: Duration = Duration::from_secs(15);

/// The header of a reader that comes back.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The same in the OpenAPI document.
#[cfg(test)]
pub(super) const LAST_EVENT: RequestHeader = RequestHeader(
    "Last-Event-ID",
    "Id of the last event of an earlier connection. What came since is not repeated: `lagged` follows.",
);

/// Asks proxies to pass events on at once.
const UNBUFFERED: (HeaderName, HeaderValue) = (
    HeaderName::from_static("x-accel-buffering"),
    HeaderValue::from_static("no"),
);

/// An event of the stream.
pub(super) enum Told<T> {
    /// This happened.
    Event(T),
    /// Some were missed.
    Lagged,
}

/// The reader of a stream.
pub(super) struct Reader {
    /// Whether it had a connection before.
    returns: bool,
    stopping: CancellationToken,
}

impl<S: Send + Sync> FromRequestParts<S> for Reader {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let config = parts.extensions.get::<ApiConfig>();
        Ok(Self {
            returns: parts.headers.contains_key(LAST_EVENT_ID),
            stopping: config
                .map(|config| config.stopping.clone())
                .unwrap_or_default(),
        })
    }
}

impl Reader {
    /// Answers with these events, each named `name`, until they end or the server stops.
    pub(super) fn follow<T: Serialize + Send + 'static>(
        self,
        name: &'static str,
        events: impl Stream<Item = Told<T>> + Send + 'static,
    ) -> Response {
        let lagged = self.returns.then_some(Told::Lagged);
        let events = stream::iter(lagged).chain(events);
        let events = events.enumerate().map(move |(number, told)| {
            let event = Event::default().id((number + 1).to_string());
            match told {
                Told::Event(data) => event.event(name).json_data(data),
                Told::Lagged => Ok(event.event("lagged").data("{}")),
            }
        });
        let first = Event::default().id("0").event("ready").data("{}");
        let events = stream::once(ready(Ok(first))).chain(events);
        let events = events.take_until(self.stopping.cancelled_owned());
        let events = Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE));
        ([UNBUFFERED], events).into_response()
    }
}
