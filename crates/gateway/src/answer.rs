//! The gateway's own answers, as JSON or as an HTML page.
//!
//! The texts are E2B's: SDKs and tests compare them.

mod preview;

use bytes::Bytes;
use http::header::{ACCEPT, ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use shoal_core::state::FailReason;

pub(crate) use self::preview::Unreached;
use crate::target::{InvalidTarget, Target};

/// Why a request does not reach a server in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The target is invalid.
    Invalid(InvalidTarget),
    /// The sandbox does not exist or does not run.
    NotFound,
    /// It is paused and is not resumed by traffic.
    Paused,
    /// It failed.
    Failed(FailReason),
    /// Nothing listens on the port.
    PortClosed,
    /// It is changing its state.
    Busy,
    /// It is parked and cannot be woken now.
    NotWoken,
    /// The traffic token is missing.
    TokenMissing,
    /// The traffic token is wrong.
    TokenInvalid,
    /// A path-based URL without a valid credential.
    Unproven,
    /// The credential could not be checked.
    Unknown,
    /// It is paused, and this caller may not wake it.
    MayNotWake,
    /// It is paused, and the quota of running sandboxes is used up.
    QuotaExceeded,
    /// An internal route of the daemon, with the requested path.
    Internal(String),
    /// The sandbox is a session's machine: only its preview port is open.
    OnlyPreview,
    /// A `CONNECT` that does not open a WebSocket.
    Connect,
    /// The sandbox's connection limit, which is reached.
    TooMany(usize),
    /// The sandbox or its team has used up its share of the server's connections.
    Share,
    /// The server cannot open more connections.
    Exhausted,
    /// The server in the sandbox broke the connection before it answered.
    Broken,
    /// The server is stopping.
    Stopping,
}

