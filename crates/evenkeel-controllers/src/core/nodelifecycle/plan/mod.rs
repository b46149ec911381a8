//! Decisions about nodes, as pure functions of state and time.
//!
//! Every `--node-monitor-period`, the monitor checks all nodes in these steps (`act::monitor_node_health`; Upstream:
//! `monitorNodeHealth`):
//!
//! 1. Update each node's health from its status and lease ([`health::NodeHealth::observe`]). After the grace period,
//!    set its conditions to `Unknown` ([`unreachable::mark_unknown`]). Upstream: `tryUpdateNodeHealth`.
//! 2. Choose the node's `NoExecute` taint ([`no_execute::taint_action`]). Upstream: `processTaintBaseEviction`.
//! 3. Set `Ready` to `False` in the pods of a node that is not ready ([`pods::mark_not_ready`]). Upstream:
//!    `MarkPodsNotReady`.
//! 4. Update the zones' states and eviction rates ([`zones::Zones::handle_disruption`]). Upstream: `handleDisruption`.
//!
//! Between these checks, the zones' rate limiters release nodes to be tainted ([`zones::Zones::take_due`],
//! [`no_execute::taints_patch`]). Upstream: `doNoExecuteTaintingPass`. A changed node gets its `NoSchedule` taints and
//! labels immediately ([`condition_taints::plan`]). Upstream: `doNoScheduleTaintingPass`, `reconcileNodeLabels`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | heartbeats: `status.conditions`, the Lease's `renewTime` | `health::observe` |
//! | `--node-monitor-grace-period`, `--node-startup-grace-period` | `health::is_grace_period_over` |
//! | conditions `Unknown`: `NodeStatusUnknown`, `NodeStatusNeverUpdated` | `unreachable::mark_unknown` |
//! | `node.kubernetes.io/not-ready` and `node.kubernetes.io/unreachable` with `NoExecute` | `no_execute::taint_action`, `no_execute::taints_patch` |
//! | `node.kubernetes.io/memory-pressure`, `disk-pressure`, `pid-pressure`, `network-unavailable`, `not-ready`, `unreachable` with `NoSchedule`; `unschedulable` | `condition_taints::taints_patch` |
//! | `--node-eviction-rate`, `--secondary-node-eviction-rate`, `--large-cluster-size-threshold` | `zones::eviction_rate` |
//! | `--unhealthy-zone-threshold`, partial and full disruption | `zones::zone_state` |
//! | full disruption of all zones (master disruption mode) | `zones::handle_disruption`, `no_execute::reachable_patch` |
//! | `topology.kubernetes.io/zone`, `topology.kubernetes.io/region` | `zones::zone_key` |
//! | `node.kubernetes.io/exclude-disruption` | `zones::counts_for_disruption` |
//! | pods' condition `Ready`: `False` | `pods::mark_not_ready` |
//! | `beta.kubernetes.io/os`, `beta.kubernetes.io/arch` | `condition_taints::labels_patch` |
//! | backoff of nodes whose patch the API server refuses (not upstream) | `rejected_patch::applies` |
//! | eviction by taint, `tolerationSeconds` | `../../tainteviction/plan.rs` |
//! | tolerations of new pods (`DefaultTolerationSeconds`), taints of new nodes (`TaintNodesByCondition`) | `../../../../../evenkeel-apiserver/src/admission/mod.rs` |
//! | `node.kubernetes.io/out-of-service` | `../../podgc/plan.rs`, volumes in `../../../storage/attachdetach/plan.rs` |

pub(super) mod condition_taints;
pub(super) mod health;
pub(super) mod no_execute;
pub(super) mod pods;
pub(super) mod rejected_patch;
pub(super) mod unreachable;
pub(super) mod zones;
