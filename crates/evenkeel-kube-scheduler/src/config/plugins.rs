//! Default plugins, merged with the lists of a profile (`pkg/scheduler/apis/config/v1/default_plugins.go`).

use super::{PluginRef, PluginSet, Plugins};
use evenkeel_component::features::FeatureGates;

/// Names of the extension points in the configuration.
pub(super) const POINTS: [&str; 16] = [
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    "multiPoint",
    "placementGenerate",
    "placementScore",
    "podGroupPostFilter",
];

/// Upstream's default plugins with their weights, and the feature gate that each depends on. The weight 0 means that
/// none is set, and an empty gate that the plugin is always on.
const DEFAULT_PLUGINS: [(&str, i32, &str); 24] = [
    ("SchedulingGates", 0, ""),
    ("PrioritySort", 0, ""),
    ("NodeName", 0, ""),
    ("NodeUnschedulable", 0, ""),
    ("TaintToleration", 3, ""),
    ("NodeAffinity", 2, ""),
    ("NodePorts", 0, ""),
    ("DeferredPodScheduling", 0, "InPlacePodVerticalScalingSchedulerPreemption"),
    ("NodeResourcesFit", 1, ""),
    ("VolumeRestrictions", 0, ""),
    ("NodeVolumeLimits", 0, ""),
    ("VolumeBinding", 0, ""),
    ("VolumeZone", 0, ""),
    ("PodTopologySpread", 2, ""),
    ("InterPodAffinity", 2, ""),
    // DynamicResources precedes DefaultPreemption: it deallocates an unused claim before pods are evicted.
    ("DynamicResources", 2, "DynamicResourceAllocation"),
    ("DefaultPreemption", 0, ""),
    ("NodeResourcesBalancedAllocation", 1, ""),
    ("ImageLocality", 1, ""),
    ("DefaultBinder", 0, ""),
    ("NodeDeclaredFeatures", 0, "NodeDeclaredFeatures"),
    ("GangScheduling", 0, "GenericWorkload"),
    ("TopologyPlacementGenerator", 0, "TopologyAwareWorkloadScheduling"),
    ("PodGroupPodsCount", 1, "TopologyAwareWorkloadScheduling"),
];

/// Returns the default plugins, merged with the lists of a profile.
pub(super) fn with_default_plugins(gates: &FeatureGates, plugins: Option<Plugins>) -> Plugins {
    let mut plugins = plugins.unwrap_or_default();
    let sets = POINTS.map(|point| {
        let set = plugins.0.remove(point).unwrap_or_default();
        let defaults = if point == "multiPoint" { default_plugins(gates) } else { Vec::new() };
        (point.to_owned(), merge(defaults, set))
    });
    Plugins(sets.into())
}

/// Returns the default plugins of `multiPoint`, in order.
fn default_plugins(gates: &FeatureGates) -> Vec<PluginRef> {
    let enabled =
        DEFAULT_PLUGINS.iter().filter(|(_, _, gate)| gate.is_empty() || gates.enabled(gate));
    enabled
        .map(|(name, weight, _)| PluginRef { name: (*name).to_owned(), weight: *weight })
        .collect()
}

/// Merges the default plugins with a profile's list. A default plugin that the list names keeps its position and takes
/// the list's settings. Other plugins of the list follow.
fn merge(defaults: Vec<PluginRef>, set: PluginSet) -> PluginSet {
    let is_disabled = |name: &str| set.disabled.iter().any(|plugin| plugin.name == name);
    // Indexes of the list's entries that replace a default plugin.
    let mut replacements = Vec::new();
    let mut enabled: Vec<PluginRef> = Vec::new();
    if !is_disabled("*") {
        for plugin in defaults.into_iter().filter(|plugin| !is_disabled(&plugin.name)) {
            // If the list names a plugin several times, the last entry applies here. The build of the profile rejects
            // the others.
            match set.enabled.iter().rposition(|listed| listed.name == plugin.name) {
                Some(index) => {
                    replacements.push(index);
                    enabled.push(set.enabled[index].clone());
                }
                None => enabled.push(plugin),
            }
        }
    }
    let others = set.enabled.iter().enumerate().filter(|(index, _)| !replacements.contains(index));
    enabled.extend(others.map(|(_, plugin)| plugin.clone()));
    let disabled =
        set.disabled.into_iter().map(|plugin| PluginRef { weight: 0, ..plugin }).collect();
    PluginSet { enabled, disabled }
}
