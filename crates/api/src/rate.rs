//! Rate limits per team and route. Off unless configured.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use shoal_core::auth::Principal;
use shoal_core::id::TeamId;

use crate::error::ApiError;

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// A number of calls per time, for each team and route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// The number.
    pub calls: NonZeroU32,
    /// The time.
    pub per: Duration,
}

type Key = (TeamId, Arc<str>);
type Limiter = RateLimiter<Key, DashMapStateStore<Key>, DefaultClock, StateInformationMiddleware>;

/// The calls of all teams.
#[derive(Clone)]
pub(crate) struct Rates {
    limit: RateLimit,
    limiter: Arc<Limiter>,
}

impl Rates {
    /// `None` for a limit of zero.
    pub(crate) fn new(limit: RateLimit) -> Option<Self> {
        let quota = Quota::with_period(limit.per / limit.calls.get())?.allow_burst(limit.calls);
        let limiter = RateLimiter::dashmap(quota).with_middleware();
        Some(Self {
            limit,
            limiter: Arc::new(limiter),
        })
    }

    fn headers(&self, remaining: u32, reset: Duration) -> HeaderMap {
        let seconds = reset.as_secs() + u64::from(reset.subsec_nanos() > 0);
        HeaderMap::from_iter([
            (LIMIT, HeaderValue::from(self.limit.calls.get())),
            (REMAINING, HeaderValue::from(remaining)),
            (RESET, HeaderValue::from(seconds)),
        ])
    }
}

/// Counts the call, and refuses it if there were too many.
pub(crate) async fn limit(State(rates): State<Rates>, request: Request, next: Next) -> Response {
    let principal = request.extensions().get::<Principal>();
    let route = request.extensions().get::<MatchedPath>();
    let (Some(principal), Some(route)) = (principal, route) else {
        return next.run(request).await;
    };
    let key: Key = (principal.team, route.as_str().into());
    let (headers, mut response) = match rates.limiter.check_key(&key) {
        Ok(state) => {
            let used = rates
                .limit
                .calls
                .get()
                .saturating_sub(state.remaining_burst_capacity());
            let reset = rates.limit.per / rates.limit.calls.get() * used;
            let headers = rates.headers(state.remaining_burst_capacity(), reset);
            (headers, next.run(request).await)
        }
        Err(refused) => {
            let wait = refused.wait_time_from(DefaultClock::default().now());
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded")
                .with_retry_after(wait.as_secs().saturating_add(1));
            (rates.headers(0, wait), error.into_response())
        }
    };
    response.headers_mut().extend(headers);
    response
}
