//! The events service, which E2B's host serves at `http://192.0.2.1` and `http://events.e2b.local`.
//!
//! Processes query the sandbox id and send log lines. The service holds no secrets and needs no
//! token.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::log::Log;
use crate::response::{self, HttpResponse};
use crate::server::{self, RequestHandler};
use crate::settings::Settings;

/// Largest log entry accepted, in bytes.
const MAX_ENTRY: usize = 64 << 10;

/// Request handler of the events service.
struct Events {
    settings: Arc<Settings>,
    log: Log,
}

/// Serves the events service, if the address exists.
pub(crate) async fn serve(address: SocketAddr, settings: Arc<Settings>, log: Log) {
    match TcpListener::bind(address).await {
        Ok(listener) => {
            let events = Events {
                settings,
                log: log.clone(),
            };
            server::serve(listener, Arc::new(events), log).await;
        }
        // The address does not exist in this sandbox, so no client can use it. Not worth a log
        // entry.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
        Err(error) => {
            let entry = log.warn("events", "not listening");
            let entry = entry.with("address", address.to_string());
            entry.with("error", error.to_string()).send();
        }
    }
}

impl RequestHandler for Events {
    async fn handle(&self, request: Request<Incoming>) -> HttpResponse {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/me") => {
                let identity = self.settings.identity();
                let id = identity.get("E2B_SANDBOX_ID");
                response::json(StatusCode::OK, &json!({ "sandboxID": id }))
            }
            (&Method::POST, "/logs" | "/") => {
                let body = Limited::new(request.into_body(), MAX_ENTRY).collect().await;
                match body {
                    Ok(body) => {
                        self.note(&body.to_bytes());
                        response::status(StatusCode::OK)
                    }
                    Err(_) => response::status(StatusCode::PAYLOAD_TOO_LARGE),
                }
            }
            _ => response::error(StatusCode::NOT_FOUND, "not found"),
        }
    }
}

impl Events {
    fn note(&self, body: &[u8]) {
        let message = match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => match fields.get("message") {
                Some(Value::String(message)) => message.clone(),
                _ => Value::Object(fields).to_string(),
            },
            _ => String::from_utf8_lossy(body).into_owned(),
        };
        self.log
            .info("events", "log")
            .with_long("line", &message)
            .send();
    }
}
