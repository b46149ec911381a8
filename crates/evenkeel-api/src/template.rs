//! Pod templates in canonical JSON.

mod canonical;
mod claim;
mod revision;

pub use claim::{ClaimTemplate, EphemeralClaimTemplate};
pub use revision::RevisionTemplate;

use serde_json::{Map, Value};

use self::canonical::canonical;
use crate::decode::{Field, FromJson, Reader, Shape, Slot, Wire, WireError};
use crate::text::Text;
use crate::{OwnerReference, StrMap};

/// Label with the template's hash, which a Deployment sets on its ReplicaSets and their pods.
pub const HASH_LABEL: &str = "pod-template-hash";

/// A `PodTemplateSpec` for workload controllers: decoded labels, and the other fields as canonical JSON.
///
/// The JSON does not depend on the encoding of the object, JSON or protobuf: keys are sorted, quantities are in
/// canonical form, and null, empty or zero values are omitted. Two templates are semantically equal exactly if their
/// JSON is equal.
///
/// The JSON has all other fields of the template, because a controller also writes whole templates back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Labels of the objects created from the template.
    pub labels: StrMap,
    /// Annotations of the objects created from the template.
    pub annotations: StrMap,
    /// Finalizers of the objects created from the template.
    pub finalizers: Box<[Text]>,
    /// Other fields of `metadata`, as canonical JSON of an object without its braces; usually empty.
    pub other: Text,
    /// `spec` in canonical JSON.
    pub spec: Text,
}

impl Default for Template {
    fn default() -> Self {
        Self {
            labels: StrMap::default(),
            annotations: StrMap::default(),
            finalizers: Box::default(),
            other: Text::new(),
            spec: "{}".into(),
        }
    }
}

