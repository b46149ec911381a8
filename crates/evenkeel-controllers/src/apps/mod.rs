//! Workloads of the group `apps`, and the older ReplicationController.

pub mod deployment;
pub mod replicaset;
pub mod replicationcontroller;
