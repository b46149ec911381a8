//! Controllers of bootstrap tokens, which new nodes use to join the cluster. Both are off by default. Upstream:
//! `pkg/controller/bootstrap`.

pub mod signer;
pub mod tokencleaner;

mod token;
