//! `/sync`: the files of a session in the home directory of a user.
//!
//! The server keeps the files of a session outside of the sandbox. [`watcher`] reports what changes inside, [`apply`] makes
//! changes from outside. Both work on threads with the user's own rights ([`identity`]), and never leave the directory
//! ([`home`]): programs in the sandbox may replace anything by a link, a pipe or a directory at any moment.

use std::path::PathBuf;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use serde::Serialize;
use shoal_protocol::sync::frame::Changes;
use shoal_protocol::sync::{BATCH_MAX, CONTENTS_MAX, FlushAnswer, LookRequest};
use shoal_session_files::path::SessionPath;
use shoal_session_files::returning;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

use crate::caller::basic_user;
use crate::files::{Pieces, RequestError, drain, file_body, forward};
use crate::heap::HeapTrimmer;
use crate::log::Log;
use crate::path;
use crate::query;
use crate::response::{self, HttpResponse};
use crate::settings::Settings;
use crate::user::Users;

mod apply;
mod contents;
mod control;
mod dirty;
mod home;
mod identity;
mod listener;
mod notifier;
mod run;
mod scan;
mod table;
mod watcher;
mod write;

use apply::Applier;
use control::Control;
use home::{Home, PathError};
use identity::Identity;
use listener::Listener;
use table::{Counter, Table};
use watcher::Watcher;

/// Limit of concurrent requests that have a thread; others wait. Watches are not among them.
const MAX_WORKERS: usize = 8;

/// Pieces of a watch that wait for its reader.
const WATCH_CAPACITY: usize = 4;

/// Largest body of a look: the longest paths, escaped.
const MAX_LOOK: usize = 20 << 20;

/// Serves `/sync`.
pub(crate) struct Sync {
    settings: Arc<Settings>,
    users: Arc<Users>,
    log: Log,
    heap: Arc<HeapTrimmer>,
    workers: Arc<Semaphore>,
    counter: Counter,
    current: Arc<Mutex<Option<Current>>>,
}

/// The watch.
struct Current {
    /// The home that it watches.
    home: (u64, u64),
    table: Arc<Mutex<Table>>,
    control: Arc<Control>,
    replaced: Arc<Notify>,
}

/// The owner of the home that a request is about.
struct Asked {
    identity: Identity,
    home: PathBuf,
}

impl From<PathError> for RequestError {
    fn from(error: PathError) -> Self {
        let status = match &error {
            PathError::Missing(_) => StatusCode::NOT_FOUND,
            PathError::InTheWay { .. } => StatusCode::BAD_REQUEST,
            PathError::System { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        };
        Self::new(status, error.to_string())
    }
}

impl Sync {
    /// A service for the files of this sandbox.
    pub(crate) fn new(settings: Arc<Settings>, users: Arc<Users>, log: Log) -> Self {
        Self {
            settings,
            users,
            log,
            heap: Arc::default(),
            workers: Arc::new(Semaphore::new(MAX_WORKERS)),
            counter: Counter::default(),
            current: Arc::default(),
        }
    }

    /// Handles a request. The router has checked its token.
    pub(crate) async fn handle(&self, request: Request<Incoming>) -> HttpResponse {
        let (method, route) = (request.method().clone(), request.uri().path().to_owned());
        let answer = match (&method, route.as_str()) {
            (&Method::GET, "/sync/watch") => self.watch(request).await,
            (&Method::POST, "/sync/apply") => self.apply(request).await,
            (&Method::POST, "/sync/look") => self.look(request).await,
            (&Method::GET, "/sync/file") => self.file(request).await,
            (&Method::POST, "/sync/flush") => self.flush(),
            (_, "/sync/watch" | "/sync/apply" | "/sync/look" | "/sync/file" | "/sync/flush") => {
                let status = StatusCode::METHOD_NOT_ALLOWED;
                Err(RequestError::new(status, "method not allowed"))
            }
            _ => Err(RequestError::new(StatusCode::NOT_FOUND, "not found")),
        };
        answer.unwrap_or_else(|error| {
            let entry = self.log.debug("sync", &format!("{method} {route}"));
            let entry = entry.with("status", error.status().as_u16());
            entry.with("error", error.to_string()).send();
            error.into_answer()
        })
    }

