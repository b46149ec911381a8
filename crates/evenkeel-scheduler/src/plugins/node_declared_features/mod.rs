//! NodeDeclaredFeatures: schedules a pod only to nodes whose kubelet declares the features that the pod needs.
//!
//! Upstream: `plugins/nodedeclaredfeatures`, `component-helpers/nodedeclaredfeatures`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | features that a pod needs, inferred from its spec (KEP-5328) | `required_features` |
//! | `restartPolicyRules` with the action `RestartAllContainers` | `may_restart_all_containers` |
//! | `status.declaredFeatures` of the node must contain them | `filter` |
//! | a node declares more features, or an update of the pod changes its needs | `events_to_register`, `queueing_hint` |

#[cfg(test)]
mod tests;

use evenkeel_api::views::{Container, Pod};

use crate::{
    framework::{
        ActionType, Change, ClusterEvent, CycleState, EventResource, Filter, Plugin, PreFilter,
        PreFilterResult, QueueingHint, Status, StatusResult,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// Reason of a rejection.
const UNMATCHED: &str = "node(s) didn't match Pod's required features";

/// The NodeDeclaredFeatures plugin.
#[derive(Debug, Clone, Copy)]
pub struct NodeDeclaredFeatures;

/// Names of the features that a pod needs.
#[derive(Debug, PartialEq, Eq)]
struct RequiredFeatures(Vec<&'static str>);

/// A feature, and the function that reports whether a pod requires it.
type Feature = (&'static str, fn(&Pod) -> bool);

/// Features that the scheduler checks. Upstream's list has more, but those concern only updates of running pods.
const FEATURES: [Feature; 3] = [
    ("RestartAllContainersOnContainerExits", may_restart_all_containers),
    ("UserNamespacesHostNetworkSupport", |pod| {
        pod.spec.host_network && pod.spec.host_users == Some(false)
    }),
    ("VolumeBindMountOptions", |pod| {
        containers(pod).any(|container| container.bind_mount_options.are_set())
    }),
];

/// Returns the pod's containers and init containers.
fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.containers.iter().chain(&pod.spec.init_containers)
}

/// Returns whether a container exit may restart all containers of the pod.
fn may_restart_all_containers(pod: &Pod) -> bool {
    let mut rules = containers(pod).flat_map(|container| &*container.restart_policy_rules);
    rules.any(|rule| &*rule.action == "RestartAllContainers")
}

/// Returns the names of the features that the pod needs.
fn required_features(pod: &Pod) -> Vec<&'static str> {
    FEATURES.iter().filter(|(_, needs)| needs(pod)).map(|(name, _)| *name).collect()
}

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatures"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(
                EventResource::Node,
                &[ActionType::Add, ActionType::UpdateNodeDeclaredFeature],
            ),
            ClusterEvent::new(EventResource::TargetPod, &[ActionType::Update]),
        ]
    }

    /// Returns `Skip` for updates of the pending pod that do not change its required features. Most of these are the
    /// scheduler's own status patches.
    fn queueing_hint(&self, _: &PodInfo, change: &Change) -> QueueingHint {
        match change {
            Change::TargetPodUpdate { old, new } => {
                QueueingHint::when(required_features(&old.pod) != required_features(&new.pod))
            }
            _ => QueueingHint::Queue,
        }
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl PreFilter for NodeDeclaredFeatures {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let required_features = required_features(&pod.pod);
        if required_features.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        state.put(RequiredFeatures(required_features));
        Ok(PreFilterResult::All)
    }
}

impl Filter for NodeDeclaredFeatures {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let Some(RequiredFeatures(required_features)) = state.get::<RequiredFeatures>() else {
            return Ok(());
        };
        let declared = &node.node().status.declared_features;
        let is_declared = |name: &str| declared.iter().any(|feature| &**feature == name);
        if required_features.iter().all(|name| is_declared(name)) {
            return Ok(());
        }
        Err(Status::unresolvable(UNMATCHED))
    }
}
