//! Connect streams in JSON, at byte level, as the SDKs use them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::daemon::{DEADLINE, Daemon};
use crate::http::Answer;

/// A message in its envelope.
pub(crate) fn envelope(message: &Value) -> Bytes {
    let message = message.to_string();
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap());
    bytes.put_slice(message.as_bytes());
    bytes.freeze()
}

/// An open stream.
pub(crate) struct Stream {
    connection: BufReader<TcpStream>,
    body: BytesMut,
    ended: bool,
}

/// An item of a stream.
#[derive(Debug, PartialEq)]
pub(crate) enum Item {
    Message(Value),
    /// The final envelope.
    End(Value),
    /// The connection closed without a final envelope.
    Broken,
}

impl Stream {
    /// The next message that is not a keepalive.
    pub(crate) async fn next(&mut self) -> Item {
        loop {
            let item = timeout(DEADLINE, self.item()).await.unwrap();
            let alive = matches!(&item, Item::Message(message)
                if message["event"].get("keepalive").is_some() || message.get("keepalive").is_some());
            if !alive {
                return item;
            }
        }
    }

    /// The next message of any kind.
    pub(crate) async fn item(&mut self) -> Item {
        loop {
            if let Some(item) = self.decode() {
                return item;
            }
            if self.ended || !self.chunk().await {
                return Item::Broken;
            }
        }
    }

    fn decode(&mut self) -> Option<Item> {
        let length = u32::from_be_bytes(self.body.get(1..5)?.try_into().unwrap()) as usize;
        if self.body.len() < 5 + length {
            return None;
        }
        let envelope = self.body.split_to(5 + length);
        let message = serde_json::from_slice(&envelope[5..]).unwrap();
        Some(match envelope[0] {
            0 => Item::Message(message),
            2 => Item::End(message),
            flags => panic!("flags {flags}"),
        })
    }

    /// Reads a chunk of the chunked body. False at its end or when the connection closed.
    async fn chunk(&mut self) -> bool {
        let mut line = String::new();
        match self.connection.read_line(&mut line).await {
            Ok(count) if count > 0 => {}
            _ => return false,
        }
        let size = usize::from_str_radix(line.trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        if self.connection.read_exact(&mut chunk).await.is_err() {
            return false;
        }
        self.body.put_slice(&chunk[..size]);
        self.ended = size == 0;
        size > 0
    }

    /// The process id in the start event.
    pub(crate) async fn pid(&mut self) -> u32 {
        match self.next().await {
            Item::Message(message) => {
                u32::try_from(message["event"]["start"]["pid"].as_u64().unwrap()).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Reads output until the end.
    pub(crate) async fn finish(mut self) -> Finished {
        let mut finished = Finished::default();
        loop {
            match self.next().await {
                Item::Message(message) => {
                    let event = &message["event"];
                    for (name, to) in [
                        ("stdout", &mut finished.stdout),
                        ("stderr", &mut finished.stderr),
                        ("pty", &mut finished.pty),
                    ] {
                        if let Some(data) = event["data"][name].as_str() {
                            to.push_str(&String::from_utf8_lossy(&STANDARD.decode(data).unwrap()));
                        }
                    }
                    if let Some(end) = event.get("end") {
                        finished.end = end.clone();
                    }
                }
                Item::End(end) => {
                    finished.last = end;
                    return finished;
                }
                Item::Broken => panic!("broken after {finished:?}"),
            }
        }
    }
}

/// Output and end of a process.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) pty: String,
    /// The end event.
    pub(crate) end: Value,
    /// Contents of the final envelope.
    pub(crate) last: Value,
}

impl Finished {
    /// Error code in the final envelope.
    pub(crate) fn code(&self) -> &str {
        self.last["error"]["code"].as_str().unwrap_or_default()
    }
}

impl Daemon {
    /// Opens a stream with a message.
    pub(crate) async fn stream(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        message: &Value,
    ) -> Stream {
        self.stream_bytes(path, headers, envelope(message)).await
    }

    /// Opens a stream with a body.
    pub(crate) async fn stream_bytes(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Stream {
        let mut head = format!(
            "POST {path} HTTP/1.1\r\nhost: sandbox\r\ncontent-type: application/connect+json\r\n\
             connect-protocol-version: 1\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        connection.write_all(&body).await.unwrap();
        let mut connection = BufReader::new(connection);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            timeout(DEADLINE, connection.read_line(&mut line))
                .await
                .unwrap()
                .unwrap();
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.to_ascii_lowercase());
        }
        assert!(lines[0].contains(" 200 "), "{lines:?}");
        assert!(
            lines
                .iter()
                .any(|line| line.trim() == "content-type: application/connect+json"),
            "{lines:?}"
        );
        assert!(
            !lines.iter().any(|line| line.contains("encoding: gzip")),
            "{lines:?}"
        );
        Stream {
            connection,
            body: BytesMut::new(),
            ended: false,
        }
    }

    /// Starts a shell command.
    pub(crate) async fn shell(&self, line: &str, headers: &[(&str, &str)]) -> Stream {
        let process = json!({"cmd": "/bin/sh", "args": ["-c", line]});
        let message = json!({"process": process, "stdin": false});
        self.stream("/process.Process/Start", headers, &message)
            .await
    }

    /// Runs a shell command to its end.
    pub(crate) async fn run(&self, line: &str) -> Finished {
        let mut stream = self.shell(line, &[]).await;
        stream.pid().await;
        stream.finish().await
    }

    /// Makes a unary call.
    pub(crate) async fn call(&self, path: &str, message: Value) -> Answer {
        self.post_json(path, message).await
    }

    /// Makes a unary call as a user.
    pub(crate) async fn call_as(&self, user: &str, path: &str, message: Value) -> Answer {
        self.ask(Method::POST, path)
            .header("content-type", "application/json")
            .header("authorization", &basic(user))
            .send(message.to_string())
            .await
    }
}

/// The header that selects a user.
pub(crate) fn basic(user: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:")))
}
