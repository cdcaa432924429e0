//! The sources of layers' bytes.

use std::io::Read;

use futures_util::future::BoxFuture;

use super::fault::Fault;
use super::manifest::Blob;

/// A source of blobs: a registry, a directory, or an archive.
pub(crate) trait Blobs: Send + Sync {
    /// Opens a blob for reading from its start.
    fn open<'a>(&'a self, blob: &'a Blob) -> BoxFuture<'a, Result<Body, Fault>>;
}

/// A blob that is being read.
pub(crate) struct Body {
    /// To be read by a thread that may block.
    pub(crate) reader: Box<dyn Read + Send>,
    /// The transfer, which must be polled for bytes to arrive. Its fault is the cause of the error
    /// that the reader then sees.
    pub(crate) pump: BoxFuture<'static, Result<(), Fault>>,
}
