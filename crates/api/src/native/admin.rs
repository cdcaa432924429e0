//! The check for admin keys.

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;
use shoal_core::auth::Principal;

use crate::error::ApiError;

/// A caller with an admin key.
pub(super) struct Admin(pub(super) Principal);

impl<S: Send + Sync> FromRequestParts<S> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        match parts.extensions.get::<Principal>() {
            Some(principal) if principal.admin => Ok(Self(principal.clone())),
            _ => Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "only an admin key may do this",
            )),
        }
    }
}
