//! How each plugin that comes with Evenkeel is made of its arguments.

use super::{
    config::{Fit, Preemption, Several, Volumes, Wire as _},
    registry::{Made, Making},
};
use crate::plugins::{
    BalancedAllocation, DefaultBinder, DefaultPreemption, ImageLocality, NodeAffinity,
    NodeDeclaredFeatures, NodeName, NodePorts, NodeResourcesFit, NodeUnschedulable,
    NodeVolumeLimits, PrioritySort, SchedulingGates, TaintToleration, VolumeBinding,
    VolumeRestrictions, VolumeZone, default_preemption, shape::Shape, volume_binding,
};
use std::{sync::Arc, time::Duration};

/// Makes one plugin.
pub(super) type Make = fn(&Making<'_>) -> Made;

/// Names as the configuration has them, and how each is made.
pub(super) const ALL: &[(&str, Make)] = &[
    ("DefaultBinder", |_| Ok(Arc::new(DefaultBinder))),
    ("DefaultPreemption", default_preemption),
    ("ImageLocality", |_| Ok(Arc::new(ImageLocality))),
    ("NodeAffinity", |_| Ok(Arc::new(NodeAffinity))),
    ("NodeDeclaredFeatures", |_| Ok(Arc::new(NodeDeclaredFeatures))),
    ("NodeName", |_| Ok(Arc::new(NodeName))),
    ("NodePorts", |_| Ok(Arc::new(NodePorts))),
    ("NodeResourcesBalancedAllocation", |_| Ok(Arc::new(BalancedAllocation))),
    ("NodeResourcesFit", fit),
    ("NodeUnschedulable", |_| Ok(Arc::new(NodeUnschedulable))),
    ("NodeVolumeLimits", |_| Ok(Arc::new(NodeVolumeLimits::default()))),
    ("PrioritySort", |_| Ok(Arc::new(PrioritySort))),
    ("SchedulingGates", |_| Ok(Arc::new(SchedulingGates))),
    ("TaintToleration", |_| Ok(Arc::new(TaintToleration))),
    ("VolumeBinding", volume_binding),
    ("VolumeRestrictions", |_| Ok(Arc::new(VolumeRestrictions::default()))),
    ("VolumeZone", |_| Ok(Arc::new(VolumeZone::default()))),
];

/// Plugins of upstream's that are not here; they may be named, and are passed over with a warning.
pub(super) const MISSING: &[&str] = &["DynamicResources", "InterPodAffinity", "PodTopologySpread"];

/// Upstream checks these arguments here alone.
fn fit(making: &Making<'_>) -> Made {
    let args: Fit = making.wire();
    let wrong = args.check("", making.gates);
    if !wrong.is_empty() {
        return Err(Several(wrong.iter().map(ToString::to_string).collect()).into());
    }
    Ok(Arc::new(NodeResourcesFit))
}

fn default_preemption(making: &Making<'_>) -> Made {
    let args: Preemption = making.wire();
    let defaults = default_preemption::Args::default();
    let number = |given: Option<i32>, default| {
        given.and_then(|n| usize::try_from(n).ok()).unwrap_or(default)
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
    })))
}

fn volume_binding(making: &Making<'_>) -> Made {
    let args: Volumes = making.wire();
    let seconds = args.bind_timeout_seconds.unwrap_or_default();
    let points: Vec<(i64, i64)> =
        args.shape.iter().map(|point| (point.utilization.into(), point.score.into())).collect();
    let args = volume_binding::Args {
        bind_timeout: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
        shape: (!points.is_empty()).then(|| Shape::new(&points)),
    };
    Ok(Arc::new(VolumeBinding::new(args)))
}
