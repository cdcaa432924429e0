//! The tokens of sandboxes, and what else is derived from the secret of the installation.

use shoal_core::auth::Token;
use shoal_core::build::FilesHash;
use shoal_core::driver::ExportKey;
use shoal_core::id::TeamId;
use shoal_core::sandbox::SandboxRecord;

use super::Access;

impl Access {
    /// The token that the daemon inside asks for from its first moment, whether the sandbox is
    /// secured or not: a caller that bypasses the gateway never finds it open.
    pub(crate) fn guest_token(&self, record: &SandboxRecord) -> Token {
        match &record.tokens.current {
            Some(salt) => self.seed.rotated_envd_access_token(&record.id, salt),
            None => self.seed.envd_access_token(&record.id),
        }
    }

    /// The daemon's token after a rotation in progress, else the current one.
    pub(crate) fn coming_guest_token(&self, record: &SandboxRecord) -> Token {
        match &record.tokens.next {
            Some(salt) => self.seed.rotated_envd_access_token(&record.id, salt),
            None => self.guest_token(record),
        }
    }

    /// The token that clients send to the daemon; none when the sandbox is not secured.
    pub(crate) fn envd_access_token(&self, record: &SandboxRecord) -> Option<Token> {
        let secured = record.spec.secure;
        secured.then(|| self.guest_token(record))
    }

    /// The token that the gateway asks for; none when the sandbox is public.
    pub(crate) fn traffic_access_token(&self, record: &SandboxRecord) -> Option<Token> {
        let private = !record.spec.network.allow_public_traffic;
        private.then(|| match &record.tokens.current {
            Some(salt) => self.seed.rotated_traffic_access_token(&record.id, salt),
            None => self.seed.traffic_access_token(&record.id),
        })
    }

    /// Signs the right of a team to upload these files until a Unix second.
    pub(crate) fn upload_signature(&self, team: TeamId, hash: &FilesHash, expires: i64) -> Token {
        self.seed.upload_signature(team, hash, expires)
    }

    /// The key of this installation that seals exports when the operator configures none.
    pub(crate) fn export_key(&self) -> ExportKey {
        self.seed.export_key()
    }
}
