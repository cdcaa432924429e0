//! The external machine of a session: an account that others own. It is connected to, never made and never removed.

use std::sync::Arc;

use futures_util::StreamExt;
use shoal_core::id::{ExecutionId, SandboxId};
use shoal_core::ports::external::{ExternalClient, ExternalError, ExternalMachine};
use shoal_core::ports::inside::SandboxClient;
use shoal_core::ports::sessions::{NewSession, SessionChange, SessionError};
use shoal_core::session::machine::{ExternalRecord, MachineError, MachineType, SshAddress};
use shoal_core::session::system::{OS_RELEASE, OS_RELEASE_MAX, described};
use shoal_core::session::{SessionId, SessionRecord};

use super::live::{External, Live};
use super::{Service, random};

/// The name under which the private key is sealed. No secret has such a name.
const PRIVATE_KEY: &str = "ssh-private-key";

/// The address of a session's external machine; none when its machine is a sandbox.
pub(super) fn address(record: &SessionRecord) -> Option<&SshAddress> {
    match &record.machine {
        MachineType::External(address) => Some(address),
        MachineType::Sandbox { .. } => None,
    }
}

/// An external machine has no preview that could wake it.
fn wakes_nothing() -> SessionError {
    MachineError::Together("wakeOnRequest", "ssh_connection").into()
}

impl Service {
    /// The stored facts about a new session's external machine. A session with a sandbox has none.
    pub(super) fn external_record(
        &self,
        id: &SessionId,
        machine: &MachineType,
        new: &NewSession,
    ) -> Result<Option<ExternalRecord>, SessionError> {
        let (MachineType::External(address), Some(key)) = (machine, &new.ssh_private_key) else {
            return Ok(None);
        };
        if new.wake_on_request {
            return Err(wakes_nothing());
        }
        self.parts.external.check(address, key)?;
        Ok(Some(ExternalRecord {
            files: SandboxId::from_entropy(random()?),
            sealed_key: self.parts.sealing_key.seal_as(id, PRIVATE_KEY, key)?,
            host_key: None,
        }))
    }

    /// Whether a change of the session asks what its machine cannot do.
    pub(super) fn check_wakes(
        &self,
        live: &Live,
        change: &SessionChange,
    ) -> Result<(), SessionError> {
        if change.wake_on_request == Some(true) && address(&live.record()).is_some() {
            return Err(wakes_nothing());
        }
        Ok(())
    }

    /// A client of the external machine, which is connected when it is not. Called with the machine's lock.
    pub(super) async fn external(
        &self,
        live: &Live,
    ) -> Result<Arc<dyn SandboxClient>, SessionError> {
        let is_new = live.record().sandbox.is_none();
        let client = self.connected(live).await?;
        if is_new {
            self.external_begins(live, &client).await?;
        }
        let client: Arc<dyn SandboxClient> = client;
        self.connect(live, &client).await?;
        Ok(client)
    }

    async fn connected(&self, live: &Live) -> Result<Arc<dyn ExternalClient>, SessionError> {
        let former = live.external.lock().clone();
        if let Some(External { client, .. }) = former {
            if client.is_open() {
                return Ok(client);
            }
            // Another takes its place.
            client.close();
        }
        // Its files are compared anew before the next command.
        *live.connection.lock().await = None;
        let record = live.record();
        let (Some(address), Some(kept)) = (address(&record), &record.external) else {
            return Err(ExternalError::Closed.into());
        };
        let sealing_key = &self.parts.sealing_key;
        let key = sealing_key.open_as(&record.id, PRIVATE_KEY, &kept.sealed_key);
        let machine = ExternalMachine {
            address: address.clone(),
            key: key.ok_or(ExternalError::Sealed)?,
            host_key: kept.host_key.clone(),
        };
        let opened = self.parts.external.open(machine).await?;
        if kept.host_key.is_none() {
            let seen = opened.host_key;
            let trusted = |record: &mut SessionRecord| {
                if let Some(external) = &mut record.external {
                    external.host_key = Some(seen);
                }
            };
            live.update(&*self.parts.store, trusted).await?;
        }
        *live.external.lock() = Some(External {
            client: opened.client.clone(),
            execution: ExecutionId::from_entropy(random()?),
        });
        Ok(opened.client)
    }

    /// A session uses its external machine from now on, until it ends.
    async fn external_begins(
        &self,
        live: &Live,
        client: &Arc<dyn ExternalClient>,
    ) -> Result<(), SessionError> {
        let id = SandboxId::from_entropy(random()?);
        let secrets = &self.parts.secrets;
        secrets.bind_session_secrets(&live.record().id, &id).await?;
        let system = system_of(&**client, None).await;
        let now = self.now();
        let begun = |record: &mut SessionRecord| {
            record.sandbox = Some(id);
            record.system = system;
            record.life.last_execution = now;
        };
        live.update(&*self.parts.store, begun).await?;
        self.moved.notify_waiters();
        Ok(())
    }
}

/// The name of a machine's system; `None` when it does not report one.
pub(super) async fn system_of(client: &dyn SandboxClient, note: Option<&str>) -> Option<String> {
    let mut file = client.read_file(OS_RELEASE.to_owned()).await.ok()?.contents;
    let mut text = Vec::new();
    while let Some(Ok(bytes)) = file.next().await {
        text.extend_from_slice(&bytes);
        if text.len() >= OS_RELEASE_MAX {
            break;
        }
    }
    text.truncate(OS_RELEASE_MAX);
    Some(described(&String::from_utf8_lossy(&text), note))
}
