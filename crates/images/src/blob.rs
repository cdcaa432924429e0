//! Where the bytes of layers come from.

use std::io::Read;

use futures_util::future::BoxFuture;

use super::fault::Fault;
use super::manifest::Blob;

/// A source of contents: a registry, a directory, an archive.
pub(crate) trait Blobs: Send + Sync {
    /// Begins to read a content from its start.
    fn open<'a>(&'a self, blob: &'a Blob) -> BoxFuture<'a, Result<Body, Fault>>;
}

/// A content on its way.
pub(crate) struct Body {
    /// Read by a thread that may block.
    pub(crate) reader: Box<dyn Read + Send>,
    /// What has to run meanwhile for bytes to arrive. Its fault is the cause of what the reader
    /// then sees.
    pub(crate) pump: BoxFuture<'static, Result<(), Fault>>,
}
