//! URL queries, with errors in the format of all other errors.

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// The parsed query of a URL.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        match read {
            Ok(axum::extract::Query(query)) => Ok(Self(query)),
            Err(refused) => Err(ApiError::invalid(refused.body_text())),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use http::{Request, StatusCode};

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Range {
        start: Option<i64>,
    }

    async fn read(uri: &str) -> Result<Query<Range>, ApiError> {
        let (mut parts, ()) = Request::builder().uri(uri).body(()).unwrap().into_parts();
        Query::from_request_parts(&mut parts, &()).await
    }

    #[tokio::test]
    async fn a_mistake_has_a_body_like_any_other() {
        assert_eq!(read("/x?start=5&more=1").await.unwrap().0.start, Some(5));
        assert_eq!(read("/x").await.unwrap().0.start, None);
        let refused = read("/x?start=soon").await.unwrap_err().into_response();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        assert_eq!(refused.headers()["content-type"], "application/json");
    }
}
