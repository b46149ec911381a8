//! What the printers of all kinds share: ages, lists of names, cells of custom resources.

use std::ops::Deref;

use super::duration::human;
use crate::scale::selector;
use evenkeel_apimachinery::value::{at, int, list, object, text};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A row's cells.
pub type Cells = Vec<Value>;

pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";
pub(super) const UNKNOWN: &str = "<unknown>";

/// An object to be shown, in its stored version.
pub struct Shown<'a> {
    /// The object, with all its fields.
    pub object: &'a Value,
    /// When it is shown: ages are counted up to here.
    pub now: Timestamp,
}

impl Deref for Shown<'_> {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.object
    }
}

/// Seconds from a time to a later one.
pub(super) fn seconds_since(from: &str, to: Timestamp) -> Option<i64> {
    let from: Timestamp = from.parse().ok()?;
    Some(to.as_second() - from.as_second())
}

/// How long ago the time at `path` was.
pub(super) fn since(object: &Shown<'_>, path: &str) -> String {
    seconds_since(text(object, path), object.now).map_or_else(|| UNKNOWN.to_owned(), human)
}

/// How long ago the object was made.
pub fn age(object: &Shown<'_>) -> String {
    since(object, "metadata.creationTimestamp")
}

/// The object's name.
pub fn name(object: &Value) -> &str {
    text(object, "metadata.name")
}

/// A count; 0 where there is none.
pub(super) fn count(object: &Value, path: &str) -> i64 {
    int(object, path).unwrap_or_default()
}

/// A text, or other words where there is none.
pub(super) fn text_or<'a>(object: &'a Value, path: &str, absent: &'a str) -> &'a str {
    match text(object, path) {
        "" => absent,
        found => found,
    }
}

/// A string or a number as text.
pub(super) fn plain(value: Option<&Value>, absent: &str) -> String {
    match value {
        None | Some(Value::Null) => absent.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Names and images of a pod spec's containers.
pub(super) fn containers(spec: Option<&Value>) -> [String; 2] {
    let all = spec.map_or(&[][..], |spec| list(spec, "containers"));
    ["name", "image"].map(|field| {
        all.iter().map(|container| text(container, field)).collect::<Vec<_>>().join(",")
    })
}

/// A selector in object form as text.
pub(super) fn selector_text(target: &Value, path: &str) -> String {
    match selector(at(target, path)) {
        text if text.is_empty() => NONE.to_owned(),
        text => text,
    }
}

/// A map of labels as text.
pub(super) fn labels(target: &Value, path: &str) -> String {
    let pairs: Vec<String> = object(target, path)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { NONE.to_owned() } else { pairs.join(",") }
}

/// The strings of a list, joined.
pub(super) fn joined(target: &Value, path: &str, separator: &str) -> String {
    list(target, path).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(separator)
}

/// Name and time of creation, of kinds without columns of their own.
pub(super) fn created_at(object: &Shown<'_>) -> Cells {
    vec![json!(name(object)), json!(text(object, "metadata.creationTimestamp"))]
}

/// Name and age.
pub(super) fn name_age(object: &Shown<'_>) -> Cells {
    vec![json!(name(object)), json!(age(object))]
}

/// Cells of a Scale.
pub fn scale(object: &Shown<'_>) -> Cells {
    vec![
        json!(name(object)),
        json!(count(object, "spec.replicas")),
        json!(count(object, "status.replicas")),
        json!(age(object)),
    ]
}
