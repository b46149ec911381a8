//! Responses of the metrics APIs, with the fields that the autoscaler reads.

use crate::autoscaling::horizontalpodautoscaler::samples::Sample;
use evenkeel_api::{Text, duration, quantity::Quantity, time::Timestamp};
use serde::{Deserialize, Deserializer};
use std::{collections::BTreeMap, time::Duration};

/// Default window of a custom metric. Upstream: `metricServerDefaultMetricWindow`.
const DEFAULT_WINDOW: Duration = Duration::from_secs(60);

/// Response of `metrics.k8s.io`.
#[derive(Debug, Deserialize)]
pub(super) struct PodMetricsList {
    #[serde(default)]
    pub(super) items: Vec<PodMetrics>,
}

/// Usage of resources by the containers of a pod.
#[derive(Debug, Deserialize)]
pub(super) struct PodMetrics {
    metadata: ObjectName,
    timestamp: Timestamp,
    #[serde(deserialize_with = "go_duration")]
    window: Duration,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

/// Metadata or reference. Only its name is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ObjectName {
    pub(super) name: Text,
}

/// Usage of resources by a container.
#[derive(Debug, Deserialize)]
struct ContainerMetrics {
    name: Text,
    #[serde(default)]
    usage: BTreeMap<Text, MilliQuantity>,
}

impl PodMetrics {
    /// Returns the name of the pod.
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Returns the usage of a resource by one container, or by the pod if `container` is empty. `None` if a container
    /// does not report the resource.
    pub(super) fn sample(&self, resource: &str, container: &str) -> Option<Sample> {
        let is_selected =
            |metrics: &&ContainerMetrics| container.is_empty() || *metrics.name == *container;
        let containers: Vec<_> = self.containers.iter().filter(is_selected).collect();
        if containers.is_empty() {
            return None;
        }
        let usages =
            containers.iter().map(|metrics| metrics.usage.get(resource).map(|usage| usage.0));
        // The sum is `None` if the usage of one container is `None`.
        let value = usages.sum::<Option<i64>>()?;
        Some(Sample { value, at: self.timestamp, window: self.window })
    }
}

/// A list of custom or external metrics, of any version.
#[derive(Debug, Deserialize)]
pub(super) struct MetricValueList {
    #[serde(default)]
    pub(super) items: Vec<MetricValue>,
}

/// A custom or external metric's value.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MetricValue {
    #[serde(default)]
    pub(super) described_object: ObjectName,
    pub(super) timestamp: Timestamp,
    /// Seconds that the value covers. The field is named `window` in v1beta1.
    #[serde(alias = "window")]
    window_seconds: Option<u64>,
    value: MilliQuantity,
}

impl MetricValue {
    /// Returns the value in thousandths.
    pub(super) fn milli_value(&self) -> i64 {
        self.value.0
    }

    /// Returns the time that the value covers.
    pub(super) fn window(&self) -> Duration {
        self.window_seconds.map_or(DEFAULT_WINDOW, Duration::from_secs)
    }
}

/// Response of `/apis`.
#[derive(Debug, Deserialize)]
pub(super) struct Groups {
    #[serde(default)]
    pub(super) groups: Vec<Group>,
}

/// An API group with its versions.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Group {
    pub(super) name: Text,
    #[serde(default)]
    versions: Vec<Version>,
    preferred_version: Option<Version>,
}

/// A version of an API group.
#[derive(Debug, Deserialize)]
struct Version {
    version: Text,
}

impl Group {
    /// Returns the first version that this client knows, beginning with the preferred one.
    pub(super) fn version(&self) -> Option<&str> {
        let candidates = self.preferred_version.iter().chain(&self.versions);
        candidates
            .map(|version| &*version.version)
            .find(|version| matches!(*version, "v1beta1" | "v1beta2"))
    }
}

/// A quantity in thousandths.
#[derive(Debug, Clone, Copy)]
struct MilliQuantity(i64);

impl<'de> Deserialize<'de> for MilliQuantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        let amount = Quantity::parse(&text).map_err(serde::de::Error::custom)?;
        Ok(Self(amount.milli_value()))
    }
}

/// Decodes a duration in Go's format, such as `1m30s`.
fn go_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = Box::<str>::deserialize(deserializer)?;
    let nanos = duration::nanoseconds(&text).map_err(serde::de::Error::custom)?;
    Ok(Duration::from_nanos(u64::try_from(nanos).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_usage_is_the_sum_of_its_containers() {
        let text = r#"{"items":[{"metadata":{"name":"p"},"timestamp":"2026-01-01T00:00:00Z","window":"30s","containers":[
            {"name":"a","usage":{"cpu":"250m","memory":"1Ki"}},{"name":"b","usage":{"cpu":"1","gpu":2}}]}]}"#;
        let list: PodMetricsList = serde_json::from_str(text).unwrap();
        let usage =
            |resource, container| list.items[0].sample(resource, container).map(|s| s.value);
        assert_eq!(usage("cpu", ""), Some(1250));
        assert_eq!(usage("cpu", "a"), Some(250));
        assert_eq!(usage("memory", ""), None, "b has no memory usage");
        assert_eq!(usage("memory", "a"), Some(1_024_000));
        assert_eq!(usage("gpu", "b"), Some(2000));
        assert_eq!(usage("cpu", "c"), None);
        assert_eq!(list.items[0].window, Duration::from_secs(30));
    }

    #[test]
    fn metric_values_are_decoded_from_v1beta1_and_v1beta2() {
        let text = r#"{"items":[
            {"describedObject":{"name":"p"},"metricName":"qps","timestamp":"2026-01-01T00:00:00Z","window":9,"value":"1500m"},
            {"describedObject":{"name":"q"},"metric":{"name":"qps"},"timestamp":"2026-01-01T00:00:00Z","value":"3"}]}"#;
        let list: MetricValueList = serde_json::from_str(text).unwrap();
        let observed: Vec<_> =
            list.items.iter().map(|v| (v.milli_value(), v.window().as_secs())).collect();
        assert_eq!(observed, [(1500, 9), (3000, 60)]);
    }
}
