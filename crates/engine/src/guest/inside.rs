//! What is done inside a sandbox: commands and files.

use std::net::IpAddr;

use shoal_core::auth::Token;

/// Where a daemon is, what opens it, and as whom it is to act.
#[derive(Debug, Clone)]
pub struct GuestDoor {
    /// The sandbox's address.
    pub address: IpAddr,
    /// What the daemon asks for.
    pub token: Option<Token>,
    /// The user of the sandbox to act as; its default user when none is given.
    pub user: Option<String>,
}

impl GuestDoor {
    /// Acts as somebody else.
    #[must_use]
    pub fn with_user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }
}
