//! Files that describe the sandbox to its processes.

use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use shoal_protocol::init::IDENTITY_VARIABLES;

use crate::log::Log;
use crate::settings::Variables;

/// Host name of the events service.
const EVENTS_HOST: &str = "events.e2b.local";

/// Largest hosts file that is edited.
const MAX_HOSTS: u64 = 4 << 20;

/// Paths of the files.
#[derive(Debug, Clone)]
pub(super) struct HostFiles {
    identity: PathBuf,
    hosts: PathBuf,
}

impl HostFiles {
    /// The files below a root directory.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            identity: root.join("run/e2b"),
            hosts: root.join("etc/hosts"),
        }
    }

    /// Writes each identity variable into a dot file named after it.
    pub(super) fn write_identity(&self, identity: &Variables, log: &Log) {
        let write = || {
            std::fs::create_dir_all(&self.identity)?;
            std::fs::set_permissions(&self.identity, PermissionsExt::from_mode(0o755))?;
            for (name, value) in identity {
                if IDENTITY_VARIABLES.contains(&name.as_str()) {
                    replace(&self.identity.join(format!(".{name}")), value.as_bytes())?;
                }
            }
            Ok(())
        };
        report(write(), &self.identity, log);
    }

    /// Adds the events service to the hosts file.
    pub(super) fn write_events_host(&self, address: Option<&str>, log: &Log) {
        let address = address.and_then(|url| url.strip_prefix("http://"));
        let address = address.map(|address| address.trim_matches(['[', ']']));
        let Some(address) = address.and_then(|address| address.parse().ok()) else {
            return;
        };
        report(self.set_events_host(address), &self.hosts, log);
    }

    fn set_events_host(&self, address: IpAddr) -> io::Result<()> {
        let old = match std::fs::metadata(&self.hosts) {
            Ok(meta) if meta.is_file() && meta.len() <= MAX_HOSTS => {
                std::fs::read_to_string(&self.hosts)?
            }
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let new = with_events_host(&old, address);
        if new == old {
            return Ok(());
        }
        // In place: the file may be a mount point, which cannot be replaced.
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .custom_flags(libc::O_NONBLOCK)
            .open(&self.hosts)?;
        file.write_all(new.as_bytes())
    }
}

/// The contents of a hosts file with this address as the only one of the events service.
fn with_events_host(old: &str, address: IpAddr) -> String {
    let is_ours = |line: &&str| {
        let line = line.split('#').next().unwrap_or_default();
        line.split_whitespace()
            .skip(1)
            .any(|name| name == EVENTS_HOST)
    };
    let mut new = String::new();
    for line in old.lines().filter(|line| !is_ours(line)) {
        new.push_str(line);
        new.push('\n');
    }
    new.push_str(&format!("{address}\t{EVENTS_HOST}\n"));
    new
}

/// Replaces a file without following symlinks: root in the sandbox may have planted one.
fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    file.write_all(contents)
}

fn report(result: io::Result<()>, path: &Path, log: &Log) {
    if let Err(error) = result {
        let entry = log.warn("init", "file not written");
        let entry = entry.with("path", path.to_string_lossy().into_owned());
        entry.with("error", error.to_string()).send();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "192.0.2.1";

    #[test]
    fn the_events_service_has_one_line_and_others_stay() {
        let address: IpAddr = ADDRESS.parse().unwrap();
        let old = "127.0.0.1 localhost\n10.0.0.1 events.e2b.local x\n# events.e2b.local";
        let new = with_events_host(old, address);
        assert_eq!(
            new,
            "127.0.0.1 localhost\n# events.e2b.local\n192.0.2.1\tevents.e2b.local\n"
        );
        assert_eq!(with_events_host(&new, address), new);
        assert_eq!(
            with_events_host("", address),
            "192.0.2.1\tevents.e2b.local\n"
        );
    }

    #[test]
    fn identity_files_replace_symlinks() {
        let root = tempfile::tempdir().unwrap();
        let files = HostFiles::new(root.path());
        let victim = root.path().join("victim");
        std::fs::write(&victim, "safe").unwrap();
        std::fs::create_dir_all(root.path().join("run/e2b")).unwrap();
        let path = root.path().join("run/e2b/.E2B_SANDBOX_ID");
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let identity = [("E2B_SANDBOX_ID", "i1"), ("E2B_EVENTS_ADDRESS", "x")];
        let identity = identity.map(|(name, value)| (name.to_owned(), value.to_owned()));
        files.write_identity(&identity.into(), &Log::none());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "i1");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "safe");
        assert!(!root.path().join("run/e2b/.E2B_EVENTS_ADDRESS").exists());
    }

    #[test]
    fn a_missing_hosts_file_is_created() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let files = HostFiles::new(root.path());
        files.write_events_host(Some("http://192.0.2.1"), &Log::none());
        files.write_events_host(Some("nonsense"), &Log::none());
        let hosts = std::fs::read_to_string(root.path().join("etc/hosts")).unwrap();
        assert_eq!(hosts, "192.0.2.1\tevents.e2b.local\n");
    }
}
