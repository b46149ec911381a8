//! Clients of the metrics APIs: `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io`. Upstream:
//! `pkg/controller/podautoscaler/metrics`.

mod wire;

use super::{
    metric::Read,
    samples::{Sample, Samples},
};
use crate::{answers::words, scale};
use evenkeel_api::{
    Text,
    selector::Selector,
    views::{CrossVersionObjectReference, MetricIdentifier, MetricSpec},
};
use evenkeel_runtime::plan::{LiveRead, OnError, Plan, Steps};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

const CUSTOM: &str = "custom.metrics.k8s.io";

/// Characters escaped in paths and queries: all but RFC 3986's unreserved ones.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Values of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// One value for each pod.
    Samples(Samples),
    /// One value, in thousandths.
    Value(i64),
    /// Values of several series, in thousandths.
    Values(Vec<i64>),
}

/// Reads the metrics of one autoscaler from the metrics APIs.
pub(super) struct Readings<'a> {
    /// Namespace of the autoscaler.
    pub(super) namespace: &'a str,
    /// Selector of the target's pods.
    pub(super) pods: &'a Selector,
    /// The preferred version of custom metrics, if it is known.
    pub(super) custom_version: &'a mut Option<Text>,
}

/// Reason for a missing reading.
enum Missing {
    /// The step that the runtime has to carry out first.
    Step(Plan),
    /// The error of a request.
    Error(String),
}

impl From<Plan> for Missing {
    fn from(step: Plan) -> Self {
        Self::Step(step)
    }
}

impl From<String> for Missing {
    fn from(why: String) -> Self {
        Self::Error(why)
    }
}

impl Missing {
    /// Prefixes the error with a message.
    fn with_prefix(self, words: &str) -> Self {
        match self {
            Self::Error(why) => Self::Error(format!("{words}: {why}")),
            step @ Self::Step(_) => step,
        }
    }
}

/// A GET request to a metrics API.
struct MetricsRequest<'a> {
    path: String,
    selectors: Vec<(&'static str, &'a Selector)>,
    /// Client-go's name for the request in errors.
    client_go_name: String,
}

