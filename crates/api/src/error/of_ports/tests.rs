//! Tests of the statuses.

use shoal_core::detail::HostDetail;
use shoal_core::ports::create::CreateError;

use super::*;

fn silent() -> InsideError {
    InsideError::Unreachable("no answer".to_owned())
}

fn step() -> DriverError {
    DriverError::Step {
        step: "start",
        detail: HostDetail::new("exit status 1"),
    }
}

#[test]
fn only_a_create_fails_as_a_create() {
    let code = |error: ApiError| {
        let body = error.body();
        (error.status().as_u16(), body["error_code"].clone())
    };
    let resumed = code(SandboxError::NotResumed(silent()).into());
    assert_eq!(resumed, (500, "sandbox_resume_failed".into()));
    let inside = code(SandboxError::Guest(silent()).into());
    assert_eq!(inside, (502, serde_json::Value::Null));
    let saved = code(SandboxError::Driver(step()).into());
    assert_eq!(saved, (500, "internal_server_error".into()));
    for error in [CreateError::Guest(silent()), CreateError::Driver(step())] {
        assert_eq!(code(error.into()), (500, "sandbox_create_failed".into()));
    }
}

#[test]
fn a_storage_that_does_not_answer_is_tried_again() {
    let away = StoreError::Unavailable(HostDetail::new("http://10.0.0.1/files: refused"));
    let response = axum::response::IntoResponse::into_response(ApiError::from(away));
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
}
