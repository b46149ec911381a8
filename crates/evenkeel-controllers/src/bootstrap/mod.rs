//! Controllers of bootstrap tokens, with which new nodes join the cluster; both are off by default. Upstream:
//! `pkg/controller/bootstrap`.

pub mod signer;
pub mod tokencleaner;

mod token;
