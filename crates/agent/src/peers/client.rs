//! Fetches checkpoints from the agent of another node.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use shoal_checkpoint::{CheckpointId, LARGEST_MANIFEST, Manifest};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::{Peers, identity};
use crate::transfers::{ReceiveError, manifest_of, receive};

/// How long the other agent may take to accept a connection, and for anything else that it does.
const PATIENCE: Duration = Duration::from_secs(30);
/// The part of an answer that is shown when it is an error, in bytes.
const SHOWN: u64 = 500;

/// Why a checkpoint is not copied from another node.
#[derive(Debug, thiserror::Error)]
#[error("node {node}: {why}")]
pub(crate) struct PeerError {
    node: String,
    why: Why,
}

/// Why its agent gives nothing.
#[derive(Debug, thiserror::Error)]
enum Why {
    #[error("it has no agent that other nodes can ask")]
    NoAgent,
    #[error("it does not answer within {} s", PATIENCE.as_secs())]
    Slow,
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    #[error("no certificate: {0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("no path: {0}")]
    Path(#[from] http::Error),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
}

/// A connection to the agent of another node.
pub(crate) struct Peer {
    node: String,
    requests: SendRequest<Empty<Bytes>>,
    connection: JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Peer {
    pub(crate) async fn connect(peers: &Peers, node: &str) -> Result<Self, PeerError> {
        let opened = within(open(peers, node)).await;
        let (requests, connection) = opened.and_then(|opened| opened).map_err(of(node))?;
        Ok(Self {
            node: node.to_owned(),
            requests,
            connection,
        })
    }

    /// The manifest of a checkpoint.
    pub(crate) async fn manifest(
        &mut self,
        namespace: &str,
        id: &CheckpointId,
    ) -> Result<(Vec<u8>, Manifest), PeerError> {
        let fetched = async {
            let found = self.ask(&path_of(namespace, id)).await?;
            let bytes = whole(found, LARGEST_MANIFEST).await?;
            let manifest = manifest_of(id, &bytes)?;
            Ok((bytes, manifest))
        };
        fetched.await.map_err(of(&self.node))
    }

    /// Copies the files of a checkpoint into a directory. They are not verified.
    pub(crate) async fn get(
        &mut self,
        namespace: &str,
        id: &CheckpointId,
        manifest: &Manifest,
        directory: &Path,
    ) -> Result<(), PeerError> {
        let fetched = async {
            for saved in &manifest.files {
                let path = format!("{}/files/{}", path_of(namespace, id), saved.name);
                let found = self.ask(&path).await?;
                receive(directory, saved, pieces(found.into_body())).await?;
            }
            Ok(())
        };
        fetched.await.map_err(of(&self.node))
    }

    async fn ask(&mut self, path: &str) -> Result<Response<Incoming>, Why> {
        // Required by HTTP, and not read.
        let request = Request::get(path).header(http::header::HOST, identity::NAME);
        let request = request.body(Empty::new())?;
        let found = within(self.requests.send_request(request)).await??;
        let status = found.status();
        if status == StatusCode::OK {
            return Ok(found);
        }
        let why = whole(found, SHOWN).await?;
        let why = String::from_utf8_lossy(&why);
        Err(Why::Refused(format!("{why} ({status})")))
    }
}

/// The connection, and the task that runs it.
async fn open(
    peers: &Peers,
    node: &str,
) -> Result<(SendRequest<Empty<Bytes>>, JoinHandle<()>), Why> {
    let other = peers.agents.of_node(node).ok_or(Why::NoAgent)?;
    let settings = peers.identity.client(other.certificate)?;
    let stream = TcpStream::connect((other.address, peers.port)).await?;
    let name = ServerName::try_from(identity::NAME).map_err(std::io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(settings));
    let stream = connector.connect(name, stream).await?;
    let (requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to another node broke");
        }
    });
    Ok((requests, connection))
}

async fn within<T>(step: impl Future<Output = T>) -> Result<T, Why> {
    let done = tokio::time::timeout(PATIENCE, step).await;
    done.map_err(|_| Why::Slow)
}

fn of(node: &str) -> impl Fn(Why) -> PeerError {
    move |why| PeerError {
        node: node.to_owned(),
        why,
    }
}

fn path_of(namespace: &str, id: &CheckpointId) -> String {
    format!("/v1/checkpoints/{namespace}/{id}")
}

/// An answer of a bounded size, in bytes.
async fn whole(answer: Response<Incoming>, limit: u64) -> Result<Vec<u8>, Why> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let read = within(Limited::new(answer.into_body(), limit).collect()).await?;
    let read = read.map_err(|error| Why::Refused(error.to_string()))?;
    Ok(read.to_bytes().to_vec())
}

/// The pieces of an answer as they come.
fn pieces(body: Incoming) -> impl Stream<Item = Result<Bytes, Why>> {
    stream::try_unfold(body.into_data_stream(), async |mut left| {
        let piece = within(left.next()).await?.transpose()?;
        Ok(piece.map(|piece| (piece, left)))
    })
}
