//! Snapshots and forks.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use shoal_core::auth::Principal;
use shoal_core::ports::sandboxes::{FORKS_MAX, SandboxError};
use shoal_core::ports::snapshots::{NewSnapshot, SnapshotFilter, TakeError};
use shoal_core::snapshot::{Contents, Saved, SnapshotRecord};
use shoal_core::template::TemplateRef;

use super::list::{NEXT_TOKEN, limit};
use super::sandbox_id;
use super::view::Sandbox;
use crate::audit;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::config::ApiConfig;
use crate::error::ApiError;
use crate::query::Query;

/// The default timeout of forks, in seconds.
const FORK_TIMEOUT: i64 = 15;

/// OpenKruise's snapshot headers.
const KEEP_RUNNING: &str = "x-e2b-kruise-snapshot-keep-running";
const TTL: &str = "x-e2b-kruise-snapshot-ttl";
const CONTENTS: &str = "x-e2b-kruise-snapshot-persistent-contents";
const WAIT: &str = "x-e2b-kruise-snapshot-wait-success-seconds";

/// The maximum wait of a call, which the timeout of calls slightly exceeds.
const WAIT_MAX: Duration = Duration::from_secs(65);

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SnapshotBody {
    name: Option<String>,
    memory: Option<bool>,
}

/// One taking of a snapshot.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Snapshot {
    #[serde(rename = "snapshotID")]
    id: String,
    names: Vec<String>,
    shoal: Taken,
}

/// The contents of the snapshot, an addition to E2B's answer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SnapshotReport"))]
#[serde(rename_all = "camelCase")]
struct Taken {
    contents: String,
    runtime: String,
    /// How long the sandbox was frozen, in milliseconds; absent in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    freeze: Option<f64>,
    /// Absent in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    /// Bytes of the sandbox's own files; absent in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_bytes: Option<u64>,
    /// How the files were copied; absent in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    copied: Option<String>,
    source: String,
    created_at: String,
    expires_at: Option<String>,
}

impl Snapshot {
    fn of(principal: &Principal, snapshot: &SnapshotRecord) -> Self {
        let slug = principal.slug.as_str();
        let names = snapshot.name.iter().map(|name| format!("{slug}/{name}"));
        let measured = snapshot.measured();
        let millis = |saved: &Saved| (saved.freeze.as_secs_f64() * 1e6).round() / 1e3;
        Self {
            id: snapshot.reference(slug),
            names: names.collect(),
            shoal: Taken {
                contents: snapshot.saved.contents.to_string(),
                runtime: snapshot.saved.runtime.to_string(),
                freeze: measured.map(millis),
                memory_bytes: measured.map(|saved| saved.memory_bytes),
                file_bytes: measured.map(|saved| saved.file_bytes),
                copied: measured.map(|saved| saved.copied.clone()),
                source: snapshot.source.to_string(),
                created_at: snapshot.created_at.to_string(),
                expires_at: snapshot.expires_at.map(|at| at.to_string()),
            },
        }
    }
}

/// `POST /sandboxes/{id}/snapshots`
pub(super) async fn take(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: JsonBody<SnapshotBody>,
) -> Result<(StatusCode, Json<Snapshot>), ApiError> {
    let new = asked(&headers, body.value)?;
    let (permit, _) = backend
        .sandboxes
        .authorize(&principal, &sandbox_id(&id)?)
        .await?;
    let taken = backend.snapshots.take(&principal, &permit, new).await;
    let taken = taken.map_err(|error| match error {
        // Both error families report it this way.
        TakeError::Sandbox(SandboxError::Refused(refused)) => {
            ApiError::new(StatusCode::BAD_REQUEST, refused.to_string())
        }
        error => error.into(),
    })?;
    audit::target(taken.id);
    Ok((StatusCode::CREATED, Json(Snapshot::of(&principal, &taken))))
}

