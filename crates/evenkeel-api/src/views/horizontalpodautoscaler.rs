//! HorizontalPodAutoscalers: target, metrics, behavior, status.

use crate::Meta;
use crate::decode::{message, view};
use crate::quantity::Quantity;
use crate::selector::Selector;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Scales a target by metrics of its pods or of other objects (`autoscaling/v2`).
    pub struct HorizontalPodAutoscaler("k8s.io.api.autoscaling.v2.HorizontalPodAutoscaler") {
        /// Metadata; the scaled object is in the same namespace.
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
    true
);

message! {
    /// Desired state of a HorizontalPodAutoscaler: target, bounds, metrics, behavior.
    pub struct HorizontalPodAutoscalerSpec("k8s.io.api.autoscaling.v2.HorizontalPodAutoscalerSpec") {
        /// The scaled object.
        scale_target_ref: CrossVersionObjectReference = 1 "scaleTargetRef",
        /// Minimum number of replicas; 1 where absent.
        min_replicas: Option<i32> = 2 "minReplicas",
        /// Maximum number of replicas.
        max_replicas: i32 = 3 "maxReplicas",
        /// Metrics; the one that yields the most replicas wins.
        metrics: Box<[MetricSpec]> = 4 "metrics",
        /// Scaling policies and stabilization.
        behavior: Option<Box<HorizontalPodAutoscalerBehavior>> = 5 "behavior",
    }
}

message! {
    /// Reference to an object of the same namespace by apiVersion, kind and name.
    pub struct CrossVersionObjectReference("k8s.io.api.autoscaling.v2.CrossVersionObjectReference") {
        /// Kind of the object.
        kind: Text = 1 "kind",
        /// Name of the object, in the autoscaler's namespace.
        name: Text = 2 "name",
        /// `group/version` of the object, or `v1`.
        api_version: Text = 3 "apiVersion",
    }
}

message! {
    /// One metric to scale by; only the source that `type` names is set.
    pub struct MetricSpec("k8s.io.api.autoscaling.v2.MetricSpec") {
        /// Source of the metric: `Object`, `Pods`, `Resource`, `ContainerResource` or `External`.
        type_: Text = 1 "type",
        /// Metric of one object.
        object: Option<Box<ObjectMetricSource>> = 2 "object",
        /// Metric of each pod, averaged.
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
    /// Metric of each pod, averaged over the target.
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
        /// Target of the usage: an average amount, or percent of the requests.
        target: MetricTarget = 2 "target",
    }
}

message! {
    /// Resource usage of one container in each of the target's pods.
    pub struct ContainerResourceMetricSource("k8s.io.api.autoscaling.v2.ContainerResourceMetricSource") {
        /// Name of the resource, such as `cpu` or `memory`.
        name: Text = 1 "name",
        /// Target of the container's usage: an average amount, or percent of its requests.
        target: MetricTarget = 2 "target",
        /// Name of the container.
        container: Text = 3 "container",
    }
}

message! {
    /// Metric without a Kubernetes object, such as the length of a cloud queue.
    pub struct ExternalMetricSource("k8s.io.api.autoscaling.v2.ExternalMetricSource") {
        /// Name and selector of the metric.
        metric: MetricIdentifier = 1 "metric",
        /// Target of the metric: its value, or an average over the pods.
        target: MetricTarget = 2 "target",
    }
}

message! {
    /// Name of a metric, and the selector of its series.
    pub struct MetricIdentifier("k8s.io.api.autoscaling.v2.MetricIdentifier") {
        /// Name of the metric in the metrics API.
        name: Text = 1 "name",
        /// Label selector of the metric's series; empty for all.
        selector: Selector = 2 "selector",
    }
}

message! {
    /// Target value of a metric: absolute, average, or utilization in percent.
    pub struct MetricTarget("k8s.io.api.autoscaling.v2.MetricTarget") {
        /// `Utilization`, `Value` or `AverageValue`: tells which of the fields is set.
        type_: Text = 1 "type",
        /// Target of the metric's value.
        value: Option<Quantity> = 2 "value",
        /// Target of the metric's average over all pods.
        average_value: Option<Quantity> = 3 "averageValue",
        /// Target of the average utilization, in percent of the pods' requests.
        average_utilization: Option<i32> = 4 "averageUtilization",
    }
}

message! {
    /// Scaling rules for each direction.
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
        /// Seconds of past recommendations that are considered; by default 0 up and 300 down.
        stabilization_window_seconds: Option<i32> = 3 "stabilizationWindowSeconds",
        /// Policy that applies: `Max` (also when empty), `Min`, or `Disabled` for no scaling in this direction.
        select_policy: Text = 1 "selectPolicy",
        /// Policies that limit a change of replicas; upstream's defaults where empty.
        policies: Box<[HpaScalingPolicy]> = 2 "policies",
        /// Relative distance of a metric from its target that is ignored; 0.1 where absent.
        tolerance: Option<Quantity> = 4 "tolerance",
    }
}

message! {
    /// Most pods, or percent of pods, by which a target may change within a period.
    pub struct HpaScalingPolicy("k8s.io.api.autoscaling.v2.HPAScalingPolicy") {
        /// `Pods` or `Percent`.
        type_: Text = 1 "type",
        /// Maximum change, in pods or percent.
        value: i32 = 2 "value",
        /// Window of the policy, in seconds.
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
        /// Replicas of the target that the controller has observed last.
        current_replicas: i32 = 3 "currentReplicas",
        /// Replicas that the autoscaler has computed last.
        desired_replicas: i32 = 4 "desiredReplicas",
        /// Values of the metrics that the controller has read last.
        current_metrics: Box<[MetricStatus]> = 5 "currentMetrics",
        /// Conditions: `AbleToScale`, `ScalingActive` and `ScalingLimited`.
        conditions: Box<[HorizontalPodAutoscalerCondition]> = 6 "conditions",
    }
}

message! {
    /// Last value of one metric; only the source that `type` names is set.
    pub struct MetricStatus("k8s.io.api.autoscaling.v2.MetricStatus") {
        /// Source type of the metric; empty where it could not be read.
        type_: Text = 1 "type",
        /// Metric of one object.
        object: Option<Box<ObjectMetricStatus>> = 2 "object",
        /// Metric of each pod, averaged.
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
        /// Value that the controller has read last.
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
        /// Average over the pods that the controller has read last.
        current: MetricValueStatus = 2 "current",
    }
}

message! {
    /// Last resource usage of the pods.
    pub struct ResourceMetricStatus("k8s.io.api.autoscaling.v2.ResourceMetricStatus") {
        /// Name of the resource, such as `cpu` or `memory`.
        name: Text = 1 "name",
        /// Usage that the controller has read last.
        current: MetricValueStatus = 2 "current",
    }
}

message! {
    /// Last resource usage of one container in each pod.
    pub struct ContainerResourceMetricStatus("k8s.io.api.autoscaling.v2.ContainerResourceMetricStatus") {
        /// Name of the resource, such as `cpu` or `memory`.
        name: Text = 1 "name",
        /// Usage of the container that the controller has read last.
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
        /// Value that the controller has read last.
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
        /// Average utilization in percent of the pods' requests.
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
        /// When the status last changed.
        last_transition_time: Option<Timestamp> = 3 "lastTransitionTime",
        /// Why, in one CamelCase word.
        reason: Text = 4 "reason",
        /// Details of the last transition, for people.
        message: Text = 5 "message",
        /// Generation of the spec that it is of; 0 where unknown.
        observed_generation: i64 = 6 "observedGeneration",
    }
}
