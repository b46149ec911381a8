//! Workloads of the group `apps`, and the older ReplicationController.

pub mod daemonset;
pub mod deployment;
pub mod replicaset;
pub mod replicationcontroller;
pub mod statefulset;

mod revisions;

use std::time::Duration;

/// Pods of one owner change one after the other, and each change is another status of it: one that follows another within
/// this time waits for the rest of it. (Upstream folds as many by being busy.)
const STATUS_PACE: Duration = Duration::from_millis(100);

/// The gate by which Deployments and ReplicaSets count pods that are being deleted (KEP-3973).
const TERMINATING: &str = "DeploymentReplicaSetTerminatingReplicas";
