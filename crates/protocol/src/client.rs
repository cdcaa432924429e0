//! A client for one sandbox's daemon.
//!
//! [`EnvdClient`] speaks to one daemon: at an address, or over whatever byte stream a [`Dial`]
//! opens, with what headers its way needs (the command line goes through the gateway, which reads
//! the sandbox from headers). Connections are kept and used again. Clones share them.
//!
//! ```no_run
//! # async fn example() -> Result<(), shoal_protocol::client::ClientError> {
//! use shoal_protocol::client::{Command, EnvdClient, Output};
//!
//! let envd = EnvdClient::at(([10, 11, 0, 2], 49983).into());
//! let command = Command::shell("uname -a").with_timeout(std::time::Duration::from_secs(10));
//! let mut process = envd.start(command).await?;
//! while let Some(output) = process.next().await? {
//!     if let Output::Stdout(bytes) = output {
//!         print!("{}", String::from_utf8_lossy(&bytes));
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use connectrpc::client::{CallOptions, ClientConfig};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;

use crate::error::ErrorBody;
use crate::filesystem::FilesystemClient;
use crate::headers;
use crate::init::InitRequest;
use crate::metrics::Metrics;
use crate::process::ProcessClient;
use crate::token::{AccessToken, InvalidAccessToken};

mod dial;
mod error;
mod files;
mod filesystem;
mod process;
mod transport;

pub use dial::{Dial, DialFuture, Duplex, Tcp};
pub use error::ClientError;
pub use files::{Download, Upload};
pub use filesystem::{Change, Watch};
pub use process::{Command, Exit, Output, Process, Selector};
pub use transport::{BodyError, RequestBody, Transport};

/// How long a call may take that does not stream. The same as in E2B's SDKs.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the daemon may take to say that it lives.
pub const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of a plain answer that is read whole: metrics, variables, errors.
const MAX_ANSWER: usize = 4 << 20;

/// A client for one sandbox's daemon.
#[derive(Clone)]
pub struct EnvdClient {
    transport: Transport,
    headers: HeaderMap,
    user: Option<String>,
}