impl Readings<'_> {
    /// Reads a metric.
    ///
    /// # Errors
    /// Returns the step that the runtime has to carry out first.
    pub(super) fn read(
        &mut self,
        metric: &MetricSpec,
        steps: &mut Steps<'_>,
    ) -> Result<Read, Plan> {
        let read = if let Some(source) = &metric.resource {
            self.of_resource(&source.name, "", steps)
        } else if let Some(source) = &metric.container_resource {
            self.of_resource(&source.name, &source.container, steps)
        } else if let Some(source) = &metric.pods {
            self.of_pods(&source.metric, steps)
        } else if let Some(source) = &metric.object {
            self.of_object(&source.described_object, &source.metric, steps)
        } else if let Some(source) = &metric.external {
            self.of_external(&source.metric, steps)
        } else {
            Err("the metric has no source".to_owned().into())
        };
        match read {
            Ok(reading) => Ok(Ok(reading)),
            Err(Missing::Error(why)) => Ok(Err(why)),
            Err(Missing::Step(step)) => Err(step),
        }
    }

    fn of_resource(
        &self,
        resource: &str,
        container: &str,
        steps: &mut Steps<'_>,
    ) -> Result<Reading, Missing> {
        let request = MetricsRequest {
            path: format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods", self.namespace),
            selectors: vec![("labelSelector", self.pods)],
            client_go_name: "get pods.metrics.k8s.io".to_owned(),
        };
        let list: wire::PodMetricsList = get(request, steps).map_err(|missing| {
            missing.with_prefix("unable to fetch metrics from resource metrics API")
        })?;
        if list.items.is_empty() {
            return Err("no metrics returned from resource metrics API".to_owned().into());
        }
        let all = list.items.iter();
        let samples =
            all.filter_map(|pod| Some((pod.name().into(), pod.sample(resource, container)?)));
        Ok(Reading::Samples(samples.collect()))
    }

    fn of_pods(
        &mut self,
        metric: &MetricIdentifier,
        steps: &mut Steps<'_>,
    ) -> Result<Reading, Missing> {
        let list = self.list_of_pods(metric, steps).map_err(custom_metrics_error)?;
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

    fn list_of_pods(
        &mut self,
        metric: &MetricIdentifier,
        steps: &mut Steps<'_>,
    ) -> Result<wire::MetricValueList, Missing> {
        let (version, name) = (self.custom_version(steps)?, escape(&metric.name));
        let namespace = self.namespace;
        let request = MetricsRequest {
            path: format!("/apis/{CUSTOM}/{version}/namespaces/{namespace}/pods/*/{name}"),
            selectors: vec![
                ("labelSelector", self.pods),
                ("metricLabelSelector", &metric.selector),
            ],
            client_go_name: format!("get pods.{CUSTOM} *"),
        };
        get(request, steps)
    }

    fn of_object(
        &mut self,
        object: &CrossVersionObjectReference,
        metric: &MetricIdentifier,
        steps: &mut Steps<'_>,
    ) -> Result<Reading, Missing> {
        let list = self.list_of_object(object, metric, steps).map_err(custom_metrics_error)?;
        match &*list.items {
            [value] => Ok(Reading::Value(value.milli_value())),
            several => Err(custom_metrics_error(Missing::Error(format!(
                "the custom metrics API server returned {} results when we asked for exactly one",
                several.len()
            )))),
        }
    }

    fn list_of_object(
        &mut self,
        object: &CrossVersionObjectReference,
        metric: &MetricIdentifier,
        steps: &mut Steps<'_>,
    ) -> Result<wire::MetricValueList, Missing> {
        let version = self.custom_version(steps)?;
        let (object_path, client_go_name) = object_path(object, metric, steps)?;
        let request = MetricsRequest {
            path: format!("/apis/{CUSTOM}/{version}/namespaces/{}/{object_path}", self.namespace),
            selectors: vec![("metricLabelSelector", &metric.selector)],
            client_go_name: format!("get {client_go_name}"),
        };
        get(request, steps)
    }

    fn of_external(
        &self,
        metric: &MetricIdentifier,
        steps: &mut Steps<'_>,
    ) -> Result<Reading, Missing> {
        let (namespace, name) = (self.namespace, escape(&metric.name));
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

    /// Returns the server's preferred version of custom metrics, or else the first that this client knows.
    fn custom_version(&mut self, steps: &mut Steps<'_>) -> Result<Text, Missing> {
        if let Some(version) = &self.custom_version {
            return Ok(version.clone());
        }
        let request = MetricsRequest {
            path: "/apis".to_owned(),
            selectors: Vec::new(),
            client_go_name: String::new(),
        };
        let groups: wire::Groups = get(request, steps)?;
        let group = groups.groups.iter().find(|group| &*group.name == CUSTOM);
        let group = group.ok_or_else(|| format!("no custom metrics API ({CUSTOM}) registered"))?;
        let version = group.version();
        let version: Text =
            version.ok_or_else(|| "no known available metric versions found".to_owned())?.into();
        *self.custom_version = Some(version.clone());
        Ok(version)
    }
}

/// Returns the path of an object's metric below the namespace, and client-go's name for it.
fn object_path(
    object: &CrossVersionObjectReference,
    metric: &MetricIdentifier,
    steps: &mut Steps<'_>,
) -> Result<(String, String), Missing> {
    let name = escape(&metric.name);
    let group = object.api_version.split_once('/').map_or("", |(group, _)| group);
    if (group, &*object.kind) == ("", "Namespace") {
        return Ok((format!("metrics/{name}"), format!("metrics.{CUSTOM} {}", metric.name)));
    }
    let mapped = scale::resources_in_group(group, &object.kind, steps)?.map_err(|error| {
        let dot = if group.is_empty() { "" } else { "." };
        format!("unable to map kind {}{dot}{group} to resource: {error}", object.kind)
    })?;
    let first = mapped.first().ok_or_else(|| "the kind has no resource".to_owned())?;
    let dot = if group.is_empty() { "" } else { "." };
    let resource = format!("{}{dot}{group}", first.kind.plural);
    let client_go_name = format!("{resource}.{CUSTOM} {}", object.name);
    Ok((format!("{resource}/{}/{name}", escape(&object.name)), client_go_name))
}

fn get<T: DeserializeOwned>(
    request: MetricsRequest<'_>,
    steps: &mut Steps<'_>,
) -> Result<T, Missing> {
    let mut path = request.path;
    for (name, selector) in request.selectors.iter().filter(|(_, selector)| !selector.is_empty()) {
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(name);
        path.push('=');
        path.push_str(&escape(&selector.to_string()));
    }
    let read = LiveRead { on_error: OnError::Ignore, ..LiveRead::json(&path) };
    let read = steps.one(read)?;
    if let Some(error) = &read.error {
        return Err(words(error, &request.client_go_name).into());
    }
    let body = read.reply.as_ref().map(|reply| reply.body().clone()).unwrap_or_default();
    serde_json::from_slice(&body).map_err(|error| error.to_string().into())
}

fn custom_metrics_error(missing: Missing) -> Missing {
    missing.with_prefix("unable to fetch metrics from custom metrics API")
}

fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}
