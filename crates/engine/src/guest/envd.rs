//! The daemon over the network.

mod inside;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::auth::Token;
use shoal_protocol::ENVD_PORT;
use shoal_protocol::client::{ClientError, EnvdClient};
use shoal_protocol::init::InitRequest;
use shoal_protocol::token::AccessToken;
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::{
    Guest, GuestBytes, GuestCommand, GuestDoor, GuestEntry, GuestError, GuestFile, GuestProcess,
    InitOrder,
};

/// How long a daemon may take to come up.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one attempt may take: a sandbox whose kernel is not up yet swallows packets.
const ATTEMPT: Duration = Duration::from_secs(1);

/// How long it may take to say that it stands still, or goes on.
const FREEZE: Duration = Duration::from_secs(2);

/// How long all that was written may take to its disk. What is not there then would be lost without a
/// word, so the time is all that whoever asks waits: the API gives up ten seconds later.
const SYNC: Duration = Duration::from_secs(60);

/// The pauses between attempts: short at first, because a daemon is up in milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Talks to `shoal-envd`.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnvdGuest;

impl Guest for EnvdGuest {
    fn init(&self, address: IpAddr, order: InitOrder) -> BoxFuture<'_, Result<String, GuestError>> {
        Box::pin(async move {
            let client = client(address, order.known_token.as_ref())?;
            let token = AccessToken::parse(order.access_token.reveal())
                .map_err(|e| GuestError::Refused(e.to_string()))?;
            let request = InitRequest {
                // The clock of a sandbox that was saved stood still.
                timestamp: Some(OffsetDateTime::now_utc()),
                env_vars: Some(order.env),
                memory_mib: Some(order.memory.0),
                open: order.open_inside,
                access_token: Some(token),
                default_user: Some(order.user),
                default_workdir: order.workdir,
                ..InitRequest::default()
            };
            let end = Instant::now() + PATIENCE;
            let mut pause = FIRST_PAUSE;
            loop {
                let failed = match timeout(ATTEMPT, client.init(&request)).await {
                    Ok(Ok(version)) => return Ok(version.unwrap_or_default()),
                    Ok(Err(refused @ ClientError::Refused { .. })) => {
                        return Err(GuestError::Refused(refused.to_string()));
                    }
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "no answer".to_owned(),
                };
                if Instant::now() + pause > end {
                    return Err(GuestError::Unreachable(failed));
                }
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        })
    }

    fn freeze(
        &self,
        address: IpAddr,
        token: Option<Token>,
        sync: bool,
    ) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(async move {
            let client = client(address, token.as_ref())?;
            let within = if sync { SYNC } else { FREEZE };
            soon(within, client.freeze(sync)).await
        })
    }

    fn unfreeze(
        &self,
        address: IpAddr,
        token: Option<Token>,
    ) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(async move {
            let client = client(address, token.as_ref())?;
            soon(FREEZE, client.unfreeze()).await
        })
    }

    fn probe(&self, address: IpAddr, port: u16) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(async move {
            let dial = TcpStream::connect(SocketAddr::new(address, port));
            match timeout(ATTEMPT, dial).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(GuestError::Unreachable(error.to_string())),
                Err(_) => Err(GuestError::Unreachable("no answer".to_owned())),
            }
        })
    }

    fn run(
        &self,
        door: GuestDoor,
        command: GuestCommand,
    ) -> BoxFuture<'_, Result<GuestProcess, GuestError>> {
        Box::pin(inside::run(door, command))
    }

    fn write_file(
        &self,
        door: GuestDoor,
        path: String,
        contents: GuestBytes,
    ) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(inside::write_file(door, path, contents))
    }

    fn read_file(
        &self,
        door: GuestDoor,
        path: String,
    ) -> BoxFuture<'_, Result<GuestFile, GuestError>> {
        Box::pin(inside::read_file(door, path))
    }

    fn list_dir(
        &self,
        door: GuestDoor,
        path: String,
    ) -> BoxFuture<'_, Result<Vec<GuestEntry>, GuestError>> {
        Box::pin(inside::list_dir(door, path))
    }

    fn stat(&self, door: GuestDoor, path: String) -> BoxFuture<'_, Result<GuestEntry, GuestError>> {
        Box::pin(inside::stat(door, path))
    }

    fn remove(&self, door: GuestDoor, path: String) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(inside::remove(door, path))
    }
}

fn client(address: IpAddr, token: Option<&Token>) -> Result<EnvdClient, GuestError> {
    let client = EnvdClient::at(SocketAddr::new(address, ENVD_PORT));
    match token {
        None => Ok(client),
        Some(token) => client
            .with_token_text(token.reveal())
            .map_err(|e| GuestError::Refused(e.to_string())),
    }
}

/// What the daemon says to something small, if it says it soon.
async fn soon(
    within: Duration,
    asked: impl Future<Output = Result<(), ClientError>>,
) -> Result<(), GuestError> {
    match timeout(within, asked).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(refused @ ClientError::Refused { .. })) => {
            Err(GuestError::Refused(refused.to_string()))
        }
        Ok(Err(error)) => Err(GuestError::Unreachable(error.to_string())),
        Err(_) => Err(GuestError::Unreachable("no answer".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;

    use shoal_core::resources::Mib;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_never_comes_up_is_given_up() {
        let order = InitOrder {
            env: BTreeMap::new(),
            known_token: None,
            access_token: shoal_core::auth::TokenSeed::new([1; 32])
                .envd_access_token(&"iabc".parse().unwrap()),
            open_inside: false,
            memory: Mib(512),
            user: "user".to_owned(),
            workdir: None,
        };
        // Nothing listens at this address of the loopback network.
        let nobody = IpAddr::V4(Ipv4Addr::new(127, 255, 0, 1));
        let given_up = EnvdGuest.init(nobody, order).await.unwrap_err();
        assert!(matches!(given_up, GuestError::Unreachable(_)), "{given_up}");
    }
}
