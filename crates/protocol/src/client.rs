//! Client of a sandbox's daemon.
//!
//! [`EnvdClient`] calls one daemon: at an address, or over a byte stream that a [`Dial`] opens,
//! with the headers that the path needs. (The command line goes through the gateway, which reads
//! the sandbox id from a header.) Connections are pooled and shared by clones.
//!
//! [`DaemonClient`] implements the port `SandboxClient` of `shoal-core` over it: commands, files and
//! code in one sandbox.
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
use shoal_core::auth::Token;

use crate::activity::Activity;
use crate::error::ErrorBody;
use crate::filesystem::FilesystemClient;
use crate::headers;
use crate::init::InitRequest;
use crate::metrics::Metrics;
use crate::pass::InitPass;
use crate::process::ProcessClient;
use crate::token::{AccessToken, InvalidAccessToken};

mod dial;
mod error;
mod files;
mod filesystem;
mod home;
mod interpreter;
mod process;
mod sandbox;
mod transport;
mod until_end;

pub use dial::{Dial, DialFuture, Duplex, Endpoint, Network, Tcp, TcpNetwork};
pub use error::ClientError;
pub use files::{Download, Upload};
pub use filesystem::{Change, Watch};
pub use interpreter::{
    Code, CodeContext, CodeError, CodeEvent, CodeResult, Execution, InterpreterClient,
};
pub use process::{Command, Exit, Output, Process, Selector};
pub use sandbox::{DaemonClient, SandboxTarget};
pub use transport::{BodyError, RequestBody, Transport};
pub use until_end::{RunEnd, UntilEnd};

/// Timeout of a unary call, as in E2B's SDKs.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of a health check.
pub const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest plain response that is buffered: metrics, variables, errors.
const MAX_ANSWER: usize = 4 << 20;

/// Client of one daemon.
#[derive(Clone)]
pub struct EnvdClient {
    transport: Transport,
    headers: HeaderMap,
    user: Option<String>,
}

impl EnvdClient {
    /// A client of the daemon at an address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self::over(Arc::new(Tcp(address)), &address.to_string())
    }

    /// A client of the daemon that `dial` connects to. `authority` is the host of requests.
    #[must_use]
    pub fn over(dial: Arc<dyn Dial>, authority: &str) -> Self {
        Self {
            transport: Transport::new(dial, authority),
            headers: HeaderMap::new(),
            user: None,
        }
    }

    /// Sends an access token with every request.
    #[must_use]
    pub fn with_token(self, token: &AccessToken) -> Self {
        self.with_header(headers::ACCESS_TOKEN, token.reveal())
    }

    /// Sends an access token with every request.
    ///
    /// # Errors
    /// If the token is invalid.
    pub fn with_token_text(self, token: &str) -> Result<Self, InvalidAccessToken> {
        Ok(self.with_token(&AccessToken::parse(token)?))
    }

    /// Sends a token of a sandbox with every request.
    #[must_use]
    pub fn with_sandbox_token(self, token: &Token) -> Self {
        self.with_header(headers::ACCESS_TOKEN, token.reveal())
    }

    /// Sends a pass with every request, which the first [`EnvdClient::init`] in a pod needs.
    #[must_use]
    pub fn with_pass(self, pass: &InitPass) -> Self {
        self.with_header(headers::INIT_PASS, pass.reveal())
    }

    /// Sends a header with every request. An invalid value is ignored.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(mut value) = HeaderValue::from_str(value) {
            value.set_sensitive([headers::ACCESS_TOKEN, headers::INIT_PASS].contains(&name));
            self.headers.insert(name, value);
        }
        self
    }

    /// Selects a user of the sandbox instead of its default user.
    #[must_use]
    pub fn with_user(mut self, user: &str) -> Self {
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("{user}:"));
        self.user = Some(user.to_owned());
        self.with_header(AUTHORIZATION, &format!("Basic {basic}"))
    }

    /// The generated client of the process service, for calls without a method here.
    #[must_use]
    pub fn process_rpc(&self) -> ProcessClient<Transport> {
        ProcessClient::new(self.transport.clone(), self.rpc_config())
    }

    /// The generated client of the filesystem service, for calls without a method here.
    #[must_use]
    pub fn filesystem_rpc(&self) -> FilesystemClient<Transport> {
        FilesystemClient::new(self.transport.clone(), self.rpc_config())
    }

    fn rpc_config(&self) -> ClientConfig {
        ClientConfig::new(self.transport.uri("/")).with_default_headers(self.headers.clone())
    }

    /// Checks that the daemon is alive.
    ///
    /// # Errors
    /// If it does not respond within [`HEALTH_TIMEOUT`], or responds with an error.
    pub async fn health(&self) -> Result<(), ClientError> {
        let request = self.request(Method::GET, "/health", Bytes::new())?;
        self.call(request, HEALTH_TIMEOUT).await?;
        Ok(())
    }

    /// Sends settings to the daemon, including a first or new token, which later requests then
    /// need. Returns the daemon's version.
    ///
    /// # Errors
    /// If the daemon is unreachable, has another token, or rejects a value.
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

    /// Announces that the sandbox is about to be saved. Process deadlines stop until
    /// [`EnvdClient::unfreeze`] or [`EnvdClient::init`]. With `sync` file systems are synced before
    /// this returns.
    ///
    /// # Errors
    /// If the daemon is unreachable or rejects the request.
    pub async fn freeze(&self, sync: bool) -> Result<(), ClientError> {
        let path = if sync { "/freeze?sync=true" } else { "/freeze" };
        let request = self.request(Method::POST, path, Bytes::new())?;
        self.call(request, REQUEST_TIMEOUT).await.map(drop)
    }

    /// Announces that the sandbox has been saved and resumes.
    ///
    /// # Errors
    /// If the daemon is unreachable or rejects the request.
    pub async fn unfreeze(&self) -> Result<(), ClientError> {
        let request = self.request(Method::POST, "/unfreeze", Bytes::new())?;
        self.call(request, REQUEST_TIMEOUT).await.map(drop)
    }

    /// Fetches what runs in the sandbox.
    ///
    /// # Errors
    /// If the daemon is unreachable, too old, or the response is invalid.
    pub async fn activity(&self) -> Result<Activity, ClientError> {
        let request = self.request(Method::GET, "/activity", Bytes::new())?;
        let (_, body) = self.call(request, REQUEST_TIMEOUT).await?;
        serde_json::from_slice(&body).map_err(ClientError::malformed)
    }

    /// Fetches the resource usage of the sandbox.
    ///
    /// # Errors
    /// If the daemon is unreachable or the response is invalid.
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

    /// Sends a request and buffers the response.
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

/// Options of a unary call.
fn unary() -> CallOptions {
    CallOptions::default().with_timeout(REQUEST_TIMEOUT)
}

/// Returns a successful response, or the error in the response body.
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
