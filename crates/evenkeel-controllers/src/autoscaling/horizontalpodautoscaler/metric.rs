//! Replicas that one metric proposes. Upstream: `computeReplicasForMetric`.

use super::{
    readings::Reading,
    replicas::{CalculatorInputs, ReplicaCount},
    samples::Samples,
};
use crate::words;
use evenkeel_api::{
    quantity::Quantity,
    views::{
        ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, MetricSpec,
        MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus,
        PodsMetricSource, PodsMetricStatus, ResourceMetricStatus,
    },
};
use std::fmt;

/// Replicas that a metric proposes, with the metric's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// Name of the metric in the reason of a rescale event. Upstream: `metricNameProposal`.
    pub(super) name: String,
    pub(super) status: MetricStatus,
}

/// Error of the computation of a metric's proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MetricError {
    /// Reason of the event and of the condition.
    pub(super) reason: &'static str,
    /// Message of the event and of the condition.
    pub(super) message: String,
    /// Message of the error that the reconciliation returns.
    pub(super) error: String,
    /// Whether the autoscaler's spec is invalid.
    pub(super) is_spec_error: bool,
}

/// A metric's values, or an error message.
pub(super) type ReadResult = Result<Reading, String>;

/// Returns the metric's proposal. Upstream: `computeReplicasForMetric`.
pub(super) fn propose(
    metric: &MetricSpec,
    read: ReadResult,
    inputs: &CalculatorInputs<'_>,
    namespace: &str,
) -> Result<Proposal, MetricError> {
    let metric_error = |reason, message: String, error: String| MetricError {
        reason,
        message,
        error,
        is_spec_error: false,
    };
    if let Some(source) = &metric.resource {
        let whole_pods =
            ResourceMetric { resource: &source.name, container: "", target: &source.target };
        return whole_pods.propose(read, inputs).map_err(|message| {
            let error = format!("failed to get {} resource metric value: {message}", source.name);
            metric_error("FailedGetResourceMetric", message, error)
        });
    }
    if let Some(source) = &metric.container_resource {
        let resource = &*source.name;
        let container = &*source.container;
        let containers = ResourceMetric { resource, container, target: &source.target };
        return containers.propose(read, inputs).map_err(|message| {
            let error = format!("failed to get {container} container metric value: {message}");
            metric_error("FailedGetContainerResourceMetric", message, error)
        });
    }
    if let Some(source) = &metric.pods {
        return propose_by_pods_metric(source, read, inputs).map_err(|message| {
            let error = format!("failed to get pods metric value: {message}");
            metric_error("FailedGetPodsMetric", message, error)
        });
    }
    if let Some(source) = &metric.object {
        return propose_by_object_metric(source, read, inputs, namespace).map_err(|prefixed| {
            let error = format!("failed to get object metric value: {prefixed}");
            metric_error("FailedGetObjectMetric", prefixed.message, error)
        });
    }
    if let Some(source) = &metric.external {
        return propose_by_external_metric(source, read, inputs, namespace).map_err(|prefixed| {
            let name = &source.metric.name;
            let error = format!("failed to get {name} external metric value: {prefixed}");
            metric_error("FailedGetExternalMetric", prefixed.message, error)
        });
    }
    let message = format!("unknown metric source type {:?}", &*metric.type_);
    let reason = "InvalidMetricSourceType";
    Err(MetricError { reason, message: message.clone(), error: message, is_spec_error: true })
}

/// Returns the samples of pods that the read found.
fn samples_of(read: ReadResult) -> Result<Samples, String> {
    match read? {
        Reading::Samples(samples) => Ok(samples),
        other => Err(format!("expected metrics of pods, got {other:?}")),
    }
}

/// Returns the sum of the values that the read found, in thousandths. The sum saturates.
fn sum_of(read: ReadResult) -> Result<i64, String> {
    match read? {
        Reading::Value(value) => Ok(value),
        Reading::Values(values) => Ok(values.into_iter().fold(0_i64, i64::saturating_add)),
        Reading::Samples(_) => Err("expected a metric value, got metrics of pods".to_owned()),
    }
}

