//! The gateway's own answers to requests to previews. They name neither the session nor its machine.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, REFRESH, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use super::{AnswerForm, Refusal, html};

/// When a page looks again whether the server answers.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// When to try again a session that only its user starts.
const LATER: Duration = Duration::from_secs(60);

/// Why a request does not reach the server of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unreached {
    /// There is no such preview.
    Unknown,
    /// The session has no machine, and requests start none.
    Asleep,
    /// Its machine starts.
    Waking,
    /// The session has no machine, and requests start none for so long.
    Resting(Duration),
    /// The request does not reach its machine.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Whether a page looks again.
        looks_again: bool,
    },
}

impl Unreached {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Asleep | Self::Waking | Self::Resting(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Refused { refusal, .. } => refusal.status(),
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Unknown => "Not Found",
            Self::Asleep | Self::Resting(_) => "The Session Sleeps",
            Self::Waking => "The Session Wakes",
            Self::Refused { .. } => "No Answer",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Unknown => "Not found".to_owned(),
            Self::Asleep => {
                "The session sleeps: the next command in it starts its machine".to_owned()
            }
            Self::Waking => "The machine of the session starts: try again".to_owned(),
            Self::Resting(_) => "The session sleeps: requests have started its machine too often. \
                                 A command in it starts it at once"
                .to_owned(),
            Self::Refused {
                refusal: Refusal::PortClosed,
                ..
            } => "The session is awake, but no server in it listens on port 8080".to_owned(),
            Self::Refused { refusal, .. } => refusal.message(),
        }
    }

    /// The headers with times: when to try again, and when a page does so by itself.
    fn times(&self) -> [Option<(HeaderName, Duration)>; 2] {
        let again = |time| Some((RETRY_AFTER, time));
        match self {
            Self::Asleep => [again(LATER), None],
            Self::Waking => [again(LOOK_AGAIN), Some((REFRESH, LOOK_AGAIN))],
            Self::Resting(time) => [again(*time), None],
            Self::Refused {
                looks_again: true, ..
            } => [again(LOOK_AGAIN), Some((REFRESH, LOOK_AGAIN))],
            Self::Unknown | Self::Refused { .. } => [None, None],
        }
    }

    /// The answer to a request with these headers.
    pub(crate) fn answer(&self, form: AnswerForm) -> Response<Bytes> {
        let (kind, body) = if *self == Self::Unknown {
            ("text/plain; charset=utf-8", self.message())
        } else if form == AnswerForm::Page {
            let text = self.message() + ".";
            ("text/html; charset=utf-8", html(self.title(), &text))
        } else {
            let body = json!({"message": self.message(), "code": self.status().as_u16()});
            ("application/json; charset=utf-8", body.to_string())
        };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, time) in self.times().into_iter().flatten() {
            let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
            headers.insert(name, seconds.into());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, USER_AGENT};

    use http::HeaderMap;

    use super::*;

    fn answer(unreached: &Unreached, accept: &'static str) -> (Response<Bytes>, String) {
        let mut asked = HeaderMap::new();
        let agent = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
        asked.insert(USER_AGENT, HeaderValue::from_static(agent));
        asked.insert(ACCEPT, HeaderValue::from_static(accept));
        let response = unreached.answer(AnswerForm::of(&asked));
        let body = String::from_utf8(response.body().to_vec()).unwrap();
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        (response, body)
    }

    #[test]
    fn a_sleeping_session_says_so_and_when_to_come_again() {
        let day = Duration::from_millis(86_399_500);
        for (unreached, words, retry, refresh) in [
            (
                Unreached::Asleep,
                "the next command in it starts",
                "60",
                None,
            ),
            (Unreached::Waking, "starts: try again", "2", Some("2")),
            (Unreached::Resting(day), "too often", "86400", None),
        ] {
            for (accept, kind) in [
                ("text/html", "text/html"),
                ("application/json", "application/json"),
            ] {
                let (response, body) = answer(&unreached, accept);
                assert_eq!(response.status(), 503);
                let headers = response.headers();
                assert!(headers[CONTENT_TYPE].to_str().unwrap().starts_with(kind));
                assert!(body.contains(words), "{body}");
                assert_eq!(headers[RETRY_AFTER], retry);
                assert_eq!(headers.get(REFRESH).map(|v| v.to_str().unwrap()), refresh);
            }
        }
    }

    #[test]
    fn a_closed_port_is_looked_at_again_only_when_requests_wake_the_session() {
        for looks_again in [true, false] {
            let refusal = Refusal::PortClosed;
            let closed = Unreached::Refused {
                refusal,
                looks_again,
            };
            let (response, body) = answer(&closed, "text/html");
            assert_eq!(response.status(), 502);
            assert!(body.contains("no server in it listens on port 8080"));
            assert_eq!(response.headers().contains_key(REFRESH), looks_again);
        }
    }

    #[test]
    fn what_does_not_exist_has_one_answer_for_everybody() {
        let (page, _) = answer(&Unreached::Unknown, "text/html");
        let (json, _) = answer(&Unreached::Unknown, "application/json");
        assert_eq!(page.status(), 404);
        assert_eq!((page.headers(), page.body()), (json.headers(), json.body()));
        assert_eq!(page.body(), "Not found");
    }
}
