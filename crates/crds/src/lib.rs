//! The custom resources of `agents.x-k8s.io`, `extensions.agents.x-k8s.io` and `agents.kruise.io`:
//! types, definitions and conversion between versions. Nothing here does I/O.
//!
//! The last has one version, in [`kruise`]. Of the others, `v1beta1` is the storage version; `v1alpha1` is
//! served through a conversion webhook, which calls [`convert::convert`].
//!
//! Pod and claim specifications are kept as JSON objects, not as typed values: an object of a newer
//! Kubernetes passes through unchanged, and a conversion cannot lose a field.

pub mod convert;
mod definition;
pub mod hash;
pub mod kruise;
pub mod names;
pub mod parts;
mod resource;
mod schema;
pub mod v1alpha1;
pub mod v1beta1;

pub use definition::{Conversion, converted, definitions, yaml};
