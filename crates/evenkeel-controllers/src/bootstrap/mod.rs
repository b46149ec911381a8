//! Controllers of bootstrap tokens, by which new nodes find the cluster and are let in.
//!
//! Upstream: `pkg/controller/bootstrap`; both are off unless they are asked for.

pub mod signer;
pub mod tokencleaner;

mod token;
