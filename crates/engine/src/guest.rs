//! The port to the daemon inside a sandbox.

mod envd;
mod inside;

use std::collections::BTreeMap;
use std::net::IpAddr;

use shoal_core::BoxFuture;
use shoal_core::auth::Token;
use shoal_core::resources::Mib;

pub use self::envd::EnvdGuest;
pub use self::inside::GuestDoor;
pub use shoal_core::ports::inside::{
    ByteStream as GuestBytes, CommandControl as GuestControl, CommandExit as GuestExit,
    CommandOutput as GuestOutput, FileContents as GuestFile, FileEntry as GuestEntry,
    FileKind as GuestFileKind, InsideError as GuestError, RunningCommand as GuestProcess,
    SandboxCommand as GuestCommand, TerminalSize,
};

/// What the daemon is told when a run begins.
#[derive(Debug, Clone)]
pub struct InitOrder {
    /// Environment of every process.
    pub env: BTreeMap<String, String>,
    /// What it asks of callers until then: in the memory of a clone there is its original's. None when
    /// it asks for nothing, as older daemons did.
    pub known_token: Option<Token>,
    /// What it asks of callers from then on.
    pub access_token: Token,
    /// Whether programs in the sandbox need not know that.
    pub open_inside: bool,
    /// How much memory it has: its kernel may only know what it had at first.
    pub memory: Mib,
    /// Who commands run as.
    pub user: String,
    /// Where commands start; the user's home when none is given.
    pub workdir: Option<String>,
}

/// Talks to daemons.
pub trait Guest: Send + Sync {
    /// Tells the daemon at `address` that a run begins, waiting for it to come up. Returns its
    /// version.
    ///
    /// # Errors
    /// When it does not answer for as long as the implementation is patient, or refuses.
    fn init(&self, address: IpAddr, order: InitOrder) -> BoxFuture<'_, Result<String, GuestError>>;

    /// Tells the daemon that the sandbox is about to be saved: until the next `init` or `unfreeze`
    /// no deadline of its processes comes nearer. With `sync` what was written is on disk then.
    ///
    /// # Errors
    /// When it does not answer soon, or refuses.
    fn freeze(
        &self,
        address: IpAddr,
        token: Option<Token>,
        sync: bool,
    ) -> BoxFuture<'_, Result<(), GuestError>>;

    /// Tells the daemon that the sandbox goes on.
    ///
    /// # Errors
    /// When it does not answer soon, or refuses.
    fn unfreeze(
        &self,
        address: IpAddr,
        token: Option<Token>,
    ) -> BoxFuture<'_, Result<(), GuestError>>;

    /// Connects to a port of the sandbox, once, and says nothing there.
    ///
    /// # Errors
    /// When nothing listens there, or not soon.
    fn probe(&self, address: IpAddr, port: u16) -> BoxFuture<'_, Result<(), GuestError>>;

    /// Runs a command and listens to it.
    ///
    /// # Errors
    /// When it cannot be started, or the daemon does not answer.
    fn run(
        &self,
        door: GuestDoor,
        command: GuestCommand,
    ) -> BoxFuture<'_, Result<GuestProcess, GuestError>>;

    /// Writes a file, making its parents. Takes as long as `contents` do.
    ///
    /// # Errors
    /// When the daemon refuses it, or does not answer, or `contents` fail: then the file may be
    /// there in part.
    fn write_file(
        &self,
        door: GuestDoor,
        path: String,
        contents: GuestBytes,
    ) -> BoxFuture<'_, Result<(), GuestError>>;

    /// Reads a file.
    ///
    /// # Errors
    /// When it is not there, or no file, or the daemon does not answer.
    fn read_file(
        &self,
        door: GuestDoor,
        path: String,
    ) -> BoxFuture<'_, Result<GuestFile, GuestError>>;

    /// Lists a directory, not what is below its entries.
    ///
    /// # Errors
    /// When it is not there, or no directory, or the daemon does not answer.
    fn list_dir(
        &self,
        door: GuestDoor,
        path: String,
    ) -> BoxFuture<'_, Result<Vec<GuestEntry>, GuestError>>;

    /// Describes what lies at a path.
    ///
    /// # Errors
    /// When nothing does, or the daemon does not answer.
    fn stat(&self, door: GuestDoor, path: String) -> BoxFuture<'_, Result<GuestEntry, GuestError>>;

    /// Removes what lies at a path, with all that is in it. That nothing does is no error.
    ///
    /// # Errors
    /// When it cannot be removed, or the daemon does not answer.
    fn remove(&self, door: GuestDoor, path: String) -> BoxFuture<'_, Result<(), GuestError>>;
}