    fn asked(&self, headers: &HeaderMap, query: &str) -> Result<Asked, RequestError> {
        let directory = self.users.directory();
        let name = basic_user(headers);
        let name = name.unwrap_or_else(|| self.settings.defaults().user.to_string());
        let user = directory.user(&name).ok_or_else(|| {
            let message = format!("error looking up user '{name}': unknown user");
            RequestError::new(StatusCode::UNAUTHORIZED, message)
        })?;
        let home = query::value(query, "home").unwrap_or_default();
        Ok(Asked {
            home: path::resolve(&home, user, None)?,
            identity: Identity {
                uid: user.uid,
                groups: directory.groups(user),
            },
        })
    }

    async fn watch(&self, request: Request<Incoming>) -> Result<HttpResponse, RequestError> {
        let query = request.uri().query().unwrap_or_default();
        let Asked { identity, home } = self.asked(request.headers(), query)?;
        let file_max = match query::value(query, "file_max") {
            None => returning::FILE_MAX,
            Some(text) => match text.parse() {
                Ok(bytes) if bytes <= CONTENTS_MAX => bytes,
                _ => {
                    let message = format!("file_max is not a number up to {CONTENTS_MAX}");
                    return Err(RequestError::bad_request(message));
                }
            },
        };
        let control = Control::new().map_err(|errno| PathError::system("watch", errno))?;
        let control = Arc::new(control);
        let table = Arc::new(Mutex::new(Table::new(self.counter.clone())));
        let (lines_in, lines) = mpsc::channel(WATCH_CAPACITY);
        let (opened_in, opened) = oneshot::channel();
        let (used, known, log) = (control.clone(), table.clone(), self.log.clone());
        let work = move |assumed: std::io::Result<()>| {
            let shown = home.display().to_string();
            let assumed = assumed.map_err(|error| PathError::system(&shown, error));
            match assumed.and_then(|()| Home::open(&home, identity_uid())) {
                Ok(open) => {
                    // The caller may have gone.
                    let _ = opened_in.send(Ok(open.id));
                    let watcher = Watcher::new(open, home, file_max, known, used, lines_in);
                    let end = watcher.run();
                    let entry = log.info("sync", "watch ended");
                    entry.with("reason", end.to_string()).send();
                }
                Err(error) => drop(opened_in.send(Err(error))),
            }
        };
        let spawned = identity.spawn(work);
        spawned.map_err(|error| PathError::system("watch", error))?;
        let home = opened.await.map_err(|_| RequestError::shutting_down())??;
        let replaced = Arc::new(Notify::new());
        let current = Current {
            home,
            table,
            control: control.clone(),
            replaced: replaced.clone(),
        };
        if let Some(former) = self.current.lock().replace(current) {
            former.replaced.notify_one();
            former.control.end();
        }
        Ok(as_lines(
            Listener {
                lines,
                replaced,
                control,
                current: self.current.clone(),
                heap: self.heap.clone(),
                ended: false,
            }
            .answer(),
        ))
    }

    fn flush(&self) -> Result<HttpResponse, RequestError> {
        let current = self.current.lock();
        let flush = current.as_ref().and_then(|current| current.control.flush());
        let flush =
            flush.ok_or_else(|| RequestError::new(StatusCode::CONFLICT, "nothing watches"))?;
        let answer = FlushAnswer { flush };
        Ok(response::not_stored(response::json(
            StatusCode::OK,
            &answer,
        )))
    }

    async fn apply(&self, request: Request<Incoming>) -> Result<HttpResponse, RequestError> {
        let asked = self.asked(request.headers(), request.uri().query().unwrap_or_default());
        let mut body = request.into_body();
        let Asked { identity, home } = match asked {
            Ok(asked) => asked,
            Err(error) => {
                drain(body);
                return Err(error);
            }
        };
        let worker = Arc::clone(&self.workers).acquire_owned().await;
        let (sender, pieces) = Pieces::channel();
        let (current, counter) = (self.current.clone(), self.counter.clone());
        let work = identity.run(move || {
            let _worker = worker;
            let home = Home::open(&home, identity_uid())?;
            let current = current.lock();
            let watched = current.as_ref().filter(|current| current.home == home.id);
            let table = watched.map(|current| current.table.clone());
            drop(current);
            apply_all(pieces, Applier::new(home, table, counter))
        });
        let (moved, applied) = tokio::join!(forward(&mut body, sender), work);
        self.heap.record_transfer(moved);
        let applied = applied.map_err(|error| PathError::system("apply", error).into());
        match applied.and_then(|applied| applied) {
            Ok(lines) => Ok(complete(lines)),
            Err(error) => {
                drain(body);
                Err(error)
            }
        }
    }

