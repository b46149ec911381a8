//! Which plugins take part by default, and how a profile's own lists change that (`pkg/scheduler/apis/config/v1/default_plugins.go`).

use super::{PluginRef, PluginSet, Plugins};
use evenkeel_component::features::FeatureGates;

/// Extension points as the configuration names them.
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

/// The plugins and weights that upstream has by default, each with the gate that it depends on.
const STANDARD: [(&str, i32, &str); 24] = [
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
    // An idle claim is given back before pods are evicted.
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

/// The default plugins, changed as `own` says.
pub(super) fn merged(gates: &FeatureGates, own: Option<Plugins>) -> Plugins {
    let mut own = own.unwrap_or_default();
    let merged = POINTS.map(|point| {
        let given = own.0.remove(point).unwrap_or_default();
        let standard = if point == "multiPoint" { standard(gates) } else { Vec::new() };
        (point.to_owned(), merge(standard, given))
    });
    Plugins(merged.into())
}

fn standard(gates: &FeatureGates) -> Vec<PluginRef> {
    let on = STANDARD.iter().filter(|(_, _, gate)| gate.is_empty() || gates.enabled(gate));
    on.map(|(name, weight, _)| PluginRef { name: (*name).to_owned(), weight: *weight }).collect()
}

/// Default plugins keep their place when they are named again, with what is said of them there; others follow.
fn merge(standard: Vec<PluginRef>, own: PluginSet) -> PluginSet {
    let off = |name: &str| own.disabled.iter().any(|plugin| plugin.name == name);
    let mut replaced = Vec::new();
    let mut enabled: Vec<PluginRef> = Vec::new();
    if !off("*") {
        for plugin in standard.into_iter().filter(|plugin| !off(&plugin.name)) {
            // Of several with this name the last counts here; the others are found to be too many later.
            match own.enabled.iter().rposition(|given| given.name == plugin.name) {
                Some(n) => {
                    replaced.push(n);
                    enabled.push(own.enabled[n].clone());
                }
                None => enabled.push(plugin),
            }
        }
    }
    let others = own.enabled.iter().enumerate().filter(|(n, _)| !replaced.contains(n));
    enabled.extend(others.map(|(_, plugin)| plugin.clone()));
    let disabled =
        own.disabled.into_iter().map(|plugin| PluginRef { weight: 0, ..plugin }).collect();
    PluginSet { enabled, disabled }
}
