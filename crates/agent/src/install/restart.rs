//! The restart of containerd, which reads its configuration once.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use nix::unistd::{chdir, chroot};

use super::{InstallError, below, failed};

/// Exists from before containerd's configuration changes until containerd has restarted, so that a repeated
/// installation finds what an interrupted one has left to do. A reboot restarts containerd, and empties `/run`.
const DUE: &str = "/run/containerd/shoal-restart-due";

/// The directories of systemctl. The container of an installer may have no `PATH`, or one of its own.
const PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin";

/// Notes that containerd must restart.
pub(super) fn is_due(root: &Path) -> Result<(), InstallError> {
    let mark = below(root, Path::new(DUE));
    let directory = mark.parent().unwrap_or(root);
    fs::create_dir_all(directory).map_err(failed(directory))?;
    fs::write(&mark, "").map_err(failed(&mark))
}

/// Whether an earlier installation did not come to its restart.
pub(super) fn was_due(root: &Path) -> bool {
    below(root, Path::new(DUE)).exists()
}

/// Restarts a unit of the systemd that runs on the node whose file system is `root`. Running pods go on.
///
/// This process is in `root` after it.
///
/// # Errors
/// If the process may not change its root, or if systemctl fails; its message is part of the error. A repeated
/// installation tries again.
pub fn restart(root: &Path, unit: &str) -> Result<(), InstallError> {
    let error = |message: String| InstallError::Restart {
        unit: unit.to_owned(),
        message,
    };
    if root != Path::new("/") {
        let entered = chroot(root).and_then(|()| chdir("/"));
        entered.map_err(|reason| {
            error(format!(
                "cannot enter {}: {reason}. It takes root and the capability SYS_CHROOT",
                root.display()
            ))
        })?;
    }
    let mut command = Command::new("systemctl");
    command.args(["restart", "--", unit]).env("PATH", PATH);
    // Else it does nothing in a root that is not the first process's.
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
