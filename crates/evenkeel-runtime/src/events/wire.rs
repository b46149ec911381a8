//! JSON of Events and of their patches.

use super::{
    correlate::CorrelatedEvent,
    series::{CachedEvent, Series},
};
use crate::plan::Target;
use bytes::Bytes;
use evenkeel_api::{
    Kind,
    time::{micros, seconds},
};
use serde::Serialize;

/// Kind of core/v1 Events.
pub(super) const CORE: Kind = Kind::new("", "v1", "Event", "events", true);
/// Kind of events.k8s.io/v1 Events.
pub(super) const EVENTS: Kind = Kind::new("events.k8s.io", "v1", "Event", "events", true);

/// Returns the namespace of an Event. It is `default` for an event about a cluster-scoped object.
pub(super) fn event_namespace(regarding: &Target) -> &str {
    if regarding.namespace.is_empty() { "default" } else { &regarding.namespace }
}

fn event_type(warning: bool) -> &'static str {
    if warning { "Warning" } else { "Normal" }
}

#[derive(Serialize)]
struct ObjectMeta<'a> {
    name: &'a str,
    namespace: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reference<'a> {
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    api_version: String,
}

impl<'a> From<&'a Target> for Reference<'a> {
    fn from(target: &'a Target) -> Self {
        let Target { kind, namespace, name, uid } = target;
        Self {
            kind: &kind.kind,
            namespace,
            name,
            uid,
            api_version: kind.api_version().into_owned(),
        }
    }
}

#[derive(Serialize)]
struct Source<'a> {
    component: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CoreEvent<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: ObjectMeta<'a>,
    involved_object: Reference<'a>,
    reason: &'a str,
    message: &'a str,
    source: Source<'a>,
    first_timestamp: String,
    last_timestamp: String,
    count: u32,
    #[serde(rename = "type")]
    event_type: &'static str,
    event_time: Option<()>,
    reporting_component: &'a str,
    reporting_instance: &'a str,
}

/// Encodes a core/v1 Event, to be created.
pub(super) fn core_event(entry: &CorrelatedEvent, component: &str) -> Bytes {
    let event = CoreEvent {
        kind: "Event",
        api_version: "v1",
        metadata: ObjectMeta { name: &entry.name, namespace: event_namespace(&entry.regarding) },
        involved_object: (&entry.regarding).into(),
        reason: &entry.reason,
        message: &entry.message,
        source: Source { component },
        first_timestamp: seconds(entry.first),
        last_timestamp: seconds(entry.last),
        count: entry.count,
        event_type: event_type(entry.warning),
        event_time: None,
        reporting_component: if entry.aggregated { "" } else { component },
        reporting_instance: "",
    };
    json(&event)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CorePatch<'a> {
    count: u32,
    last_timestamp: String,
    message: &'a str,
}

