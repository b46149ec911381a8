//! Factories of the in-tree plugins.
//!
//! Upstream: `NewInTreeRegistry`.

use crate::{
    config::{
        Aggregate, DefaultPreemptionArgs, DynamicResourcesArgs, GoDuration, InterPodAffinityArgs,
        NodeAffinityArgs, NodeResourcesBalancedAllocationArgs, NodeResourcesFitArgs,
        PluginArgs as _, PodTopologySpreadArgs, ResourceSpec, VolumeBindingArgs,
    },
    registry::{PluginContext, PluginResult},
};
use evenkeel_api::{Encoding, View as _, views::Pod};
use evenkeel_component_helpers::scheduling::corev1::{COMPARISON_GATE, TolerationOperators};
use evenkeel_scheduler::plugins::{
    BalancedAllocation, DefaultBinder, DefaultPreemption, DynamicResources, ImageLocality,
    InterPodAffinity, NodeAffinity, NodeDeclaredFeatures, NodeName, NodePorts, NodeResourcesFit,
    NodeUnschedulable, NodeVolumeLimits, PodTopologySpread, PrioritySort, SchedulingGates,
    TaintToleration, VolumeBinding, VolumeRestrictions, VolumeZone, balanced_allocation,
    default_preemption, dynamic_resources, inter_pod_affinity, node_affinity,
    node_resources_fit::{self, ResourceWeight, Strategy},
    pod_topology_spread::{self, DefaultConstraint, DefaultingType, WhenUnsatisfiable},
    shape::Shape,
    volume_binding,
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Function that creates an in-tree plugin.
pub(super) type PluginFactory = fn(&PluginContext<'_>) -> PluginResult;

/// Names of the in-tree plugins with their factories.
pub(super) const FACTORIES: &[(&str, PluginFactory)] = &[
    ("DefaultBinder", |_| Ok(Arc::new(DefaultBinder))),
    ("DefaultPreemption", default_preemption_factory),
    ("DynamicResources", dynamic_resources_factory),
    ("ImageLocality", |_| Ok(Arc::new(ImageLocality))),
    ("InterPodAffinity", inter_pod_affinity_factory),
    ("NodeAffinity", node_affinity_factory),
    ("NodeDeclaredFeatures", |_| Ok(Arc::new(NodeDeclaredFeatures))),
    ("NodeName", |_| Ok(Arc::new(NodeName))),
    ("NodePorts", |_| Ok(Arc::new(NodePorts))),
    ("NodeResourcesBalancedAllocation", balanced_allocation_factory),
    ("NodeResourcesFit", node_resources_fit_factory),
    ("NodeUnschedulable", |_| Ok(Arc::new(NodeUnschedulable))),
    ("NodeVolumeLimits", |context| {
        let volume_limit_scaling = context.gates.enabled("VolumeLimitScaling");
        Ok(Arc::new(NodeVolumeLimits::new(volume_limit_scaling)))
    }),
    ("PodTopologySpread", pod_topology_spread_factory),
    ("PrioritySort", |_| Ok(Arc::new(PrioritySort))),
    ("SchedulingGates", |_| Ok(Arc::new(SchedulingGates))),
    ("TaintToleration", |context| {
        Ok(Arc::new(TaintToleration::new(toleration_operators(context))))
    }),
    ("VolumeBinding", volume_binding_factory),
    ("VolumeRestrictions", |_| Ok(Arc::new(VolumeRestrictions::default()))),
    ("VolumeZone", |_| Ok(Arc::new(VolumeZone::default()))),
];

/// Feature gate of extended resources backed by devices.
const EXTENDED_RESOURCES: &str = "DRAExtendedResource";

/// Returns the operators of tolerations that the feature gates enable.
fn toleration_operators(context: &PluginContext<'_>) -> TolerationOperators {
    TolerationOperators::with_comparison(context.gates.enabled(COMPARISON_GATE))
}

/// Creates NodeResourcesFit. Like upstream, only this factory validates its arguments.
fn node_resources_fit_factory(context: &PluginContext<'_>) -> PluginResult {
    let args: NodeResourcesFitArgs = context.args();
    let errors = args.validate("", context.gates);
    if !errors.is_empty() {
        return Err(Aggregate(errors.iter().map(ToString::to_string).collect()).into());
    }
    let strategy = args.scoring_strategy.unwrap_or_default();
    let points = strategy.requested_to_capacity_ratio.unwrap_or_default().shape;
    let points: Vec<(i64, i64)> =
        points.iter().map(|point| (point.utilization.into(), point.score.into())).collect();
    let boxed = |names: Vec<String>| names.into_iter().map(String::into_boxed_str).collect();
    Ok(Arc::new(NodeResourcesFit::new(node_resources_fit::Args {
        ignored_resources: boxed(args.ignored_resources),
        ignored_resource_groups: boxed(args.ignored_resource_groups),
        strategy: match &*strategy.kind {
            "MostAllocated" => Strategy::MostAllocated,
            "RequestedToCapacityRatio" => Strategy::RequestedToCapacityRatio(Shape::new(&points)),
            _ => Strategy::LeastAllocated,
        },
        resources: weights(strategy.resources),
        extended_resources: context.gates.enabled(EXTENDED_RESOURCES),
    })))
}

fn balanced_allocation_factory(context: &PluginContext<'_>) -> PluginResult {
    let args: NodeResourcesBalancedAllocationArgs = context.args();
    let args = balanced_allocation::Args { resources: weights(args.resources) };
    Ok(Arc::new(BalancedAllocation::new(&args)))
}

/// Converts the resources of a scoring strategy.
fn weights(resources: Vec<ResourceSpec>) -> Vec<ResourceWeight> {
    let weight = |resource: ResourceSpec| ResourceWeight {
        name: resource.name.into(),
        weight: resource.weight,
    };
    resources.into_iter().map(weight).collect()
}

fn default_preemption_factory(context: &PluginContext<'_>) -> PluginResult {
    let args: DefaultPreemptionArgs = context.args();
    let defaults = default_preemption::Args::default();
    let number = |configured: Option<i32>, default| {
        configured.and_then(|value| usize::try_from(value).ok()).unwrap_or(default)
    };
    Ok(Arc::new(DefaultPreemption::new(default_preemption::Args {
        min_candidate_nodes_percentage: number(
            args.min_candidate_nodes_percentage,
            defaults.min_candidate_nodes_percentage,
        ),
        min_candidate_nodes_absolute: number(
            args.min_candidate_nodes_absolute,
            defaults.min_candidate_nodes_absolute,
        ),
        async_preemption: context.gates.enabled("SchedulerAsyncPreemption"),
    })))
}

fn inter_pod_affinity_factory(context: &PluginContext<'_>) -> PluginResult {
    let InterPodAffinityArgs { hard_pod_affinity_weight, ignore_preferred_terms_of_existing_pods } =
        context.args();
    let default = inter_pod_affinity::Args::default();
    Ok(Arc::new(InterPodAffinity::new(inter_pod_affinity::Args {
        hard_pod_affinity_weight: hard_pod_affinity_weight
            .unwrap_or(default.hard_pod_affinity_weight),
        ignore_preferred_terms_of_existing_pods,
    })))
}

fn node_affinity_factory(context: &PluginContext<'_>) -> PluginResult {
    let args: NodeAffinityArgs = context.args();
    let Some(added) = args.added_affinity else { return Ok(Arc::new(NodeAffinity::default())) };
    // The affinity has the same form as in a pod.
    let pod = json!({ "spec": { "affinity": { "nodeAffinity": added } } });
    let mut pod = Pod::decode(pod.to_string().as_bytes(), Encoding::Json)?;
    let added = pod.spec.affinity.take().and_then(|affinity| affinity.node_affinity);
    let args = node_affinity::Args { added_affinity: added.map(|added| *added) };
    Ok(Arc::new(NodeAffinity::new(args)))
}

fn pod_topology_spread_factory(context: &PluginContext<'_>) -> PluginResult {
    let args: PodTopologySpreadArgs = context.args();
    let text =
        |constraint: &Value, field: &str| constraint[field].as_str().unwrap_or_default().to_owned();
    let default_constraint = |constraint: &Value| DefaultConstraint {
        max_skew: constraint["maxSkew"].as_i64().and_then(|skew| skew.try_into().ok()).unwrap_or(1),
        topology_key: text(constraint, "topologyKey").into(),
        when_unsatisfiable: match &*text(constraint, "whenUnsatisfiable") {
            "DoNotSchedule" => WhenUnsatisfiable::DoNotSchedule,
            _ => WhenUnsatisfiable::ScheduleAnyway,
        },
    };
    let defaulting_type = match &*args.defaulting_type {
        "List" => DefaultingType::List,
        _ => DefaultingType::System,
    };
    Ok(Arc::new(PodTopologySpread::new(pod_topology_spread::Args {
        default_constraints: args.default_constraints.iter().map(default_constraint).collect(),
        defaulting_type,
        match_label_keys: context.gates.enabled("MatchLabelKeysInPodTopologySpread"),
        toleration_operators: toleration_operators(context),
    })))
}

fn dynamic_resources_factory(context: &PluginContext<'_>) -> PluginResult {
    let DynamicResourcesArgs { filter_timeout, binding_timeout } = context.args();
    let default = dynamic_resources::Args::default();
    Ok(Arc::new(DynamicResources::new(dynamic_resources::Args {
        // Without `filterTimeout` there is no timeout.
        filter_timeout: filter_timeout.unwrap_or_default().to_duration(),
        binding_timeout: binding_timeout.map_or(default.binding_timeout, GoDuration::to_duration),
        extended_resources: context.gates.enabled(EXTENDED_RESOURCES),
    })))
}

fn volume_binding_factory(context: &PluginContext<'_>) -> PluginResult {
    let args: VolumeBindingArgs = context.args();
    let seconds = args.bind_timeout_seconds.unwrap_or_default();
    let points: Vec<(i64, i64)> =
        args.shape.iter().map(|point| (point.utilization.into(), point.score.into())).collect();
    let args = volume_binding::Args {
        bind_timeout: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
        shape: (!points.is_empty()).then(|| Shape::new(&points)),
    };
    Ok(Arc::new(VolumeBinding::new(args)))
}
