//! The document: operations and schemas, put together.

use http::StatusCode;
use serde_json::{Map, Value, json};
use shoal_protocol::native;

use super::operation::{Access, Content, Dialect, Operation, Payload};
use super::schemas::Schemas;
use crate::error::ErrorBody;

/// The whole document.
pub(super) fn document(operations: &[Operation]) -> Value {
    let mut schemas = Schemas::new();
    schemas.response(|generator| generator.subschema_for::<ErrorBody<'static>>());
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations {
        let path = full_path(operation);
        let item = paths
            .entry(path)
            .or_insert_with(|| match operation.dialect {
                Dialect::E2b if !operation.path.starts_with("/uploads/") => json!({"servers": [
                    {"url": "/"},
                    {"url": "/e2b/v1", "description": "The same routes below a prefix."},
                ]}),
                _ => json!({}),
            });
        let method = operation.method.to_lowercase();
        assert!(
            item.get(&method).is_none(),
            "{method} {} twice",
            operation.path
        );
        item[&method] = described(operation, &mut schemas);
    }
    let mut components = schemas.into_components();
    components.insert("NativeError".to_owned(), native_error());
    json!({
        "openapi": "3.1.0",
        "info": info(),
        "servers": [{"url": "/"}],
        "security": [{"apiKey": []}, {"bearer": []}],
        "tags": tags(operations),
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": failures(operations),
            "headers": headers(),
            "securitySchemes": {
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                "bearer": {
                    "type": "http", "scheme": "bearer",
                    "description": "The same key, as Agent-Sandbox's clients send it.",
                },
            },
        },
    })
}

/// The path as it is served.
pub(super) fn full_path(operation: &Operation) -> String {
    match operation.dialect {
        Dialect::Native => format!("{}{}", native::PREFIX, operation.path),
        Dialect::E2b | Dialect::Server => operation.path.to_owned(),
    }
}

fn info() -> Value {
    json!({
        "title": "Shoal",
        "version": env!("CARGO_PKG_VERSION"),
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        "description": "The E2B API (at `/` and at `/e2b/v1`) and the native API (at `/api/v1`) of a Shoal \
            server.\n\nEvery response has an `X-Request-Id`. JSON bodies need no `Content-Type`; an empty \
            body is `{}` unless the body is required. Requests of web pages are allowed from every origin. \
            Commands, files and terminals of E2B's SDKs use the daemon inside the sandbox, which this \
            document does not describe.",
    })
}

fn tags(operations: &[Operation]) -> Value {
    let mut names: Vec<&str> = Vec::new();
    for operation in operations {
        if !names.contains(&operation.tag) {
            names.push(operation.tag);
        }
    }
    names.iter().map(|name| json!({"name": name})).collect()
}

fn described(operation: &Operation, schemas: &mut Schemas) -> Value {
    let mut shown = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": responses(operation, schemas),
    });
    if let Some(description) = operation.description {
        shown["description"] = json!(description);
    }
    if operation.deprecated {
        shown["deprecated"] = json!(true);
    }
    if operation.access == Access::Open {
        shown["security"] = json!([]);
    }
    let parameters = parameters(operation, schemas);
    if !parameters.is_empty() {
        shown["parameters"] = parameters.into();
    }
    if let Some(body) = request_body(operation, schemas) {
        shown["requestBody"] = body;
    }
    shown
}

fn parameters(operation: &Operation, schemas: &mut Schemas) -> Vec<Value> {
    let names = operation.path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        Some((name, meaning(operation.path, name)))
    });
    let mut parameters: Vec<Value> = names
        .map(|(name, meaning)| {
            json!({
                "name": name, "in": "path", "required": true, "description": meaning,
                "schema": {"type": "string", "minLength": 1},
            })
        })
        .collect();
    if let Some(query) = operation.query {
        parameters.extend(schemas.parameters(query));
    }
    parameters.extend(operation.headers.iter().map(|header| {
        json!({
            "name": header.0, "in": "header", "required": false, "description": header.1,
            "schema": {"type": "string"},
        })
    }));
    parameters
}

/// The meaning of a part of a path.
fn meaning(path: &str, name: &str) -> &'static str {
    let before = path
        .split(&format!("{{{name}}}"))
        .next()
        .unwrap_or_default();
    match (before, name) {
        (_, "build") => "Build id.",
        (_, "tag") => "Tag.",
        (_, "hash") => "Hash of the files, in hexadecimal.",
        (_, "alias") => "Template name.",
        (_, "team") => "Team id.",
        (_, "window") => "Window name.",
        (_, "secret") => "Secret name.",
        (_, "memory") => "Memory name.",
        ("/sessions/", _) => "Session id.",
        ("/keys/" | "/api-keys/", _) => "Key id.",
        ("/teams/", "name") => "Team name.",
        ("/teams/", _) => "Team id.",
        ("/pool/sandbox/" | "/pool/history/", _) => "Template of the pool.",
        ("/pool/", _) => "Template of the pool, or a sandbox id of a member.",
        (before, _) if before.contains("templates/") => "Template id or name.",
        (before, _) if before.contains("/sandboxes/") => "Sandbox id.",
        (before, _) if before.contains("sandbox/") => "Sandbox name or id.",
        _ => panic!("{path}: say what {{{name}}} means"),
    }
}

fn request_body(operation: &Operation, schemas: &mut Schemas) -> Option<Value> {
    match operation.payload {
        Payload::None => None,
        Payload::Json { make, required } => Some(json!({
            "required": required,
            "content": {"application/json": {"schema": schemas.request(make)}},
        })),
        Payload::Form => Some(json!({
            "required": true,
            "content": {"multipart/form-data": {"schema": {
                "type": "object", "required": ["file"],
                "properties": {"file": {"type": "string", "contentMediaType": "application/octet-stream"}},
            }}},
        })),
        Payload::Archive => Some(json!({
            "required": true,
            "content": {"application/octet-stream": {"schema": {}}},
        })),
    }
}

