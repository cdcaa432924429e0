//! Connecting to a starting kernel, whose ports may not be open yet.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::EmptyContent;
use crate::interpreter::connection_file::Ports;
use crate::interpreter::wire::{Envelope, Session};
use crate::interpreter::zmtp::{ConnectionError, Role, Socket};

/// Interval between connection attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Initial timeout of a handshake: another process may own a port.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// Connects until the kernel itself answers. Another process may own one of its ports for a moment.
/// It then closes the connection or stays silent, and all connections are retried.
pub(super) async fn to(ports: Ports, session: &mut Session) -> [Socket; 3] {
    let mut handshake_timeout = HANDSHAKE_TIMEOUT;
    loop {
        let mut shell = connect_port(ports.shell, Role::Dealer).await;
        let mut iopub = connect_port(ports.iopub, Role::Subscriber).await;
        let control = connect_port(ports.control, Role::Dealer).await;
        // The kernel may answer before it registers the subscription; that output is lost.
        let handshaken = handshake(session, &mut shell, &mut iopub);
        match timeout(handshake_timeout, handshaken).await {
            Ok(Ok(())) => return [shell, iopub, control],
            Ok(Err(_)) => sleep(RETRY_INTERVAL).await,
            // Double the timeout for a slow kernel, which answers abandoned requests too.
            Err(_) => handshake_timeout *= 2,
        }
    }
}

/// Waits until a ZeroMQ peer listens on a port.
async fn connect_port(port: u16, role: Role) -> Socket {
    loop {
        match timeout(HANDSHAKE_TIMEOUT, Socket::connect(port, role)).await {
            Ok(Ok(socket)) => return socket,
            Ok(Err(_)) => sleep(RETRY_INTERVAL).await,
            Err(_) => {}
        }
    }
}

async fn handshake(
    session: &mut Session,
    shell: &mut Socket,
    iopub: &mut Socket,
) -> Result<(), ConnectionError> {
    let (id, frames) = session.request("kernel_info_request", &EmptyContent {});
    shell.send(&frames).await?;
    for socket in [shell, iopub] {
        loop {
            let message = socket.next().await?;
            let belongs = |envelope: Envelope| envelope.parent == id;
            if session.open(&message).is_some_and(belongs) {
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
