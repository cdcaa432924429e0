//! The restart of containerd, which reads its configuration once.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use nix::unistd::{chdir, chroot};

use super::{InstallError, below, failed};

/// Written before containerd's configuration changes, and removed once containerd has restarted: the run after an
/// interrupted one still restarts it. A reboot restarts containerd and empties `/run`.
const DUE: &str = "/run/containerd/shoal-restart-due";

/// Where systemctl is. In a container, `PATH` is the one of its image.
const PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin";

/// Records that containerd must restart.
pub(super) fn is_due(root: &Path) -> Result<(), InstallError> {
    let mark = below(root, Path::new(DUE));
    let directory = mark.parent().unwrap_or(root);
    fs::create_dir_all(directory).map_err(failed(directory))?;
    fs::write(&mark, "").map_err(failed(&mark))
}

/// Whether an earlier run ended before its restart.
pub(super) fn was_due(root: &Path) -> bool {
    below(root, Path::new(DUE)).exists()
}

/// Restarts a systemd unit of the node whose file system is `root`. Restarting containerd does not interrupt pods.
///
/// It changes the root directory of this process to `root`.
///
/// # Errors
/// If the process cannot change its root directory, or if systemctl fails. The next run tries again.
pub fn restart(root: &Path, unit: &str) -> Result<(), InstallError> {
    let error = |message: String| InstallError::Restart {
        unit: unit.to_owned(),
        message,
    };
    if root != Path::new("/") {
        let entered = chroot(root).and_then(|()| chdir("/"));
        entered.map_err(|reason| {
            error(format!(
                "cannot change the root directory to {}: {reason}. This needs root and CAP_SYS_CHROOT",
                root.display()
            ))
        })?;
    }
    let mut command = Command::new("systemctl");
    command.args(["restart", "--", unit]).env("PATH", PATH);
    // Without this, systemctl ignores commands in a chroot.
    command.env("SYSTEMD_IGNORE_CHROOT", "1");
    let done = command.output().map_err(|reason| match reason.kind() {
        io::ErrorKind::NotFound => error("the node has no systemctl".to_owned()),
        _ => error(format!("systemctl: {reason}")),
    })?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(error(format!(
            "systemctl: {}: {}",
            done.status,
            said.trim()
        )));
    }
    match fs::remove_file(DUE) {
        Err(reason) if reason.kind() != io::ErrorKind::NotFound => {
            Err(failed(Path::new(DUE))(reason))
        }
        _ => Ok(()),
    }
}