fn asked(headers: &HeaderMap, body: SnapshotBody) -> Result<NewSnapshot, ApiError> {
    let standard = NewSnapshot::default();
    let name = body.name.filter(|name| !name.is_empty());
    let name = name.map(|name| name.parse::<TemplateRef>()).transpose();
    let contents = match header(headers, CONTENTS)? {
        // OpenKruise's header overrides E2B's field: a client that sends both means the more
        // specific one.
        Some(text) => Some(
            text.parse()
                .map_err(|e| ApiError::invalid(format_args!("{CONTENTS}: {e}")))?,
        ),
        None => body.memory.map(Contents::with_memory),
    };
    let keep_running = match header(headers, KEEP_RUNNING)? {
        None => standard.keep_running,
        Some("true") => true,
        Some("false") => false,
        Some(_) => {
            return Err(ApiError::invalid(format_args!(
                "{KEEP_RUNNING}: must be true or false"
            )));
        }
    };
    let ttl = header(headers, TTL)?.map(duration).transpose()?;
    let wait = match header(headers, WAIT)? {
        None => standard.wait,
        Some(text) => {
            let seconds: Option<u64> = text.parse().ok();
            let seconds = seconds.ok_or_else(|| {
                ApiError::invalid(format_args!("{WAIT}: must be a number of seconds"))
            })?;
            match seconds {
                // Zero counts as not set.
                0 => standard.wait,
                seconds => Duration::from_secs(seconds).min(WAIT_MAX),
            }
        }
    };
    Ok(NewSnapshot {
        name: name.map_err(|e| ApiError::invalid(format_args!("`name`: {e}")))?,
        contents,
        keep_running,
        ttl,
        wait,
    })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let text = headers.get(name).map(|value| value.to_str().map(str::trim));
    text.transpose()
        .map_err(|_| ApiError::invalid(format_args!("{name}: is no text")))
}

