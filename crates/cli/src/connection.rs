//! The server, the key and the connection.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::Uri;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use shoal_protocol::client::{Dial, DialFuture, Duplex};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::failure::{Failure, Kind};

/// The default address of a server.
const DEFAULT_URL: &str = "http://127.0.0.1:3000";

/// The default data directory.
const DEFAULT_DATA: &str = "/var/lib/shoal";

/// The timeout of a connect.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The flags for server and key.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// The server; also E2B_API_URL [default: http://127.0.0.1:3000].
    #[arg(long, env = "SHOAL_URL", value_name = "URL", global = true)]
    url: Option<String>,
    /// The API key [default: E2B_API_KEY, else the file `api-key` in --data].
    #[arg(
        long,
        env = "SHOAL_API_KEY",
        value_name = "KEY",
        global = true,
        hide_env_values = true
    )]
    api_key: Option<String>,
    /// The data directory of a server on this machine [default: /var/lib/shoal].
    #[arg(long, env = "SHOAL_DATA", value_name = "DIR", global = true)]
    data: Option<PathBuf>,
    /// Print JSON for programs.
    #[arg(long, global = true)]
    json: bool,
    /// The output format.
    #[arg(long, short, global = true, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// For programs, as `--json`.
    Json,
}

/// A server's origin: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Whether it uses TLS.
    pub(crate) tls: bool,
    /// Its name or address, without brackets.
    pub(crate) host: String,
    /// Its port.
    pub(crate) port: u16,
}

