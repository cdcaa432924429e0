//! Reports of starts.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Isolation;
use crate::template::RuntimeName;

/// How a sandbox started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartKind {
    /// From its image or its files.
    Cold,
    /// Claimed from a pool.
    Pooled,
    /// From saved memory.
    Restored,
}

/// The duration of each phase of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Phases {
    /// Waiting for a permit to start.
    pub queue: Duration,
    /// Preparing the root file system.
    pub rootfs: Duration,
    /// Taking a network slot and setting its rules.
    pub network: Duration,
    /// Running the OCI runtime until the first process starts.
    pub start: Duration,
    /// Waiting until the daemon inside answers.
    pub ready: Duration,
}

impl Phases {
    /// The phases by name, in order.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Duration); 5] {
        [
            ("queue", self.queue),
            ("rootfs", self.rootfs),
            ("network", self.network),
            ("start", self.start),
            ("ready", self.ready),
        ]
    }
}

/// How a sandbox was started. Part of every create response and of the metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartReport {
    /// The OCI runtime.
    pub runtime: RuntimeName,
    /// Its isolation.
    pub isolation: Isolation,
    /// How the sandbox started.
    pub origin: StartKind,
    /// The duration of each phase.
    pub phases: Phases,
    /// The address of its ports for the gateway.
    pub address: IpAddr,
    /// The version of the daemon inside; empty until it answers.
    pub envd_version: String,
    /// Whether saves of its memory keep its connections: see
    /// [`StartSpec::keep_connections`](super::StartSpec::keep_connections).
    #[serde(default)]
    pub keeps_connections: bool,
}

impl fmt::Display for StartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cold => "cold",
            Self::Pooled => "pooled",
            Self::Restored => "restored",
        })
    }
}