/// Returns the status of an average per pod. `value` is in thousandths.
fn average_value_status(value: i64) -> MetricValueStatus {
    MetricValueStatus {
        average_value: Some(Quantity::from_millis(value)),
        ..MetricValueStatus::default()
    }
}

/// Returns the status of a total. `value` is in thousandths.
fn total_value_status(value: i64) -> MetricValueStatus {
    MetricValueStatus { value: Some(Quantity::from_millis(value)), ..MetricValueStatus::default() }
}

/// A resource metric of whole pods, or of one container in each pod.
struct ResourceMetric<'a> {
    resource: &'a str,
    /// The container's name, empty for whole pods.
    container: &'a str,
    target: &'a MetricTarget,
}

impl ResourceMetric<'_> {
    /// Returns the proposal for the average value or the average utilization, depending on the target.
    fn propose(&self, read: ReadResult, inputs: &CalculatorInputs<'_>) -> Result<Proposal, String> {
        let Self { resource, container, target } = *self;
        let samples = samples_of(read)
            .map_err(|why| format!("unable to get metrics for resource {resource}: {why}"));
        let (count, name) = if let Some(target) = target.average_value {
            let count = samples
                .and_then(|samples| inputs.by_average(resource, samples, target.milli_value()))
                .map_err(|why| format!("failed to get {resource} usage: {why}"))?;
            (count, format!("{resource} resource"))
        } else if let Some(target_percent) = target.average_utilization {
            let count = samples
                .and_then(|samples| {
                    inputs.by_utilization(resource, container, samples, target_percent)
                })
                .map_err(|why| format!("failed to get {resource} utilization: {why}"))?;
            let container_word = if container.is_empty() { "" } else { " container" };
            (
                count,
                format!("{resource}{container_word} resource utilization (percentage of request)"),
            )
        } else {
            return Err("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set".to_owned());
        };
        Ok(Proposal { replicas: count.replicas, name, status: self.status(count) })
    }

    /// Returns the metric's status with the measured usage.
    fn status(&self, count: ReplicaCount) -> MetricStatus {
        let usage = match self.resource {
            "memory" => Quantity::from_milli_bytes(count.usage),
            _ => Quantity::from_millis(count.usage),
        };
        let current = MetricValueStatus {
            value: None,
            average_value: Some(usage),
            average_utilization: count.utilization,
        };
        let name = self.resource.into();
        if self.container.is_empty() {
            MetricStatus {
                type_: "Resource".into(),
                resource: Some(Box::new(ResourceMetricStatus { name, current })),
                ..MetricStatus::default()
            }
        } else {
            let container = self.container.into();
            MetricStatus {
                type_: "ContainerResource".into(),
                container_resource: Some(Box::new(ContainerResourceMetricStatus {
                    name,
                    current,
                    container,
                })),
                ..MetricStatus::default()
            }
        }
    }
}

/// Returns the proposal of a metric of pods. Its target is an average value.
fn propose_by_pods_metric(
    source: &PodsMetricSource,
    read: ReadResult,
    inputs: &CalculatorInputs<'_>,
) -> Result<Proposal, String> {
    let name = &source.metric.name;
    let samples = samples_of(read).map_err(|why| format!("unable to get metric {name}: {why}"))?;
    let target = source.target.average_value.unwrap_or_default().milli_value();
    let count = inputs.by_average("", samples, target)?;
    let current = average_value_status(count.usage);
    let status = MetricStatus {
        type_: "Pods".into(),
        pods: Some(Box::new(PodsMetricStatus { metric: source.metric.clone(), current })),
        ..MetricStatus::default()
    };
    Ok(Proposal { replicas: count.replicas, name: format!("pods metric {name}"), status })
}