/// When to try again after a stop, in seconds: a restart takes that long.
const RETRY_AFTER_STOP: HeaderValue = HeaderValue::from_static("5");

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::NotFound | Self::Paused | Self::Failed(_) | Self::PortClosed | Self::Broken => {
                StatusCode::BAD_GATEWAY
            }
            Self::Busy => StatusCode::CONFLICT,
            Self::TokenMissing | Self::TokenInvalid | Self::MayNotWake | Self::OnlyPreview => {
                StatusCode::FORBIDDEN
            }
            Self::Unproven => StatusCode::UNAUTHORIZED,
            Self::Unknown | Self::Exhausted | Self::Stopping | Self::NotWoken => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Internal(_) => StatusCode::NOT_FOUND,
            Self::Connect => StatusCode::NOT_IMPLEMENTED,
            Self::TooMany(_) | Self::Share | Self::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Invalid(invalid) => invalid.to_string(),
            Self::NotFound => "The sandbox was not found".to_owned(),
            // E2B's clients compare the first part; the reason follows.
            Self::Paused => {
                "The sandbox was not found: it is paused. connect resumes it".to_owned()
            }
            Self::Failed(reason) => format!("The sandbox was not found: {reason}"),
            Self::PortClosed => "The sandbox is running but port is not open".to_owned(),
            Self::Busy => "The sandbox is changing its state: try again".to_owned(),
            Self::NotWoken => "The sandbox is parked and cannot be woken: try again".to_owned(),
            Self::TokenMissing => "Sandbox is secured with traffic access token. Token header \
                                   'e2b-traffic-access-token' is missing"
                .to_owned(),
            Self::TokenInvalid => {
                "Sandbox is secured with traffic access token. Provided token in \
                                   header 'e2b-traffic-access-token' is invalid"
                    .to_owned()
            }
            Self::Unproven => "Send a key of the sandbox's team in the header 'X-API-Key', or its \
                               traffic access token in 'e2b-traffic-access-token'"
                .to_owned(),
            Self::Unknown => "The server cannot check the key: try again".to_owned(),
            Self::MayNotWake => {
                "The sandbox is paused, and only a valid access token resumes it".to_owned()
            }
            Self::QuotaExceeded => {
                "The sandbox is paused, and your team has reached its limit of running sandboxes"
                    .to_owned()
            }
            Self::Internal(_) => "Not found".to_owned(),
            Self::OnlyPreview => {
                "The sandbox is the machine of a session: of its ports, only 8080 \
                                  can be reached, by the URL of the session's preview"
                    .to_owned()
            }
            Self::Connect => "CONNECT is only supported for WebSockets over HTTP/2".to_owned(),
            Self::TooMany(limit) => {
                format!("The sandbox has reached its limit of {limit} connections at once")
            }
            Self::Share => "The sandbox, or its team, has used up its share of connections: \
                            close some, or try again"
                .to_owned(),
            Self::Exhausted => {
                "The server has reached its limit of connections to sandboxes: try again".to_owned()
            }
            Self::Broken => "The server in the sandbox broke the connection".to_owned(),
            Self::Stopping => "The server is stopping: try again in a few seconds".to_owned(),
        }
    }

    /// The answer to a request.
    pub(crate) fn answer(&self, form: AnswerForm, target: Option<&Target>) -> Response<Bytes> {
        let (kind, body) = match (self, target) {
            (Self::Invalid(_), _) => ("text/plain; charset=utf-8", self.message()),
            (_, None) => {
                let body = json!({"message": self.message(), "code": self.status().as_u16()});
                ("application/json; charset=utf-8", body.to_string())
            }
            (_, Some(target)) => match self.page(target).filter(|_| form == AnswerForm::Page) {
                Some(page) => ("text/html; charset=utf-8", page),
                None => (
                    "application/json; charset=utf-8",
                    self.json(target).to_string(),
                ),
            },
        };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        if *self == Self::Stopping {
            headers.insert(RETRY_AFTER, RETRY_AFTER_STOP);
        }
        response
    }

    fn json(&self, target: &Target) -> Value {
        let (message, code) = (self.message(), self.status().as_u16());
        let sandbox = target.sandbox.as_str();
        match self {
            Self::Internal(path) => json!({"message": message, "path": path, "code": code}),
            Self::PortClosed => {
                json!({"sandboxId": sandbox, "message": message, "port": target.port, "code": code})
            }
            Self::TooMany(limit) => json!({
                "sandboxId": sandbox, "message": message, "connectionLimit": limit, "code": code
            }),
            _ => json!({"sandboxId": sandbox, "message": message, "code": code}),
        }
    }

    fn page(&self, target: &Target) -> Option<String> {
        let (id, port) = (&target.sandbox, target.port);
        let (title, text) = match self {
            Self::NotFound | Self::Failed(_) => (
                "Sandbox Not Found",
                format!("There is no sandbox <code>{id}</code>, or it no longer runs."),
            ),
            Self::Paused => (
                "Paused Sandbox",
                format!("The sandbox <code>{id}</code> is paused: connect to it to resume it."),
            ),
            Self::PortClosed => (
                "Closed Port",
                format!(
                    "The sandbox <code>{id}</code> runs, but there is no service running on port \
                 <code>{port}</code>."
                ),
            ),
            Self::TokenMissing => (
                "Missing Traffic Access Token",
                format!(
                    "The sandbox <code>{id}</code> is private: send the header \
                 <code>e2b-traffic-access-token</code> to reach port <code>{port}</code>."
                ),
            ),
            Self::TokenInvalid => (
                "Invalid Traffic Access Token",
                format!(
                    "The token that was sent does not open the sandbox <code>{id}</code>, \
                 port <code>{port}</code>."
                ),
            ),
            _ => return None,
        };
        Some(html(title, &text))
    }
}

