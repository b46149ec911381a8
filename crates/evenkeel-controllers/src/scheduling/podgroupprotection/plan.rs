//! Decides whether the finalizer of a PodGroup is removed.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | a PodGroup with active pods is not deleted | `plan` |
//! | a pod in the phase `Succeeded` or `Failed` is not active | `active_group_key` |
//! | the end or deletion of a pod may release its PodGroup | `released_groups` |

use super::PodGroup;
use crate::{finalizers, pods};
use evenkeel_api::{View as _, views::Pod};
use evenkeel_runtime::{
    cache::CacheEvent,
    introspect::Description,
    plan::{Key, Plan},
};
use std::sync::Arc;

/// Finalizer that protects a PodGroup. Upstream: `PodGroupProtectionFinalizer`.
pub(super) const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

/// A PodGroup, and the number of its pods that are not terminal.
pub(super) struct Observed {
    pub(super) group: Arc<PodGroup>,
    pub(super) n_active_pods: usize,
}

/// Removes the finalizer from a terminating PodGroup without active pods. Upstream: `processPodGroup`.
pub(super) fn plan(observed: &Observed) -> Plan {
    let Observed { group, n_active_pods } = observed;
    if *n_active_pods == 0 && finalizers::blocks_deletion(group.meta(), FINALIZER) {
        Plan::one(finalizers::remove(&**group, FINALIZER))
    } else {
        Plan::nothing()
    }
}

/// Describes the pods that delay the deletion of a PodGroup.
pub(super) fn describe(observed: &Observed) -> Description {
    let Observed { group, n_active_pods } = observed;
    let mut description = Description::new();
    description.fact("activePods", n_active_pods);
    if *n_active_pods > 0 && finalizers::blocks_deletion(group.meta(), FINALIZER) {
        description.waits(match n_active_pods {
            1 => "1 active pod is a member of the group".to_owned(),
            count => format!("{count} active pods are members of the group"),
        });
    }
    description
}

/// Returns the key of the group that a pod keeps from being deleted, as `namespace/name`. Upstream:
/// `addActivePodSchedulingGroupIndexer`.
pub(super) fn active_group_key(pod: &Pod) -> Option<String> {
    if pods::is_terminal(pod) {
        return None;
    }
    group_of(pod).map(|group| group.to_string())
}

/// Returns the groups that the event of a pod may release. An update that replaces a pod by another one of the same name
/// hides the deletion of the old pod. Upstream: `handlePodChange`.
pub(super) fn released_groups(event: &CacheEvent<Pod>) -> Vec<Key> {
    let ended = |pod: &Pod| if pods::is_terminal(pod) { group_of(pod) } else { None };
    match event {
        CacheEvent::Added { object, .. } => ended(object).into_iter().collect(),
        CacheEvent::Updated { old, new } => {
            let replaced = if old.meta.uid == new.meta.uid { None } else { group_of(old) };
            ended(new).into_iter().chain(replaced).collect()
        }
        CacheEvent::Deleted(pod) => group_of(pod).into_iter().collect(),
    }
}

/// Returns the key of a pod's group.
fn group_of(pod: &Pod) -> Option<Key> {
    let group = pod.spec.scheduling_group.as_deref()?;
    let name = &group.pod_group_name;
    (!name.is_empty()).then(|| Key::new(&pod.meta.namespace, name))
}

#[cfg(test)]
mod tests;