/// Parses `90s`, `30m`, `30h` or `30d`.
fn duration(text: &str) -> Result<Duration, ApiError> {
    let refused = || {
        ApiError::invalid(format_args!(
            "{TTL}: {text:?} is no time: say 30m, 30h or 30d"
        ))
    };
    let unit = text.chars().next_back().ok_or_else(refused)?;
    let each = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        _ => return Err(refused()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| refused())?;
    let seconds = number.checked_mul(each).filter(|seconds| *seconds > 0);
    // A century is effectively unlimited, and no timestamp overflows.
    let seconds = seconds.ok_or_else(refused)?.min(100 * 365 * 24 * 3600);
    Ok(Duration::from_secs(seconds))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct ListQuery {
    /// Id of the sandbox that the snapshots are of.
    #[serde(rename = "sandboxID")]
    sandbox: Option<String>,
    /// Snapshot name, optionally with a tag.
    name: Option<String>,
    /// Size of a page: 1 to 100 (default).
    #[cfg_attr(test, schemars(range(min = 1, max = 100)))]
    #[cfg_attr(test, schemars(with = "Option<u32>"))]
    limit: Option<String>,
    /// Token of the page, from `X-Next-Token`.
    next_token: Option<String>,
}

/// `GET /snapshots`: a page, newest first.
pub(super) async fn list(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<ListQuery>,
) -> Result<Response, ApiError> {
    let limit = limit(query.limit.as_deref())?;
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let named: Option<TemplateRef> = given(query.name)
        .map(|name| name.parse().map_err(ApiError::invalid))
        .transpose()?;
    // A name without a tag refers to one snapshot, regardless of the tags of its versions.
    let newest = named.as_ref().is_some_and(|name| name.tag.is_none());
    let filter = SnapshotFilter {
        source: given(query.sandbox).map(|id| sandbox_id(&id)).transpose()?,
        named,
    };
    let mut all = backend.snapshots.list(&principal, &filter);
    if newest {
        all.truncate(1);
    }
    let begin = match given(query.next_token) {
        None => 0,
        Some(last) => {
            1 + all
                .iter()
                .position(|snapshot| snapshot.id.to_string() == last)
                .ok_or_else(|| ApiError::invalid("invalid next token"))?
        }
    };
    let page = &all[begin..all.len().min(begin + limit)];
    let views: Vec<Snapshot> = page
        .iter()
        .map(|snapshot| Snapshot::of(&principal, snapshot))
        .collect();
    let mut response = Json(views).into_response();
    let more = begin + limit < all.len();
    if let Some(last) = page.last().filter(|_| more)
        && let Ok(token) = HeaderValue::from_str(&last.id.to_string())
    {
        response.headers_mut().insert(NEXT_TOKEN, token);
    }
    Ok(response)
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ForkBody {
    timeout: Option<i64>,
    count: Option<i64>,
}

/// One member of a fork.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) enum Forked {
    Sandbox(Box<Sandbox>),
    Error(serde_json::Value),
}

/// `POST /sandboxes/{id}/fork`
pub(super) async fn fork(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Extension(config): Extension<ApiConfig>,
    Path(id): Path<String>,
    body: JsonBody<ForkBody>,
) -> Result<(StatusCode, Json<Vec<Forked>>), ApiError> {
    let count = body.value.count.unwrap_or(1);
    let count = usize::try_from(count)
        .ok()
        .filter(|count| (1..=FORKS_MAX).contains(count))
        .ok_or_else(|| ApiError::invalid(format_args!("`count`: 1 to {FORKS_MAX}")))?;
    let seconds = u64::try_from(body.value.timeout.unwrap_or(FORK_TIMEOUT))
        .ok()
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| ApiError::invalid("`timeout`: must be above 0"))?;
    let (permit, _) = backend
        .sandboxes
        .authorize(&principal, &sandbox_id(&id)?)
        .await?;
    let members = backend
        .sandboxes
        .fork(&principal, &permit, count, Duration::from_secs(seconds))
        .await;
    let members = members.map_err(|error| match error {
        // None of the forks fits, so a retry does not help.
        SandboxError::Full(full) => ApiError::new(StatusCode::BAD_REQUEST, full.to_string()),
        error => error.into(),
    })?;
    let members = members.into_iter().map(|member| match member {
        Ok(created) => {
            audit::target(&created.record.id);
            let view = Sandbox::of(&backend, &created.record, config.domain.clone());
            Forked::Sandbox(Box::new(view))
        }
        Err(error) => Forked::Error(ApiError::from(error).body()),
    });
    Ok((StatusCode::CREATED, Json(members.collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            })
            .collect()
    }

    fn read(pairs: &[(&'static str, &'static str)]) -> Result<NewSnapshot, ApiError> {
        let body = SnapshotBody {
            name: None,
            memory: Some(true),
        };
        asked(&headers(pairs), body)
    }

    #[test]
    fn the_headers_of_the_seed_are_read() {
        let new = read(&[]).unwrap();
        assert!(new.keep_running && new.ttl.is_none());
        assert_eq!(new.wait, Duration::from_secs(60));
        assert_eq!(new.contents, Some(Contents::Memory));
        let new = read(&[
            (KEEP_RUNNING, "false"),
            (TTL, "30m"),
            (CONTENTS, "filesystem"),
            (WAIT, "5"),
        ])
        .unwrap();
        assert!(!new.keep_running);
        assert_eq!(new.ttl, Some(Duration::from_secs(1800)));
        assert_eq!(new.contents, Some(Contents::Filesystem));
        assert_eq!(new.wait, Duration::from_secs(5));
        let unsaid = read(&[(WAIT, "0")]).unwrap();
        assert_eq!(unsaid.wait, Duration::from_secs(60));
        for (text, hours) in [("30h", 30), ("30d", 720)] {
            assert_eq!(duration(text).unwrap(), Duration::from_secs(hours * 3600));
        }
    }

    #[test]
    fn what_the_headers_cannot_say_is_named() {
        for (name, value) in [
            (KEEP_RUNNING, "yes"),
            (TTL, "30"),
            (TTL, "m"),
            (TTL, "0m"),
            (TTL, "-1h"),
            (TTL, "99999999999999999999d"),
            (CONTENTS, "memory"),
            (CONTENTS, ""),
            (WAIT, "-1"),
            (WAIT, "soon"),
        ] {
            let refused = read(&[(name, value)]).unwrap_err().into_response();
            assert_eq!(refused.status(), 400, "{name}: {value}");
        }
    }
}
