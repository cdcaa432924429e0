//! Records in the audit log every call that changes something, and every denied call.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{Method, StatusCode};
use shoal_core::audit::{AuditEvent, AuditLog, AuditResult, AuditSource};
use shoal_core::auth::Principal;
use shoal_core::clock::Clock;

use crate::mcp;
use crate::request_id::REQUEST_ID;

/// The client's address, set by the listener.
#[derive(Debug, Clone, Copy)]
pub struct ClientAddress(pub IpAddr);

/// The details that a handler adds to the event of its call.
#[derive(Debug, Default)]
struct Found {
    caller: Option<Principal>,
    made: Vec<String>,
}

tokio::task_local! {
    static FOUND: RefCell<Found>;
}

/// Records the caller.
pub(crate) fn caller(principal: &Principal) {
    note(|found| found.caller = Some(principal.clone()));
}

/// Records the id or name of a call's object, if the path does not contain it.
pub(crate) fn target(target: impl ToString) {
    note(|found| found.made.push(target.to_string()));
}

fn note(change: impl FnOnce(&mut Found)) {
    // Outside of a call there is no event.
    let _ = FOUND.try_with(|found| change(&mut found.borrow_mut()));
}

/// The audit log, and the clock for its events.
#[derive(Clone)]
pub(crate) struct Audit {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Arc<dyn AuditLog>,
}

/// Forwards a call and records it.
pub(crate) async fn record(State(audit): State<Audit>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>();
    let Some(route) = route.map(|route| route.as_str().to_owned()) else {
        return next.run(request).await;
    };
    let (mut parts, body) = request.into_parts();
    let params = RawPathParams::from_request_parts(&mut parts, &()).await;
    let request = Request::from_parts(parts, body);
    let address = request.extensions().get::<ClientAddress>();
    let address = address.map(|address| address.0);
    let id = request.headers().get(&REQUEST_ID);
    let id = id.and_then(|id| id.to_str().ok()).map(str::to_owned);
    let begun = Instant::now();
    let (response, found) = FOUND
        .scope(RefCell::default(), async {
            let response = next.run(request).await;
            (response, FOUND.with(RefCell::take))
        })
        .await;
    let status = response.status();
    if !counts(&method, &route, status) {
        return response;
    }
    let result = AuditResult::of_status(status.as_u16());
    let mut event = AuditEvent::new(audit.clock.now(), action(&method, &route), result);
    for (_, value) in params.iter().flatten() {
        event = event.on(value);
    }
    for made in &found.made {
        event = event.on(made);
    }
    event.status = Some(status.as_u16());
    event.address = address;
    event.route = Some(format!("{method} {route}"));
    event.request = id;
    event.duration_ms = Some(begun.elapsed());
    let source = match found.caller {
        None => AuditSource::Stranger,
        Some(caller) => {
            event.team = Some(caller.slug.clone());
            event.key = Some(caller.key);
            AuditSource::Team(caller.slug)
        }
    };
    audit.log.record(source, event);
    response
}

/// Whether a call is recorded: it may have changed something, opened access, or was denied.
fn counts(method: &Method, route: &str, status: StatusCode) -> bool {
    let is_denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    // Tools record their own actions.
    let only_carries = *method == Method::POST && route == mcp::PATH;
    let only_reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    is_denied || !(only_reads || only_carries) || OPENS.iter().any(|opens| route.ends_with(opens))
}

/// Routes with method `GET` that give access to a sandbox, or write.
const OPENS: [&str; 3] = [
    "/sandbox/files/{id}/download",
    "/terminal/sandbox/{id}/ws",
    "/templates/{id}/files/{hash}",
];

