//! External machines of sessions: an account on a machine that is reached over SSH.
//!
//! A session needs four things of its machine: shells in terminals, short commands, a home directory whose files are kept
//! equal, and the port of its preview. Each terminal and each connection to the port has an SSH connection of its own,
//! because one that nobody reads stops its whole SSH connection. Commands and files (SFTP) share one.

#![forbid(unsafe_code)]

mod client;
mod command;
mod dial;
mod forward;
mod home;
mod key;
mod link;
mod sftp;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::ports::external::{ExternalError, ExternalMachine, ExternalMachines, Opened};
use shoal_core::session::machine::SshAddress;
use shoal_core::session::networks::Networks;
use shoal_core::session::secret::SecretValue;

use self::client::SshClient;
use self::link::Link;

/// Connects to external machines in some networks.
#[derive(Debug, Clone)]
pub struct SshMachines {
    networks: Arc<Networks>,
}

impl SshMachines {
    /// Machines in these networks.
    #[must_use]
    pub fn new(networks: Networks) -> Self {
        Self {
            networks: Arc::new(networks),
        }
    }
}

impl ExternalMachines for SshMachines {
    fn check(&self, address: &SshAddress, key: &SecretValue) -> Result<(), ExternalError> {
        if self.networks.is_empty() {
            return Err(ExternalError::Disabled);
        }
        key::read(key)?;
        // A name is looked up when it is needed.
        match address.host.parse() {
            Ok(ip) if !self.networks.allows(ip) => Err(ExternalError::NotAllowed(address.clone())),
            _ => Ok(()),
        }
    }

    fn open(&self, machine: ExternalMachine) -> BoxFuture<'_, Result<Opened, ExternalError>> {
        Box::pin(async move {
            self.check(&machine.address, &machine.key)?;
            let link = Arc::new(Link::new(&machine, self.networks.clone())?);
            // The first connection, which shows the host key.
            link.main().await?;
            let host_key = link.host_key().ok_or(ExternalError::Closed)?;
            Ok(Opened {
                client: Arc::new(SshClient::new(link)),
                host_key,
            })
        })
    }
}
