//! The ports of the API layer, implemented on the custom resources of `agents.kruise.io`.
//!
//! The custom resource is the record. A replica of the API has watches of all resources, from which it
//! reads, and writes with the resource version that it has seen: of several writes one wins. It keeps
//! nothing else, so that any number of replicas serve the same sandboxes, and each may end at any moment.
//!
//! A sandbox belongs to the team of its namespace. Its state is derived from the resource by the rule of
//! [`shoal_crds::kruise::SandboxState`]; [`record`] turns the resource into the record that the API layer
//! reads. The operator does the rest: it creates pods, pauses and resumes them, and deletes expired
//! objects.
//!
//! `follow` ─▶ `watched` ─▶ `record` ─▶ `sandboxes`, `templates`, `routes`, …: facts come up from the
//! watches, and no module uses one above it.

#![forbid(unsafe_code)]

mod access;
mod backend;
mod blueprint;
mod catalogue;
mod claim;
mod config_map;
mod create;
mod elsewhere;
mod entries;
mod entry_pools;
mod failure;
mod follow;
mod fork;
mod identity;
mod initialize;
mod installation;
mod internet;
mod keys;
mod lifecycle;
mod nodes;
mod objects;
mod options;
mod pause;
mod pod;
mod pools;
mod quotas;
mod random;
mod ready;
mod record;
mod resize;
mod routes;
mod sandboxes;
mod saves;
mod snapshots;
mod teams;
mod telemetry;
mod templates;
mod versions;
mod watched;

pub use backend::{Backend, BackendConfig, ConnectError, TemplatesConfig};
pub use catalogue::CatalogueFiles;
