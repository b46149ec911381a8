//! NodeDeclaredFeatures: a pod goes where the kubelet says that it can do what the pod asks for.
//!
//! Upstream: `plugins/nodedeclaredfeatures`, `component-helpers/nodedeclaredfeatures`.
//!
//! | documented | where |
//! |---|---|
//! | features that a pod needs, inferred from its spec (KEP-5328) | `needed` |
//! | `restartPolicyRules` with the action `RestartAllContainers` | `restarts_all` |
//! | `status.declaredFeatures` of the node | `filter` |
//! | a node declares more, or an update of the pod needs other features | `events_to_register`, `queueing_hint` |

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

const UNMATCHED: &str = "node(s) didn't match Pod's required features";

/// Keeps pods off nodes that do not declare what the pods need.
#[derive(Debug, Clone, Copy)]
pub struct NodeDeclaredFeatures;

/// What a pod needs a node to declare.
#[derive(Debug, PartialEq, Eq)]
struct Needed(Vec<&'static str>);

/// A feature, and whether a pod needs it.
type Feature = (&'static str, fn(&Pod) -> bool);

/// Those that placing depends on; others matter only when a pod that runs is changed.
const FEATURES: [Feature; 3] = [
    ("RestartAllContainersOnContainerExits", restarts_all),
    ("UserNamespacesHostNetworkSupport", |pod| {
        pod.spec.host_network && pod.spec.host_users == Some(false)
    }),
    ("VolumeBindMountOptions", |pod| containers(pod).any(|one| one.bind_mount_options.0)),
];

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.containers.iter().chain(&pod.spec.init_containers)
}

fn restarts_all(pod: &Pod) -> bool {
    let mut rules = containers(pod).flat_map(|one| &*one.restart_policy_rules);
    rules.any(|rule| &*rule.action == "RestartAllContainers")
}

fn needed(pod: &Pod) -> Vec<&'static str> {
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

    /// Most of what changes about a pod that waits is what the scheduler itself says of it.
    fn queueing_hint(&self, _: &PodInfo, change: &Change) -> QueueingHint {
        match change {
            Change::OwnUpdate { old, new } => {
                QueueingHint::when(needed(&old.pod) != needed(&new.pod))
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
        let needed = needed(&pod.pod);
        if needed.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        state.put(Needed(needed));
        Ok(PreFilterResult::All)
    }
}

impl Filter for NodeDeclaredFeatures {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let Some(Needed(needed)) = state.get::<Needed>() else { return Ok(()) };
        let declared = &node.node().status.declared_features;
        if needed.iter().all(|name| declared.iter().any(|own| **own == **name)) {
            return Ok(());
        }
        Err(Status::unresolvable(UNMATCHED))
    }
}
