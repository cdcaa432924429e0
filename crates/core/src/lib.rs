//! The domain of Shoal: ids, states, rules, and the ports to the outside world.
//!
//! This crate does no I/O and knows no protocol. Every rule can be tested in microseconds, and
//! every other crate can share it.

#![forbid(unsafe_code)]

pub mod audit;
pub mod auth;
pub mod build;
pub mod catalogue;
pub mod clock;
pub mod detail;
pub mod driver;
pub mod id;
pub mod image;
pub mod limits;
mod log_level;
pub mod memory;
pub mod network;
pub mod parking;
pub mod pool;
pub mod ports;
pub mod quantity;
pub mod quota;
pub mod resources;
pub mod routes;
pub mod sandbox;
pub mod session;
pub mod similar;
pub mod snapshot;
pub mod state;
pub mod store;
pub mod template;

/// A future returned by a port: boxed, so that the port can be a trait object.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
