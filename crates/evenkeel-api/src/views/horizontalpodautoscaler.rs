//! HorizontalPodAutoscalers: scale target, metrics, behavior and status.

use crate::Meta;
use crate::decode::{message, view};
use crate::quantity::Quantity;
use crate::selector::Selector;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// HorizontalPodAutoscaler, which scales a target by metrics of its pods or of other objects
    /// (`autoscaling/v2`).
    pub struct HorizontalPodAutoscaler("k8s.io.api.autoscaling.v2.HorizontalPodAutoscaler") {
        /// Metadata; the scale target is in the same namespace.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: HorizontalPodAutoscalerSpec = 2 "spec",
        /// Observed state of the object.
        status: HorizontalPodAutoscalerStatus = 3 "status",
    }
}

view!(
    HorizontalPodAutoscaler,
    "autoscaling",
    "v2",
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    namespaced
);

message! {
    /// Desired state of a HorizontalPodAutoscaler: target, bounds, metrics, behavior.
    pub struct HorizontalPodAutoscalerSpec("k8s.io.api.autoscaling.v2.HorizontalPodAutoscalerSpec") {
        /// Scale target: the object whose replicas the autoscaler sets.
        scale_target_ref: CrossVersionObjectReference = 1 "scaleTargetRef",
        /// Minimum number of replicas; 1 if absent.
        min_replicas: Option<i32> = 2 "minReplicas",
        /// Maximum number of replicas.
        max_replicas: i32 = 3 "maxReplicas",
        /// Metrics; the highest number of replicas that a metric recommends applies.
        metrics: Box<[MetricSpec]> = 4 "metrics",
        /// Scaling policies and stabilization.
        behavior: Option<Box<HorizontalPodAutoscalerBehavior>> = 5 "behavior",
    }
}

message! {
    /// Reference to an object in the same namespace.
    pub struct CrossVersionObjectReference("k8s.io.api.autoscaling.v2.CrossVersionObjectReference") {
        /// Kind of the object.
        kind: Text = 1 "kind",
        /// Name of the object, in the autoscaler's namespace.
        name: Text = 2 "name",
        /// apiVersion of the object: `group/version`, or `v1`.
        api_version: Text = 3 "apiVersion",
    }
}

message! {
    /// A metric to scale by. `type` names its source, and only the field of this source is set.
    pub struct MetricSpec("k8s.io.api.autoscaling.v2.MetricSpec") {
        /// Source of the metric: `Object`, `Pods`, `Resource`, `ContainerResource` or `External`.
        type_: Text = 1 "type",
        /// Metric of one object.
        object: Option<Box<ObjectMetricSource>> = 2 "object",
        /// Average of a metric over the pods.
        pods: Option<Box<PodsMetricSource>> = 3 "pods",
        /// Resource usage of the pods.
        resource: Option<Box<ResourceMetricSource>> = 4 "resource",
        /// Resource usage of one container in each pod.
        container_resource: Option<Box<ContainerResourceMetricSource>> = 7 "containerResource",
        /// Metric from outside the cluster.
        external: Option<Box<ExternalMetricSource>> = 5 "external",
    }
}

message! {
    /// Metric of one object, such as requests of an Ingress.
    pub struct ObjectMetricSource("k8s.io.api.autoscaling.v2.ObjectMetricSource") {
        /// Object that the metric describes.
        described_object: CrossVersionObjectReference = 1 "describedObject",
        /// Target of the metric: its value, or an average over the pods.
        target: MetricTarget = 2 "target",
        /// Name and selector of the metric.
        metric: MetricIdentifier = 3 "metric",
    }
}

message! {
    /// Metric of each pod, averaged over the target's pods.
    pub struct PodsMetricSource("k8s.io.api.autoscaling.v2.PodsMetricSource") {
        /// Name and selector of the metric.
        metric: MetricIdentifier = 1 "metric",
        /// Target of the average over the pods.
        target: MetricTarget = 2 "target",
    }
}

message! {
    /// Resource usage of the target's pods, such as CPU.
    pub struct ResourceMetricSource("k8s.io.api.autoscaling.v2.ResourceMetricSource") {
        /// Name of the resource, such as `cpu` or `memory`.
        name: Text = 1 "name",
        /// Target of the usage: an average amount, or a percentage of the requests.
        target: MetricTarget = 2 "target",
    }
}

