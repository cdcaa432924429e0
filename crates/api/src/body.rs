//! Request bodies: bounded, with errors that name the position.

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ApiError;
use crate::in_flight::Call;

/// A JSON body. An empty one is parsed as `{}`, because some calls have only optional fields.
#[derive(Debug)]
pub(crate) struct JsonBody<T> {
    /// The parsed value.
    pub(crate) value: T,
    /// Its bytes.
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

/// A required JSON object: an empty or blank body is refused. For calls that replace something,
/// where an omitted field clears it.
#[derive(Debug)]
pub(crate) struct RequiredBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for RequiredBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = whole(request, state).await?;
        if bytes.trim_ascii().is_empty() {
            return Err(ApiError::invalid("the body: must be an object"));
        }
        parse_object(&bytes).map(Self)
    }
}

/// A required JSON object with a secret in it. An error says nothing of what the body contains.
pub(crate) struct QuietBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for QuietBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = whole(request, state).await?;
        // Serde would take a list for fields in their order.
        let is_object = bytes.trim_ascii_start().starts_with(b"{");
        let parsed = is_object.then(|| serde_json::from_slice(&bytes).ok());
        parsed.flatten().map(Self).ok_or_else(|| {
            ApiError::invalid("the body: must be an object with the documented fields")
        })
    }
}

/// A JSON body that may be a list or an object.
#[derive(Debug)]
pub(crate) struct AnyJson(pub(crate) Value);

impl<S: Send + Sync> FromRequest<S> for AnyJson {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        parse(&whole(request, state).await?).map(Self)
    }
}

/// A body of text.
#[derive(Debug)]
pub(crate) struct TextBody(pub(crate) String);

impl<S: Send + Sync> FromRequest<S> for TextBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = whole(request, state).await?;
        let text = String::from_utf8(bytes.to_vec());
        let text = text.map_err(|_| ApiError::invalid("the body: must be UTF-8"));
        text.map(Self)
    }
}

async fn whole<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    let call = request.extensions().get::<Call>().cloned();
    let request = match &call {
        Some(call) => request.map(|body| call.counted(body)),
        None => request,
    };
    let bytes = Bytes::from_request(request, state).await;
    bytes.map_err(|refused| {
        let for_want_of_room = call.as_ref().and_then(Call::refusal);
        for_want_of_room.unwrap_or_else(|| ApiError::new(refused.status(), refused.body_text()))
    })
}

/// Parses only objects: serde would parse a list as fields in their order.
fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::invalid("the body: must be an object"));
    }
    parse(bytes)
}

/// The maximum number of values in one body. Each takes many times the memory of its text, and no
/// call needs nearly as many.
const VALUES_MAX: usize = 100_000;

/// Whether a text has too many values, determined without parsing them: every value of a list or
/// object except the first follows a comma.
fn has_too_many_values(text: &[u8]) -> bool {
    let (mut values, mut in_string, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values > VALUES_MAX
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    if bytes.len() > VALUES_MAX && has_too_many_values(bytes) {
        return Err(ApiError::invalid(format_args!(
            "the body: more than {VALUES_MAX} values"
        )));
    }
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
    fn values_are_counted_before_they_are_kept() {
        let many = |value: &str| format!("[{}]", vec![value; VALUES_MAX + 1].join(","));
        for bomb in [many("{}"), many("1"), many("[]"), many("\"\"")] {
            let refused = parse::<Value>(bomb.as_bytes()).unwrap_err();
            assert!(format!("{refused:?}").contains("more than 100000 values"));
        }
        let nested = format!(r#"{{"a":{}}}"#, many(r#"{"b":[]}"#));
        assert!(has_too_many_values(nested.as_bytes()));
        // Commas within strings separate no values.
        let long = serde_json::json!({"command": r#"[{,"\,[{,"#.repeat(50_000)}).to_string();
        assert!(!has_too_many_values(long.as_bytes()));
        assert!(parse::<Value>(long.as_bytes()).is_ok());
    }

    #[tokio::test]
    async fn r2_104_an_error_of_a_body_with_a_secret_says_nothing_of_it() {
        for bad in [
            "hunter2",
            "\"hunter2\"",
            r#"{"hunter2":1}"#,
            r#"{"inner":"hunter2"}"#,
            "",
        ] {
            let request = Request::new(axum::body::Body::from(bad));
            let Err(refused) = QuietBody::<Outer>::from_request(request, &()).await else {
                assert!(bad.contains(":1"), "{bad}");
                continue;
            };
            assert!(!format!("{refused:?}").contains("hunter2"), "{refused:?}");
        }
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
