//! Images on this node.

mod beneath;
mod digest;
mod fault;
pub mod unpack;

pub use digest::{Digest, InvalidDigest};
