//! `GET /tunnel/{port}`: a connection to a loopback port of the sandbox.
//!
//! The gateway reaches the sandbox from outside, where loopback ports do not answer. E2B scans for
//! such ports every second and runs a forwarding process for each. A tunnel that is opened on
//! demand costs nothing until then.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use shoal_protocol::TUNNEL_UPGRADE;
use tokio::net::TcpStream;

use crate::log::Log;
use crate::response::{self, HttpResponse};

/// Copy buffer per direction.
const BUFFER: usize = 64 << 10;

/// Handles `/tunnel/{port}`. The router has checked the token.
pub(crate) async fn handle(port: &str, mut request: Request<Incoming>, log: &Log) -> HttpResponse {
    let asked = request.headers().get(UPGRADE);
    let asked = asked
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if !asked.eq_ignore_ascii_case(TUNNEL_UPGRADE) {
        let text = format!("upgrade to {TUNNEL_UPGRADE} required");
        return response::error(StatusCode::UPGRADE_REQUIRED, text);
    }
    let port = match port.parse::<u16>() {
        Ok(port @ 1..) => port,
        Ok(0) | Err(_) => {
            return response::error(StatusCode::BAD_REQUEST, format!("invalid port '{port}'"));
        }
    };
    let mut inside = match connect(port).await {
        Ok(inside) => inside,
        Err(error) => {
            let text = format!("nothing listens on port {port}: {error}");
            return response::error(StatusCode::BAD_GATEWAY, text);
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
    let mut answer = response::status(StatusCode::SWITCHING_PROTOCOLS);
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(TUNNEL_UPGRADE));
    answer
}

/// Connects to a loopback port, IPv4 first. A loopback connect succeeds or fails at once.
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
