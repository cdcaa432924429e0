//! Jupyter connection file: a kernel's ports and signing key.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::random;
use crate::user::User;

/// Ports of a kernel, all on loopback.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    /// Requests.
    pub(super) shell: u16,
    /// Broadcast output.
    pub(super) iopub: u16,
    /// Requests during an execution.
    pub(super) control: u16,
    stdin: u16,
    heartbeat: u16,
}

impl Ports {
    /// Picks free ports. If another process takes one first, the kernel exits and is restarted with
    /// other ports. Not all kernels support Unix sockets.
    pub(super) fn free() -> io::Result<Self> {
        let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        // Bound together, so that they differ.
        let held = [listen()?, listen()?, listen()?, listen()?, listen()?];
        let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
        let [shell, iopub, control, stdin, heartbeat] = &held;
        Ok(Self {
            shell: port(shell)?,
            iopub: port(iopub)?,
            control: port(control)?,
            stdin: port(stdin)?,
            heartbeat: port(heartbeat)?,
        })
    }
}

#[cfg(test)]
impl Ports {
    /// Ports with existing listeners.
    pub(super) fn of_test([shell, iopub, control]: [u16; 3]) -> Self {
        Self {
            shell,
            iopub,
            control,
            stdin: 0,
            heartbeat: 0,
        }
    }
}

/// Writes a connection file, readable by the kernel's user only.
pub(super) fn write(directory: &Path, ports: Ports, key: &str, user: &User) -> io::Result<PathBuf> {
    std::fs::create_dir_all(directory)?;
    std::fs::set_permissions(directory, PermissionsExt::from_mode(0o711))?;
    let name = hex::encode(random::bytes::<10>());
    let path = directory.join(format!("kernel-{name}.json"));
    let content = json!({
        "transport": "tcp",
        "ip": "127.0.0.1",
        "shell_port": ports.shell,
        "iopub_port": ports.iopub,
        "stdin_port": ports.stdin,
        "control_port": ports.control,
        "hb_port": ports.heartbeat,
        "signature_scheme": "hmac-sha256",
        "key": key,
    });
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fchown(&file, Some(user.uid), Some(user.gid))?;
    file.write_all(content.to_string().as_bytes())?;
    Ok(path)
}
