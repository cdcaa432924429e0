//! The set-up before anything runs, and its errors.

use std::io;
use std::path::{Path, PathBuf};

use shoal_node::cgroup::Hierarchy;
use shoal_node::daemon::envd_layer;
use shoal_node::disk::Disk;
use shoal_node::home::Home;
use shoal_node::host_limits;
use shoal_node::network::Network;
use shoal_node::saved::FileName;

use super::OciConfig;
use crate::runtime::{self, Kind, Missing, Runtime, RuntimeConfig};

/// Why the driver cannot work here.
#[derive(Debug, thiserror::Error)]
pub enum OpenDriverError {
    /// Sandboxes are made of namespaces, mounts and groups, which only root may make.
    #[error("the driver needs root: run it with sudo")]
    NotRoot,
    /// The OCI runtime is not there that runs what asks for none. Another never takes its place
    /// unasked: it would isolate less, or bear less.
    #[error(
        "the default OCI runtime cannot be used: {}. `shoal doctor` says how to install it{}",
        .0,
        instead(.0.kind)
    )]
    NoRuntime(Missing),
    /// The daemon for sandboxes is not where it was said to be.
    #[error("cannot read the daemon {path}: build it with `make build`, or set `envd`")]
    NoDaemon {
        /// The directory in which it was looked for.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A part could not be set up.
    #[error("cannot set up {part}")]
    Part {
        /// The part.
        part: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn instead(missing: Kind) -> &'static str {
    match missing {
        Kind::Runsc => {
            "; runtime.default = \"runc\" makes do with the isolation of namespaces, for code that you trust"
        }
        Kind::Runc => "; runtime.default = \"runsc\" takes gVisor",
    }
}

/// The runtimes that can be used, the default first.
pub(super) fn runtimes(
    config: &RuntimeConfig,
    run: &Path,
) -> Result<Vec<Runtime>, OpenDriverError> {
    let (found, missing) = runtime::detect(config, run);
    match missing.into_iter().find(|m| m.kind == config.default) {
        Some(missing) => Err(OpenDriverError::NoRuntime(missing)),
        None => Ok(found),
    }
}

/// The result of [`OciDriver::open`](super::OciDriver::open).
pub(super) struct Parts {
    pub(super) runtimes: Vec<Runtime>,
    pub(super) hierarchy: Hierarchy,
    pub(super) disk: Disk,
    pub(super) network: Network,
    pub(super) envd: FileName,
}

impl Parts {
    pub(super) fn open(config: &OciConfig, home: &Home) -> Result<Self, OpenDriverError> {
        let part = |part| move |source| OpenDriverError::Part { part, source };
        let runtimes = runtimes(&config.runtimes, &home.run)?;
        for runtime in &runtimes {
            if let Some(why) = runtime::weakness(runtime.kind, &runtime.info.version) {
                tracing::warn!(runtime = %runtime.info.name, why, "a runtime has known weaknesses: install a later release");
            }
        }
        host_limits::raise();
        let hierarchy = Hierarchy::detect(&home.cgroup_parent()).map_err(part("cgroups"))?;
        let envd = envd_layer(&home.data, &config.envd).map_err(part("the daemon"))?;
        let disk = Disk::open(&home.data, &config.disk).map_err(part("the disk of sandboxes"))?;
        // Last, as it alone cannot be undone here.
        let network = Network::open(
            config.network.clone(),
            &home.instance,
            &home.run,
            &home.machine,
        );
        let network = network.map_err(part("the network")).inspect_err(|_| {
            // The first error is the one that counts.
            let _ = disk.close(home.is_in_use().unwrap_or(true));
        })?;
        Ok(Self {
            runtimes,
            hierarchy,
            disk,
            network,
            envd,
        })
    }
}