    async fn look(&self, request: Request<Incoming>) -> Result<HttpResponse, RequestError> {
        let asked = self.asked(request.headers(), request.uri().query().unwrap_or_default())?;
        let body = Limited::new(request.into_body(), MAX_LOOK).collect().await;
        let body = body.map_err(|error| RequestError::bad_request(error.to_string()))?;
        let read: Result<LookRequest, _> = serde_json::from_slice(&body.to_bytes());
        let LookRequest { paths } =
            read.map_err(|error| RequestError::bad_request(error.to_string()))?;
        if paths.len() > BATCH_MAX {
            let message = format!("more than {BATCH_MAX} paths");
            return Err(RequestError::bad_request(message));
        }
        let worker = Arc::clone(&self.workers).acquire_owned().await;
        let Asked { identity, home } = asked;
        let looked = identity.run(move || {
            let _worker = worker;
            let home = Home::open(&home, identity_uid())?;
            let mut lines = Vec::new();
            for path in &paths {
                push_line(&mut lines, &apply::look(&home, path));
            }
            Ok::<_, RequestError>(lines)
        });
        let looked = looked
            .await
            .map_err(|error| PathError::system("look", error))?;
        Ok(complete(looked?))
    }

    async fn file(&self, request: Request<Incoming>) -> Result<HttpResponse, RequestError> {
        let query = request.uri().query().unwrap_or_default();
        let Asked { identity, home } = self.asked(request.headers(), query)?;
        let path = query::value(query, "path").unwrap_or_default();
        let path: SessionPath =
            path.parse()
                .map_err(|error: shoal_session_files::path::InvalidPath| {
                    RequestError::bad_request(error.to_string())
                })?;
        let worker = Arc::clone(&self.workers).acquire_owned().await;
        let opened = identity.run(move || {
            let _worker = worker;
            let up = Home::open(&home, identity_uid())?.parent(&path)?;
            home::open(&up, &path, OFlags::RDONLY)
        });
        let opened = opened
            .await
            .map_err(|error| PathError::system("file", error))?;
        let (file, stat) = opened?;
        let length = u64::try_from(stat.st_size).unwrap_or_default();
        let mut answer = HttpResponse::new(file_body(file, length, &self.heap));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        let kind = HeaderValue::from_static("application/octet-stream");
        headers.insert(CONTENT_TYPE, kind);
        Ok(response::not_stored(answer))
    }
}

/// The user of the calling thread.
fn identity_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Makes all changes of a body. Those before an error are made.
fn apply_all(pieces: Pieces, mut applier: Applier) -> Result<Vec<u8>, RequestError> {
    let mut changes = Changes::new(pieces);
    let ended = loop {
        match changes.next_change() {
            Ok(Some(change)) => applier.apply(&change),
            Ok(None) => break Ok(()),
            Err(error) => break Err(RequestError::bad_request(error.to_string())),
        }
    };
    let mut lines = Vec::new();
    for outcome in applier.finish() {
        push_line(&mut lines, &outcome);
    }
    ended.map(|()| lines)
}

fn push_line(lines: &mut Vec<u8>, line: &impl Serialize) {
    // Lines always encode.
    lines.extend(serde_json::to_vec(line).unwrap_or_default());
    lines.push(b'\n');
}

fn complete(lines: Vec<u8>) -> HttpResponse {
    as_lines(HttpResponse::new(response::full(lines)))
}

fn as_lines(mut answer: HttpResponse) -> HttpResponse {
    let kind = HeaderValue::from_static("application/jsonl");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    response::not_stored(answer)
}
