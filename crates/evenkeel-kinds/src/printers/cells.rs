//! Cells that printers of several kinds share, such as ages, labels, and names and images of containers.

use std::ops::Deref;

use super::duration::human;
use crate::scale::format_selector;
use evenkeel_apimachinery::value::{get, int, list, object, text};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Cells of one row.
pub type Cells = Vec<Value>;

pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";
pub(super) const UNKNOWN: &str = "<unknown>";

/// Object to print, in its stored version.
pub struct PrintedObject<'a> {
    /// Object with all its fields.
    pub object: &'a Value,
    /// Time of the request. Ages are relative to this time.
    pub now: Timestamp,
}

impl Deref for PrintedObject<'_> {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.object
    }
}

/// Returns the seconds between two times, or `None` if `from` cannot be parsed.
pub(super) fn seconds_since(from: &str, to: Timestamp) -> Option<i64> {
    let from: Timestamp = from.parse().ok()?;
    Some(to.as_second() - from.as_second())
}

/// Formats the time since the timestamp at `path`.
///
/// Upstream: `translateTimestampSince`.
pub(super) fn since(object: &PrintedObject<'_>, path: &str) -> String {
    seconds_since(text(object, path), object.now).map_or_else(|| UNKNOWN.to_owned(), human)
}

/// Formats the time since the object was created.
pub fn age(object: &PrintedObject<'_>) -> String {
    since(object, "metadata.creationTimestamp")
}

/// Returns the object's name.
pub fn name(object: &Value) -> &str {
    text(object, "metadata.name")
}

/// Returns the integer at `path`, or 0 if it is absent.
pub(super) fn count(object: &Value, path: &str) -> i64 {
    int(object, path).unwrap_or_default()
}

/// Returns the string at `path`, or `absent` if it is empty.
pub(super) fn text_or<'a>(object: &'a Value, path: &str, absent: &'a str) -> &'a str {
    match text(object, path) {
        "" => absent,
        found => found,
    }
}

/// Formats a string or a number, or returns `absent`.
pub(super) fn scalar_text(value: Option<&Value>, absent: &str) -> String {
    match value {
        None | Some(Value::Null) => absent.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Returns the names and the images of a pod spec's containers, each joined by commas.
///
/// Upstream: `layoutContainerCells`.
pub(super) fn containers(spec: Option<&Value>) -> [String; 2] {
    let containers = spec.map_or(&[][..], |spec| list(spec, "containers"));
    ["name", "image"].map(|field| {
        let cells: Vec<&str> = containers.iter().map(|container| text(container, field)).collect();
        cells.join(",")
    })
}

/// Formats the label selector at `path`.
pub(super) fn selector_text(target: &Value, path: &str) -> String {
    match format_selector(get(target, path)) {
        text if text.is_empty() => NONE.to_owned(),
        text => text,
    }
}

/// Formats the labels at `path` as `key=value`, joined by commas.
pub(super) fn labels(target: &Value, path: &str) -> String {
    let pairs: Vec<String> = object(target, path)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { NONE.to_owned() } else { pairs.join(",") }
}

/// Joins the strings of the list at `path` with a separator.
pub(super) fn join(target: &Value, path: &str, separator: &str) -> String {
    list(target, path).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(separator)
}

/// Returns the cells name and creation time, as upstream's default printer does for kinds without their own printer.
pub(super) fn created_at(object: &PrintedObject<'_>) -> Cells {
    vec![json!(name(object)), json!(text(object, "metadata.creationTimestamp"))]
}

/// Returns the cells name and age.
pub(super) fn name_age(object: &PrintedObject<'_>) -> Cells {
    vec![json!(name(object)), json!(age(object))]
}

/// Returns the cells of a Scale.
pub fn scale(object: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(object)),
        json!(count(object, "spec.replicas")),
        json!(count(object, "status.replicas")),
        json!(age(object)),
    ]
}

/// Returns the status condition of this type.
pub(super) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    list(object, "status.conditions").iter().find(|condition| text(condition, "type") == type_)
}
