//! Connections that break when the run of a sandbox ends.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use shoal_core::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{DialFuture, Duplex, Network};

/// Waits for the end of a run.
pub type RunEnd = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A network whose connections break when a run ends. A sandbox that is gone answers nothing, not
/// even with a reset, so calls under way would hang.
pub struct UntilEnd {
    /// The network.
    pub network: Arc<dyn Network>,
    /// The end of the run.
    pub end: RunEnd,
}

impl Network for UntilEnd {
    fn connect(&self, address: SocketAddr) -> DialFuture {
        let (connecting, mut end) = (self.network.connect(address), (self.end)());
        Box::pin(async move {
            let stream = tokio::select! {
                biased;
                () = &mut end => return Err(ended()),
                stream = connecting => stream?,
            };
            Ok(Box::new(EndingStream {
                stream,
                end,
                ended: false,
            }) as Box<dyn Duplex>)
        })
    }
}

/// A connection to a run.
struct EndingStream {
    stream: Box<dyn Duplex>,
    end: BoxFuture<'static, ()>,
    ended: bool,
}

impl EndingStream {
    /// The result of an operation that waits: an error once the run has ended.
    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        self.ended = self.ended || self.end.as_mut().poll(cx).is_ready();
        if self.ended {
            Poll::Ready(Err(ended()))
        } else {
            Poll::Pending
        }
    }
}

fn ended() -> io::Error {
    let text = "the sandbox has ended, or was paused";
    io::Error::new(io::ErrorKind::ConnectionAborted, text)
}

impl AsyncRead for EndingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Bytes that have arrived are passed on first.
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Pending => self.wait(cx),
            ready => ready,
        }
    }
}

impl AsyncWrite for EndingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, buf) {
            Poll::Pending => self.wait(cx),
            ready => ready,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Pending => self.wait(cx),
            ready => ready,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(cx) {
            Poll::Pending => self.wait(cx),
            ready => ready,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write_vectored(cx, bufs) {
            Poll::Pending => self.wait(cx),
            ready => ready,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::{Mutex, watch};

    use super::*;

    /// A network of one connection.
    struct One(Mutex<Option<DuplexStream>>);

    impl Network for One {
        fn connect(&self, _: SocketAddr) -> DialFuture {
            let stream = self.0.try_lock().unwrap().take();
            Box::pin(async move {
                let stream = stream.ok_or(io::ErrorKind::ConnectionRefused)?;
                Ok(Box::new(stream) as Box<dyn Duplex>)
            })
        }
    }

    #[tokio::test]
    async fn what_has_come_is_read_and_then_the_connection_breaks() {
        let (here, mut there) = duplex(64);
        let (over, run) = watch::channel(false);
        let end: RunEnd = Arc::new(move || {
            let mut run = run.clone();
            Box::pin(async move {
                let _ = run.wait_for(|over| *over).await;
            })
        });
        let network = UntilEnd {
            network: Arc::new(One(Mutex::new(Some(here)))),
            end,
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut stream = network.connect(address).await.unwrap();
        there.write_all(b"ab").await.unwrap();
        let waiting = tokio::spawn(async move {
            let mut read = Vec::new();
            let error = stream.read_to_end(&mut read).await.unwrap_err();
            (read, error.kind())
        });
        tokio::task::yield_now().await;
        over.send(true).unwrap();
        let broken = io::ErrorKind::ConnectionAborted;
        assert_eq!(waiting.await.unwrap(), (b"ab".to_vec(), broken));
        let late = network.connect(address).await.err().unwrap();
        assert_eq!(late.kind(), broken);
    }
}
