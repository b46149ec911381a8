//! Clients of the metrics APIs: `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io`. Upstream:
//! `pkg/controller/podautoscaler/metrics`.

mod wire;

use super::samples::{Sample, Samples};
use crate::{answers::words, scale::Scales};
use bytes::Bytes;
use evenkeel_api::{
    Text,
    selector::Selector,
    time::Timestamp,
    views::{CrossVersionObjectReference, MetricIdentifier, MetricSpec},
};
use evenkeel_runtime::client::Client;
use http::{Request, header::ACCEPT};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

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

/// Reads the metrics of an autoscaler from the metrics APIs.
pub(super) struct Readings {
    client: Client,
    scales: Scales,
    /// The preferred version of custom metrics, and when it was discovered.
    version: Mutex<Option<(Timestamp, Text)>>,
    /// Time after which the version is discovered again.
    period: Duration,
}

/// A request, and client-go's name for it in errors.
struct Ask<'a> {
    path: String,
    selectors: Vec<(&'static str, &'a Selector)>,
    named: String,
}

impl Readings {
    pub(super) fn new(client: Client, scales: Scales, period: Duration) -> Self {
        Self { client, scales, version: Mutex::default(), period }
    }

    /// Reads a metric; `pods` selects the pods of a pod metric.
    pub(super) async fn read(
        &self,
        metric: &MetricSpec,
        namespace: &str,
        pods: &Selector,
    ) -> Result<Reading, String> {
        if let Some(source) = &metric.resource {
            self.of_resource(&source.name, "", namespace, pods).await
        } else if let Some(source) = &metric.container_resource {
            self.of_resource(&source.name, &source.container, namespace, pods).await
        } else if let Some(source) = &metric.pods {
            self.of_pods(&source.metric, namespace, pods).await
        } else if let Some(source) = &metric.object {
            self.of_object(&source.described_object, &source.metric, namespace).await
        } else if let Some(source) = &metric.external {
            self.of_external(&source.metric, namespace).await
        } else {
            Err("the metric has no source".to_owned())
        }
    }

    async fn of_resource(
        &self,
        resource: &str,
        container: &str,
        namespace: &str,
        pods: &Selector,
    ) -> Result<Reading, String> {
        let ask = Ask {
            path: format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"),
            selectors: vec![("labelSelector", pods)],
            named: "get pods.metrics.k8s.io".to_owned(),
        };
        let list: wire::PodMetricsList = self
            .get(ask)
            .await
            .map_err(|why| format!("unable to fetch metrics from resource metrics API: {why}"))?;
        if list.items.is_empty() {
            return Err("no metrics returned from resource metrics API".to_owned());
        }
        let all = list.items.iter();
        let samples =
            all.filter_map(|pod| Some((pod.name().into(), pod.sample(resource, container)?)));
        Ok(Reading::Samples(samples.collect()))
    }

    async fn of_pods(
        &self,
        metric: &MetricIdentifier,
        namespace: &str,
        pods: &Selector,
    ) -> Result<Reading, String> {
        let read = async {
            let version = self.custom_version().await?;
            let name = escape(&metric.name);
            self.get::<wire::MetricValueList>(Ask {
                path: format!("/apis/{CUSTOM}/{version}/namespaces/{namespace}/pods/*/{name}"),
                selectors: vec![("labelSelector", pods), ("metricLabelSelector", &metric.selector)],
                named: format!("get pods.{CUSTOM} *"),
            })
            .await
        };
        let list = read.await.map_err(of_custom)?;
        if list.items.is_empty() {
            return Err("no metrics returned from custom metrics API".to_owned());
        }
        let samples = list.items.iter().map(|value| {
            let sample =
                Sample { value: value.milli_value(), at: value.timestamp, window: value.window() };
            (value.described_object.name.clone(), sample)
        });
        Ok(Reading::Samples(samples.collect()))
    }

