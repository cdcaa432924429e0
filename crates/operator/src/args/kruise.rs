//! The flags of the controllers of `agents.kruise.io`. Names and defaults are those of OpenKruise's manager.

use std::str::FromStr;

use clap::{ArgAction, Args, ValueEnum};

/// Which pods get the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InjectRuntime {
    /// Those of sandboxes with the runtime `agent-runtime`.
    Requested,
    /// All.
    Always,
}

/// Features that can be turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// The controller of `Sandbox`.
    pub sandbox: bool,
    /// The controller of `SandboxSet`.
    pub sandbox_set: bool,
    /// The controller of `SandboxClaim`.
    pub sandbox_claim: bool,
    /// Changes of the resources of running pods.
    pub in_place_resize: bool,
    /// The controller of `PoolAutoscaler`.
    pub pool_autoscaler: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            sandbox: true,
            sandbox_set: true,
            sandbox_claim: true,
            in_place_resize: true,
            pool_autoscaler: true,
        }
    }
}

/// Gates of OpenKruise's manager that change nothing here.
const WITHOUT_EFFECT: [&str; 8] = [
    "CachePodLabelSelector",
    "SandboxUpgradeResumeFromFailedStep",
    "SandboxCreatePodRateLimitGate",
    "SandboxCreatePodInjectConfigGate",
    "SandboxMultiClusterNaming",
    "SecurityIdentityProvider",
    "SandboxPauseCheckpoint",
    "Commit",
];

impl FromStr for FeatureGates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut gates = Self::default();
        for gate in text.split(',').filter(|gate| !gate.is_empty()) {
            let (name, value) = gate
                .split_once('=')
                .ok_or_else(|| format!("{gate:?} is not NAME=true or NAME=false"))?;
            let value: bool = value
                .parse()
                .map_err(|_| format!("{gate:?} is not NAME=true or NAME=false"))?;
            match name {
                "Sandbox" => gates.sandbox = value,
                "SandboxSet" => gates.sandbox_set = value,
                "SandboxClaim" => gates.sandbox_claim = value,
                "SandboxInPlaceResourceResize" => gates.in_place_resize = value,
                "PoolAutoscaler" => gates.pool_autoscaler = value,
                other if WITHOUT_EFFECT.contains(&other) => {}
                other => return Err(format!("unknown feature gate {other:?}")),
            }
        }
        Ok(gates)
    }
}

/// The flags.
#[derive(Clone, Debug, Args)]
pub struct KruiseArgs {
    /// Run the controllers of agents.kruise.io, too.
    #[arg(long, default_value = "true", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub kruise: bool,
    /// Features of agents.kruise.io: NAME=true|false, separated by commas.
    #[arg(long, value_name = "GATES", default_value = "")]
    pub feature_gates: FeatureGates,
    /// How many sandboxes of agents.kruise.io are reconciled at once.
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..))]
    pub sandbox_workers: u16,
    /// How many SandboxSets are reconciled at once.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub sandboxset_workers: u16,
    /// How many sandboxes the first batch of a SandboxSet creates. Each further batch is twice as large.
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub sandboxset_initial_batch_size: u16,
    /// How many SandboxClaims of agents.kruise.io are reconciled at once.
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pub sandboxclaim_workers: u16,
    /// How many SandboxUpdateOps are reconciled at once.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub sandboxupdateops_workers: u16,
    /// Seconds between two looks of a PoolAutoscaler at its pool.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub poolautoscaler_sampling_interval_seconds: u16,
    /// How many seconds of looks a PoolAutoscaler decides from.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    pub poolautoscaler_observation_window_seconds: u16,
    /// Seconds that a sandbox of a pool may take to start. A pool with too many slower ones is not made larger.
    #[arg(long, value_name = "SECONDS", default_value_t = 50, value_parser = clap::value_parser!(u16).range(15..=3590))]
    pub max_pending_timeout: u16,
    /// Which pods of agents.kruise.io get shoal-envd.
    #[arg(long, value_name = "WHEN", default_value = "requested")]
    pub inject_runtime: InjectRuntime,
    /// Image with /shoal-envd, for pods that get it.
    #[arg(long, value_name = "IMAGE", default_value = "")]
    pub runtime_image: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_by_name() {
        let read = |text: &str| text.parse::<FeatureGates>();
        assert_eq!(read(""), Ok(FeatureGates::default()));
        let gates = read("SandboxInPlaceResourceResize=false,Commit=true").unwrap();
        assert!(!gates.in_place_resize && gates.sandbox_set && gates.pool_autoscaler);
        assert!(!read("PoolAutoscaler=false").unwrap().pool_autoscaler);
        for text in ["Sandbox", "Sandbox=maybe", "Unknown=true"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