fn responses(operation: &Operation, schemas: &mut Schemas) -> Value {
    let mut responses = Map::new();
    let is_limited = operation.access != Access::Open;
    for answer in &operation.answers {
        let mut shown = json!({"description": reason(answer.status)});
        if let Some(content) = content(operation.dialect, answer.content, schemas) {
            shown["content"] = content;
        }
        let mut headers = always(is_limited);
        for name in answer.headers {
            headers.insert((*name).to_owned(), reference("headers", name));
        }
        shown["headers"] = headers.into();
        responses.insert(answer.status.to_string(), shown);
    }
    for status in operation.all_failures() {
        let name = format!("{}{status}", error_name(operation));
        let earlier = responses.insert(status.to_string(), reference("responses", &name));
        assert!(earlier.is_none(), "{}: {status} twice", operation.path);
    }
    responses.into()
}

/// The schema of the operation's errors.
fn error_name(operation: &Operation) -> &'static str {
    match operation.dialect {
        Dialect::Native => "NativeError",
        Dialect::E2b | Dialect::Server => "Error",
    }
}

/// The failures of all operations, each once.
fn failures(operations: &[Operation]) -> Map<String, Value> {
    let mut failures = Map::new();
    for operation in operations {
        let error = error_name(operation);
        for status in operation.all_failures() {
            let mut headers = always(status != 401);
            if matches!(status, 429 | 503) {
                for name in ["Retry-After", "should-retry"] {
                    headers.insert(name.to_owned(), reference("headers", name));
                }
            }
            let shown = json!({
                "description": reason(status),
                "headers": headers,
                "content": {"application/json": {"schema": reference("schemas", error)}},
            });
            failures.insert(format!("{error}{status}"), shown);
        }
    }
    failures
}

/// The headers of every response, and those of a rate limit.
fn always(is_limited: bool) -> Map<String, Value> {
    let mut names = vec!["X-Request-Id"];
    if is_limited {
        names.extend(["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"]);
    }
    let headers = names.into_iter();
    headers
        .map(|name| (name.to_owned(), reference("headers", name)))
        .collect()
}

fn content(dialect: Dialect, content: Content, schemas: &mut Schemas) -> Option<Value> {
    let json = |schema: Value| Some(json!({"application/json": {"schema": schema}}));
    match content {
        Content::None => None,
        Content::Json(make) if dialect == Dialect::Native => json(json!({
            "type": "object",
            "required": ["code", "message", "data"],
            "properties": {
                "code": {"const": native::OK},
                "message": {"type": "string"},
                "data": schemas.response(make),
            },
        })),
        Content::Json(make) => json(schemas.response(make)),
        Content::Lines(make) => {
            let line = schemas.response(make);
            Some(json!({native::NDJSON: {"schema": line}}))
        }
        Content::Events(make) => {
            let data = schemas.response(make);
            Some(json!({"text/event-stream": {"schema": data}}))
        }
        Content::Bytes => Some(json!({"application/octet-stream": {"schema": {}}})),
        Content::Object => json(json!({"type": "object"})),
    }
}

fn reference(kind: &str, name: &str) -> Value {
    json!({"$ref": format!("#/components/{kind}/{name}")})
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "The request is not valid.",
        401 => "No API key, or one that is not valid.",
        403 => "The key may not do this.",
        404 => "Not found, or another team's.",
        408 => "The body stopped coming.",
        409 => "The state does not allow it, or the name is taken.",
        413 => "The body is too large. The connection is closed.",
        422 => "The content cannot be processed.",
        429 => "Too many requests, or a limit of the team is reached.",
        500 => "A fault of the server. Its log has the details.",
        502 => "A registry or the sandbox's daemon does not answer.",
        503 => "The server has no capacity now, or it is stopping.",
        504 => "It took too long. What was begun may continue.",
        507 => "No disk space left.",
        other => StatusCode::from_u16(other)
            .ok()
            .and_then(|status| status.canonical_reason())
            .unwrap_or_default(),
    }
}

fn headers() -> Value {
    let integer =
        |description: &str| json!({"description": description, "schema": {"type": "integer"}});
    let text =
        |description: &str| json!({"description": description, "schema": {"type": "string"}});
    json!({
        "Content-Disposition": text("Name of the file."),
        "ETag": text("Version of the catalogue, for `If-Match`."),
        "RateLimit-Limit": integer("Calls of the route per period, if rates are limited."),
        "RateLimit-Remaining": integer("Remaining calls of the period."),
        "RateLimit-Reset": integer("Seconds until the full number of calls is available again."),
        "Retry-After": integer("Seconds to wait before the next attempt, if waiting helps."),
        "Server-Timing": text("Milliseconds of each phase of the start."),
        "X-Next-Token": text("Token of the next page; absent on the last page."),
        "X-Request-Id": text("Request id: the caller's own if it sent one, else a new one."),
        "X-Total-Running": integer("Number of running sandboxes that match."),
        "should-retry": text("`false` if a retry does not help."),
    })
}

/// The native API's envelope of an error.
fn native_error() -> Value {
    json!({
        "type": "object",
        "description": "An error of the native API.",
        "required": ["code", "message", "error", "data"],
        "properties": {
            "code": {"type": "string", "description": "The HTTP status."},
            "message": {"type": "string", "description": "The error and its remedy."},
            "error": {"type": "string", "description": "The same, where Agent-Sandbox's clients read it."},
            "data": {"type": "null"},
        },
    })
}
