//! The runtime API of `agents.x-k8s.io`: commands and files over plain HTTP, for the clients of that
//! project, whose requests come through a router.
//!
//! It has no authentication, because these clients send none: only the router may reach its port, which a
//! network policy ensures. Files are those below one directory, in which commands begin. Commands may do
//! whatever their user may.

mod capture;
mod execute;
mod options;
mod words;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use self::execute::ExecuteRequest;
use self::options::Options;
use crate::files::{self, Files, RequestError};
use crate::filesystem::directories;
use crate::response::{self, HttpResponse};
use crate::server::{self, RequestHandler};
use crate::services::SharedServices;
use crate::settings::Variables;
use crate::user::User;

/// Longest `/execute` request, in bytes.
const MAX_REQUEST: usize = 1 << 20;

/// Limit of commands at once; others wait.
const MAX_COMMANDS: usize = 64;

/// Most entries of a directory that are listed.
const MAX_ENTRIES: usize = 65_536;

/// The runtime API.
pub(crate) struct Runtime {
    options: Options,
    services: SharedServices,
    files: Files,
    /// The environment of the container, which commands inherit.
    environment: Arc<Variables>,
    places: Semaphore,
}

/// The user of commands and files.
struct Actor {
    user: User,
    groups: Vec<u32>,
}

/// An entry of a directory.
#[derive(Debug, Serialize)]
struct ListedEntry {
    name: String,
    size: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Seconds since 1970.
    mod_time: f64,
}

