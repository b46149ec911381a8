//! What resources do beyond their strategy: values allocated from the store, objects written in the same transaction, and the
//! permissions that a role, a binding, an admission policy or a claim of devices needs.

mod cluster_ips;
pub(crate) mod policy_params;
pub(crate) mod policybased;
pub(crate) mod resourceclaim;
mod service;
mod storage;

pub(crate) use cluster_ips::show_all;
pub(crate) use storage::{INDEXED_RESOURCES, allocate, begin_write, finish_write};
