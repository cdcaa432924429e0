//! What came of a start.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Isolation;
use crate::template::RuntimeName;

/// How a sandbox came to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Made from its image.
    Cold,
    /// Taken from a pool.
    Pooled,
    /// Started from saved memory.
    Restored,
}

/// How long each phase of a start took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Phases {
    /// Waiting for a turn.
    pub queue: Duration,
    /// Making the root file system.
    pub rootfs: Duration,
    /// Getting a network slot and setting its rules.
    pub network: Duration,
    /// Starting the OCI runtime, until it had started the first process.
    pub start: Duration,
    /// From then until the daemon inside had answered.
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

/// What ran: said in every create answer and in every metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartReport {
    /// The OCI runtime, by name.
    pub runtime: RuntimeName,
    /// What it isolates with.
    pub isolation: Isolation,
    /// How the sandbox came to run.
    pub origin: Origin,
    /// How long that took.
    pub phases: Phases,
    /// Where its ports answer, seen from the gateway.
    pub address: IpAddr,
    /// The version that the daemon inside says it has; empty until it has answered.
    pub envd_version: String,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cold => "cold",
            Self::Pooled => "pooled",
            Self::Restored => "restored",
        })
    }
}