message! {
    /// Resource usage of one container in each of the target's pods.
    pub struct ContainerResourceMetricSource("k8s.io.api.autoscaling.v2.ContainerResourceMetricSource") {
        /// Name of the resource, such as `cpu` or `memory`.
        name: Text = 1 "name",
        /// Target of the container's usage: an average amount, or a percentage of its requests.
        target: MetricTarget = 2 "target",
        /// Name of the container.
        container: Text = 3 "container",
    }
}

message! {
    /// Metric without a Kubernetes object, such as the length of a queue in a cloud.
    pub struct ExternalMetricSource("k8s.io.api.autoscaling.v2.ExternalMetricSource") {
        /// Name and selector of the metric.
        metric: MetricIdentifier = 1 "metric",
        /// Target of the metric: its value, or an average over the pods.
        target: MetricTarget = 2 "target",
    }
}

message! {
    /// Name of a metric, and selector of its time series.
    pub struct MetricIdentifier("k8s.io.api.autoscaling.v2.MetricIdentifier") {
        /// Name of the metric in the metrics API.
        name: Text = 1 "name",
        /// Label selector of the metric's time series; empty for all.
        selector: Selector = 2 "selector",
    }
}

message! {
    /// Target value of a metric: absolute, average, or utilization in percent.
    pub struct MetricTarget("k8s.io.api.autoscaling.v2.MetricTarget") {
        /// `Value`, `AverageValue` or `Utilization`: selects which of the other fields applies.
        type_: Text = 1 "type",
        /// Target of the metric's value.
        value: Option<Quantity> = 2 "value",
        /// Target of the metric's average over all pods.
        average_value: Option<Quantity> = 3 "averageValue",
        /// Target of the average utilization, as a percentage of the pods' requests.
        average_utilization: Option<i32> = 4 "averageUtilization",
    }
}

message! {
    /// Scaling rules for both directions.
    pub struct HorizontalPodAutoscalerBehavior("k8s.io.api.autoscaling.v2.HorizontalPodAutoscalerBehavior") {
        /// Rules for scaling up.
        scale_up: Option<Box<HpaScalingRules>> = 1 "scaleUp",
        /// Rules for scaling down.
        scale_down: Option<Box<HpaScalingRules>> = 2 "scaleDown",
    }
}

message! {
    /// Scaling rules for one direction: stabilization window, policies, tolerance.
    pub struct HpaScalingRules("k8s.io.api.autoscaling.v2.HPAScalingRules") {
        /// Seconds of past recommendations to consider; by default 0 for scaling up and 300 for scaling down.
        stabilization_window_seconds: Option<i32> = 3 "stabilizationWindowSeconds",
        /// Policy to apply: `Max` (also when empty), `Min`, or `Disabled` for no scaling in this direction.
        select_policy: Text = 1 "selectPolicy",
        /// Policies that limit a change of replicas; if empty, upstream's defaults apply.
        policies: Box<[HpaScalingPolicy]> = 2 "policies",
        /// Relative difference between a metric and its target that causes no scaling; 0.1 if absent.
        tolerance: Option<Quantity> = 4 "tolerance",
    }
}

message! {
    /// Maximum change of replicas within a period, as a number or percentage of pods.
    pub struct HpaScalingPolicy("k8s.io.api.autoscaling.v2.HPAScalingPolicy") {
        /// `Pods` or `Percent`.
        type_: Text = 1 "type",
        /// Maximum change, in pods or percent.
        value: i32 = 2 "value",
        /// Period of the policy, in seconds.
        period_seconds: i32 = 3 "periodSeconds",
    }
}

message! {
    /// Observed state of a HorizontalPodAutoscaler.
    pub struct HorizontalPodAutoscalerStatus("k8s.io.api.autoscaling.v2.HorizontalPodAutoscalerStatus") {
        /// Generation of the spec that the controller has observed.
        observed_generation: Option<i64> = 1 "observedGeneration",
        /// Time at which the autoscaler last changed the number of replicas.
        last_scale_time: Option<Timestamp> = 2 "lastScaleTime",
        /// Replicas of the target as last observed by the controller.
        current_replicas: i32 = 3 "currentReplicas",
        /// Replicas of the target as last computed by the autoscaler.
        desired_replicas: i32 = 4 "desiredReplicas",
        /// Values of the metrics as last read by the controller.
        current_metrics: Box<[MetricStatus]> = 5 "currentMetrics",
        /// Conditions: `AbleToScale`, `ScalingActive` and `ScalingLimited`.
        conditions: Box<[HorizontalPodAutoscalerCondition]> = 6 "conditions",
    }
}