impl Origin {
    /// Parses `http[s]://host[:port]`.
    fn parse(text: &str) -> Result<Self, Failure> {
        let refused = || {
            Failure::usage(format!(
                "{text:?} is not a server URL like http://HOST:PORT"
            ))
            .with_hint("Set it with --url, SHOAL_URL or E2B_API_URL.")
        };
        let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| refused())?;
        let path = uri.path();
        let origin = Self::of(&uri).filter(|_| path.is_empty() || path == "/");
        origin.ok_or_else(refused)
    }

    /// The origin of a URL.
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        let tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let host = uri.host().filter(|host| !host.is_empty())?;
        Some(Self {
            tls,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }),
        })
    }

    /// The `Host` of requests.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        let usual = if self.tls { 443 } else { 80 };
        if self.port == usual {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Whether it is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost"
            || self.host.ends_with(".localhost")
            || address.is_ok_and(|address| address.is_loopback())
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

/// A server and a key.
#[derive(Clone)]
pub(crate) struct Connection {
    /// The server.
    pub(crate) origin: Origin,
    /// The caller's key.
    pub(crate) key: String,
    /// The source of the key, for messages.
    pub(crate) key_from: String,
    way: Arc<Way>,
}

impl ConnectionArgs {
    /// Whether results are printed as JSON.
    pub(crate) fn json(&self) -> bool {
        self.json || self.output == Some(Format::Json)
    }

    /// Finds the server and the key.
    ///
    /// # Errors
    /// When there is no key, or a value is invalid.
    pub(crate) fn resolve(&self) -> Result<Connection, Failure> {
        let said = self.url.clone().or_else(|| variable("E2B_API_URL"));
        let origin = Origin::parse(said.as_deref().unwrap_or(DEFAULT_URL))?;
        let (key, key_from) = self.key()?;
        let tls = origin.tls.then(tls_connector).transpose()?;
        let way = Way {
            origin: origin.clone(),
            tls,
        };
        Ok(Connection {
            origin,
            key,
            key_from,
            way: Arc::new(way),
        })
    }

    fn key(&self) -> Result<(String, String), Failure> {
        if let Some(key) = self.api_key.clone().filter(|key| !key.is_empty()) {
            return Ok((key, "--api-key or SHOAL_API_KEY".to_owned()));
        }
        if let Some(key) = variable("E2B_API_KEY") {
            return Ok((key, "E2B_API_KEY".to_owned()));
        }
        let data = self.data.clone().unwrap_or_else(|| DEFAULT_DATA.into());
        let file = data.join("api-key");
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok((text.trim().to_owned(), file.display().to_string())),
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::NotFound => "does not exist",
                    io::ErrorKind::PermissionDenied => "is readable only by its owner",
                    _ => "cannot be read",
                };
                let message = format!("no API key: none is set, and {} {why}", file.display());
                Err(Failure::new(Kind::Refused, message).with_hint(
                    "Give one by --api-key or SHOAL_API_KEY, or name the server's data directory \
                     by --data or SHOAL_DATA.",
                ))
            }
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Connection {
    /// A connector to the server.
    pub(crate) fn dial(&self) -> Arc<dyn Dial> {
        self.way.clone()
    }

    /// Opens a connection.
    pub(crate) async fn open(&self) -> Result<Box<dyn Duplex>, Failure> {
        self.way
            .dial()
            .await
            .map_err(|error| self.unreachable(&error))
    }

    /// The failure for an unreachable server, with a hint.
    pub(crate) fn unreachable(&self, error: &io::Error) -> Failure {
        let message = format!("cannot reach the server at {}: {error}", self.origin);
        let hint = if self.origin.is_loopback() {
            "Start one with `sudo shoal serve`, or set another with --url or SHOAL_URL."
        } else {
            "Check that it is running, or set another with --url or SHOAL_URL."
        };
        Failure::new(Kind::Unreachable, message).with_hint(hint)
    }
}

/// Opens a connection to another origin that the server named.
pub(crate) async fn open_elsewhere(origin: &Origin) -> Result<Box<dyn Duplex>, Failure> {
    let way = Way {
        origin: origin.clone(),
        tls: origin.tls.then(tls_connector).transpose()?,
    };
    way.dial().await.map_err(|error| {
        let message = format!("cannot reach {origin}, which the server named: {error}");
        Failure::new(Kind::Unreachable, message)
            .with_hint("The server derives it from the request's host: check --url.")
    })
}

/// Opens connections to the server.
struct Way {
    origin: Origin,
    tls: Option<TlsConnector>,
}

impl Dial for Way {
    fn dial(&self) -> DialFuture {
        let (origin, tls) = (self.origin.clone(), self.tls.clone());
        Box::pin(async move {
            match tokio::time::timeout(DIAL_TIMEOUT, open(origin, tls)).await {
                Ok(opened) => opened,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        })
    }
}

async fn open(origin: Origin, tls: Option<TlsConnector>) -> io::Result<Box<dyn Duplex>> {
    // All names under `localhost` are this machine (RFC 6761), but not every resolver knows.
    let host = if origin.host.ends_with(".localhost") {
        "localhost"
    } else {
        origin.host.as_str()
    };
    let stream = TcpStream::connect((host, origin.port)).await?;
    // Requests are small and latency matters.
    stream.set_nodelay(true)?;
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(origin.host).map_err(io::Error::other)?;
    Ok(Box::new(tls.connect(name, stream).await?))
}

fn tls_connector() -> Result<TlsConnector, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| Failure::other(format!("cannot use TLS: {error}")))?;
    Ok(TlsConnector::from(Arc::new(config.with_no_client_auth())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Option<String> {
        Origin::parse(text).ok().map(|origin| origin.to_string())
    }

    #[test]
    fn a_server_is_a_scheme_a_host_and_perhaps_a_port() {
        for (text, shown) in [
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://127.0.0.1:3000/", "http://127.0.0.1:3000"),
            ("https://shoal.example", "https://shoal.example"),
            ("https://shoal.example:443", "https://shoal.example"),
            ("http://[::1]:3000", "http://[::1]:3000"),
        ] {
            assert_eq!(origin(text).as_deref(), Some(shown), "{text}");
        }
        for bad in [
            "",
            "127.0.0.1:3000",
            "ftp://x",
            "http://",
            "http://x/path",
            "http://a b",
        ] {
            assert_eq!(origin(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_on_this_machine_is_known() {
        for (text, here) in [
            ("http://127.0.0.1:1", true),
            ("http://[::1]:1", true),
            ("http://localhost", true),
            ("http://10.0.0.1", false),
            ("http://shoal.example", false),
        ] {
            assert_eq!(Origin::parse(text).unwrap().is_loopback(), here, "{text}");
        }
    }

    #[test]
    fn a_key_that_is_said_wins_over_the_file() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join("api-key"), "e2b_file\n").unwrap();
        let args = |key: Option<&str>| ConnectionArgs {
            url: None,
            api_key: key.map(str::to_owned),
            data: Some(data.path().to_owned()),
            json: false,
            output: None,
        };
        assert_eq!(args(Some("e2b_said")).key().unwrap().0, "e2b_said");
        if variable("E2B_API_KEY").is_none() {
            assert_eq!(args(None).key().unwrap().0, "e2b_file");
        }
    }
}
