//! Connections to ports of an external machine.
//!
//! Each has an SSH connection to itself: one whose bytes nobody reads stops its whole SSH connection.

use std::sync::Arc;

use russh::ChannelOpenFailure;
use russh::client::Handle;
use shoal_core::BoxFuture;
use shoal_core::ports::external::ExternalError;
use shoal_core::ports::sessions::preview::{Forwarded, NotForwarded, PortForward};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_util::compat::TokioAsyncReadCompatExt;

use crate::client::SshClient;
use crate::dial::Checker;
use crate::link::{ANSWER, Link, disconnect};

/// The most connections to ports of one machine at a time. SSH servers limit how many clients they have.
pub(crate) const FORWARDS_MAX: usize = 16;

/// The host of the ports, as the machine's SSH server resolves it.
const LOCALHOST: &str = "localhost";

impl PortForward for SshClient {
    fn open(&self, port: u16) -> BoxFuture<'_, Result<Forwarded, NotForwarded>> {
        Box::pin(open(self.link(), port))
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        let mut closed = self.link().closing();
        Box::pin(async move {
            // Without a link it is closed as well.
            let _ = closed.wait_for(|closed| *closed).await;
        })
    }
}

async fn open(link: &Arc<Link>, port: u16) -> Result<Forwarded, NotForwarded> {
    let place = link.forwards.clone().try_acquire_owned();
    let place = place.map_err(|_| NotForwarded::Full(FORWARDS_MAX))?;
    let failed = |error: &ExternalError| NotForwarded::Failed(error.to_string());
    let handle = link.dial().await.map_err(|error| failed(&error))?;
    let asked = handle.channel_open_direct_tcpip(LOCALHOST, port.into(), "127.0.0.1", 0);
    match timeout(ANSWER, asked).await {
        Ok(Ok(channel)) => Ok(Forwarded {
            stream: Box::new(channel.into_stream().compat()),
            guard: Box::new(Guard {
                handle: Some(handle),
                _place: place,
            }),
        }),
        opened => {
            disconnect(&handle).await;
            Err(match opened {
                Ok(Err(russh::Error::ChannelOpenFailure(ChannelOpenFailure::ConnectFailed))) => {
                    NotForwarded::PortClosed
                }
                Ok(Err(russh::Error::ChannelOpenFailure(
                    ChannelOpenFailure::AdministrativelyProhibited,
                ))) => {
                    let address = link.address();
                    let message = format!(
                        "the SSH server of {address} forbids connections to its ports: allow `AllowTcpForwarding local`"
                    );
                    NotForwarded::Failed(message)
                }
                _ => failed(&link.lost()),
            })
        }
    }
}

/// The SSH connection of one connection to a port.
struct Guard {
    handle: Option<Handle<Checker>>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Handle::try_current();
        if let (Some(handle), Ok(runtime)) = (self.handle.take(), runtime) {
            runtime.spawn(async move { disconnect(&handle).await });
        }
    }
}
