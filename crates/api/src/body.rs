//! Bodies, read within a limit and with mistakes named by their place.

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ApiError;

/// A JSON body. None at all is read as `{}`, because some calls have only optional fields.
#[derive(Debug)]
pub(crate) struct JsonBody<T> {
    /// What was read.
    pub(crate) value: T,
    /// The bytes it was read from.
    pub(crate) bytes: Bytes,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = whole(request, state).await?;
        Ok(Self {
            value: parse_object(&bytes)?,
            bytes,
        })
    }
}

/// A JSON body that may be a list as well as an object.
#[derive(Debug)]
pub(crate) struct AnyJson(pub(crate) Value);

impl<S: Send + Sync> FromRequest<S> for AnyJson {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        parse(&whole(request, state).await?).map(Self)
    }
}

async fn whole<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    let bytes = Bytes::from_request(request, state).await;
    bytes.map_err(|refused| ApiError::new(refused.status(), refused.body_text()))
}

/// An object alone: a list would be read as its fields, in their order.
fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::invalid("the body: must be an object"));
    }
    parse(bytes)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let text: &[u8] = if bytes.trim_ascii().is_empty() {
        b"{}"
    } else {
        bytes
    };
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." {
            "the body".to_owned()
        } else {
            format!("`{path}`")
        };
        ApiError::invalid(format_args!("{place}: {}", error.inner()))
    })?;
    json.end()
        .map_err(|error| ApiError::invalid(format_args!("the body: {error}")))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Outer {
        inner: Option<Inner>,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Inner {
        #[expect(dead_code, reason = "only its type is tested")]
        number: u32,
    }

    #[test]
    fn a_mistake_is_named_by_its_place() {
        let error = parse::<Outer>(br#"{"inner":{"number":"x"}}"#).unwrap_err();
        let text = format!("{error:?}");
        assert!(
            text.contains("validation error: `inner.number`: invalid type"),
            "{text}"
        );
        assert!(parse::<Outer>(b"").unwrap().inner.is_none());
        for bad in [&b"[]"[..], b"{", b"{} x", b"\xff"] {
            assert!(parse_object::<Outer>(bad).is_err());
        }
    }
}
