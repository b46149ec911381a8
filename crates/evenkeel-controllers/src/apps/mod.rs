//! Controllers of the API group `apps`, and of ReplicationController.

pub mod daemonset;
pub mod deployment;
pub mod replicaset;
pub mod replicationcontroller;
pub mod statefulset;

mod revisions;

use std::time::Duration;

/// Throttle of status updates: changes of pods within this time are written together. Upstream coalesces them through
/// its rate-limited queue.
const STATUS_PACE: Duration = Duration::from_millis(100);

/// Feature gate of `status.terminatingReplicas` in Deployments and ReplicaSets (KEP-3973).
const TERMINATING: &str = "DeploymentReplicaSetTerminatingReplicas";
