//! Connections to a daemon.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A bidirectional byte stream.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// A connection attempt.
pub type DialFuture = Pin<Box<dyn Future<Output = io::Result<Box<dyn Duplex>>> + Send>>;

/// Opens connections to one daemon.
pub trait Dial: Send + Sync + 'static {
    /// Opens a connection.
    fn dial(&self) -> DialFuture;
}

/// Connects over TCP.
#[derive(Debug, Clone, Copy)]
pub struct Tcp(
    /// Address of the daemon.
    pub SocketAddr,
);

impl Dial for Tcp {
    fn dial(&self) -> DialFuture {
        let address = self.0;
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            // Requests are small and latency matters.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}

/// Opens connections to sandboxes.
pub trait Network: Send + Sync + 'static {
    /// Opens a connection to an address of a sandbox.
    fn connect(&self, address: SocketAddr) -> DialFuture;
}

/// Connects to sandboxes over TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpNetwork;

impl Network for TcpNetwork {
    fn connect(&self, address: SocketAddr) -> DialFuture {
        Tcp(address).dial()
    }
}

/// One address of a network.
#[derive(Clone)]
pub struct Endpoint {
    /// The network.
    pub network: Arc<dyn Network>,
    /// The address.
    pub address: SocketAddr,
}

impl Dial for Endpoint {
    fn dial(&self) -> DialFuture {
        self.network.connect(self.address)
    }
}