    async fn of_object(
        &self,
        object: &CrossVersionObjectReference,
        metric: &MetricIdentifier,
        namespace: &str,
    ) -> Result<Reading, String> {
        let read = async {
            let version = self.custom_version().await?;
            let (place, named) = self.place_of(object, metric).await?;
            let list: wire::MetricValueList = self
                .get(Ask {
                    path: format!("/apis/{CUSTOM}/{version}/namespaces/{namespace}/{place}"),
                    selectors: vec![("metricLabelSelector", &metric.selector)],
                    named: format!("get {named}"),
                })
                .await?;
            match &*list.items {
                [value] => Ok(Reading::Value(value.milli_value())),
                several => Err(format!(
                    "the custom metrics API server returned {} results when we asked for exactly one",
                    several.len()
                )),
            }
        };
        read.await.map_err(of_custom)
    }

    /// Returns the path of an object's metric below the namespace, and client-go's name for it.
    async fn place_of(
        &self,
        object: &CrossVersionObjectReference,
        metric: &MetricIdentifier,
    ) -> Result<(String, String), String> {
        let name = escape(&metric.name);
        let group = object.api_version.split_once('/').map_or("", |(group, _)| group);
        if (group, &*object.kind) == ("", "Namespace") {
            return Ok((format!("metrics/{name}"), format!("metrics.{CUSTOM} {}", metric.name)));
        }
        let mapped = self.scales.resources(group, &object.kind).await.map_err(|error| {
            let dot = if group.is_empty() { "" } else { "." };
            format!("unable to map kind {}{dot}{group} to resource: {error}", object.kind)
        })?;
        let kind = &mapped.first().ok_or("the kind has no resource")?.kind;
        let dot = if group.is_empty() { "" } else { "." };
        let resource = format!("{}{dot}{group}", kind.plural);
        let named = format!("{resource}.{CUSTOM} {}", object.name);
        Ok((format!("{resource}/{}/{name}", escape(&object.name)), named))
    }

    async fn of_external(
        &self,
        metric: &MetricIdentifier,
        namespace: &str,
    ) -> Result<Reading, String> {
        let ask = Ask {
            path: format!(
                "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{}",
                escape(&metric.name)
            ),
            selectors: vec![("labelSelector", &metric.selector)],
            named: format!("get {}.external.metrics.k8s.io", metric.name),
        };
        let list: wire::MetricValueList = self
            .get(ask)
            .await
            .map_err(|why| format!("unable to fetch metrics from external metrics API: {why}"))?;
        if list.items.is_empty() {
            return Err("no metrics returned from external metrics API".to_owned());
        }
        Ok(Reading::Values(list.items.iter().map(wire::MetricValue::milli_value).collect()))
    }

    /// Returns the server's preferred version of custom metrics, among the known ones.
    async fn custom_version(&self) -> Result<Text, String> {
        let now = self.client.clock().now();
        {
            let known = self.version.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = |at: Timestamp| {
                Duration::try_from(now.duration_since(at)).is_ok_and(|age| age < self.period)
            };
            if let Some((_, version)) = known.as_ref().filter(|(at, _)| fresh(*at)) {
                return Ok(version.clone());
            }
        }
        let groups: wire::Groups = self
            .get(Ask { path: "/apis".to_owned(), selectors: Vec::new(), named: String::new() })
            .await?;
        let group = groups.groups.iter().find(|group| &*group.name == CUSTOM);
        let group = group.ok_or_else(|| format!("no custom metrics API ({CUSTOM}) registered"))?;
        let version = group.version().ok_or("no known available metric versions found")?.to_owned();
        let version: Text = version.into();
        let mut known = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((now, version.clone()));
        Ok(version)
    }

    async fn get<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, String> {
        let mut path = ask.path;
        for (name, selector) in ask.selectors.iter().filter(|(_, selector)| !selector.is_empty()) {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(name);
            path.push('=');
            path.push_str(&escape(&selector.to_string()));
        }
        let request = Request::get(path).header(ACCEPT, "application/json").body(Bytes::new());
        let request = request.map_err(|error| error.to_string())?;
        let answer = self.client.raw(request).await;
        let answer = answer.map_err(|error| words(&error.into(), &ask.named))?;
        serde_json::from_slice(answer.body()).map_err(|error| error.to_string())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` calls it")]
fn of_custom(why: String) -> String {
    format!("unable to fetch metrics from custom metrics API: {why}")
}

fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}
