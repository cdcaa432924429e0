//! The measurements, one module for each group of rows.

pub(crate) mod build;
pub(crate) mod commands;
pub(crate) mod create;
pub(crate) mod crowd;
pub(crate) mod files;
pub(crate) mod gateway;
pub(crate) mod interpreter;
pub(crate) mod kernels;
pub(crate) mod large;
pub(crate) mod pool;
pub(crate) mod rest;
pub(crate) mod sessions;