impl EnvdClient {
    /// A client for the daemon at an address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self::over(Arc::new(Tcp(address)), &address.to_string())
    }

    /// A client for the daemon behind whatever `dial` opens. `authority` is what requests name as
    /// their host.
    #[must_use]
    pub fn over(dial: Arc<dyn Dial>, authority: &str) -> Self {
        Self {
            transport: Transport::new(dial, authority),
            headers: HeaderMap::new(),
            user: None,
        }
    }

    /// Sends the sandbox's secret with every request.
    #[must_use]
    pub fn with_token(self, token: &AccessToken) -> Self {
        self.with_header(headers::ACCESS_TOKEN, token.reveal())
    }

    /// Sends the sandbox's secret with every request.
    ///
    /// # Errors
    /// When no token looks like that.
    pub fn with_token_text(self, token: &str) -> Result<Self, InvalidAccessToken> {
        Ok(self.with_token(&AccessToken::parse(token)?))
    }

    /// Sends a header with every request. One whose value no header can carry is left out.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(mut value) = HeaderValue::from_str(value) {
            value.set_sensitive(name == headers::ACCESS_TOKEN);
            self.headers.insert(name, value);
        }
        self
    }

    /// Acts as a user of the sandbox instead of its default user.
    #[must_use]
    pub fn with_user(mut self, user: &str) -> Self {
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("{user}:"));
        self.user = Some(user.to_owned());
        self.with_header(AUTHORIZATION, &format!("Basic {basic}"))
    }

    /// The generated client of the process service, for what has no method here.
    #[must_use]
    pub fn process_rpc(&self) -> ProcessClient<Transport> {
        ProcessClient::new(self.transport.clone(), self.rpc_config())
    }

    /// The generated client of the filesystem service, for what has no method here.
    #[must_use]
    pub fn filesystem_rpc(&self) -> FilesystemClient<Transport> {
        FilesystemClient::new(self.transport.clone(), self.rpc_config())
    }

    fn rpc_config(&self) -> ClientConfig {
        ClientConfig::new(self.transport.uri("/")).with_default_headers(self.headers.clone())
    }

    /// Asks whether the daemon lives.
    ///
    /// # Errors
    /// When it does not answer in [`HEALTH_TIMEOUT`], or not with a success.
    pub async fn health(&self) -> Result<(), ClientError> {
        let request = self.request(Method::GET, "/health", Bytes::new())?;
        self.call(request, HEALTH_TIMEOUT).await?;
        Ok(())
    }

    /// Tells the daemon who it is, and gives or changes its secret: after this, requests need the
    /// new one. Returns the daemon's version.
    ///
    /// # Errors
    /// When the daemon cannot be reached, or knows another secret, or refuses a value.
    pub async fn init(&self, body: &InitRequest) -> Result<Option<String>, ClientError> {
        let body = serde_json::to_vec(body).map_err(ClientError::malformed)?;
        let mut request = self.request(Method::POST, "/init", body.into())?;
        request.headers_mut().insert(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        let (parts, _) = self.call(request, REQUEST_TIMEOUT).await?;
        let version = parts.headers.get(headers::ENVD_VERSION);
        Ok(version.and_then(|text| Some(text.to_str().ok()?.to_owned())))
    }

    /// Tells the daemon that the sandbox is about to be saved: no deadline of a process comes nearer
    /// until [`EnvdClient::unfreeze`] or [`EnvdClient::init`]. With `sync` all that was written
    /// there is on disk when this returns.
    ///
    /// # Errors
    /// When the daemon cannot be reached or refuses.
    pub async fn freeze(&self, sync: bool) -> Result<(), ClientError> {
        let path = if sync { "/freeze?sync=true" } else { "/freeze" };
        let request = self.request(Method::POST, path, Bytes::new())?;
        self.call(request, REQUEST_TIMEOUT).await.map(drop)
    }

    /// Tells the daemon that the sandbox has been saved and goes on.
    ///
    /// # Errors
    /// When the daemon cannot be reached or refuses.
    pub async fn unfreeze(&self) -> Result<(), ClientError> {
        let request = self.request(Method::POST, "/unfreeze", Bytes::new())?;
        self.call(request, REQUEST_TIMEOUT).await.map(drop)
    }

    /// Asks how busy the sandbox is.
    ///
    /// # Errors
    /// When the daemon cannot be reached or answers something else.
    pub async fn metrics(&self) -> Result<Metrics, ClientError> {
        let request = self.request(Method::GET, "/metrics", Bytes::new())?;
        let (_, body) = self.call(request, REQUEST_TIMEOUT).await?;
        serde_json::from_slice(&body).map_err(ClientError::malformed)
    }

    fn request(
        &self,
        method: Method,
        path_and_query: &str,
        body: Bytes,
    ) -> Result<Request<RequestBody>, ClientError> {
        let body = Full::new(body).map_err(|never| match never {});
        self.request_with(method, path_and_query, RequestBody::new(body))
    }

    fn request_with(
        &self,
        method: Method,
        path_and_query: &str,
        body: RequestBody,
    ) -> Result<Request<RequestBody>, ClientError> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = self.transport.uri(path_and_query);
        *request.headers_mut() = self.headers.clone();
        if *request.uri() == Uri::default() {
            return Err(ClientError::InvalidPath(path_and_query.to_owned()));
        }
        Ok(request)
    }

    /// Sends a request and reads the whole answer.
    async fn call(
        &self,
        request: Request<RequestBody>,
        timeout: Duration,
    ) -> Result<(http::response::Parts, Bytes), ClientError> {
        let exchange = async {
            let response = self.transport.send_request(request).await?;
            let (parts, body) = success(response).await?.into_parts();
            Ok((parts, read_whole(body).await?))
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::TimedOut(timeout)),
        }
    }
}

/// The options of a call that does not stream.
fn unary() -> CallOptions {
    CallOptions::default().with_timeout(REQUEST_TIMEOUT)
}

/// Passes an answer on if it is a success, and else reads what the daemon has against it.
async fn success(response: Response<Incoming>) -> Result<Response<Incoming>, ClientError> {
    let status = response.status();
    if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response);
    }
    let body = read_whole(response.into_body()).await?;
    let message = match serde_json::from_slice::<ErrorBody>(&body) {
        Ok(error) => error.message,
        Err(_) => String::from_utf8_lossy(&body).into_owned(),
    };
    Err(ClientError::Refused { status, message })
}

async fn read_whole(body: Incoming) -> Result<Bytes, ClientError> {
    let collected = Limited::new(body, MAX_ANSWER).collect().await;
    Ok(collected.map_err(ClientError::Interrupted)?.to_bytes())
}
