//! Plain HTTP client.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::daemon::{DEADLINE, Daemon};

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// Status and message of an error.
    pub(crate) fn error(&self) -> (u16, String) {
        let body = self.json();
        assert_eq!(body["code"], self.status.as_u16(), "{body}");
        (
            self.status.as_u16(),
            body["message"].as_str().unwrap().to_owned(),
        )
    }
}

/// A request under construction.
pub(crate) struct HttpRequest {
    address: SocketAddr,
    builder: http::request::Builder,
}

impl Daemon {
    pub(crate) fn ask(&self, method: Method, path: &str) -> HttpRequest {
        HttpRequest::new(self.address, method, path)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path).send("").await
    }

    pub(crate) async fn post_json(&self, path: &str, body: Value) -> Answer {
        let ask = self.ask(Method::POST, path);
        let ask = ask.header("content-type", "application/json");
        ask.send(body.to_string()).await
    }
}

impl HttpRequest {
    pub(crate) fn new(address: SocketAddr, method: Method, path: &str) -> Self {
        let uri: http::Uri = path.parse().unwrap();
        let builder = Request::builder().method(method).uri(uri);
        Self {
            address,
            builder: builder.header("host", "sandbox"),
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.builder = self.builder.header(name, value);
        self
    }

    pub(crate) async fn send(self, body: impl Into<Bytes>) -> Answer {
        let request = self.builder.body(Full::new(body.into())).unwrap();
        let exchange = async {
            let stream = TcpStream::connect(self.address).await.unwrap();
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            let response = sender.send_request(request).await.unwrap();
            let (parts, body) = response.into_parts();
            Answer {
                status: parts.status,
                headers: parts.headers,
                body: body.collect().await.unwrap().to_bytes(),
            }
        };
        tokio::time::timeout(DEADLINE, exchange).await.unwrap()
    }
}
