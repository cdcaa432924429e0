//! HTTP with bounds.

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

/// How often a registry may send us elsewhere: to its storage, and on from there.
const REDIRECTS_MAX: usize = 5;

/// How many pieces of a layer wait to be unpacked; a piece is what came in one read.
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
        // No certificate is needed, and none may be installed.
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
        // A proxy would resolve names by itself, and be where it likes.
        builder = builder.no_proxy().dns_resolver(guard.clone());
    }
    if reference.is_loopback() {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|e| unusable(chain(&e)))
}

/// A registry that was reached over TLS may not send us where there is none: that is how a
/// stranger's registry would make this machine ask its neighbours.
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

/// Whether the same request may be answered otherwise a moment later.
pub(super) fn may_pass(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        )
}

/// Reads an answer, which must be short.
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

/// An answer of any length, read by a thread while it comes in.
pub(super) fn body(mut response: Response, registry: String) -> Body {
    let (to, from) = mpsc::channel(PIECES);
    let pump = async move {
        loop {
            match response.chunk().await {
                Ok(Some(piece)) if piece.is_empty() => (),
                Ok(piece) => {
                    let last = piece.is_none();
                    // The reader is gone when it has found a fault of its own.
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

/// Reads what is pumped. An empty piece is the end; that the pump has gone without one is not.
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

/// A request that did not come to an answer.
pub(super) fn unreachable(registry: &str, error: reqwest::Error) -> Fault {
    Fault::Unreachable {
        registry: registry.to_owned(),
        // The address may be one that a registry has signed for its storage.
        detail: chain(&error.without_url()),
    }
}

/// An error with its causes, the innermost of which mostly says it.
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

/// What went wrong with TLS, if that did.
fn tls_fault<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(fault) = error.downcast_ref() {
        return Some(fault);
    }
    // An error of a connection does not give what it wraps as its source.
    let wrapped = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match wrapped {
        Some(wrapped) => tls_fault(wrapped),
        None => tls_fault(error.source()?),
    }
}

/// What an operator can do about it.
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
