//! An HTTP client with bounds.

use std::error::Error;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures_util::FutureExt;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::sync::mpsc;

use super::RegistryConfig;
use super::guard::Guard;
use crate::blob::Body;
use crate::fault::Fault;
use crate::reference::Reference;

/// The maximum number of redirects: to the registry's storage, and further.
const REDIRECTS_MAX: usize = 5;

/// How many chunks of a layer may wait to be unpacked; a chunk is the result of one read.
const PIECES: usize = 16;

/// A client for one registry.
pub(super) fn client(
    reference: &Reference,
    plain: bool,
    guard: Option<&Guard>,
    config: &RegistryConfig,
) -> Result<Client, Fault> {
    let unusable = |detail: String| Fault::Unreachable {
        registry: reference.registry.clone(),
        detail,
    };
    let provider = Arc::new(ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(e.to_string()))?;
    let tls = if plain {
        // No certificate is needed, and the machine may have none installed.
        tls.with_root_certificates(RootCertStore::empty())
    } else {
        tls.with_platform_verifier()
            .map_err(|e| unusable(e.to_string()))?
    };
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls.with_no_client_auth())
        .user_agent(concat!("shoal/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(config.connect_timeout)
        .read_timeout(config.idle_timeout)
        .redirect(redirects(plain, guard.cloned()));
    if let Some(guard) = guard {
        // A proxy would resolve names itself, without the guard.
        builder = builder.no_proxy().dns_resolver(guard.clone());
    }
    if reference.is_loopback() {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|e| unusable(chain(&e)))
}

/// Refuses redirects from TLS to plain HTTP: with those, a hostile registry could make this machine
/// send requests to its neighbours.
fn redirects(plain: bool, guard: Option<Guard>) -> Policy {
    Policy::custom(move |attempt| {
        if attempt.previous().len() > REDIRECTS_MAX {
            attempt.error("too many redirects")
        } else if guard
            .as_ref()
            .is_some_and(|guard| !guard.permits_url(attempt.url()))
        {
            attempt.error("redirected to what may not be asked")
        } else if attempt.url().scheme() == "https" || plain {
            attempt.follow()
        } else {
            attempt.error("redirected away from TLS")
        }
    })
}

/// Whether a retry of the request may succeed.
pub(super) fn may_pass(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        )
}

/// Reads a response of bounded length.
pub(super) async fn read(
    mut response: Response,
    most: u64,
    registry: &str,
) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    while let Some(piece) = response
        .chunk()
        .await
        .map_err(|e| unreachable(registry, e))?
    {
        if (bytes.len() + piece.len()) as u64 > most {
            return Err(Fault::refused(format!(
                "an answer has more than {most} bytes"
            )));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// A response body of any length, which a thread reads while it arrives.
pub(super) fn body(mut response: Response, registry: String) -> Body {
    let (to, from) = mpsc::channel(PIECES);
    let pump = async move {
        loop {
            match response.chunk().await {
                Ok(Some(piece)) if piece.is_empty() => (),
                Ok(piece) => {
                    let last = piece.is_none();
                    // The reader stops early when it finds a fault.
                    if to.send(piece.unwrap_or_default()).await.is_err() || last {
                        return Ok(());
                    }
                }
                Err(error) => return Err(unreachable(&registry, error)),
            }
        }
    };
    Body {
        reader: Box::new(Pieces {
            from,
            piece: Bytes::new(),
            ended: false,
        }),
        pump: pump.boxed(),
    }
}

/// Reads the pumped chunks. An empty chunk is the end; a pump that ends without one has failed.
struct Pieces {
    from: mpsc::Receiver<Bytes>,
    piece: Bytes,
    ended: bool,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && !self.ended {
            self.piece = self
                .from
                .blocking_recv()
                .ok_or_else(|| io::Error::other("the transfer was given up"))?;
            self.ended = self.piece.is_empty();
        }
        let n = self.piece.len().min(into.len());
        self.piece.copy_to_slice(&mut into[..n]);
        Ok(n)
    }
}

/// A request without a response.
pub(super) fn unreachable(registry: &str, error: reqwest::Error) -> Fault {
    Fault::Unreachable {
        registry: registry.to_owned(),
        // The URL may be a signed one of the registry's storage.
        detail: chain(&error.without_url()),
    }
}

/// An error with its causes; usually the innermost is the informative one.
fn chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(error) = next {
        let cause = error.to_string();
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
        next = error.source();
    }
    if let Some(hint) = tls_fault(error).and_then(cure) {
        text.push_str(hint);
    }
    text
}

/// The TLS fault among the causes, if any.
fn tls_fault<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(fault) = error.downcast_ref() {
        return Some(fault);
    }
    // A connection error does not expose the wrapped error as its source.
    let wrapped = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match wrapped {
        Some(wrapped) => tls_fault(wrapped),
        None => tls_fault(error.source()?),
    }
}

/// Advice for the operator.
fn cure(fault: &rustls::Error) -> Option<&'static str> {
    match fault {
        rustls::Error::InvalidMessage(_) => Some(
            ": it does not speak TLS (the setting images.plain_http names registries that are asked \
             without)",
        ),
        rustls::Error::InvalidCertificate(_) => {
            Some(": let the machine trust its authority, or name that in SSL_CERT_FILE")
        }
        _ => None,
    }
}
