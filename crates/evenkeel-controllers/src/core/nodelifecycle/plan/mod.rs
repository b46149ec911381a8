//! What is decided about nodes, each part by itself and without knowing what time it is.
//!
//! A pass over all nodes (`monitor::look_at_all`, upstream's `monitorNodeHealth`), every `--node-monitor-period`:
//!
//! 1. Each node: has it been heard of? [`health::Health::after`], [`health::Health::is_overdue`]; where it has not, its
//!    conditions become `Unknown`: [`silence::mark_unknown`] (`tryUpdateNodeHealth`).
//! 2. Which `NoExecute` taint should it have, and when? [`no_execute::step`] (`processTaintBaseEviction`).
//! 3. Its pods' `Ready` becomes `False` where it is not ready: [`pods::take_back_ready`] (`MarkPodsNotReady`).
//! 4. All nodes: how are the zones, and how fast may their nodes be tainted? [`zones::Zones::turn`] (`handleDisruption`).
//!
//! Between passes nodes whose turn it is are tainted: [`zones::Zones::due`], [`no_execute::patch`]
//! (`doNoExecuteTaintingPass`). A node that changes gets its `NoSchedule` taints and labels by itself:
//! [`condition_taints::plan`] (`doNoScheduleTaintingPass`, `reconcileNodeLabels`).
//!
//! | documented | where |
//! |---|---|
//! | heartbeats: `status.conditions`, the Lease's `renewTime` | `health::after` |
//! | `--node-monitor-grace-period`, `--node-startup-grace-period` | `health::is_overdue` |
//! | conditions `Unknown`: `NodeStatusUnknown`, `NodeStatusNeverUpdated` | `silence::mark_unknown` |
//! | `node.kubernetes.io/not-ready` and `node.kubernetes.io/unreachable` with `NoExecute` | `no_execute::step`, `no_execute::patch` |
//! | `node.kubernetes.io/memory-pressure`, `disk-pressure`, `pid-pressure`, `network-unavailable`, `not-ready`, `unreachable` with `NoSchedule`; `unschedulable` | `condition_taints::taints` |
//! | `--node-eviction-rate`, `--secondary-node-eviction-rate`, `--large-cluster-size-threshold` | `zones::rate` |
//! | `--unhealthy-zone-threshold`, partial and full disruption | `zones::state` |
//! | no node of any zone is ready | `zones::turn`, `no_execute::without` |
//! | `topology.kubernetes.io/zone`, `topology.kubernetes.io/region` | `zones::zone_of` |
//! | `node.kubernetes.io/exclude-disruption` | `zones::counts` |
//! | pods' condition `Ready`: `False` | `pods::take_back_ready` |
//! | `beta.kubernetes.io/os`, `beta.kubernetes.io/arch` | `condition_taints::labels` |
//! | a node whose taints the server refuses (no such pause upstream) | `refusal::holds` |
//! | eviction by taint, `tolerationSeconds` | `../../tainteviction/plan.rs` |
//! | tolerations of new pods (`DefaultTolerationSeconds`), taints of new nodes (`TaintNodesByCondition`) | `../../../../../evenkeel-apiserver/src/kinds/admission/mod.rs` |
//! | `node.kubernetes.io/out-of-service` | `../../podgc/plan.rs`, volumes in `../../../storage/attach_detach/plan.rs` |

pub(super) mod condition_taints;
pub(super) mod health;
pub(super) mod no_execute;
pub(super) mod pods;
pub(super) mod refusal;
pub(super) mod silence;
pub(super) mod zones;
