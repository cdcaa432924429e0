//! The controllers of `agents.kruise.io`.

mod autoscaler;
mod batches;
mod checkpoint;
mod claim;
mod init_secret;
mod internet;
mod population;
mod sandbox;
mod set;
mod slim;
mod traffic;
mod update_ops;

pub(crate) use autoscaler::{AutoscalerController, AutoscalerTimes, autoscaler_group};
pub(crate) use checkpoint::{CheckpointController, checkpoint_group};
pub(crate) use claim::{SandboxClaimController, claim_group};
pub(crate) use init_secret::ensure as ensure_init_secret;
pub(crate) use internet::{CREATOR, NoInternet};
pub(crate) use population::render as render_gauges;
pub(crate) use sandbox::{RuntimeInjection, SandboxController};
pub(crate) use set::SandboxSetController;
pub(crate) use slim::{Pod, ReplicaSet};
pub(crate) use traffic::TrafficPolicyController;
pub(crate) use update_ops::{UpdateOpsController, update_of, update_ops_group};
