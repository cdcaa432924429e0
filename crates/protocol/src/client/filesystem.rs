//! Listing, moving, removing and watching files.

use connectrpc::StreamMessage;
use connectrpc::client::{CallOptions, ServerStream};
use hyper::body::Incoming;

use super::{ClientError, EnvdClient, unary};
use crate::filesystem::watch_dir_response::Event;
use crate::filesystem::{
    EntryInfo, FilesystemEvent, ListDirRequest, MakeDirRequest, MoveRequest, RemoveRequest,
    StatRequest, WatchDirRequest, WatchDirResponse, WatchDirResponseView,
};

/// A change in a watched directory.
pub type Change = FilesystemEvent;

/// A watched directory. Dropping this ends the watch.
pub struct Watch {
    events: ServerStream<Incoming, WatchDirResponseView<'static>>,
}

impl Watch {
    /// Waits for the next change.
    ///
    /// # Errors
    /// If the watch fails or the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Change>, ClientError> {
        loop {
            let message: Option<StreamMessage<WatchDirResponse>> = self.events.message().await?;
            let Some(message) = message else {
                return Ok(None);
            };
            if let Some(Event::Filesystem(change)) = message.to_owned_message().event {
                return Ok(Some(*change));
            }
        }
    }
}

fn entry(answer: Option<EntryInfo>) -> Result<EntryInfo, ClientError> {
    answer.ok_or_else(|| ClientError::malformed("an answer without an entry"))
}

impl EnvdClient {
    /// Describes a file-system entry.
    ///
    /// # Errors
    /// If the path does not exist.
    pub async fn stat(&self, path: &str) -> Result<EntryInfo, ClientError> {
        let request = StatRequest {
            path: path.to_owned(),
        };
        let rpc = self.filesystem_rpc();
        let answer = rpc.stat_with_options(request, unary()).await?;
        entry(answer.into_owned().entry.into_option())
    }

    /// Creates a directory and its parents.
    ///
    /// # Errors
    /// With the code `already_exists` if it exists.
    pub async fn make_dir(&self, path: &str) -> Result<EntryInfo, ClientError> {
        let request = MakeDirRequest {
            path: path.to_owned(),
        };
        let rpc = self.filesystem_rpc();
        let answer = rpc.make_dir_with_options(request, unary()).await?;
        entry(answer.into_owned().entry.into_option())
    }

    /// Renames a file or a directory.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn rename(&self, from: &str, to: &str) -> Result<EntryInfo, ClientError> {
        let request = MoveRequest {
            source: from.to_owned(),
            destination: to.to_owned(),
        };
        let rpc = self.filesystem_rpc();
        let answer = rpc.r#move_with_options(request, unary()).await?;
        entry(answer.into_owned().entry.into_option())
    }

    /// Lists a directory down to a depth of at least 1.
    ///
    /// # Errors
    /// If it does not exist or is not a directory.
    pub async fn list_dir(&self, path: &str, depth: u32) -> Result<Vec<EntryInfo>, ClientError> {
        let request = ListDirRequest {
            path: path.to_owned(),
            depth,
        };
        let rpc = self.filesystem_rpc();
        let answer = rpc.list_dir_with_options(request, unary()).await?;
        Ok(answer.into_owned().entries)
    }

    /// Removes an entry recursively. A missing path is not an error.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub async fn remove(&self, path: &str) -> Result<(), ClientError> {
        let request = RemoveRequest {
            path: path.to_owned(),
        };
        let rpc = self.filesystem_rpc();
        rpc.remove_with_options(request, unary()).await?;
        Ok(())
    }

    /// Watches a directory. The watch is active when this returns.
    ///
    /// # Errors
    /// If it does not exist or is not a directory.
    pub async fn watch_dir(&self, path: &str, recursive: bool) -> Result<Watch, ClientError> {
        let request = WatchDirRequest {
            path: path.to_owned(),
            recursive,
            ..WatchDirRequest::default()
        };
        let rpc = self.filesystem_rpc();
        let options = CallOptions::default();
        let mut events = rpc.watch_dir_with_options(request, options).await?;
        let first: Option<StreamMessage<WatchDirResponse>> = events.message().await?;
        match first.and_then(|message| message.to_owned_message().event) {
            Some(Event::Start(_)) => Ok(Watch { events }),
            _ => Err(ClientError::malformed(
                "a stream of changes without a start",
            )),
        }
    }
}