/// The names of calls in the log: the method, the end of the route, the name. The first match
/// counts.
const ACTIONS: &[(&str, &str, &str)] = &[
    ("POST", "/sandboxes", "sandbox.create"),
    ("POST", "/api/v1/sandbox", "sandbox.create"),
    ("DELETE", "/sandboxes/{id}", "sandbox.kill"),
    ("DELETE", "/sandbox/{id}", "sandbox.kill"),
    ("POST", "/sandboxes/{id}/connect", "sandbox.connect"),
    ("POST", "/sandboxes/{id}/timeout", "sandbox.set_timeout"),
    ("POST", "/sandboxes/{id}/refreshes", "sandbox.set_timeout"),
    ("PUT", "/sandboxes/{id}/network", "sandbox.set_network"),
    ("POST", "/sandboxes/{id}/pause", "sandbox.pause"),
    ("POST", "/sandbox/pause/{id}", "sandbox.pause"),
    ("POST", "/sandboxes/{id}/resume", "sandbox.resume"),
    ("POST", "/sandbox/resume/{id}", "sandbox.resume"),
    ("POST", "/sandboxes/{id}/fork", "sandbox.fork"),
    ("PATCH", "/sandbox/{id}/resources", "sandbox.resize"),
    ("POST", "/sandboxes/{id}/snapshots", "snapshot.create"),
    ("POST", "/snapshots/export", "snapshot.export"),
    ("POST", "/snapshots/import", "snapshot.import"),
    ("POST", "/sandbox/metrics", "sandbox.read_metrics"),
    ("POST", "/sandbox/files/{id}/upload", "file.write"),
    ("DELETE", "/sandbox/files/{id}", "file.delete"),
    ("GET", "/sandbox/files/{id}/download", "file.read"),
    ("POST", "/terminal/sandbox/{id}", "command.run"),
    ("GET", "/terminal/sandbox/{id}/ws", "terminal.open"),
    ("POST", "/api/v1/templates", "template.create"),
    ("POST", "/templates/{id}/builds/{build}", "template.build"),
    (
        "DELETE",
        "/templates/{id}/builds/{build}",
        "template.cancel_build",
    ),
    (
        "GET",
        "/templates/{id}/files/{hash}",
        "template.upload_link",
    ),
    ("PUT", "/uploads/{team}/{hash}", "template.upload"),
    ("POST", "/templates/tags", "template.tag"),
    ("DELETE", "/templates/tags", "template.untag"),
    ("POST", "/templates/{id}/build", "template.build"),
    ("PATCH", "/templates/{id}", "template.publish"),
    ("DELETE", "/templates/{id}", "template.delete"),
    ("POST", "/config/templates", "catalogue.replace"),
    ("POST", "/config/blueprint", "blueprint.replace"),
    ("POST", "/templates", "template.announce"),
    ("POST", "/images/pull", "image.pull"),
    ("POST", "/images/import", "image.import"),
    ("DELETE", "/images", "image.delete"),
    ("DELETE", "/pool/{id}", "pool.reset"),
    ("POST", "/keys", "key.create"),
    ("DELETE", "/keys/{id}", "key.delete"),
    ("POST", "/api-keys", "key.create"),
    ("PATCH", "/api-keys/{id}", "key.rename"),
    ("DELETE", "/api-keys/{id}", "key.delete"),
    ("POST", "/sandbox/{id}/rotate-token", "sandbox.rotate_token"),
    ("PUT", "/secrets/{secret}", "secret.set"),
    ("DELETE", "/secrets/{secret}", "secret.delete"),
    ("POST", "/mcp", "mcp.call"),
    ("DELETE", "/mcp", "mcp.end"),
    ("POST", "/secrets/{secret}/activate", "secret.activate"),
    ("POST", "/secrets/{secret}/deactivate", "secret.deactivate"),
];

/// The name of a call; without an entry, whether it reads or writes.
fn action(method: &Method, route: &str) -> &'static str {
    let named = ACTIONS
        .iter()
        .find(|(of, end, _)| *of == method.as_str() && route.ends_with(end));
    match named {
        Some((_, _, name)) => name,
        None if *method == Method::GET => "api.read",
        None => "api.change",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_a_name_under_every_prefix() {
        for (method, route, name) in [
            ("POST", "/sandboxes", "sandbox.create"),
            ("POST", "/e2b/v1/v2/sandboxes", "sandbox.create"),
            ("POST", "/api/v1/sandbox", "sandbox.create"),
            ("POST", "/api/v1/config/templates", "catalogue.replace"),
            ("POST", "/api/v1/templates", "template.create"),
            ("POST", "/api/v1/templates", "template.create"),
            ("DELETE", "/api/v1/keys/{id}", "key.delete"),
            (
                "PUT",
                "/api/v1/sessions/{id}/secrets/{secret}",
                "secret.set",
            ),
            ("GET", "/sandboxes/{id}", "api.read"),
            ("PUT", "/something/new", "api.change"),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(action(&method, route), name, "{method} {route}");
        }
    }

    #[test]
    fn reading_counts_when_it_is_denied_or_opens_something() {
        let counts = |method, route, status: u16| {
            counts(&method, route, StatusCode::from_u16(status).unwrap())
        };
        assert!(!counts(Method::GET, "/sandboxes", 200));
        assert!(!counts(Method::GET, "/sandboxes/{id}", 404));
        assert!(counts(Method::GET, "/sandboxes", 401));
        assert!(counts(Method::POST, "/sandboxes", 500));
        assert!(!counts(Method::POST, mcp::PATH, 200));
        assert!(counts(Method::POST, mcp::PATH, 401));
        assert!(counts(Method::DELETE, mcp::PATH, 202));
        assert!(counts(Method::GET, "/api/v1/terminal/sandbox/{id}/ws", 101));
    }
}