/// A page for people.
fn html(title: &str, text: &str) -> String {
    format!(
        "<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:15vh auto;\
         padding:0 1em;color:#1c2b33}}h1{{font-size:1.4em}}code{{background:#eef2f4;\
         padding:.1em .3em;border-radius:3px}}</style></head>\
         <body><h1>{title}</h1><p>{text}</p></body></html>"
    )
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerForm {
    /// For a browser that does not request data.
    Page,
    /// For a program.
    Data,
}

impl AnswerForm {
    /// The form that a client with these headers expects.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name| {
            headers
                .get(name)
                .and_then(|v: &HeaderValue| v.to_str().ok())
        };
        let agent = text(USER_AGENT).unwrap_or_default();
        let engine = ["AppleWebKit", "Gecko", "Trident", "Presto", "Blink"];
        let is_browser =
            agent.contains("Mozilla") && engine.iter().any(|name| agent.contains(name));
        let accepts = text(ACCEPT).unwrap_or_default();
        match is_browser && !accepts.contains("json") && !accepts.contains("javascript") {
            true => Self::Page,
            false => Self::Data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";

    fn target() -> Target {
        Target {
            sandbox: "iabc".parse().unwrap(),
            port: 8080,
        }
    }

    fn answer(refusal: &Refusal, agent: &str, accept: &str) -> (StatusCode, String, String) {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_str(agent).unwrap());
        headers.insert(ACCEPT, HeaderValue::from_str(accept).unwrap());
        let response = refusal.answer(AnswerForm::of(&headers), Some(&target()));
        let kind = response.headers()[CONTENT_TYPE]
            .to_str()
            .unwrap()
            .to_owned();
        (
            response.status(),
            kind,
            String::from_utf8(response.body().to_vec()).unwrap(),
        )
    }

    #[test]
    fn programs_get_json_with_e2bs_texts() {
        let (status, kind, body) = answer(&Refusal::NotFound, "python", "*/*");
        assert_eq!(status, 502);
        assert_eq!(kind, "application/json; charset=utf-8");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            body,
            json!({
                "sandboxId": "iabc", "message": "The sandbox was not found", "code": 502
            })
        );
        let failed = Refusal::Failed(FailReason::OutOfMemory);
        let (status, _, body) = answer(&failed, "python", "*/*");
        assert_eq!(status, 502);
        assert!(body.contains("The sandbox was not found: it ran out of memory"));
        let (status, _, body) = answer(&Refusal::Paused, "python", "*/*");
        assert_eq!(status, 502);
        assert!(body.contains("The sandbox was not found: it is paused"));
        let (_, _, body) = answer(&Refusal::PortClosed, "curl", "*/*");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["port"], 8080);
        assert_eq!(
            body["message"],
            "The sandbox is running but port is not open"
        );
    }

    #[test]
    fn people_get_a_page_and_their_scripts_get_json() {
        for (refusal, words) in [
            (Refusal::NotFound, "Sandbox Not Found"),
            (Refusal::PortClosed, "no service running on port"),
            (Refusal::Paused, "connect to it to resume it"),
            (Refusal::TokenMissing, "Missing Traffic Access Token"),
            (Refusal::TokenInvalid, "Invalid Traffic Access Token"),
        ] {
            let (status, kind, body) = answer(&refusal, FIREFOX, "text/html");
            assert_eq!(status, refusal.status());
            assert_eq!(kind, "text/html; charset=utf-8");
            assert!(body.starts_with("<html") && body.ends_with("</html>"));
            assert!(body.contains(words) && body.contains("iabc"), "{body}");
            let (_, kind, _) = answer(&refusal, FIREFOX, "application/json");
            assert_eq!(kind, "application/json; charset=utf-8");
        }
    }

    #[test]
    fn an_invalid_target_gets_plain_text() {
        let refusal = Refusal::Invalid(InvalidTarget::MissingHeader);
        let response = refusal.answer(AnswerForm::Data, None);
        assert_eq!(response.status(), 400);
        assert_eq!(response.body(), "missing header");
    }
}
