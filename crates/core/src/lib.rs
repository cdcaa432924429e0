//! The domain of Shoal: ids, states, rules, and the ports behind which the world lies.
//!
//! Nothing here reads, writes, waits or knows of a protocol, so that every rule can be tested in
//! microseconds and every other crate can share it.

#![forbid(unsafe_code)]

pub mod audit;
pub mod auth;
pub mod build;
pub mod catalog;
pub mod catalogue;
pub mod clock;
pub mod detail;
pub mod driver;
pub mod id;
pub mod image;
pub mod limits;
pub mod network;
pub mod pool;
pub mod ports;
pub mod quantity;
pub mod resources;
pub mod sandbox;
pub mod snapshot;
pub mod state;
pub mod store;
pub mod template;

/// A future behind a port: boxed, so that the port can be a trait object.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
