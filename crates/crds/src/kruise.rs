//! The custom resources of `agents.kruise.io/v1alpha1`, the only version of its group.

mod checkpoint;
mod claim;
mod claiming;
pub mod duration;
mod internet;
pub mod names;
mod parts;
mod pause;
mod picks;
mod pool_autoscaler;
pub mod quantity;
pub mod revision;
mod sandbox;
mod sandbox_set;
mod state;
pub mod strategic;
mod template;
mod traffic_policy;
mod update_ops;

pub use checkpoint::{Checkpoint, CheckpointPhase, CheckpointSpec, CheckpointStatus};
pub use claim::{
    ClaimInplaceUpdate, ClaimPhase, ClaimResources, CsiMount, SandboxClaim, SandboxClaimSpec,
    SandboxClaimStatus,
};
pub use claiming::{Claiming, InitRequest, generate_name};
pub use internet::{NO_INTERNET_POLICY, no_internet_policy};
pub use parts::{
    ExecHook, HibernateStrategy, Lifecycle, LifecycleHook, PauseStrategy, PauseStrategyKind,
    RuntimeRef, TemplateRef, UpgradePolicy, UpgradePolicyKind,
};
pub use pause::pause_contents;
pub use picks::{Pick, Picks};
pub use pool_autoscaler::{
    AppliedCronPolicy, CapacityPolicy, CronPolicy, CurrentCapacity, PoolAutoscaler,
    PoolAutoscalerSpec, PoolAutoscalerStatus, ScaleTargetRef, ScalingRules,
};
pub use sandbox::{PodInfo, Sandbox, SandboxPhase, SandboxSpec, SandboxStatus};
pub use sandbox_set::{MaxUnavailable, SandboxSet, SandboxSetSpec, SandboxSetStatus};
pub use state::{NotPausable, NotResumable, SandboxState, pausable, resumable};
pub use template::{SandboxTemplate, SandboxTemplateSpec};
pub use traffic_policy::{
    Peer, PeerService, PeerWorkload, PolicyPort, RuleAction, TrafficDirection, TrafficPolicy,
    TrafficPolicySpec, TrafficPolicyStatus, TrafficRule,
};
pub use update_ops::{
    SandboxUpdateOps, SandboxUpdateOpsSpec, SandboxUpdateOpsStatus, StateFilter, UpdateOpsPhase,
    UpdateOpsState, UpdateOpsStrategy,
};
