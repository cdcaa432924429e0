//! Timeouts of calls.

use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use tokio::time::timeout;

use crate::error::ApiError;

/// Responds with a timeout for routes that take longer than `time`. The operation may continue: a
/// sandbox that was requested is still created, and lives until its deadline.
pub(crate) fn within<S>(time: Duration, routes: Router<S>) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    routes.layer(from_fn_with_state(time, answer_in_time))
}

async fn answer_in_time(State(time): State<Duration>, request: Request, next: Next) -> Response {
    let answer = timeout(time, next.run(request)).await;
    answer.unwrap_or_else(|_| {
        let seconds = time.as_secs();
        let message = format!(
            "the call was not answered within {seconds} s: its work may continue, so look before \
             you try again"
        );
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, message).into_response()
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_call_that_takes_too_long_is_answered_with_an_error_of_the_api() {
        let slow = Router::new().fallback(std::future::pending::<StatusCode>);
        let fast = Router::new().fallback(async || "done");
        let ask = async |routes| {
            let routes = within(Duration::from_millis(20), routes);
            let request = Request::get("/").body(Body::empty()).unwrap();
            let answer = routes.oneshot(request).await.unwrap();
            let status = answer.status();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8_lossy(&body).into_owned())
        };
        assert_eq!(ask(fast).await, (StatusCode::OK, "done".to_owned()));
        let (status, text) = ask(slow).await;
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
        assert!(text.starts_with(r#"{"code":504,"message":"#), "{text}");
    }
}
