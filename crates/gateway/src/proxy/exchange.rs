//! The forwarded request and the returned answer.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use shoal_core::BoxFuture;
use shoal_core::routes::Route;

use super::idle::IdleConnection;
use super::{Client, GatewayBody, OwnAnswer};
use crate::answer::Refusal;
use crate::forward::{add_daemon_token, ask_upgrade, needs_http2, set_forwarded, strip_hop_by_hop};
use crate::guarded::{Guarded, Held};
use crate::target::{InvalidTarget, Target};
use crate::tunnel::{self, Upgrade};
use crate::upstream::{BoxError, ForwardedBody, uri_for};

/// Whether the server in the sandbox is asked over HTTP/2, and for which upgrade: HTTP/2 has none.
pub(super) fn version<B>(request: &Request<B>, asked: Upgrade) -> (bool, Upgrade) {
    let http2 = needs_http2(request.version(), request.headers()) && asked != Upgrade::Stream;
    (http2, if http2 { Upgrade::Nothing } else { asked })
}

/// Builds the forwarded request; also returns the client's side of an upgrade. An external machine has no route.
pub(super) fn prepare<B>(
    mut request: Request<B>,
    target: &Target,
    route: Option<&Route>,
    client: Client,
    asked: &Upgrade,
    http2: bool,
) -> Result<(Request<ForwardedBody>, Option<OnUpgrade>), Refusal>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let upgrade = asked.protocol();
    let client_side = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    if *asked == Upgrade::Stream {
        tunnel::ask(&mut request);
    }
    let uri = uri_for(target.port, request.uri(), http2)
        .map_err(|_| Refusal::Invalid(InvalidTarget::Host))?;
    let proto = if client.tls { "https" } else { "http" };
    let named = std::mem::replace(request.uri_mut(), uri);
    let headers = request.headers_mut();
    strip_hop_by_hop(headers);
    let mask = route.and_then(|route| route.mask_request_host.as_ref());
    set_forwarded(headers, &named, target.port, mask, client.address, proto);
    if let Some(route) = route.filter(|route| route.envd_access_token.is_none()) {
        add_daemon_token(headers, target.port, &route.guest_token);
    }
    if let Some(protocol) = upgrade {
        ask_upgrade(headers, protocol);
    }
    // Each side has its own HTTP version.
    *request.version_mut() = if http2 {
        http::Version::HTTP_2
    } else {
        http::Version::HTTP_11
    };
    request.extensions_mut().clear();
    Ok((
        request.map(|body| body.map_err(Into::into).boxed_unsync()),
        client_side,
    ))
}

/// Builds the returned answer, which is aborted when the machine ends. An upgraded connection may be `idle`; without
/// that, it counts as a request under way.
///
/// # Errors
/// If the server switches protocols without a request for that.
pub(super) fn give_back(
    mut response: Response<hyper::body::Incoming>,
    client_side: Option<OnUpgrade>,
    asked: &Upgrade,
    ended: BoxFuture<'static, ()>,
    held: Held,
    idle: Option<IdleConnection>,
) -> Result<Response<GatewayBody>, Refusal> {
    let agreed = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    // 101 without an upgrade in the request: the client would not know where HTTP ends. And on a stream, success would
    // mean that the server accepted the WebSocket.
    if agreed && client_side.is_none()
        || response.status().is_success() && *asked == Upgrade::Stream
    {
        return Err(Refusal::Broken);
    }
    let sandbox_side = agreed.then(|| hyper::upgrade::on(&mut response));
    if agreed && *asked == Upgrade::Stream {
        tunnel::agree(&mut response);
    }
    if let Some((client_side, sandbox_side)) = client_side.zip(sandbox_side) {
        match idle {
            Some(idle) => tokio::spawn(idle.copy(client_side, sandbox_side, held)),
            None => tokio::spawn(copy(client_side, sandbox_side, ended, held)),
        };
        return Ok(response.map(|_| empty()));
    }
    strip_hop_by_hop(response.headers_mut());
    *response.version_mut() = http::Version::HTTP_11;
    Ok(response.map(|body| Guarded::new(body, ended, held).boxed_unsync()))
}

/// Copies an upgraded connection both ways until a side closes or the sandbox ends.
async fn copy(client: OnUpgrade, sandbox: OnUpgrade, ended: BoxFuture<'static, ()>, _held: Held) {
    let Ok((client, sandbox)) = tokio::try_join!(client, sandbox) else {
        return;
    };
    let (mut client, mut sandbox) = (TokioIo::new(client), TokioIo::new(sandbox));
    tokio::select! {
        // Errors concern only the two ends.
        _ = tokio::io::copy_bidirectional(&mut client, &mut sandbox) => {}
        () = ended => {}
    }
}

/// No body.
pub(super) fn empty() -> GatewayBody {
    http_body_util::Full::new(Bytes::new())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// An answer of the gateway itself.
pub(super) fn answer_of(mut response: Response<Bytes>) -> Response<GatewayBody> {
    response.extensions_mut().insert(OwnAnswer);
    response.map(|body| {
        http_body_util::Full::new(body)
            .map_err(|never| match never {})
            .boxed_unsync()
    })
}
