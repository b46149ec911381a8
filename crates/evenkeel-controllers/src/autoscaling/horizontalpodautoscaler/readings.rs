//! Clients of the metrics APIs: `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io`. Upstream:
//! `pkg/controller/podautoscaler/metrics`.

mod wire;

use super::{
    metric::ReadResult,
    samples::{Sample, Samples},
};
use crate::{client_go_error, scale};
use evenkeel_api::{
    Text,
    selector::Selector,
    views::{CrossVersionObjectReference, MetricIdentifier, MetricSpec},
};
use evenkeel_runtime::plan::{LiveRead, OnError, Plan, Steps};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

/// API group of custom metrics.
const CUSTOM_METRICS_GROUP: &str = "custom.metrics.k8s.io";

/// Characters that are escaped in paths and queries. These are all except the unreserved characters of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Values of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// One value for each pod.
    Samples(Samples),
    /// One value, in thousandths.
    Value(i64),
    /// Values of the external metric's time series, in thousandths.
    Values(Vec<i64>),
}

/// Reads the metrics of one autoscaler. Upstream: `MetricsClient`.
pub(super) struct MetricsClient<'a> {
    /// Namespace of the autoscaler.
    pub(super) namespace: &'a str,
    /// Selector of the target's pods.
    pub(super) pod_selector: &'a Selector,
    /// Version of the custom metrics API to use. `None` before its discovery, which sets it.
    pub(super) custom_version: &'a mut Option<Text>,
}

/// Reason for a missing reading.
enum Missing {
    /// Plan of the next step, which the runtime must carry out before the value can be read.
    Step(Plan),
    /// The error message of a request.
    Error(String),
}

impl From<Plan> for Missing {
    fn from(plan: Plan) -> Self {
        Self::Step(plan)
    }
}

impl From<String> for Missing {
    fn from(why: String) -> Self {
        Self::Error(why)
    }
}

impl Missing {
    /// Prefixes the error with a message.
    fn with_prefix(self, prefix: &str) -> Self {
        match self {
            Self::Error(why) => Self::Error(format!("{prefix}: {why}")),
            step @ Self::Step(_) => step,
        }
    }
}

/// A GET request to a metrics API.
struct MetricsRequest<'a> {
    path: String,
    /// Names and selectors of the query parameters. The request omits empty selectors.
    selectors: Vec<(&'static str, &'a Selector)>,
    /// Client-go's name for the request in errors. If it is empty, errors do not name the request.
    client_go_name: String,
}

