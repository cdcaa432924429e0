//! Gives checkpoints to the agents of other nodes.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use shoal_checkpoint::{CheckpointId, MANIFEST, Store, StoreError};
use tokio::fs::File;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::io::ReaderStream;

use super::agents::{Agents, Other};
use crate::cluster::Cluster;

/// How many connections there are at once. Others wait.
const CONNECTIONS: usize = 64;
/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a connection may be without a request.
const IDLE: Duration = Duration::from_secs(60);
/// How much of a file is read at once, in bytes.
const PIECE: usize = 256 << 10;

type Body = BoxBody<Bytes, io::Error>;

/// The object of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    namespace: String,
    id: CheckpointId,
    /// A file that the manifest lists, or the manifest itself.
    name: Option<String>,
}

/// Why nothing is given.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("GET /v1/checkpoints/<namespace>/<id>[/files/<name>]")]
    Unknown,
    #[error("no pod of node {0} starts from this checkpoint")]
    Forbidden(String),
    #[error("this node does not have the checkpoint, or the file")]
    Missing,
    #[error("{0}")]
    Store(StoreError),
    #[error("cannot ask the API server whether a pod starts from this checkpoint: {0}")]
    Api(#[from] kube::Error),
    #[error("the checkpoint was not read")]
    Aborted(#[from] tokio::task::JoinError),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Missing | StoreError::Namespace(_) => Self::Missing,
            other => Self::Store(other),
        }
    }
}

impl Refused {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unknown | Self::Missing => StatusCode::NOT_FOUND,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Store(_) | Self::Aborted(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Api(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// What an agent gives, and to whom.
pub(crate) struct Offer {
    pub(crate) store: Store,
    /// Knows the pods that start from a checkpoint.
    pub(crate) cluster: Cluster,
    pub(crate) agents: Arc<Agents>,
}

/// Serves the connections of a listener forever.
pub(crate) async fn serve(offer: Arc<Offer>, listener: TcpListener, settings: ServerConfig) {
    let acceptor = TlsAcceptor::from(Arc::new(settings));
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of another node");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (offer, acceptor) = (Arc::clone(&offer), acceptor.clone());
        tokio::spawn(async move {
            let _place = place;
            if let Some((stream, other)) = known(&acceptor, &offer.agents, stream).await {
                connection(offer, other, stream).await;
            }
        });
    }
}

/// A connection of an agent. Others are closed before anything of them is read.
async fn known(
    acceptor: &TlsAcceptor,
    agents: &Agents,
    stream: TcpStream,
) -> Option<(TlsStream<TcpStream>, Other)> {
    let from = stream.peer_addr().ok();
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(?from, %error, "the handshake failed");
            return None;
        }
        Err(_) => return None,
    };
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates()?.first()?;
    let Some(other) = agents.with(certificate) else {
        tracing::debug!(?from, "no agent has this certificate");
        return None;
    };
    Some((stream, other))
}

async fn connection(offer: Arc<Offer>, other: Other, stream: TlsStream<TcpStream>) {
    let other = Arc::new(other);
    let service = service_fn(move |request| {
        let (offer, other) = (Arc::clone(&offer), Arc::clone(&other));
        async move { Ok::<_, Infallible>(answer(&offer, &other, &request).await) }
    });
    // A client that disconnects is no error.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(offer: &Offer, other: &Other, request: &Request<Incoming>) -> Response<Body> {
    let given = match asked(request.method(), request.uri().path()) {
        Some(asked) => give(offer, other, asked).await,
        None => Err(Refused::Unknown),
    };
    given.unwrap_or_else(|refused| {
        let text = refused.to_string();
        tracing::debug!(node = %other.node, path = request.uri().path(), error = %text, "not given");
        let mut response = Response::new(Full::from(text).map_err(|never| match never {}).boxed());
        *response.status_mut() = refused.status();
        response
    })
}

async fn give(offer: &Offer, other: &Other, asked: Asked) -> Result<Response<Body>, Refused> {
    let Asked { namespace, id, .. } = &asked;
    if !offer
        .cluster
        .starts_from(&other.node, namespace, id)
        .await?
    {
        return Err(Refused::Forbidden(other.node.clone()));
    }
    let store = offer.store.clone();
    let opened = tokio::task::spawn_blocking(move || {
        let Asked {
            namespace,
            id,
            name,
        } = asked;
        let manifest = store.manifest(&namespace, &id)?;
        let name = name.unwrap_or_else(|| MANIFEST.to_owned());
        if name != MANIFEST && manifest.files.iter().all(|file| file.name != name) {
            return Err(Refused::Missing);
        }
        let file = store.open(&namespace, id.key(), &name)?;
        let size = file
            .metadata()
            .map_err(|error| StoreError::Disk { what: name, error })?;
        Ok((file, size.len()))
    });
    let (file, size) = opened.await??;
    let pieces = ReaderStream::with_capacity(File::from_std(file), PIECE);
    let mut response = Response::new(StreamBody::new(pieces.map_ok(Frame::data)).boxed());
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
    Ok(response)
}

fn asked(method: &Method, path: &str) -> Option<Asked> {
    let path = path.strip_prefix("/v1/checkpoints/")?;
    let (namespace, path) = path.split_once('/')?;
    let (id, name) = match path.split_once("/files/") {
        Some((id, name)) => (id, Some(name.to_owned())),
        None => (path, None),
    };
    (method == Method::GET).then_some(Asked {
        namespace: namespace.to_owned(),
        id: id.parse().ok()?,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_a_checkpoint_and_perhaps_a_file() {
        let id = format!("{}-{}", "1".repeat(32), "2".repeat(24));
        let of = |path: &str| asked(&Method::GET, path);
        let manifest = of(&format!("/v1/checkpoints/ns/{id}")).unwrap();
        assert_eq!((&*manifest.namespace, manifest.name), ("ns", None));
        assert_eq!(manifest.id.to_string(), id);
        let file = of(&format!("/v1/checkpoints/ns/{id}/files/main/files.img")).unwrap();
        assert_eq!(file.name.as_deref(), Some("main/files.img"));
        for wrong in [
            "/",
            "/v1/checkpoints/ns",
            "/v1/checkpoints/ns/../x",
            "/v1/checkpoints/ns/1/files/a",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(
            asked(&Method::POST, &format!("/v1/checkpoints/ns/{id}")),
            None
        );
    }
}
