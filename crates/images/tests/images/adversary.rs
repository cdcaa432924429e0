//! A registry that a test scripts.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_images::Digest;

use crate::making::TestImage;

/// A request.
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) host: String,
    pub(crate) authorization: Option<String>,
    /// How often this path was requested before.
    pub(crate) before: usize,
}

/// A response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// The number of body bytes that are sent before the connection is cut.
    pub(crate) sent: usize,
}

impl Answer {
    pub(crate) fn of(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self {
            status,
            headers: Vec::new(),
            sent: body.len(),
            body,
        }
    }

    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::of(200, body)
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Sends only this much of the body.
    pub(crate) fn cut_after(mut self, sent: usize) -> Self {
        self.sent = sent;
        self
    }
}

type Script = dyn Fn(&Asked) -> Answer + Send + Sync;

/// A registry on a loopback port for the duration of a test.
pub(crate) struct Adversary {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Adversary {
    pub(crate) fn start(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Script> = Arc::new(script);
        let log = Arc::clone(&asked);
        // The thread ends with the process: no event could wake it from `accept`.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                std::thread::spawn(move || serve(&stream.unwrap(), &*script, &log));
            }
        });
        Self { address, asked }
    }

    /// Serves this image as `x`, except where `script` responds first.
    pub(crate) fn serving(
        image: &TestImage,
        script: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let image = image.clone();
        Self::start(move |asked| script(asked).unwrap_or_else(|| honest(&image, &asked.path)))
    }

    pub(crate) fn name(&self) -> String {
        format!("{}/x", self.address)
    }

    /// How often a path that contains `part` was requested.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.asked
            .lock()
            .iter()
            .filter(|path| path.contains(part))
            .count()
    }
}

/// The response of a well-behaved registry.
pub(crate) fn honest(image: &TestImage, path: &str) -> Answer {
    if path.contains("/manifests/") {
        return Answer::ok(image.manifest.clone());
    }
    path.rsplit('/')
        .next()
        .and_then(|name| name.parse::<Digest>().ok())
        .and_then(|digest| image.blobs.get(&digest))
        .map_or_else(|| Answer::of(404, "{}"), |blob| Answer::ok(blob.clone()))
}

fn serve(stream: &TcpStream, script: &Script, log: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let path = line.split(' ').nth(1)?.to_owned();
        let (mut authorization, mut host) = (None, String::new());
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            match header.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                    authorization = Some(value.to_owned());
                }
                Some((name, value)) if name.eq_ignore_ascii_case("host") => {
                    value.clone_into(&mut host)
                }
                Some(_) => (),
                None => break,
            }
        }
        let before = {
            let mut log = log.lock();
            let before = log.iter().filter(|other| **other == path).count();
            log.push(path.clone());
            before
        };
        let answer = script(&Asked {
            path,
            host,
            authorization,
            before,
        });
        write!(
            &*stream,
            "HTTP/1.1 {} x\r\nContent-Length: {}\r\n",
            answer.status,
            answer.body.len()
        )
        .ok()?;
        for (name, value) in &answer.headers {
            write!(&*stream, "{name}: {value}\r\n").ok()?;
        }
        (&*stream).write_all(b"\r\n").ok()?;
        (&*stream).write_all(&answer.body[..answer.sent]).ok()?;
        if answer.sent < answer.body.len() {
            return None;
        }
    }
}
