//! The server of the Model Context Protocol: sandboxes as tools and resources of an agent.
//!
//! [`Mcp`] answers requests of the streamable HTTP transport. It serves from the ports of the use cases, and does not know
//! the backend. The API layer authenticates requests before they reach it.
//!
//! ```text
//!   request ─▶ Mcp ─▶ rmcp (transport, JSON-RPC) ─▶ server ─▶ tools, resources ─▶ ports
//!               └── sessions: who opened one, its sandbox, its end
//! ```
//!
//! A session belongs to the team of the key that opened it. Its sandbox is created when a tool first needs one, and ends with
//! the session. Revisions of the protocol without sessions are not served.

#![forbid(unsafe_code)]

mod audit;
mod caller;
mod config;
mod error;
mod inner;
mod resources;
mod server;
mod service;
mod session;
mod sessions;
mod text;
mod tools;

pub use caller::Caller;
pub use config::McpConfig;
pub use service::{Answer, Mcp};