message! {
    /// Last value of a metric. `type` names its source, and only the field of this source is set.
    pub struct MetricStatus("k8s.io.api.autoscaling.v2.MetricStatus") {
        /// Source type of the metric; empty if it could not be read.
        type_: Text = 1 "type",
        /// Metric of one object.
        object: Option<Box<ObjectMetricStatus>> = 2 "object",
        /// Average of a metric over the pods.
        pods: Option<Box<PodsMetricStatus>> = 3 "pods",
        /// Resource usage of the pods.
        resource: Option<Box<ResourceMetricStatus>> = 4 "resource",
        /// Resource usage of one container in each pod.
        container_resource: Option<Box<ContainerResourceMetricStatus>> = 7 "containerResource",
        /// Metric from outside the cluster.
        external: Option<Box<ExternalMetricStatus>> = 5 "external",
    }
}

message! {
    /// Last value of a metric of one object.
    pub struct ObjectMetricStatus("k8s.io.api.autoscaling.v2.ObjectMetricStatus") {
        /// Name and selector of the metric.
        metric: MetricIdentifier = 1 "metric",
        /// Value as last read by the controller.
        current: MetricValueStatus = 2 "current",
        /// Object that the metric describes.
        described_object: CrossVersionObjectReference = 3 "describedObject",
    }
}

message! {
    /// Last average of a metric of the pods.
    pub struct PodsMetricStatus("k8s.io.api.autoscaling.v2.PodsMetricStatus") {
        /// Name and selector of the metric.
        metric: MetricIdentifier = 1 "metric",
        /// Average over the pods as last read by the controller.
        current: MetricValueStatus = 2 "current",
    }
}

message! {
    /// Last resource usage of the pods.
    pub struct ResourceMetricStatus("k8s.io.api.autoscaling.v2.ResourceMetricStatus") {
        /// Name of the resource, such as `cpu` or `memory`.
        name: Text = 1 "name",
        /// Usage as last read by the controller.
        current: MetricValueStatus = 2 "current",
    }
}

message! {
    /// Last resource usage of one container in each pod.
    pub struct ContainerResourceMetricStatus("k8s.io.api.autoscaling.v2.ContainerResourceMetricStatus") {
        /// Name of the resource, such as `cpu` or `memory`.
        name: Text = 1 "name",
        /// Usage of the container as last read by the controller.
        current: MetricValueStatus = 2 "current",
        /// Name of the container.
        container: Text = 3 "container",
    }
}

message! {
    /// Last value of a metric without a Kubernetes object.
    pub struct ExternalMetricStatus("k8s.io.api.autoscaling.v2.ExternalMetricStatus") {
        /// Name and selector of the metric.
        metric: MetricIdentifier = 1 "metric",
        /// Value as last read by the controller.
        current: MetricValueStatus = 2 "current",
    }
}

message! {
    /// Value of a metric: absolute, average, or utilization in percent.
    pub struct MetricValueStatus("k8s.io.api.autoscaling.v2.MetricValueStatus") {
        /// Value of the metric.
        value: Option<Quantity> = 1 "value",
        /// Average of the metric over all pods.
        average_value: Option<Quantity> = 2 "averageValue",
        /// Average utilization as a percentage of the pods' requests.
        average_utilization: Option<i32> = 3 "averageUtilization",
    }
}

message! {
    /// Condition such as `AbleToScale` or `ScalingLimited`.
    pub struct HorizontalPodAutoscalerCondition("k8s.io.api.autoscaling.v2.HorizontalPodAutoscalerCondition") {
        /// Type of the condition.
        type_: Text = 1 "type",
        /// `True`, `False` or `Unknown`.
        status: Text = 2 "status",
        /// Time of the last change of the status.
        last_transition_time: Option<Timestamp> = 3 "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
        reason: Text = 4 "reason",
        /// Details of the last transition, for people.
        message: Text = 5 "message",
        /// Generation of the spec that the condition describes; 0 if unknown.
        observed_generation: i64 = 6 "observedGeneration",
    }
}
