//! Ways to a daemon.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A stream of bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// A connection being opened.
pub type DialFuture = Pin<Box<dyn Future<Output = io::Result<Box<dyn Duplex>>> + Send>>;

/// Opens connections to one daemon.
pub trait Dial: Send + Sync + 'static {
    /// Opens one more.
    fn dial(&self) -> DialFuture;
}

/// The way over TCP.
#[derive(Debug, Clone, Copy)]
pub struct Tcp(
    /// Where the daemon listens.
    pub SocketAddr,
);

impl Dial for Tcp {
    fn dial(&self) -> DialFuture {
        let address = self.0;
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            // Requests are small and waited for.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}
