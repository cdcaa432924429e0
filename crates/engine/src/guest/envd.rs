//! The daemon over the network.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::auth::Token;
use shoal_core::ports::inside::{InsideError, SandboxClient};
use shoal_protocol::ENVD_PORT;
use shoal_protocol::activity::Activity;
use shoal_protocol::client::{
    ClientError, DaemonClient, EnvdClient, Network, RunEnd, SandboxTarget, TcpNetwork, UntilEnd,
};
use shoal_protocol::init::InitRequest;
use shoal_protocol::token::AccessToken;
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::{Guest, InitSpec};

/// How long a daemon may take to come up.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of one attempt. A sandbox whose kernel is not up yet drops packets.
const ATTEMPT: Duration = Duration::from_secs(1);

/// The timeout of a freeze without sync, and of an unfreeze.
const FREEZE: Duration = Duration::from_secs(2);

/// The timeout of a sync. Unsynced data would be lost silently, so this is nearly all of the caller's
/// time: the API gives up ten seconds later.
const SYNC: Duration = Duration::from_secs(60);

/// The delays between attempts: short at first, because a daemon is up in milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Talks to `shoal-envd`.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnvdGuest;

impl Guest for EnvdGuest {
    fn init(&self, address: IpAddr, spec: InitSpec) -> BoxFuture<'_, Result<String, InsideError>> {
        Box::pin(async move {
            let client = client(address, spec.known_token.as_ref())?;
            let token = AccessToken::parse(spec.access_token.reveal())
                .map_err(|e| InsideError::Refused(e.to_string()))?;
            let request = InitRequest {
                // The clock of a saved sandbox did not advance.
                timestamp: Some(OffsetDateTime::now_utc()),
                env_vars: Some(spec.env),
                memory_mib: Some(spec.memory.0),
                open: spec.open_inside,
                access_token: Some(token),
                default_user: Some(spec.user),
                default_workdir: spec.workdir,
                ..InitRequest::default()
            };
            let end = Instant::now() + INIT_TIMEOUT;
            let mut pause = FIRST_PAUSE;
            loop {
                let failed = match timeout(ATTEMPT, client.init(&request)).await {
                    Ok(Ok(version)) => return Ok(version.unwrap_or_default()),
                    Ok(Err(refused @ ClientError::Refused { .. })) => {
                        return Err(InsideError::Refused(refused.to_string()));
                    }
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "no answer".to_owned(),
                };
                if Instant::now() + pause > end {
                    return Err(InsideError::Unreachable(failed));
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
    ) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            let client = client(address, token.as_ref())?;
            let within = if sync { SYNC } else { FREEZE };
            soon(within, client.freeze(sync)).await
        })
    }

    fn activity(
        &self,
        address: IpAddr,
        token: Option<Token>,
    ) -> BoxFuture<'_, Result<Activity, InsideError>> {
        Box::pin(async move {
            let client = client(address, token.as_ref())?;
            soon(FREEZE, client.activity()).await
        })
    }

    fn unfreeze(
        &self,
        address: IpAddr,
        token: Option<Token>,
    ) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            let client = client(address, token.as_ref())?;
            soon(FREEZE, client.unfreeze()).await
        })
    }

    fn probe(&self, address: IpAddr, port: u16) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            let dial = TcpStream::connect(SocketAddr::new(address, port));
            match timeout(ATTEMPT, dial).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(InsideError::Unreachable(error.to_string())),
                Err(_) => Err(InsideError::Unreachable("no answer".to_owned())),
            }
        })
    }

    fn open(&self, target: SandboxTarget, end: Option<RunEnd>) -> Arc<dyn SandboxClient> {
        let mut network: Arc<dyn Network> = Arc::new(TcpNetwork);
        if let Some(end) = end {
            network = Arc::new(UntilEnd { network, end });
        }
        Arc::new(DaemonClient::new(network, target))
    }
}

fn client(address: IpAddr, token: Option<&Token>) -> Result<EnvdClient, InsideError> {
    let client = EnvdClient::at(SocketAddr::new(address, ENVD_PORT));
    match token {
        None => Ok(client),
        Some(token) => client
            .with_token_text(token.reveal())
            .map_err(|e| InsideError::Refused(e.to_string())),
    }
}

/// The result of a small call, within a time.
async fn soon<T>(
    within: Duration,
    asked: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, InsideError> {
    match timeout(within, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(refused @ ClientError::Refused { .. })) => {
            Err(InsideError::Refused(refused.to_string()))
        }
        Ok(Err(error)) => Err(InsideError::Unreachable(error.to_string())),
        Err(_) => Err(InsideError::Unreachable("no answer".to_owned())),
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
        let spec = InitSpec {
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
        let given_up = EnvdGuest.init(nobody, spec).await.unwrap_err();
        assert!(
            matches!(given_up, InsideError::Unreachable(_)),
            "{given_up}"
        );
    }
}