/// Encodes the strategic merge patch of a core/v1 Event that counts a repeat.
pub(super) fn core_patch(entry: &CorrelatedEvent) -> Bytes {
    json(&CorePatch {
        count: entry.count,
        last_timestamp: seconds(entry.last),
        message: &entry.message,
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireSeries {
    count: u32,
    last_observed_time: String,
}

impl WireSeries {
    fn new(series: Series) -> Self {
        let Series { count, last_observed_time } = series;
        Self { count, last_observed_time: micros(last_observed_time) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventsV1Event<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: ObjectMeta<'a>,
    event_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<WireSeries>,
    reporting_controller: &'a str,
    reporting_instance: &'a str,
    action: &'a str,
    reason: &'a str,
    regarding: Reference<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    related: Option<Reference<'a>>,
    note: &'a str,
    #[serde(rename = "type")]
    event_type: &'static str,
}

/// Encodes an events.k8s.io/v1 Event, to be created.
pub(super) fn series_event(event: &CachedEvent, controller: &str, instance: &str) -> Bytes {
    let encoded = EventsV1Event {
        kind: "Event",
        api_version: "events.k8s.io/v1",
        metadata: ObjectMeta {
            name: &event.name,
            namespace: event_namespace(&event.record.regarding),
        },
        event_time: micros(event.at),
        series: event.series.map(WireSeries::new),
        reporting_controller: controller,
        reporting_instance: instance,
        action: event.action,
        reason: &event.record.reason,
        regarding: (&event.record.regarding).into(),
        related: event.related.as_ref().map(Reference::from),
        note: &event.record.message,
        event_type: event_type(event.record.warning),
    };
    json(&encoded)
}

#[derive(Serialize)]
struct SeriesPatch {
    series: Option<WireSeries>,
}

/// Encodes the strategic merge patch of an events.k8s.io/v1 Event that updates its series.
pub(super) fn series_patch(event: &CachedEvent) -> Bytes {
    json(&SeriesPatch { series: event.series.map(WireSeries::new) })
}

fn json(value: &impl Serialize) -> Bytes {
    // Serializing structs of strings and numbers cannot fail.
    serde_json::to_vec(value).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::EventRecord;
    use evenkeel_api::time::Timestamp;
    use expect_test::expect;

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);
    const NODES: Kind = Kind::new("", "v1", "Node", "nodes", false);

    fn at(second: i64) -> Timestamp {
        Timestamp::new(1_767_225_600 + second, 123_456_789).unwrap()
    }

    #[test]
    fn a_core_event_has_upstreams_json() {
        let entry = CorrelatedEvent {
            name: "n1.1".into(),
            regarding: Target::new(NODES, "", "n1", "u1"),
            warning: true,
            reason: "NodeNotReady".into(),
            message: "gone".into(),
            first: at(0),
            last: at(5),
            count: 2,
            aggregated: false,
        };
        expect![[r#"{"kind":"Event","apiVersion":"v1","metadata":{"name":"n1.1","namespace":"default"},"involvedObject":{"kind":"Node","name":"n1","uid":"u1","apiVersion":"v1"},"reason":"NodeNotReady","message":"gone","source":{"component":"node-controller"},"firstTimestamp":"2026-01-01T00:00:00Z","lastTimestamp":"2026-01-01T00:00:05Z","count":2,"type":"Warning","eventTime":null,"reportingComponent":"node-controller","reportingInstance":""}"#]]
            .assert_eq(std::str::from_utf8(&core_event(&entry, "node-controller")).unwrap());
        expect![[r#"{"count":2,"lastTimestamp":"2026-01-01T00:00:05Z","message":"gone"}"#]]
            .assert_eq(std::str::from_utf8(&core_patch(&entry)).unwrap());
    }

    #[test]
    fn a_series_event_has_upstreams_json() {
        let event = CachedEvent {
            name: "web.1".into(),
            record: EventRecord::normal(
                Target::new(PODS, "ns", "web", "u"),
                "Scheduled",
                "Successfully assigned ns/web to n1",
            ),
            action: "Binding",
            related: None,
            at: at(0),
            series: Some(Series { count: 2, last_observed_time: at(5) }),
        };
        expect![[r#"{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":"web.1","namespace":"ns"},"eventTime":"2026-01-01T00:00:00.123456Z","series":{"count":2,"lastObservedTime":"2026-01-01T00:00:05.123456Z"},"reportingController":"default-scheduler","reportingInstance":"default-scheduler-host","action":"Binding","reason":"Scheduled","regarding":{"kind":"Pod","namespace":"ns","name":"web","uid":"u","apiVersion":"v1"},"note":"Successfully assigned ns/web to n1","type":"Normal"}"#]]
            .assert_eq(std::str::from_utf8(&series_event(&event, "default-scheduler", "default-scheduler-host")).unwrap());
        expect![[r#"{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:05.123456Z"}}"#]]
            .assert_eq(std::str::from_utf8(&series_patch(&event)).unwrap());
    }
}
