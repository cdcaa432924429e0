//! `shoal operator`: the controllers of `agents.x-k8s.io` and `agents.kruise.io`.
//!
//! Each controller has a folder. Decisions are functions without I/O of the observed
//! objects; a thin layer calls the API server. All reads come from watch caches.

mod adoptions;
mod args;
mod blueprint;
mod cache;
mod claim;
mod cluster;
mod conditions;
mod controllers;
mod endpoints;
mod failure;
mod held;
mod kruise;
mod lease;
mod measures;
mod owner;
mod patch;
mod pool;
mod population;
mod queue;
mod restore;
mod sandbox;
mod saves;
mod slim;
mod start;
mod template;
mod trace;
mod webhook;
mod write;

pub use args::{FeatureGates, InjectRuntime, KruiseArgs, Listen, OperatorArgs, UnusedArgs};
pub use endpoints::{Endpoints, Gauges};
pub use start::{OperatorError, run};
