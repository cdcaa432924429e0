//! `POST /init`: settings from the control plane.
//!
//! A request must present the current token, in its header or as the token to set. The first token
//! is handed over before the daemon listens; in a pod, the first request with the sandbox's pass sets
//! it. A clone starts with its original's token and receives its own from a server that knows the
//! original's.

use std::sync::Arc;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Map, Value};
use shoal_protocol::ENVD_VERSION;
use shoal_protocol::headers::{ACCESS_TOKEN, ENVD_VERSION as VERSION_HEADER, INIT_PASS};
use shoal_protocol::init::InitRequest;
use tokio::sync::Mutex;

use crate::active_time::ActiveTime;
use crate::auth::AuthPolicy;
use crate::clock;
use crate::config::Config;
use crate::log::Log;
use crate::oom_killer::OomKiller;
use crate::response::{self, HttpResponse};
use crate::server::Peer;
use crate::settings::{Settings, Variables, is_variable};

mod host_files;

use host_files::HostFiles;

/// Largest request body: environment variables and certificates.
const MAX_BODY: usize = 8 << 20;

/// Environment variable with the address of the events service.
const EVENTS_VARIABLE: &str = "E2B_EVENTS_ADDRESS";

/// Applies settings from the control plane.
pub(crate) struct Init {
    settings: Arc<Settings>,
    time: Arc<ActiveTime>,
    oom_killer: Arc<OomKiller>,
    log: Log,
    files: HostFiles,
    set_clock: bool,
    /// Serialises requests.
    serial: Mutex<()>,
}

impl Init {
    /// An instance that updates these settings.
    pub(crate) fn new(
        settings: Arc<Settings>,
        time: Arc<ActiveTime>,
        oom_killer: Arc<OomKiller>,
        log: Log,
        config: &Config,
    ) -> Self {
        Self {
            settings,
            time,
            oom_killer,
            log,
            files: HostFiles::new(&config.system_root),
            set_clock: config.set_clock,
            serial: Mutex::new(()),
        }
    }

    /// Handles a request.
    pub(crate) async fn handle(&self, request: Request<Incoming>) -> HttpResponse {
        let (parts, body) = request.into_parts();
        let offered = |name| parts.headers.get(name).map(http::HeaderValue::as_bytes);
        let body = Limited::new(body, MAX_BODY).collect().await;
        let request = match body.map(http_body_util::Collected::to_bytes) {
            Ok(body) if body.is_empty() => Ok(InitRequest::default()),
            Ok(body) => parse(&body).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let mut answer = match request {
            Ok(request) => {
                self.apply(request, offered(ACCESS_TOKEN), offered(INIT_PASS))
                    .await
            }
            Err(error) => {
                // The text may quote a few characters of the body, never a token.
                response::error(
                    StatusCode::BAD_REQUEST,
                    format!("invalid request body: {error}"),
                )
            }
        };
        let version = http::HeaderValue::from_static(ENVD_VERSION);
        answer.headers_mut().insert(VERSION_HEADER, version);
        response::not_stored(answer)
    }

    async fn apply(
        &self,
        request: InitRequest,
        offered: Option<&[u8]>,
        pass: Option<&[u8]>,
    ) -> HttpResponse {
        let _serial = self.serial.lock().await;
        let given = request.access_token.as_ref();
        let given = given.map(|token| token.reveal().as_bytes());
        // Regardless of the peer: a program in the sandbox is not the control plane.
        let auth_policy = self.settings.auth_policy(Peer::Outside);
        let first = given.is_some() && auth_policy.admits_first(pass);
        if given.is_some() && !first && matches!(auth_policy, AuthPolicy::FirstInit(_)) {
            self.log.refused("init", "refused: no pass", "/init");
            let text = "the first settings of this sandbox need its pass";
            return response::error(StatusCode::FORBIDDEN, text);
        }
        if !first && !auth_policy.admits(offered) && !auth_policy.admits(given) {
            self.log.refused("init", "refused: unknown token", "/init");
            let text = "access token validation failed";
            return response::error(StatusCode::UNAUTHORIZED, text);
        }
        if let Some(timestamp) = request.timestamp
            && !self.settings.advance(timestamp)
        {
            self.log
                .debug("init", "ignored: older than the last request")
                .send();
            return response::status(StatusCode::NO_CONTENT);
        }
        self.apply_settings(request);
        // A sandbox starts or resumes: process deadlines run again.
        self.time.unfreeze();
        let (files, identity) = (self.files.clone(), self.settings.identity());
        let log = self.log.clone();
        let events = self.settings.environment().get(EVENTS_VARIABLE).cloned();
        let written = tokio::task::spawn_blocking(move || {
            files.write_identity(&identity, &log);
            files.write_events_host(events.as_deref(), &log);
        });
        // The settings apply even if a file could not be written.
        let _ = written.await;
        self.log.info("init", "settings taken").send();
        response::status(StatusCode::NO_CONTENT)
    }

    fn apply_settings(&self, request: InitRequest) {
        if let Some(timestamp) = request.timestamp.filter(|_| self.set_clock) {
            match clock::set(timestamp) {
                Ok(true) => self.log.info("init", "clock set").send(),
                Ok(false) => {}
                Err(error) => {
                    let entry = self.log.debug("init", "clock not set");
                    entry.with("error", error.to_string()).send();
                }
            }
        }
        if let Some(variables) = request.env_vars {
            let variables: Variables = variables
                .into_iter()
                .filter(|(name, value)| is_variable(name, value))
                .collect();
            self.settings.set_variables(variables);
        }
        if let Some(token) = request.access_token {
            self.settings.set_token(token);
        }
        if request.open {
            self.settings.open_inside();
        }
        if let Some(mib) = request.memory_mib {
            self.oom_killer.set_total_mib(mib);
        }
        if let Some(user) = request.default_user.filter(|user| !user.is_empty()) {
            self.settings.set_default_user(&user);
        }
        if let Some(workdir) = request
            .default_workdir
            .filter(|workdir| !workdir.is_empty())
        {
            self.settings.set_default_workdir(&workdir);
        }
        if let Some(address) = request.hyperloop_ip {
            let address = match address {
                std::net::IpAddr::V4(address) => format!("http://{address}"),
                std::net::IpAddr::V6(address) => format!("http://[{address}]"),
            };
            self.settings.set_identity(EVENTS_VARIABLE, &address);
        }
        for (name, given) in [
            ("caBundle", request.ca_bundle.is_some()),
            ("volumeMounts", request.volume_mounts.is_some()),
        ] {
            if given {
                self.log
                    .warn("init", "field not supported")
                    .with("field", name)
                    .send();
            }
        }
    }
}

/// Parses a JSON object. Serde alone would accept an array of the field values too.
fn parse(body: &[u8]) -> serde_json::Result<InitRequest> {
    let fields: Map<String, Value> = serde_json::from_slice(body)?;
    serde_json::from_value(Value::Object(fields))
}
