//! Objects of every new server, as recorded from a kube-apiserver. All servers of a process share their encoded form.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::Api;
use crate::loopback;
use crate::resource::{Path, ResourceType, Table, key, parse_path};
use crate::store::{Encoded, Expect, Template, Transaction};
use evenkeel_apimachinery::patch::Writer;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::value;

const DATA: &str = include_str!("../../data/bootstrap-objects.json");

/// Placeholder for the UID in a template. No recorded object contains this UID.
const UID_PLACEHOLDER: &str = "ffffffff-ffff-4fff-8fff-ffffffffffff";
/// Placeholder for the creation time in a template. No recorded object contains this time.
const TIME_PLACEHOLDER: Timestamp = Timestamp::MAX;

/// Object of each new server, as upstream wrote it.
struct Recorded {
    resource: Arc<ResourceType>,
    /// Key in the store, below the resource prefix.
    key: String,
    /// The object in JSON.
    text: &'static RawValue,
    /// Encoded form, created at the first use. A restarted server already has its objects and does not need it.
    template: OnceLock<Template>,
}

impl Recorded {
    /// Decodes the object.
    fn value(&self) -> Result<Value, StatusError> {
        serde_json::from_str(self.text.get()).map_err(StatusError::internal)
    }

    /// Returns the encoded form with placeholders. Encodes the object at the first call.
    fn template(&self) -> Result<&Template, StatusError> {
        if let Some(template) = self.template.get() {
            return Ok(template);
        }
        let template = Template::new(
            &self.encode(UID_PLACEHOLDER, TIME_PLACEHOLDER)?,
            UID_PLACEHOLDER,
            &seconds(TIME_PLACEHOLDER),
        );
        Ok(self.template.get_or_init(|| template))
    }

    fn encode(&self, uid: &str, now: Timestamp) -> Result<Encoded, StatusError> {
        let manager = match self.resource.group() {
            "flowcontrol.apiserver.k8s.io" => CONFIG_PRODUCER,
            _ => "kube-apiserver",
        };
        let writer = Writer { manager, subresource: "", now };
        let mut object = self.value()?;
        // Conditions begin with the server, not with the recording.
        let conditions = value::get_mut(&mut object, "status.conditions");
        for condition in conditions.and_then(Value::as_array_mut).into_iter().flatten() {
            if condition.get("lastTransitionTime").is_some() {
                value::set(condition, "lastTransitionTime", seconds(now));
            }
        }
        Ok(loopback::encode(&self.resource, object, uid, &seconds(now), &writer).1)
    }
}

/// Field manager of the bootstrap configuration.
pub(crate) const CONFIG_PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";

/// Recorded objects in the order of their creation: namespaces first.
static RECORDED: LazyLock<Result<Vec<Recorded>, String>> = LazyLock::new(parse);

fn parse() -> Result<Vec<Recorded>, String> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        #[serde(default)]
        namespace: String,
    }
    let rows = Table::builtin().rows();
    // The paths are sorted, so that the server creates namespaces first.
    let lists: BTreeMap<&str, Vec<&RawValue>> =
        serde_json::from_str(DATA).map_err(|error| error.to_string())?;
    let mut recorded = Vec::new();
    for (path, objects) in lists {
        let Path::Resource(target) = parse_path(path, &rows) else {
            return Err(format!("recorded objects of an unknown resource: {path}"));
        };
        for text in objects {
            let object: Object =
                serde_json::from_str(text.get()).map_err(|error| error.to_string())?;
            let key = key(&target.resource, &object.metadata.namespace, &object.metadata.name);
            let resource = target.resource.clone();
            recorded.push(Recorded { resource, key, text, template: OnceLock::new() });
        }
    }
    Ok(recorded)
}

fn recorded() -> Result<&'static [Recorded], StatusError> {
    RECORDED.as_deref().map_err(StatusError::internal)
}

/// Returns the recorded objects of a resource.
pub(super) fn of(resource: &ResourceType) -> Result<Vec<Value>, StatusError> {
    let has_resource =
        |object: &&Recorded| object.resource.resource_prefix == resource.resource_prefix;
    recorded()?.iter().filter(has_resource).map(Recorded::value).collect()
}

/// Returns the recorded objects of a resource, parsed.
pub(super) fn parsed<T: DeserializeOwned>(
    group: &str,
    plural: &str,
) -> Result<Vec<T>, StatusError> {
    let is_of_resource =
        |object: &&Recorded| (object.resource.group(), object.resource.plural()) == (group, plural);
    let parse = |object: &Recorded| serde_json::from_str(object.text.get());
    let parsed: Result<_, _> = recorded()?.iter().filter(is_of_resource).map(parse).collect();
    parsed.map_err(StatusError::internal)
}

/// Adds the creation of the missing objects to a transaction.
pub(super) fn put_all(api: &Api, transaction: &mut Transaction) -> Result<(), StatusError> {
    let now = seconds(api.clock.now());
    for object in recorded()? {
        let prefix = &object.resource.resource_prefix;
        if api.store.latest(prefix, &object.key).is_none() {
            let encoded = object.template()?.fill(&api.uid(), &now);
            transaction.put(prefix, &object.key, Expect::Absent, encoded);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_templates_equal_objects_that_are_encoded_anew() {
        let now: Timestamp = "2026-01-02T03:04:05.6Z".parse().expect("a time");
        let uid = "01234567-89ab-4cde-8f01-23456789abcd";
        let all = recorded().expect("the recorded objects");
        assert!(all.len() > 150, "{} objects", all.len());
        for object in all {
            let key = &object.key;
            let expected = object.encode(uid, now).expect("an object");
            let filled = object.template().expect("a template").fill(uid, &seconds(now));
            assert_eq!(filled, expected, "{key}");
            let decoded = filled.decode().expect("JSON");
            assert_eq!(decoded["metadata"]["uid"], uid);
            assert_eq!(decoded["metadata"]["creationTimestamp"], "2026-01-02T03:04:05Z");
            assert_eq!(
                decoded["metadata"]["managedFields"][0]["time"], "2026-01-02T03:04:05Z",
                "{key}"
            );
        }
    }
}
