//! Workloads of the group `apps`, and the older ReplicationController.

pub mod daemonset;
pub mod deployment;
pub mod replicaset;
pub mod replicationcontroller;
pub mod statefulset;

mod revisions;
