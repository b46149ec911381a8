//! Events: of one object, or of all.

use super::{Chip, Link, ago::Ago, shorten};
use crate::route::ObjectPath;
use askama::Template;
use evenkeel_api::{Kind, time::Timestamp};
use serde_json::Value;

/// Maximum number of listed events.
pub(crate) const MAX_EVENTS: usize = 200;
/// Maximum length of a message.
const MAX_MESSAGE: usize = 1000;

/// An event in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventRow {
    /// Time of the last occurrence.
    pub(crate) ago: Option<Ago>,
    /// `Normal` or `Warning`.
    pub(crate) kind: Chip,
    /// Reason in CamelCase.
    pub(crate) reason: String,
    /// The object that the event is about.
    pub(crate) object: Link,
    /// Message for people.
    pub(crate) message: String,
    /// Number of times.
    pub(crate) count: u64,
    /// Component that recorded it.
    pub(crate) by: String,
}

/// Page of the events of all objects.
#[derive(Debug, Clone, Template)]
#[template(path = "events.html")]
pub(crate) struct EventsPage {
    /// Listed events, the newest first.
    pub(crate) events: Vec<EventRow>,
    /// Namespace. Empty for all.
    pub(crate) namespace: String,
    /// Whether only warnings are listed.
    pub(crate) warnings: bool,
    /// Namespaces to choose from.
    pub(crate) namespaces: Vec<String>,
    /// Number of further events that are not listed.
    pub(crate) more: usize,
    /// Whether the cluster has more events than the console read.
    pub(crate) cut: bool,
}

/// Returns events, newest first, and the number of those left out. `kinds` returns the resource of an `apiVersion` and a
/// kind.
pub(crate) fn rows(
    now: Timestamp,
    events: &[Value],
    warnings: bool,
    kinds: impl Fn(&str, &str) -> Option<Kind>,
) -> (Vec<EventRow>, usize) {
    let mut events: Vec<(Option<Timestamp>, &Value)> = events
        .iter()
        .filter(|event| !warnings || event["type"] == "Warning")
        .map(|event| (last_time(event), event))
        .collect();
    events.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    let more = events.len().saturating_sub(MAX_EVENTS);
    events.truncate(MAX_EVENTS);
    let rows = events.into_iter().map(|(time, event)| row(now, time, event, &kinds));
    (rows.collect(), more)
}

/// Returns the last time of an event, in either version of the Event API.
fn last_time(event: &Value) -> Option<Timestamp> {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    times.into_iter().find_map(|time| evenkeel_api::time::parse(time.as_str()?).ok())
}

/// Returns the number of events of the last hour.
pub(crate) fn count_recent(now: Timestamp, events: &[Value]) -> usize {
    let is_recent = |event: &&Value| {
        last_time(event).is_some_and(|time| now.as_second() - time.as_second() < 3600)
    };
    events.iter().filter(is_recent).count()
}

fn row(
    now: Timestamp,
    time: Option<Timestamp>,
    event: &Value,
    kinds: &impl Fn(&str, &str) -> Option<Kind>,
) -> EventRow {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about = &event["involvedObject"];
    let [version, kind, namespace, name] =
        ["apiVersion", "kind", "namespace", "name"].map(|field| text(&about[field]));
    let slash = if namespace.is_empty() { "" } else { "/" };
    let href = kinds(&version, &kind).filter(|_| !name.is_empty()).map(|resource| {
        let namespace = if resource.namespaced { &*namespace } else { "" };
        ObjectPath::of(&resource, namespace, &name).href()
    });
    let by = [&event["reportingComponent"], &event["source"]["component"]];
    let count = [&event["series"]["count"], &event["count"]];
    let type_ = text(&event["type"]);
    EventRow {
        ago: time.map(|time| Ago::new(now, time)),
        kind: Chip::new(&*type_, if type_ == "Warning" { "warn" } else { "quiet" }),
        reason: text(&event["reason"]),
        object: Link::new(format!("{kind} {namespace}{slash}{name}"), href.unwrap_or_default()),
        message: shorten(&text(&event["message"]), MAX_MESSAGE),
        count: count.into_iter().find_map(Value::as_u64).unwrap_or(1),
        by: by.into_iter().map(text).find(|by| !by.is_empty()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: i64 = 1_700_000_000;

    fn kinds(_: &str, kind: &str) -> Option<Kind> {
        (kind == "Node").then(|| Kind::new("", "v1", "Node", "nodes", false))
    }

    #[test]
    fn both_forms_of_events_are_listed_newest_first() {
        let now = Timestamp::from_second(NOW).expect("a time");
        let old = json!({
            "type": "Normal", "reason": "A", "message": "m", "count": 3, "lastTimestamp": "2023-11-14T22:00:00Z",
            "source": {"component": "kubelet"}, "involvedObject": {"kind": "Pod", "namespace": "a", "name": "p"},
        });
        let new = json!({
            "type": "Warning", "reason": "B", "message": "<img src=x>", "eventTime": "2023-11-14T22:10:00.000000Z",
            "series": {"count": 7, "lastObservedTime": "2023-11-14T22:12:00.000000Z"},
            "reportingComponent": "node-controller", "involvedObject": {"kind": "Node", "name": "n"},
        });
        let events = [old, new];
        let (rows, more) = rows(now, &events, false, kinds);
        let shown: Vec<_> =
            rows.iter().map(|r| (&*r.reason, r.count, &*r.by, &*r.object.href)).collect();
        assert_eq!(
            shown,
            [("B", 7, "node-controller", "/object/core/v1/nodes/-/n"), ("A", 3, "kubelet", "")]
        );
        assert_eq!((more, rows[1].object.text.as_str()), (0, "Pod a/p"));
        let later = Timestamp::from_second(NOW + 3500).expect("a time");
        let counts = [count_recent(now, &events), count_recent(later, &events)];
        assert_eq!(counts, [2, 1], "one is more than an hour old later");
        let (warnings, _) = super::rows(now, &events, true, kinds);
        assert_eq!(warnings.len(), 1);
        let many = vec![events[0].clone(); MAX_EVENTS + 5];
        let (listed, more) = super::rows(now, &many, false, kinds);
        assert_eq!((listed.len(), more), (MAX_EVENTS, 5));
        let page = EventsPage {
            events: rows,
            namespace: "\"><script>".to_owned(),
            warnings: false,
            namespaces: Vec::new(),
            more,
            cut: false,
        };
        let html = page.render().expect("rendered");
        assert!(!html.contains("<img") && !html.contains("<script"), "{html}");
    }
}
