//! What resources do beyond their strategy: values allocated from the store, objects written in the same transaction, and the
//! permissions that a role or a binding needs.

mod cluster_ips;
pub(crate) mod policybased;
mod service;
mod storage;

pub(crate) use cluster_ips::show_all;
pub(crate) use storage::{INDEXED_RESOURCES, allocate, begin_write, finish_write};
