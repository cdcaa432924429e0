//! Conditional requests (RFC 9110, section 13) by modification time.
//!
//! Files have no entity tags, as in E2B, so tag conditions match `*` only.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};

/// Result of evaluating the conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Send the file.
    Send,
    /// 304.
    NotModified,
    /// 412.
    PreconditionFailed,
}

/// Whether the request has a range or conditions. These refer to the file's own bytes, not to an
/// encoded form.
pub(super) fn are_set(headers: &HeaderMap) -> bool {
    [RANGE, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE]
        .iter()
        .any(|name| headers.contains_key(name))
}

/// Evaluates the conditions against a modification time.
pub(super) fn evaluate(headers: &HeaderMap, modified: Option<SystemTime>) -> Outcome {
    let modified = modified.and_then(whole_seconds);
    if let Some(tags) = text(headers, &IF_MATCH) {
        if tags.trim() != "*" {
            return Outcome::PreconditionFailed;
        }
    } else if let (Some(since), Some(modified)) = (date(headers, &IF_UNMODIFIED_SINCE), modified)
        && modified > since
    {
        return Outcome::PreconditionFailed;
    }
    if let Some(tags) = text(headers, &IF_NONE_MATCH) {
        if tags.trim() == "*" {
            return Outcome::NotModified;
        }
    } else if let (Some(since), Some(modified)) = (date(headers, &IF_MODIFIED_SINCE), modified)
        && modified <= since
    {
        return Outcome::NotModified;
    }
    Outcome::Send
}

/// The `Range` header, unless `If-Range` shows that the file has changed.
pub(super) fn range(headers: &HeaderMap, modified: Option<SystemTime>) -> Option<&str> {
    let holds = match headers.contains_key(IF_RANGE) {
        false => true,
        true => {
            let since = date(headers, &IF_RANGE);
            since.is_some() && since == modified.and_then(whole_seconds)
        }
    };
    text(headers, &RANGE).filter(|_| holds)
}

/// A time truncated to HTTP's precision of a second.
pub(super) fn whole_seconds(time: SystemTime) -> Option<SystemTime> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since.as_secs()))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, name)?).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// Half a second after `SAME`.
    fn modified() -> Option<SystemTime> {
        Some(SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_500))
    }

    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn each_condition_is_evaluated() {
        for (name, value, outcome) in [
            (IF_MODIFIED_SINCE, SAME, Outcome::NotModified),
            (IF_MODIFIED_SINCE, EARLIER, Outcome::Send),
            (IF_MODIFIED_SINCE, "yesterday", Outcome::Send),
            (IF_UNMODIFIED_SINCE, SAME, Outcome::Send),
            (IF_UNMODIFIED_SINCE, EARLIER, Outcome::PreconditionFailed),
            (IF_NONE_MATCH, "*", Outcome::NotModified),
            (IF_NONE_MATCH, "\"tag\"", Outcome::Send),
            (IF_MATCH, "*", Outcome::Send),
            (IF_MATCH, "\"tag\"", Outcome::PreconditionFailed),
        ] {
            let set = headers(&[(name.clone(), value)]);
            assert_eq!(evaluate(&set, modified()), outcome, "{name}: {value}");
        }
        assert_eq!(evaluate(&HeaderMap::new(), modified()), Outcome::Send);
        let tag_wins = headers(&[(IF_NONE_MATCH, "\"tag\""), (IF_MODIFIED_SINCE, SAME)]);
        assert_eq!(evaluate(&tag_wins, modified()), Outcome::Send);
    }

    #[test]
    fn a_range_holds_while_the_file_has_not_changed() {
        let evaluated = |since| {
            let headers = headers(&[(RANGE, "bytes=0-1"), (IF_RANGE, since)]);
            range(&headers, modified()).map(str::to_owned)
        };
        assert_eq!(evaluated(SAME).as_deref(), Some("bytes=0-1"));
        assert_eq!(evaluated(EARLIER), None);
        assert_eq!(evaluated("\"tag\""), None);
    }
}