impl Template {
    /// Converts the JSON of a template.
    pub fn from_json_value(template: &Value) -> Self {
        let meta = &template["metadata"];
        let finalizers = meta["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(Into::into);
        Self {
            labels: strings(&meta["labels"]),
            annotations: strings(&meta["annotations"]),
            finalizers: finalizers.collect(),
            other: other(meta).into(),
            // The specs of a Deployment and of its ReplicaSets are mostly equal, so they share one allocation.
            spec: Text::interned(&canonical("k8s.io.api.core.v1.PodSpec", &template["spec"])),
        }
    }

    /// Returns whether both templates are equal, ignoring [`HASH_LABEL`].
    ///
    /// Upstream: `EqualIgnoreHash`.
    pub fn equal_ignoring_hash(&self, other: &Self) -> bool {
        self.spec == other.spec
            && self.annotations == other.annotations
            && self.finalizers == other.finalizers
            && self.other == other.other
            && labels_without_hash(&self.labels).eq(labels_without_hash(&other.labels))
    }

    /// Returns a copy with this label.
    #[must_use]
    pub fn with_label(&self, key: &str, value: &str) -> Self {
        Self { labels: self.labels.with(key, value), ..self.clone() }
    }

    /// Returns a copy with this annotation.
    #[must_use]
    pub fn with_annotation(&self, key: &str, value: &str) -> Self {
        Self { annotations: self.annotations.with(key, value), ..self.clone() }
    }

    /// Returns a copy with this finalizer.
    #[must_use]
    pub fn with_finalizer(&self, finalizer: &str) -> Self {
        let mut finalizers = self.finalizers.to_vec();
        if !finalizers.iter().any(|present| **present == *finalizer) {
            finalizers.push(finalizer.into());
        }
        Self { finalizers: finalizers.into(), ..self.clone() }
    }

    /// Returns a copy with `change` applied to `spec`.
    #[must_use]
    pub fn with_spec(&self, change: impl FnOnce(&mut Value)) -> Self {
        let mut spec =
            serde_json::from_str(&self.spec).unwrap_or_else(|_| Value::Object(Map::new()));
        change(&mut spec);
        Self { spec: spec.to_string().into(), ..self.clone() }
    }

    /// Returns the body of a pod created from the template; the server generates the name.
    pub fn pod_json(&self, generate_name: &str, namespace: &str, owner: &OwnerReference) -> String {
        self.pod_body("", generate_name, namespace, owner)
    }

    /// Returns the body of a pod with this name, created from the template. As upstream's, it also has a
    /// `generateName`.
    pub fn named_pod_json(
        &self,
        name: &str,
        generate_name: &str,
        namespace: &str,
        owner: &OwnerReference,
    ) -> String {
        self.pod_body(name, generate_name, namespace, owner)
    }

    fn pod_body(
        &self,
        name: &str,
        generate_name: &str,
        namespace: &str,
        owner: &OwnerReference,
    ) -> String {
        let mut body = String::with_capacity(self.spec.len() + 512);
        body.push_str(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"#);
        if !name.is_empty() {
            body.push_str(r#""name":"#);
            push_json(&mut body, name);
            body.push(',');
        }
        body.push_str(r#""generateName":"#);
        push_json(&mut body, generate_name);
        body.push_str(r#","namespace":"#);
        push_json(&mut body, namespace);
        self.push_meta(&mut body);
        body.push_str(r#","ownerReferences":["#);
        body.push_str(&owner.to_json());
        body.push_str(r#"]},"spec":"#);
        body.push_str(&self.spec);
        body.push('}');
        body
    }

    /// Encodes the template for the body of a workload.
    pub fn to_json(&self) -> String {
        let mut meta = String::new();
        self.push_meta(&mut meta);
        if !self.other.is_empty() {
            meta.push(',');
            meta.push_str(&self.other);
        }
        let meta = meta.strip_prefix(',').unwrap_or(&meta);
        format!(r#"{{"metadata":{{{meta}}},"spec":{}}}"#, self.spec)
    }

    /// Appends labels, annotations and finalizers, each after a comma.
    fn push_meta(&self, body: &mut String) {
        for (name, map) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if map.is_empty() {
                continue;
            }
            body.push_str(",\"");
            body.push_str(name);
            body.push_str("\":{");
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    body.push(',');
                }
                push_json(body, key);
                body.push(':');
                push_json(body, value);
            }
            body.push('}');
        }
        if !self.finalizers.is_empty() {
            body.push_str(",\"finalizers\":[");
            for (index, finalizer) in self.finalizers.iter().enumerate() {
                if index > 0 {
                    body.push(',');
                }
                push_json(body, finalizer);
            }
            body.push(']');
        }
    }
}

/// Converts JSON to a map of strings.
fn strings(value: &Value) -> StrMap {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect()
}

fn labels_without_hash(labels: &StrMap) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(|(key, _)| *key != HASH_LABEL)
}

/// Returns the fields of a template's metadata that [`Template`] does not decode, as JSON without braces.
fn other(meta: &Value) -> String {
    // Upstream writes `creationTimestamp: null` in every template, which carries no information.
    let excluded = ["labels", "annotations", "finalizers", "creationTimestamp"];
    let fields = meta.as_object().into_iter().flatten();
    let other_fields = fields.filter(|(key, _)| !excluded.contains(&key.as_str()));
    let object: Map<String, Value> =
        other_fields.map(|(key, value)| (key.clone(), value.clone())).collect();
    let text = canonical("k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta", &Value::Object(object));
    text[1..text.len() - 1].to_owned()
}

impl serde::Serialize for Template {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = serde_json::value::RawValue::from_string(self.to_json())
            .map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Appends a JSON string.
pub(crate) fn push_json(body: &mut String, text: &str) {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        body.push('"');
        body.push_str(text);
        body.push('"');
    } else {
        body.push_str(&Value::from(text).to_string());
    }
}

/// A `JobTemplateSpec`: metadata and spec of the Jobs that a CronJob creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobTemplate {
    /// Labels of the objects created from the template.
    pub labels: StrMap,
    /// Annotations of the objects created from the template.
    pub annotations: StrMap,
    /// `spec` in canonical JSON.
    pub spec: Text,
}

/// An absent template is an empty one, whose spec is an object, as in protobuf.
impl Default for JobTemplate {
    fn default() -> Self {
        Self { labels: StrMap::default(), annotations: StrMap::default(), spec: "{}".into() }
    }
}

impl JobTemplate {
    fn from_json_value(template: &Value) -> Self {
        Self {
            labels: strings(&template["metadata"]["labels"]),
            annotations: strings(&template["metadata"]["annotations"]),
            spec: canonical("k8s.io.api.batch.v1.JobSpec", &template["spec"]).into(),
        }
    }
}

/// Number of messages that a thread remembers. A rollout of a hundred Deployments has three templates for each
/// Deployment, and the watch event of each status change contains one of these templates again.
const REMEMBERED: usize = 512;

/// Bytes of a message, and the value decoded from them.
type Decoded<T> = std::sync::Arc<(Box<[u8]>, T)>;

/// Implements decoding of a message that is kept as JSON. The type's `from_json_value` converts an object in JSON. The
/// last argument converts the JSON of an object in protobuf, if this conversion differs.
macro_rules! kept_as_json {
    ($type:ty, $message:expr) => {
        kept_as_json!($type, $message, <$type>::from_json_value);
    };
    ($type:ty, $message:expr, $from_wire:expr) => {
        impl FromJson for $type {
            fn set_json(&mut self, value: &Value) {
                *self = Self::from_json_value(value);
            }
        }

        impl Field for $type {
            const SHAPE: Shape = Shape::Named($message);
            /// The value of an earlier part, and the bytes of all parts so far. Protobuf defines that concatenated
            /// parts of a message are one message.
            type Partial = (Self, Vec<u8>);

            fn absent() -> Self {
                Self::default()
            }

            fn slot(&mut self) -> Slot<'_> {
                Slot::Any(self)
            }

            fn into_partial(self) -> Self::Partial {
                (self, Vec::new())
            }

            fn merge(
                (_, bytes): &mut Self::Partial,
                wire: Wire,
                reader: &mut Reader<'_>,
            ) -> Result<(), WireError> {
                bytes.extend_from_slice(reader.expect_bytes(wire)?);
                Ok(())
            }

            fn finish((earlier, bytes): Self::Partial) -> Result<Self, WireError> {
                if bytes.is_empty() {
                    return Ok(earlier);
                }
                use $crate::shared::{Recent, fingerprint_of};
                use $crate::template::{Decoded, REMEMBERED};
                // Templates change less often than the objects that contain them, so reuse recently decoded
                // templates.
                thread_local! {
                    static RECENT: std::cell::RefCell<Recent<Decoded<$type>, REMEMBERED>> =
                        std::cell::RefCell::default();
                }
                let fingerprint = fingerprint_of(&bytes);
                let known = RECENT
                    .with_borrow(|recent| recent.find(fingerprint, |known| *known.0 == *bytes));
                if let Some(known) = known {
                    return Ok(known.1.clone());
                }
                let value = $from_wire(&crate::protobuf::to_json($message, &bytes)?);
                let decoded = std::sync::Arc::new((bytes.into_boxed_slice(), value.clone()));
                RECENT.with_borrow_mut(|recent| recent.keep(fingerprint, decoded));
                Ok(value)
            }
        }
    };
}

use kept_as_json;

kept_as_json!(Template, "k8s.io.api.core.v1.PodTemplateSpec");
kept_as_json!(JobTemplate, "k8s.io.api.batch.v1.JobTemplateSpec");
