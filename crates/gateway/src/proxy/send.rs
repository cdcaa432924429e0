//! Sending a forwarded request.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;

use crate::answer::Refusal;
use crate::places::Full;
use crate::upstream::{ForwardedBody, NotSent, Stream2, Upstream};

/// Sends a request to a port in the required HTTP version.
pub(super) async fn send(
    upstream: &Arc<Upstream>,
    port: u16,
    request: Request<ForwardedBody>,
    http2: bool,
) -> Result<(Response<Incoming>, Option<Stream2>), Refusal> {
    let sent = if http2 {
        let sent = Box::pin(upstream.send_http2(port, request)).await;
        sent.map(|(response, stream)| (response, Some(stream)))
    } else {
        let sent = upstream.send(port, request).await;
        sent.map(|response| (response, None))
    };
    sent.map_err(|not| match not {
        NotSent::PortClosed => Refusal::PortClosed,
        NotSent::Full(Full::Share) => Refusal::Share,
        NotSent::Full(Full::All) | NotSent::Exhausted => Refusal::Exhausted,
        NotSent::Broken => Refusal::Broken,
    })
}
