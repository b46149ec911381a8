//! Quota scopes: select the pods and claims that a ResourceQuota counts.

use super::{Item, objects, pods};
use evenkeel_api::views::{ResourceQuotaSpec, ScopedResourceSelectorRequirement};
use std::borrow::Cow;

/// Returns the scopes of a quota, from `spec.scopes` and `spec.scopeSelector`, as requirements.
pub(super) fn requirements(
    spec: &ResourceQuotaSpec,
) -> impl Iterator<Item = Cow<'_, ScopedResourceSelectorRequirement>> {
    let plain = spec.scopes.iter().map(|scope| {
        Cow::Owned(ScopedResourceSelectorRequirement {
            scope_name: scope.clone(),
            operator: "Exists".into(),
            values: Box::default(),
        })
    });
    let selected = spec.scope_selector.iter().flat_map(|selector| &selector.match_expressions);
    plain.chain(selected.map(Cow::Borrowed))
}

/// Returns whether the object matches the scope. Objects other than pods and PersistentVolumeClaims match no scope.
pub(super) fn matches(requirement: &ScopedResourceSelectorRequirement, item: &Item<'_>) -> bool {
    match (item, &*requirement.scope_name) {
        (Item::Pod(pod), "Terminating") => pods::is_terminating(pod),
        (Item::Pod(pod), "NotTerminating") => !pods::is_terminating(pod),
        (Item::Pod(pod), "BestEffort") => pods::is_best_effort(pod),
        (Item::Pod(pod), "NotBestEffort") => !pods::is_best_effort(pod),
        (Item::Pod(pod), "CrossNamespacePodAffinity") => pods::uses_cross_namespace_affinity(pod),
        (Item::Pod(pod), "PriorityClass") => {
            let class = &*pod.spec.priority_class_name;
            selects(requirement, Some(class).filter(|class| !class.is_empty()))
        }
        (Item::VolumeClaim(claim), "VolumeAttributesClass") => {
            let classes = objects::volume_classes(claim);
            if classes.is_empty() {
                selects(requirement, None)
            } else {
                classes.into_iter().any(|class| selects(requirement, Some(class)))
            }
        }
        _ => false,
    }
}

/// Returns whether the requirement selects this value, or its absence.
fn selects(requirement: &ScopedResourceSelectorRequirement, value: Option<&str>) -> bool {
    let is_listed = |value: &str| requirement.values.iter().any(|listed| **listed == *value);
    match &*requirement.operator {
        "In" => value.is_some_and(is_listed),
        "NotIn" => !value.is_some_and(is_listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}
