//! How a kernel that starts is reached, on ports that it may not have yet.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Nothing;
use crate::interpreter::connection_file::Ports;
use crate::interpreter::wire::{Envelope, Session};
use crate::interpreter::zmtp::{Broken, Role, Socket};

/// How long to wait for a port that is not open yet.
const NOT_YET: Duration = Duration::from_millis(10);

/// How long to wait for the first answers before connecting again: a port may be somebody else's.
const FIRST_ANSWERS: Duration = Duration::from_secs(1);

/// Connects until the kernel itself answers. What answers first may be somebody else, who had one
/// of its ports for a moment: they break off, or say nothing, and all is tried again.
pub(super) async fn to(ports: Ports, session: &mut Session) -> [Socket; 3] {
    let mut patience = FIRST_ANSWERS;
    loop {
        let mut shell = dial(ports.shell, Role::Dealer).await;
        let mut heard = dial(ports.iopub, Role::Subscriber).await;
        let control = dial(ports.control, Role::Dealer).await;
        // It may answer before it has noticed who listens: what it said until then is lost.
        let greeted = greet(session, &mut shell, &mut heard);
        match timeout(patience, greeted).await {
            Ok(Ok(())) => return [shell, heard, control],
            Ok(Err(_)) => sleep(NOT_YET).await,
            // What is asked in vain is answered all the same, by one that is only slow.
            Err(_) => patience *= 2,
        }
    }
}

/// Waits until somebody who speaks ZeroMQ has a port.
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
