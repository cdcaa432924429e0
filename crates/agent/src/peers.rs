//! Checkpoints from the agents of other nodes, and for them.
//!
//! Each agent makes a certificate when it starts, and shows it in an annotation of its own pod. Both ends of a connection
//! compare the certificate of the other with those: there is no authority, and nothing to rotate. An agent gives a checkpoint
//! to the agent of a node on which a pod starts from it, and to no other.
//!
//! ```text
//! GET /v1/checkpoints/<namespace>/<id>                 its manifest
//! GET /v1/checkpoints/<namespace>/<id>/files/<name>    a file of it
//! ```
//!
//! The contents are not trusted, as those of an [object store](crate::objects) are not.

mod agents;
mod client;
mod identity;
mod server;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;

pub(crate) use self::agents::Agents;
pub(crate) use self::client::{Peer, PeerError};
pub(crate) use self::identity::Identity;
pub(crate) use self::server::{Offer, serve};

/// The needs of transfers between nodes.
pub(crate) struct Peers {
    pub(crate) identity: Identity,
    pub(crate) agents: Arc<Agents>,
    /// The port of all agents.
    pub(crate) port: u16,
}

/// The port on all addresses.
///
/// # Errors
/// When it cannot be bound.
pub(crate) async fn bind(port: u16) -> std::io::Result<TcpListener> {
    // A kernel without IPv6 refuses the first.
    let addresses: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    let addresses = addresses.map(|address| SocketAddr::new(address, port));
    TcpListener::bind(&addresses[..]).await
}
