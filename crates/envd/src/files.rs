//! File contents over plain HTTP.
//!
//! Bodies are streamed in both directions, with a few pieces in memory at a time. Disk access runs
//! on the blocking pool.

use std::sync::Arc;

use http::header::HeaderMap;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use shoal_protocol::headers::ACCESS_TOKEN;
use shoal_protocol::signature::{self, Claim, InvalidSignature, Operation};
use tokio::sync::Semaphore;

use crate::auth::{AuthPolicy, UNAUTHORIZED_MESSAGE};
use crate::clock::unix_now;
use crate::heap::HeapTrimmer;
use crate::log::Log;
use crate::path::InvalidPath;
use crate::query;
use crate::response::{self, HttpResponse};
use crate::server::Peer;
use crate::settings::Settings;
use crate::user::{User, Users};

mod compose;
mod conditions;
mod confined;
mod disposition;
mod download;
mod encoding;
mod kind;
mod multipart;
mod range;
mod target;
mod upload;

pub(crate) use confined::locate;
pub(crate) use download::file_body;
pub(crate) use upload::{Pieces, drain, forward};

/// Limit of concurrent uploads and compositions, each of which holds a thread; others wait.
const MAX_WRITERS: usize = 64;

/// A failed file request.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct RequestError {
    status: StatusCode,
    message: String,
}

impl RequestError {
    /// An error with this status.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// An error of the caller.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The error of work that the end of the daemon interrupts.
    pub(crate) fn shutting_down() -> Self {
        let message = "the daemon is shutting down";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// The status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Converts to an error response.
    pub(crate) fn into_answer(self) -> HttpResponse {
        response::error(self.status, self.message)
    }
}

impl From<InvalidPath> for RequestError {
    fn from(error: InvalidPath) -> Self {
        Self::bad_request(format!("error resolving path: {error}"))
    }
}

impl From<InvalidSignature> for RequestError {
    fn from(error: InvalidSignature) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, error.to_string())
    }
}

/// Serves `/files` and subpaths.
pub(crate) struct Files {
    settings: Arc<Settings>,
    users: Arc<Users>,
    log: Log,
    writers: Arc<Semaphore>,
    heap: Arc<HeapTrimmer>,
}

/// Query parameters of a file request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parameters {
    path: Option<String>,
    username: Option<String>,
    signature: Option<String>,
    expiration: Option<i64>,
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, RequestError> {
        let text = |name| query::value(query, name).map(|value| value.into_owned());
        let expiration = text("signature_expiration").map(|seconds| {
            signature::parse_expiration(&seconds).ok_or_else(|| {
                RequestError::bad_request("signature_expiration is not a number of seconds")
            })
        });
        Ok(Self {
            path: text("path"),
            username: text("username"),
            signature: text("signature"),
            expiration: expiration.transpose()?,
        })
    }
}

/// The user and working directory of a request.
#[derive(Debug, Clone)]
struct Actor {
    user: User,
    workdir: Option<Arc<str>>,
}

impl Files {
    /// A service for the files of this sandbox.
    pub(crate) fn new(settings: Arc<Settings>, users: Arc<Users>, log: Log) -> Self {
        Self {
            settings,
            users,
            log,
            writers: Arc::new(Semaphore::new(MAX_WRITERS)),
            heap: Arc::default(),
        }
    }

    /// Handles a request. The router has not checked its token.
    pub(crate) async fn handle(&self, request: Request<Incoming>) -> HttpResponse {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = match (&method, path.as_str()) {
            (&Method::GET, "/files") => {
                self.download(&query, Peer::of(&request), request.headers())
                    .await
            }
            (&Method::POST, "/files") => self.upload(&query, request).await,
            (&Method::POST, "/files/compose") => self.compose(request).await,
            (_, "/files" | "/files/compose") => Err(RequestError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method not allowed",
            )),
            _ => Err(RequestError::new(StatusCode::NOT_FOUND, "not found")),
        };
        let shown = query::value(&query, "path").unwrap_or_default();
        let entry = self.log.debug("files", &format!("{method} {path}"));
        let entry = entry.with("path", shown.into_owned());
        match answer {
            Ok(answer) => {
                entry.with("status", answer.status().as_u16()).send();
                answer
            }
            Err(error) => {
                let entry = entry.with("status", error.status.as_u16());
                entry.with("error", error.message.clone()).send();
                error.into_answer()
            }
        }
    }

    /// Authorises the operation by token or signature.
    fn authorise(
        &self,
        peer: Peer,
        parameters: &Parameters,
        headers: &HeaderMap,
        operation: Operation,
    ) -> Result<(), RequestError> {
        let token = match self.settings.auth_policy(peer) {
            AuthPolicy::Open => return Ok(()),
            AuthPolicy::Locked | AuthPolicy::FirstInit(_) => {
                return Err(RequestError::new(
                    StatusCode::UNAUTHORIZED,
                    UNAUTHORIZED_MESSAGE,
                ));
            }
            AuthPolicy::Token(token) => token,
        };
        if let Some(offered) = headers
            .get(ACCESS_TOKEN)
            .filter(|offered| !offered.is_empty())
        {
            return match token.matches(offered.as_bytes()) {
                true => Ok(()),
                false => Err(RequestError::new(
                    StatusCode::UNAUTHORIZED,
                    "access token present in header but does not match",
                )),
            };
        }
        let claim = Claim {
            path: parameters.path.as_deref().unwrap_or_default(),
            operation,
            username: parameters.username.as_deref().unwrap_or_default(),
            expiration: parameters.expiration,
        };
        let signature = parameters.signature.as_deref();
        Ok(signature::verify(
            &claim,
            token.reveal(),
            signature,
            unix_now(),
        )?)
    }

    /// The user of this name, or the default user.
    fn actor(&self, username: Option<&str>) -> Result<Actor, RequestError> {
        let defaults = self.settings.defaults();
        let name = username.unwrap_or(&defaults.user);
        if username.is_none() && name.is_empty() {
            return Err(RequestError::bad_request("username not provided"));
        }
        let directory = self.users.directory();
        let user = directory.user(name).ok_or_else(|| {
            let message = format!("error looking up user '{name}': unknown user");
            RequestError::new(StatusCode::UNAUTHORIZED, message)
        })?;
        Ok(Actor {
            user: user.clone(),
            workdir: defaults.workdir,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read() {
        let parameters =
            Parameters::parse("path=a&username=u&signature=s&signature_expiration=-5").unwrap();
        assert_eq!(parameters.path.as_deref(), Some("a"));
        assert_eq!(parameters.username.as_deref(), Some("u"));
        assert_eq!(parameters.signature.as_deref(), Some("s"));
        assert_eq!(parameters.expiration, Some(-5));
        assert_eq!(Parameters::parse("").unwrap(), Parameters::default());
        for bad in ["soon", "%2B5", "+5", "05", "5%20", ""] {
            let query = format!("signature_expiration={bad}");
            assert!(Parameters::parse(&query).is_err(), "{bad}");
        }
    }
}