impl Runtime {
    /// Serves the API.
    ///
    /// # Errors
    /// If the listener has no address.
    pub(crate) fn serve(listener: TcpListener, services: &SharedServices) -> io::Result<()> {
        let options = Options::from_environment(|name| std::env::var(name).ok());
        let log = services.log.clone();
        let port = listener.local_addr()?.port();
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok();
            name.zip(value.into_string().ok())
        });
        let runtime = Arc::new(Self {
            options,
            services: services.clone(),
            files: Files::new(
                Arc::clone(&services.settings),
                Arc::clone(&services.users),
                log.clone(),
            ),
            environment: Arc::new(variables.collect()),
            places: Semaphore::new(MAX_COMMANDS),
        });
        let (directory, user) = (runtime.directory(), runtime.actor().user);
        tokio::spawn(async move {
            let shown = directory.display().to_string();
            // If it cannot be made, commands and uploads say so.
            let made = tokio::task::spawn_blocking(move || directories::ensure(&directory, &user));
            let _ = made.await;
            let entry = log.info("runtime", "listening").with("port", port);
            entry.with("directory", shown).send();
            server::serve(listener, Arc::new(Served(runtime)), log).await;
        });
        Ok(())
    }

    /// The default user, or the daemon's own if it may not change it.
    fn actor(&self) -> Actor {
        let directory = self.services.users.directory();
        let own = rustix::process::geteuid();
        let named = directory.user(&self.services.settings.defaults().user);
        if let Some(user) = named.filter(|_| own.is_root()) {
            return Actor {
                user: user.clone(),
                groups: directory.groups(user),
            };
        }
        let gid = rustix::process::getegid().as_raw();
        let user = User {
            name: directory.user_name(own.as_raw()),
            uid: own.as_raw(),
            gid,
            home: "/".to_owned(),
        };
        Actor {
            user,
            groups: vec![gid],
        }
    }

    fn directory(&self) -> PathBuf {
        PathBuf::from(&self.options.directory)
    }

    async fn route(self: &Arc<Self>, request: Request<Incoming>) -> HttpResponse {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let below = |prefix| path.strip_prefix(prefix).map(decoded);
        if let Some(asked) = below("/download/") {
            return match method {
                Method::GET => self.download(asked, &request).await,
                _ => method_not_allowed(),
            };
        }
        if let Some(asked) = below("/list/") {
            return match method {
                Method::GET => self.list(asked).await,
                _ => method_not_allowed(),
            };
        }
        if let Some(asked) = below("/exists/") {
            return match method {
                Method::GET => self.exists(asked).await,
                _ => method_not_allowed(),
            };
        }
        match (method, path.as_str()) {
            (Method::GET, "/") => {
                let state = json!({"status": "ok", "message": "Sandbox Runtime is active."});
                response::json(StatusCode::OK, &state)
            }
            (Method::POST, "/execute") => self.run_command(request).await,
            (Method::POST, "/upload") => self.upload(request).await,
            (_, "/" | "/execute" | "/upload") => method_not_allowed(),
            _ => detail(StatusCode::NOT_FOUND, "Not Found"),
        }
    }

    async fn run_command(self: &Arc<Self>, request: Request<Incoming>) -> HttpResponse {
        let body = Limited::new(request.into_body(), MAX_REQUEST);
        let Ok(body) = body.collect().await else {
            return detail(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large");
        };
        match serde_json::from_slice::<ExecuteRequest>(&body.to_bytes()) {
            Ok(request) => response::json(StatusCode::OK, &self.execute(request).await),
            Err(error) => detail(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
        }
    }

    async fn upload(&self, request: Request<Incoming>) -> HttpResponse {
        let user = self.actor().user;
        match self.files.receive(self.directory(), user, request).await {
            Ok(name) => {
                let text = format!("File '{name}' uploaded successfully.");
                message(StatusCode::OK, &text)
            }
            Err(error) => match error.status() {
                StatusCode::FORBIDDEN => message(StatusCode::FORBIDDEN, "Access denied"),
                StatusCode::UNPROCESSABLE_ENTITY => detail(error.status(), &error.to_string()),
                status => message(status, &format!("File upload failed: {error}")),
            },
        }
    }

    async fn download(&self, asked: Vec<u8>, request: &Request<Incoming>) -> HttpResponse {
        let sent = self.files.fetch(self.directory(), asked, request.headers());
        sent.await.unwrap_or_else(|error| match error.status() {
            StatusCode::FORBIDDEN => message(StatusCode::FORBIDDEN, "Access denied"),
            // Directories and devices are no files either.
            StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => {
                message(StatusCode::NOT_FOUND, "File not found")
            }
            status => message(status, &error.to_string()),
        })
    }

    async fn list(&self, asked: Vec<u8>) -> HttpResponse {
        let base = self.directory();
        let listed = tokio::task::spawn_blocking(move || {
            let path = files::locate(&base, &asked)?;
            Ok::<_, RequestError>(path.is_dir().then(|| entries(&path)))
        });
        match listed.await {
            Ok(Ok(Some(Ok(entries)))) => response::json(StatusCode::OK, &entries),
            Ok(Ok(Some(Err(error)))) => message(
                StatusCode::INTERNAL_SERVER_ERROR,
                &format!("List files failed: {error}"),
            ),
            Ok(Ok(None)) => message(StatusCode::NOT_FOUND, "Path is not a directory"),
            Ok(Err(denied)) => message(denied.status(), &denied.to_string()),
            Err(_) => response::status(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    async fn exists(&self, asked: Vec<u8>) -> HttpResponse {
        let base = self.directory();
        let shown = String::from_utf8_lossy(&asked).into_owned();
        let found = tokio::task::spawn_blocking(move || {
            let path = files::locate(&base, &asked)?;
            Ok::<_, RequestError>(path.exists())
        });
        match found.await {
            Ok(Ok(exists)) => {
                response::json(StatusCode::OK, &json!({"path": shown, "exists": exists}))
            }
            Ok(Err(denied)) => message(denied.status(), &denied.to_string()),
            Err(_) => response::status(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}

/// The handler of requests.
struct Served(Arc<Runtime>);

impl RequestHandler for Served {
    async fn handle(&self, request: Request<Incoming>) -> HttpResponse {
        self.0.route(request).await
    }
}

/// The bytes of a path in a URL.
fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

/// The entries of a directory, sorted by name. Blocking.
fn entries(path: &Path) -> io::Result<Vec<ListedEntry>> {
    let mut listed = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if listed.len() >= MAX_ENTRIES {
            let text = format!("the directory has more than {MAX_ENTRIES} entries");
            return Err(io::Error::other(text));
        }
        // The target of a symlink, or the link itself if it has none.
        let meta = match std::fs::metadata(entry.path()).or_else(|_| entry.metadata()) {
            Ok(meta) => meta,
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let modified = meta.modified()?.duration_since(UNIX_EPOCH);
        listed.push(ListedEntry {
            name: shown(&entry.file_name()),
            size: meta.len(),
            kind: if meta.is_dir() { "directory" } else { "file" },
            mod_time: modified.map_or(0.0, |since| since.as_secs_f64()),
        });
    }
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

fn shown(name: &OsStr) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

fn method_not_allowed() -> HttpResponse {
    detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
}

/// An answer of a route.
fn message(status: StatusCode, text: &str) -> HttpResponse {
    response::json(status, &json!({"message": text}))
}

/// An answer to a request that has no route or is malformed.
fn detail(status: StatusCode, text: &str) -> HttpResponse {
    response::json(status, &json!({"detail": text}))
}
