//! The OpenAPI schemas of the kinds.

mod core;
mod kinds;

pub(crate) use kinds::{Kind, Version, kinds};
