//! Resource-specific storage logic that strategies do not cover: allocated values, objects written in the same
//! transaction, and permission checks for roles, bindings, admission policies and device claims.

mod cluster_ips;
mod node_ports;
pub(crate) mod policy_params;
pub(crate) mod policybased;
mod port_range;
pub(crate) mod resourceclaim;
mod service;
mod storage;

pub(crate) use cluster_ips::create_missing_ip_addresses;
pub(crate) use storage::{INDEXED_RESOURCES, allocate, begin_write, finish_write};
