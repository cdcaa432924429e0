//! `GET /tunnel/{port}`: a way to what listens on the sandbox's loopback.
//!
//! The gateway reaches the sandbox from outside, where such ports do not answer. E2B looks for them
//! each second and forwards them by a process each; a way that is opened when it is needed costs
//! nothing before that.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use shoal_protocol::TUNNEL_UPGRADE;
use tokio::net::TcpStream;

use crate::answer::{self, Answer};
use crate::log::Log;

/// How much is copied at once each way.
const BUFFER: usize = 64 << 10;

/// Answers a request to `/tunnel/{port}`. The token has been checked.
pub(crate) async fn answer(port: &str, mut request: Request<Incoming>, log: &Log) -> Answer {
    let asked = request.headers().get(UPGRADE);
    let asked = asked
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if !asked.eq_ignore_ascii_case(TUNNEL_UPGRADE) {
        let text = format!("ask for an upgrade to {TUNNEL_UPGRADE}");
        return answer::error(StatusCode::UPGRADE_REQUIRED, text);
    }
    let port = match port.parse::<u16>() {
        Ok(port @ 1..) => port,
        Ok(0) | Err(_) => {
            return answer::error(StatusCode::BAD_REQUEST, format!("invalid port '{port}'"));
        }
    };
    let mut inside = match connect(port).await {
        Ok(inside) => inside,
        Err(error) => {
            let text = format!("nothing listens on port {port}: {error}");
            return answer::error(StatusCode::BAD_GATEWAY, text);
        }
    };
    let log = log.clone();
    tokio::spawn(async move {
        let Ok(outside) = hyper::upgrade::on(&mut request).await else {
            return;
        };
        let mut outside = TokioIo::new(outside);
        let copied =
            tokio::io::copy_bidirectional_with_sizes(&mut inside, &mut outside, BUFFER, BUFFER);
        let entry = log.debug("tunnel", "closed").with("port", port);
        match copied.await {
            Ok((sent, received)) => entry.with("sent", sent).with("received", received),
            Err(error) => entry.with("error", error.to_string()),
        }
        .send();
    });
    let mut answer = answer::status(StatusCode::SWITCHING_PROTOCOLS);
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(TUNNEL_UPGRADE));
    answer
}

/// Connects to a port of the loopback of either family. On the loopback a port answers or refuses
/// at once.
async fn connect(port: u16) -> std::io::Result<TcpStream> {
    let stream = match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        Ok(stream) => stream,
        Err(error) => {
            let other = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await;
            other.map_err(|_| error)?
        }
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}
