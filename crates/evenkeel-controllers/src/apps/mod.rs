//! Controllers of the API group `apps`, and of ReplicationController.

pub mod daemonset;
pub mod deployment;
pub mod replicaset;
pub mod replicationcontroller;
pub mod statefulset;

mod revisions;

use std::time::Duration;

/// Minimum time between two status updates of an object. One update covers all changes of pods within that time.
/// Upstream coalesces changes through its rate-limited queue.
const MIN_STATUS_INTERVAL: Duration = Duration::from_millis(100);

/// Feature gate of `status.terminatingReplicas` in Deployments and ReplicaSets (KEP-3973).
const TERMINATING_REPLICAS_GATE: &str = "DeploymentReplicaSetTerminatingReplicas";
