//! Decoding and encoding of `metadata.managedFields`.
//!
//! Upstream: `internal/managedfields.go`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::field_set::FieldSet;
use crate::value;

/// Identity of a manager. An applier has one entry for all API versions, an updater has one for each version.
///
/// Upstream: `BuildManagerIdentifier`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ManagerId {
    pub applied: bool,
    pub manager: String,
    /// API version of an updater; empty for appliers.
    pub api_version: String,
    pub subresource: String,
}

impl ManagerId {
    /// Formats a manager as conflict messages do.
    ///
    /// Upstream: `printManager`.
    pub(crate) fn print(&self) -> String {
        let mut text = crate::decode::typed::quoted(&self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource \"{}\"", self.subresource));
        }
        if !self.applied {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

/// Fields that a manager owns, with version and time.
///
/// Upstream: `VersionedSet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManagerEntry {
    pub api_version: String,
    pub fields: FieldSet,
    /// Time as written; empty if the entry has none.
    pub time: String,
}

/// All managers of an object.
///
/// Upstream: `ManagedFields` of `fieldpath`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Managers {
    pub entries: BTreeMap<ManagerId, ManagerEntry>,
}

impl Managers {
    /// Decodes the managed fields of an object.
    ///
    /// Upstream: `DecodeManagedFields`.
    pub(crate) fn decode(object: &Value) -> Result<Self, String> {
        match object.pointer("/metadata/managedFields") {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(Value::Array(entries)) => Self::parse(entries),
            Some(_) => Err("managedFields must be a list".to_owned()),
        }
    }

    fn parse(list: &[Value]) -> Result<Self, String> {
        let mut managers = Self::default();
        for (i, entry) in list.iter().enumerate() {
            let text =
                |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
            let applied = match text("operation").as_str() {
                "Apply" => true,
                "Update" => false,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType").as_str() {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {i}")),
                other => {
                    return Err(format!(
                        "invalid fieldsType \"{other}\" in managed fields entry {i}"
                    ));
                }
            }
            let fields = match entry.get("fieldsV1") {
                None | Some(Value::Null) => FieldSet::default(),
                Some(fields) => {
                    FieldSet::parse(fields).map_err(|e| format!("error decoding set: {e}"))?
                }
            };
            let id = ManagerId {
                applied,
                manager: text("manager"),
                api_version: if applied { String::new() } else { api_version.clone() },
                subresource: text("subresource"),
            };
            managers.entries.insert(id, ManagerEntry { api_version, fields, time: text("time") });
        }
        Ok(managers)
    }

    /// Encodes the managers into an object: appliers first, then by time, then by name. Without managers, the field
    /// is absent.
    ///
    /// Upstream: `EncodeObjectManagedFields`, `sortEncodedManagedFields`.
    pub(crate) fn encode(&self, object: &mut Value) {
        if self.entries.is_empty() {
            value::remove(object, "metadata.managedFields");
            return;
        }
        let mut sorted: Vec<(&ManagerId, &ManagerEntry)> = self.entries.iter().collect();
        sorted.sort_by_cached_key(|(id, entry)| {
            (
                !id.applied,
                entry.time.clone(),
                id.manager.clone(),
                entry.api_version.clone(),
                id.subresource.clone(),
            )
        });
        let list = sorted.into_iter().map(|(id, entry)| encode_entry(id, entry)).collect();
        value::set(object, "metadata.managedFields", Value::Array(list));
    }
}

fn encode_entry(id: &ManagerId, entry: &ManagerEntry) -> Value {
    let mut map = Map::new();
    let mut put = |name: &str, value: &str| {
        if !value.is_empty() {
            map.insert(name.to_owned(), value.into());
        }
    };
    put("manager", &id.manager);
    put("operation", if id.applied { "Apply" } else { "Update" });
    put("apiVersion", &entry.api_version);
    put("time", &entry.time);
    put("fieldsType", "FieldsV1");
    put("subresource", &id.subresource);
    map.insert("fieldsV1".to_owned(), entry.fields.to_value());
    Value::Object(map)
}

/// Formats the time of an entry, in whole seconds.
pub(crate) fn time(now: Timestamp) -> String {
    evenkeel_api::time::seconds(now)
}

/// Returns whether a client resets the managed fields, with an empty list or one empty entry.
///
/// Upstream: `isResetManagedFields`.
pub(crate) fn is_reset(object: &Value) -> bool {
    match object.pointer("/metadata/managedFields") {
        Some(Value::Array(list)) => match list.as_slice() {
            [] => true,
            [Value::Object(entry)] => entry.values().all(|v| v.is_null() || v == ""),
            _ => false,
        },
        _ => false,
    }
}

/// Removes the managed fields from an object.
///
/// Upstream: `RemoveObjectManagedFields`.
pub(crate) fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// Keeps the old timestamps if nothing else differs, so that a write without changes is not stored.
///
/// Upstream: `IgnoreManagedFieldsTimestampsTransformer`.
pub(crate) fn keep_timestamps(old: &Value, new: &mut Value) {
    if new.pointer("/metadata/managedFields").is_none() {
        return;
    }
    let entries_without_time = |object: &Value| {
        let list = object
            .pointer("/metadata/managedFields")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let mut list: Vec<String> = list
            .into_iter()
            .map(|mut entry| {
                entry.as_object_mut().map(|e| e.remove("time"));
                entry.to_string()
            })
            .collect();
        list.sort();
        list
    };
    // Compares the other fields first, because most writes change them and the comparison is cheap.
    if equal_but_for_managers(old, new)
        && entries_without_time(old) == entries_without_time(new)
        && let Some(list) = old.pointer("/metadata/managedFields").cloned()
        && let Some(managed_fields) = new.pointer_mut("/metadata/managedFields")
    {
        *managed_fields = list;
    }
}

/// Returns whether two objects differ at most in their managed fields.
fn equal_but_for_managers(a: &Value, b: &Value) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return false };
    let same = |name: &str, a: &Value, b: Option<&Value>| match (name, a, b) {
        ("metadata", Value::Object(a), Some(Value::Object(b))) => {
            let others =
                |m: &Map<String, Value>| m.iter().filter(|(k, _)| *k != "managedFields").count();
            others(a) == others(b)
                && a.iter().filter(|(k, _)| *k != "managedFields").all(|(k, v)| b.get(k) == Some(v))
        }
        (_, a, b) => Some(a) == b,
    };
    a.len() == b.len() && a.iter().all(|(k, v)| same(k, v, b.get(k)))
}
