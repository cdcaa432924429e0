//! `filesystem.Filesystem` on the wire.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use connectrpc::{
    ConnectError, Encodable, RequestContext, Response, ServiceRequest, ServiceResult, ServiceStream,
};
use futures_util::stream;
use shoal_protocol::filesystem::watch_dir_response::{Event, KeepAlive, StartEvent};
use shoal_protocol::filesystem::{
    CreateWatcherRequest, CreateWatcherResponse, Filesystem as FilesystemRpc,
    GetWatcherEventsRequest, GetWatcherEventsResponse, ListDirRequest, ListDirResponse,
    MakeDirRequest, MakeDirResponse, MoveRequest, MoveResponse, RemoveRequest, RemoveResponse,
    RemoveWatcherRequest, RemoveWatcherResponse, StatRequest, StatResponse, WatchDirRequest,
    WatchDirResponse,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::watch::{Options, Watch, WatchResult};
use super::watchers::{UnknownWatcher, Watchers};
use super::{FileError, entry, tree};
use crate::caller::Caller;
use crate::log::Log;
use crate::path;
use crate::user::{Directory, User};

/// Queue length of a watch stream. The kernel queues more.
const QUEUE_LENGTH: usize = 256;

/// The Connect service.
pub(crate) struct FilesystemService {
    caller: Arc<Caller>,
    watchers: Watchers,
    log: Log,
}

impl From<FileError> for ConnectError {
    fn from(error: FileError) -> Self {
        let text = error.to_string();
        match error {
            FileError::NotFound(_) => Self::not_found(text),
            FileError::Exists(_) => Self::already_exists(text),
            FileError::NotDirectory(_) | FileError::Network(_) | FileError::Protected(_) => {
                Self::invalid_argument(text)
            }
            FileError::Cycle(_) => Self::failed_precondition(text),
            FileError::TooMany { .. } => Self::resource_exhausted(text),
            FileError::Lost | FileError::System { .. } => Self::internal(text),
        }
    }
}

impl From<UnknownWatcher> for ConnectError {
    fn from(error: UnknownWatcher) -> Self {
        Self::not_found(error.to_string())
    }
}

/// The user and paths of a caller.
struct FileCaller {
    user: User,
    users: Arc<Directory>,
    workdir: Option<Arc<str>>,
}

impl FileCaller {
    fn resolve(&self, path: &str) -> Result<PathBuf, ConnectError> {
        path::resolve(path, &self.user, self.workdir.as_deref())
            .map_err(|error| ConnectError::invalid_argument(error.to_string()))
    }
}

impl FilesystemService {
    /// A service for the files of this sandbox.
    pub(crate) fn new(caller: Arc<Caller>, log: Log) -> Self {
        Self {
            caller,
            watchers: Watchers::default(),
            log,
        }
    }

    fn file_caller(&self, ctx: &RequestContext) -> Result<FileCaller, ConnectError> {
        let (user, _) = self.caller.user(ctx)?;
        Ok(FileCaller {
            user,
            users: self.caller.users().directory(),
            workdir: self.caller.defaults().workdir,
        })
    }

    /// Runs a file operation on the blocking pool and logs it.
    async fn on_disk<T: Send + 'static>(
        &self,
        what: &'static str,
        path: &str,
        work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, ConnectError> {
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.map_err(|_| ConnectError::unavailable("the daemon is shutting down"))?;
        let entry = self.log.debug("filesystem", what).with("path", path);
        match &done {
            Ok(_) => entry.send(),
            Err(error) => entry.with("error", error.to_string()).send(),
        }
        Ok(done?)
    }

    async fn watch(
        &self,
        ctx: &RequestContext,
        path: &str,
        options: Options,
    ) -> Result<Watch, ConnectError> {
        let path = self.file_caller(ctx)?.resolve(path)?;
        let shown = path.to_string_lossy().into_owned();
        let open = move || Watch::open(&path, options);
        self.on_disk("watch", &shown, open).await
    }
}

/// Event stream of one subscriber: start, changes, and keepalives while idle.
struct EventStream {
    first: bool,
    changes: mpsc::Receiver<WatchResult>,
    keepalive: Duration,
    deadline: Option<Instant>,
    ended: bool,
}

impl EventStream {
    async fn next(&mut self) -> Option<Result<Event, ConnectError>> {
        if std::mem::take(&mut self.first) {
            return Some(Ok(StartEvent::default().into()));
        }
        if self.ended {
            return None;
        }
        tokio::select! {
            biased;
            changes = self.changes.recv() => match changes {
                Some(Ok(event)) => Some(Ok(event.into())),
                Some(Err(error)) => {
                    self.ended = true;
                    Some(Err(error.into()))
                }
                None => None,
            },
            () = crate::clock::sleep_until(self.deadline) => {
                self.ended = true;
                Some(Err(ConnectError::deadline_exceeded("deadline exceeded")))
            }
            () = tokio::time::sleep(self.keepalive) => Some(Ok(KeepAlive::default().into())),
        }
    }
}

impl FilesystemRpc for FilesystemService {
    async fn stat<'a>(
        &'a self,
        ctx: RequestContext,
        request: ServiceRequest<'_, StatRequest>,
    ) -> ServiceResult<impl Encodable<StatResponse> + Send + use<'a>> {
        let caller = self.file_caller(&ctx)?;
        let path = caller.resolve(request.path)?;
        let work = move || entry::describe(&path, &caller.users);
        let entry = self.on_disk("stat", request.path, work).await?;
        Response::ok(StatResponse {
            entry: Some(entry).into(),
        })
    }

    async fn make_dir<'a>(
        &'a self,
        ctx: RequestContext,
        request: ServiceRequest<'_, MakeDirRequest>,
    ) -> ServiceResult<impl Encodable<MakeDirResponse> + Send + use<'a>> {
        let caller = self.file_caller(&ctx)?;
        let path = caller.resolve(request.path)?;
        let work = move || tree::make(&path, &caller.user, &caller.users);
        let entry = self.on_disk("create directory", request.path, work).await?;
        Response::ok(MakeDirResponse {
            entry: Some(entry).into(),
        })
    }

    async fn r#move<'a>(
        &'a self,
        ctx: RequestContext,
        request: ServiceRequest<'_, MoveRequest>,
    ) -> ServiceResult<impl Encodable<MoveResponse> + Send + use<'a>> {
        let caller = self.file_caller(&ctx)?;
        let from = caller.resolve(request.source)?;
        let to = caller.resolve(request.destination)?;
        let work = move || tree::rename(&from, &to, &caller.user, &caller.users);
        let entry = self.on_disk("move", request.source, work).await?;
        Response::ok(MoveResponse {
            entry: Some(entry).into(),
        })
    }

    async fn list_dir<'a>(
        &'a self,
        ctx: RequestContext,
        request: ServiceRequest<'_, ListDirRequest>,
    ) -> ServiceResult<impl Encodable<ListDirResponse> + Send + use<'a>> {
        let caller = self.file_caller(&ctx)?;
        let path = caller.resolve(request.path)?;
        let depth = request.depth.max(1);
        let work = move || tree::list(&path, depth, &caller.users);
        let entries = self.on_disk("list", request.path, work).await?;
        Response::ok(ListDirResponse { entries })
    }

    async fn remove<'a>(
        &'a self,
        ctx: RequestContext,
        request: ServiceRequest<'_, RemoveRequest>,
    ) -> ServiceResult<impl Encodable<RemoveResponse> + Send + use<'a>> {
        let path = self.file_caller(&ctx)?.resolve(request.path)?;
        let work = move || tree::remove(&path);
        self.on_disk("remove", request.path, work).await?;
        Response::ok(RemoveResponse::default())
    }

    async fn watch_dir(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, WatchDirRequest>,
    ) -> ServiceResult<ServiceStream<impl Encodable<WatchDirResponse> + Send + use<>>> {
        let deadline = self.caller.deadline(&ctx)?;
        let options = Options {
            recursive: request.recursive,
            include_entry: request.include_entry,
            allow_network: request.allow_network_mounts,
        };
        let watch = self.watch(&ctx, request.path, options).await?;
        let (tx, changes) = mpsc::channel(QUEUE_LENGTH);
        // A stream needs no flush requests.
        let (_, questions) = mpsc::channel(1);
        tokio::spawn(watch.run(self.caller.users_shared(), tx, questions));
        let event_stream = EventStream {
            first: true,
            changes,
            keepalive: Caller::keepalive(&ctx),
            deadline,
            ended: false,
        };
        let events = stream::unfold(event_stream, |mut event_stream| async {
            let event = event_stream.next().await?;
            let event = event.map(|event| WatchDirResponse { event: Some(event) });
            Some((event, event_stream))
        });
        Ok(Response::stream(events))
    }

    async fn create_watcher<'a>(
        &'a self,
        ctx: RequestContext,
        request: ServiceRequest<'_, CreateWatcherRequest>,
    ) -> ServiceResult<impl Encodable<CreateWatcherResponse> + Send + use<'a>> {
        let options = Options {
            recursive: request.recursive,
            include_entry: request.include_entry,
            allow_network: request.allow_network_mounts,
        };
        let watch = self.watch(&ctx, request.path, options).await?;
        let watcher_id = self.watchers.add(watch, self.caller.users_shared())?;
        Response::ok(CreateWatcherResponse { watcher_id })
    }

    async fn get_watcher_events<'a>(
        &'a self,
        ctx: RequestContext,
        request: ServiceRequest<'_, GetWatcherEventsRequest>,
    ) -> ServiceResult<impl Encodable<GetWatcherEventsResponse> + Send + use<'a>> {
        self.caller.check(&ctx)?;
        let events = self.watchers.poll(request.watcher_id).await?;
        let events = events.map_err(ConnectError::internal)?;
        Response::ok(GetWatcherEventsResponse { events })
    }

    async fn remove_watcher<'a>(
        &'a self,
        ctx: RequestContext,
        request: ServiceRequest<'_, RemoveWatcherRequest>,
    ) -> ServiceResult<impl Encodable<RemoveWatcherResponse> + Send + use<'a>> {
        self.caller.check(&ctx)?;
        self.watchers.remove(request.watcher_id)?;
        Response::ok(RemoveWatcherResponse::default())
    }
}
