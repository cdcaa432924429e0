//! Connecting to a starting kernel, whose ports may not be open yet.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Nothing;
use crate::interpreter::connection_file::Ports;
use crate::interpreter::wire::{Envelope, Session};
use crate::interpreter::zmtp::{Broken, Role, Socket};

/// Interval between connection attempts.
const NOT_YET: Duration = Duration::from_millis(10);

/// Initial timeout of a handshake: another process may own a port.
const FIRST_ANSWERS: Duration = Duration::from_secs(1);

/// Connects until the kernel itself answers. Another process may own one of its ports for a moment.
/// It then closes the connection or stays silent, and all connections are retried.
pub(super) async fn to(ports: Ports, session: &mut Session) -> [Socket; 3] {
    let mut patience = FIRST_ANSWERS;
    loop {
        let mut shell = dial(ports.shell, Role::Dealer).await;
        let mut heard = dial(ports.iopub, Role::Subscriber).await;
        let control = dial(ports.control, Role::Dealer).await;
        // The kernel may answer before it registers the subscription; that output is lost.
        let greeted = greet(session, &mut shell, &mut heard);
        match timeout(patience, greeted).await {
            Ok(Ok(())) => return [shell, heard, control],
            Ok(Err(_)) => sleep(NOT_YET).await,
            // Double the timeout for a slow kernel, which answers abandoned requests too.
            Err(_) => patience *= 2,
        }
    }
}

/// Waits until a ZeroMQ peer listens on a port.
async fn dial(port: u16, role: Role) -> Socket {
    loop {
        match timeout(FIRST_ANSWERS, Socket::connect(port, role)).await {
            Ok(Ok(socket)) => return socket,
            Ok(Err(_)) => sleep(NOT_YET).await,
            Err(_) => {}
        }
    }
}

async fn greet(
    session: &mut Session,
    shell: &mut Socket,
    heard: &mut Socket,
) -> Result<(), Broken> {
    let (id, frames) = session.request("kernel_info_request", &Nothing {});
    shell.send(&frames).await?;
    for socket in [shell, heard] {
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
