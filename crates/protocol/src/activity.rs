//! Response of `GET /activity`: what runs in the sandbox besides the daemon.

use serde::{Deserialize, Serialize};

/// The programs of a sandbox besides the daemon and the kernels of its code interpreter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// The processes that the daemon was asked to start: program and arguments.
    pub commands: Vec<Vec<String>>,
    /// Processes whose parents have ended, as programs in the background have.
    pub orphans: usize,
    /// Connections that programs opened to other machines.
    pub connections: usize,
}
