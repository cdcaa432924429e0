//! A listener on a real port, with the API and the gateway of an engine over a fake driver.

use shoal_api::ApiConfig;
use shoal_core::audit::NoAudit;
use shoal_engine::test_util::{self, FakeDriver, base_template};
use shoal_engine::{Engine, EngineParts};
use shoal_gateway::{Gateway, GatewayConfig};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::*;

/// The domain of sandbox host names.
pub(super) const DOMAIN: &str = "sandbox.test";

/// The host name of requests to the API.
pub(super) const API: &str = "localhost";

pub(super) struct Served {
    pub(super) address: SocketAddr,
    pub(super) driver: FakeDriver,
    pub(super) engine: Engine,
    pub(super) key: String,
    pub(super) stopping: CancellationToken,
    pub(super) served: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Served {
    pub(super) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let driver = FakeDriver::new();
        let engine = test_util::open(EngineParts {
            drivers: vec![Arc::new(driver.clone())],
            ..test_util::parts(directory.path())
        })
        .await;
        engine.put_template(base_template()).await.unwrap();
        let (key, _) = test_util::admin_and_other(&engine).await;
        let config = GatewayConfig {
            domain: Some(DOMAIN.to_owned()),
            ..GatewayConfig::default()
        };
        let gateway = Gateway::new(config, Arc::new(engine.routes()));
        let api = shoal_api::router(engine.ports(), ApiConfig::default());
        let stopping = CancellationToken::new();
        let dispatch = Dispatch::new(gateway, api, Arc::new(NoAudit), stopping.clone());
        let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let work = engine.clone();
        let work = async move { work.drained().await };
        Self {
            address,
            driver,
            engine,
            key,
            stopping,
            served: tokio::spawn(serve(listener, None, dispatch, 100, work)),
            _directory: directory,
        }
    }

    /// Begins to stop, as a signal does.
    pub(super) fn stop(&self) {
        self.stopping.cancel();
        self.engine.stop();
    }

    /// A request in the words of the wire.
    pub(super) fn request(&self, host: &str, line: &str, headers: &str, body: &str) -> String {
        let (key, length) = (&self.key, body.len());
        format!(
            "{line} HTTP/1.1\r\nHost: {host}\r\nX-API-Key: {key}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        )
    }

    /// Sends a request on a connection of its own and returns the whole answer.
    pub(super) fn ask(&self, request: String) -> impl Future<Output = String> + Send + use<> {
        let address = self.address;
        async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            rest(&mut stream).await
        }
    }
}

/// The bytes until the server closes the connection.
pub(super) async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}