impl MetricsClient<'_> {
    /// Reads a metric. Returns its reading, or the error message of a request.
    ///
    /// # Errors
    /// `Err` contains the plan of a request that the runtime has not executed yet.
    pub(super) fn read(
        &mut self,
        metric: &MetricSpec,
        steps: &mut Steps<'_>,
    ) -> Result<ReadResult, Plan> {
        match self.read_source(metric, steps) {
            Ok(reading) => Ok(ReadResult::Ok(reading)),
            Err(Missing::Error(message)) => Ok(ReadResult::Err(message)),
            Err(Missing::Step(plan)) => Err(plan),
        }
    }

    /// Reads a metric from the API of its source.
    fn read_source(
        &mut self,
        metric: &MetricSpec,
        steps: &mut Steps<'_>,
    ) -> Result<Reading, Missing> {
        if let Some(source) = &metric.resource {
            self.read_resource(&source.name, "", steps)
        } else if let Some(source) = &metric.container_resource {
            self.read_resource(&source.name, &source.container, steps)
        } else if let Some(source) = &metric.pods {
            self.read_pods_metric(&source.metric, steps)
        } else if let Some(source) = &metric.object {
            self.read_object_metric(&source.described_object, &source.metric, steps)
        } else if let Some(source) = &metric.external {
            self.read_external_metric(&source.metric, steps)
        } else {
            Err("the metric has no source".to_owned().into())
        }
    }

    /// Reads a resource metric of whole pods. If `container` is not empty, reads the usage of this container in each
    /// pod.
    fn read_resource(
        &self,
        resource: &str,
        container: &str,
        steps: &mut Steps<'_>,
    ) -> Result<Reading, Missing> {
        let request = MetricsRequest {
            path: format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods", self.namespace),
            selectors: vec![("labelSelector", self.pod_selector)],
            client_go_name: "get pods.metrics.k8s.io".to_owned(),
        };
        let list: wire::PodMetricsList = get(request, steps).map_err(|missing| {
            missing.with_prefix("unable to fetch metrics from resource metrics API")
        })?;
        if list.items.is_empty() {
            return Err("no metrics returned from resource metrics API".to_owned().into());
        }
        let samples = list.items.iter().filter_map(|pod| {
            let sample = pod.sample(resource, container)?;
            Some((pod.name().into(), sample))
        });
        Ok(Reading::Samples(samples.collect()))
    }

    /// Reads a custom metric of the pods.
    fn read_pods_metric(
        &mut self,
        metric: &MetricIdentifier,
        steps: &mut Steps<'_>,
    ) -> Result<Reading, Missing> {
        let list = self.list_pods_metric(metric, steps).map_err(with_custom_metrics_prefix)?;
        if list.items.is_empty() {
            return Err("no metrics returned from custom metrics API".to_owned().into());
        }
        let samples = list.items.iter().map(|value| {
            let sample =
                Sample { value: value.milli_value(), at: value.timestamp, window: value.window() };
            (value.described_object.name.clone(), sample)
        });
        Ok(Reading::Samples(samples.collect()))
    }

    /// Requests a custom metric of the pods.
    fn list_pods_metric(
        &mut self,
        metric: &MetricIdentifier,
        steps: &mut Steps<'_>,
    ) -> Result<wire::MetricValueList, Missing> {
        let version = self.custom_version(steps)?;
        let name = escape(&metric.name);
        let namespace = self.namespace;
        let request = MetricsRequest {
            path: format!(
                "/apis/{CUSTOM_METRICS_GROUP}/{version}/namespaces/{namespace}/pods/*/{name}"
            ),
            selectors: vec![
                ("labelSelector", self.pod_selector),
                ("metricLabelSelector", &metric.selector),
            ],
            client_go_name: format!("get pods.{CUSTOM_METRICS_GROUP} *"),
        };
        get(request, steps)
    }

    /// Reads a custom metric of an object.
    fn read_object_metric(
        &mut self,
        object: &CrossVersionObjectReference,
        metric: &MetricIdentifier,
        steps: &mut Steps<'_>,
    ) -> Result<Reading, Missing> {
        let list =
            self.list_object_metric(object, metric, steps).map_err(with_custom_metrics_prefix)?;
        match &*list.items {
            [value] => Ok(Reading::Value(value.milli_value())),
            several => Err(with_custom_metrics_prefix(Missing::Error(format!(
                "the custom metrics API server returned {} results when we asked for exactly one",
                several.len()
            )))),
        }
    }

    /// Requests a custom metric of an object.
    fn list_object_metric(
        &mut self,
        object: &CrossVersionObjectReference,
        metric: &MetricIdentifier,
        steps: &mut Steps<'_>,
    ) -> Result<wire::MetricValueList, Missing> {
        let version = self.custom_version(steps)?;
        let ObjectMetricPath { path, client_go_name } = object_metric_path(object, metric, steps)?;
        let request = MetricsRequest {
            path: format!(
                "/apis/{CUSTOM_METRICS_GROUP}/{version}/namespaces/{}/{path}",
                self.namespace
            ),
            selectors: vec![("metricLabelSelector", &metric.selector)],
            client_go_name: format!("get {client_go_name}"),
        };
        get(request, steps)
    }

    fn read_external_metric(
        &self,
        metric: &MetricIdentifier,
        steps: &mut Steps<'_>,
    ) -> Result<Reading, Missing> {
        let namespace = self.namespace;
        let name = escape(&metric.name);
        let request = MetricsRequest {
            path: format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}"),
            selectors: vec![("labelSelector", &metric.selector)],
            client_go_name: format!("get {}.external.metrics.k8s.io", metric.name),
        };
        let list: wire::MetricValueList = get(request, steps).map_err(|missing| {
            missing.with_prefix("unable to fetch metrics from external metrics API")
        })?;
        if list.items.is_empty() {
            return Err("no metrics returned from external metrics API".to_owned().into());
        }
        Ok(Reading::Values(list.items.iter().map(wire::MetricValue::milli_value).collect()))
    }

    /// Returns the first version of the custom metrics API that this client supports, beginning with the server's
    /// preferred one.
    fn custom_version(&mut self, steps: &mut Steps<'_>) -> Result<Text, Missing> {
        if let Some(version) = &self.custom_version {
            return Ok(version.clone());
        }
        let request = MetricsRequest {
            path: "/apis".to_owned(),
            selectors: Vec::new(),
            // Errors of client-go's discovery do not name the request.
            client_go_name: String::new(),
        };
        let groups: wire::Groups = get(request, steps)?;
        let group = groups.groups.iter().find(|group| &*group.name == CUSTOM_METRICS_GROUP);
        let group = group
            .ok_or_else(|| format!("no custom metrics API ({CUSTOM_METRICS_GROUP}) registered"))?;
        let version: Text = group
            .version()
            .ok_or_else(|| "no known available metric versions found".to_owned())?
            .into();
        *self.custom_version = Some(version.clone());
        Ok(version)
    }
}

