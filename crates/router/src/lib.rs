//! The router of `agents.x-k8s.io`: from three headers to a port of a sandbox's pod.
//!
//! The contract of the headers and of the errors is the reference router's, so that its clients work. The
//! target is found differently: not by a DNS name that the headers make up, but in a watch of all
//! `Sandbox` objects. So no header leads anywhere but to the pod of a sandbox, and a sandbox needs no
//! service. Proxying is the gateway's ([`shoal_gateway`]).

#![forbid(unsafe_code)]

mod answer;
mod authenticate;
mod headers;
mod router;
mod table;
mod watch;

pub use authenticate::{Authentication, InvalidTokens};
pub use router::{Router, RouterConfig, StartError, Watching};