/// Error of a metric. The event contains only the message. The error of the reconciliation also contains the prefix.
struct PrefixedError {
    /// Beginning of the error, before the message.
    prefix: String,
    message: String,
}

impl PrefixedError {
    /// Returns an error without a prefix.
    fn without_prefix(message: impl Into<String>) -> Self {
        Self { prefix: String::new(), message: message.into() }
    }
}

impl fmt::Display for PrefixedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.prefix, self.message)
    }
}

/// Returns the proposal of a metric of an object. Its target is a value, or an average value per pod.
fn propose_by_object_metric(
    source: &ObjectMetricSource,
    read: ReadResult,
    inputs: &CalculatorInputs<'_>,
    namespace: &str,
) -> Result<Proposal, PrefixedError> {
    let name = &source.metric.name;
    let object = &source.described_object;
    let usage = sum_of(read).map_err(|why| {
        format!("unable to get metric {name} on {} {namespace}/{}: {why}", object.kind, object.name)
    });
    let target = &source.target;
    let (count, current, proposal_name) = match (&*target.type_, target.value, target.average_value)
    {
        ("Value", Some(target), _) => {
            let count = usage
                .and_then(|usage| inputs.by_value(usage, target.milli_value()))
                .map_err(PrefixedError::without_prefix)?;
            (count, total_value_status(count.usage), format!("{} metric {name}", object.kind))
        }
        ("AverageValue", _, Some(target)) => {
            let usage = usage.map_err(|message| PrefixedError {
                prefix: format!("failed to get {name} object metric: "),
                message,
            })?;
            let count = inputs.by_value_per_pod(usage, target.milli_value());
            let selector = words::selector(&source.metric.selector);
            // Upstream's name of an object metric with an average value also starts with "external".
            (
                count,
                average_value_status(count.usage),
                format!("external metric {name}({selector})"),
            )
        }
        _ => {
            let message = "invalid object metric source: neither a value target nor an average value target was set";
            return Err(PrefixedError::without_prefix(message));
        }
    };
    let status = ObjectMetricStatus {
        metric: source.metric.clone(),
        current,
        described_object: object.clone(),
    };
    let status = MetricStatus {
        type_: "Object".into(),
        object: Some(Box::new(status)),
        ..MetricStatus::default()
    };
    Ok(Proposal { replicas: count.replicas, name: proposal_name, status })
}

/// Returns the proposal of an external metric. Its target is an average value per pod, or a value.
fn propose_by_external_metric(
    source: &ExternalMetricSource,
    read: ReadResult,
    inputs: &CalculatorInputs<'_>,
    namespace: &str,
) -> Result<Proposal, PrefixedError> {
    let name = &source.metric.name;
    let selector = words::selector(&source.metric.selector);
    let usage = sum_of(read).map_err(|why| {
        format!("unable to get external metric {namespace}/{name}/{selector}: {why}")
    });
    let target = &source.target;
    let (count, current) = if let Some(target) = target.average_value {
        let usage = usage.map_err(|message| PrefixedError {
            prefix: format!("failed to get {name} external metric: "),
            message,
        })?;
        let count = inputs.by_value_per_pod(usage, target.milli_value());
        (count, average_value_status(count.usage))
    } else if let Some(target) = target.value {
        let count = usage.and_then(|usage| inputs.by_value(usage, target.milli_value()));
        let count = count.map_err(|message| PrefixedError {
            prefix: format!("failed to get external metric {name}: "),
            message,
        })?;
        (count, total_value_status(count.usage))
    } else {
        let message = "invalid external metric source: neither a value target nor an average value target was set";
        return Err(PrefixedError::without_prefix(message));
    };
    let status = MetricStatus {
        type_: "External".into(),
        external: Some(Box::new(ExternalMetricStatus { metric: source.metric.clone(), current })),
        ..MetricStatus::default()
    };
    Ok(Proposal {
        replicas: count.replicas,
        name: format!("external metric {name}({selector})"),
        status,
    })
}