/// Path of an object's metric in the custom metrics API.
struct ObjectMetricPath {
    /// Path below the namespace.
    path: String,
    /// Client-go's name for the metric in errors.
    client_go_name: String,
}

/// Returns the path of an object's metric. A namespace has a special path.
fn object_metric_path(
    object: &CrossVersionObjectReference,
    metric: &MetricIdentifier,
    steps: &mut Steps<'_>,
) -> Result<ObjectMetricPath, Missing> {
    let metric_name = escape(&metric.name);
    let group = object.api_version.split_once('/').map_or("", |(group, _)| group);
    if (group, &*object.kind) == ("", "Namespace") {
        return Ok(ObjectMetricPath {
            path: format!("metrics/{metric_name}"),
            client_go_name: format!("metrics.{CUSTOM_METRICS_GROUP} {}", metric.name),
        });
    }
    let suffix = if group.is_empty() { String::new() } else { format!(".{group}") };
    let lookup = scale::resources_in_group(group, &object.kind, steps)?;
    let resources = lookup.map_err(|error| {
        format!("unable to map kind {}{suffix} to resource: {error}", object.kind)
    })?;
    let first = resources.first().ok_or_else(|| "the kind has no resource".to_owned())?;
    let plural = &first.kind.plural;
    let resource = format!("{plural}{suffix}");
    Ok(ObjectMetricPath {
        path: format!("{resource}/{}/{metric_name}", escape(&object.name)),
        client_go_name: format!("{resource}.{CUSTOM_METRICS_GROUP} {}", object.name),
    })
}

/// Sends the request as the next step, and decodes its response.
fn get<T: DeserializeOwned>(
    request: MetricsRequest<'_>,
    steps: &mut Steps<'_>,
) -> Result<T, Missing> {
    let mut path = request.path;
    for (parameter, selector) in request.selectors {
        if selector.is_empty() {
            continue;
        }
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(parameter);
        path.push('=');
        path.push_str(&escape(&selector.to_string()));
    }
    // The runtime ignores an error of the request, because this function handles it.
    let request_step = LiveRead { on_error: OnError::Ignore, ..LiveRead::json(&path) };
    let outcome = steps.one(request_step)?;
    if let Some(error) = &outcome.error {
        return Err(client_go_error::message(error, &request.client_go_name).into());
    }
    let body = outcome.reply.as_ref().map(|reply| reply.body().clone()).unwrap_or_default();
    serde_json::from_slice(&body).map_err(|error| error.to_string().into())
}

/// Prefixes an error of the custom metrics API.
fn with_custom_metrics_prefix(missing: Missing) -> Missing {
    missing.with_prefix("unable to fetch metrics from custom metrics API")
}

/// Percent-encodes a string for a path or a query.
fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}
