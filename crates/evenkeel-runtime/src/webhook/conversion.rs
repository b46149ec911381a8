//! Conversion of custom objects between versions, through the hub.
//!
//! Metadata stays as it is in the request: a conversion may change only labels and annotations.

use super::{Hooked, decode::decode, request};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use std::{any::Any, collections::BTreeMap, fmt::Display, sync::Arc};

/// API version of the reviews that are served.
const API_VERSION: &str = "apiextensions.k8s.io/v1";
/// Kind of a review.
const KIND: &str = "ConversionReview";

/// Number of objects after which the conversion yields to other tasks.
const OBJECTS_PER_TURN: usize = 100;
/// Maximum number of failed objects that a response names.
const MAX_FAILURES: usize = 10;

/// Request of a ConversionReview.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversionRequest {
    pub(super) uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    objects: Vec<Box<RawValue>>,
}

/// Decodes the ConversionReview in a body.
///
/// # Errors
/// Returns the reason, for a response with code 400.
pub(super) fn decode_review(headers: &HeaderMap, body: &[u8]) -> Result<ConversionRequest, String> {
    request::decode_request(headers, body, API_VERSION, KIND)
}

type Hub = Box<dyn Any + Send>;
type ToHub = Arc<dyn Fn(&RawValue) -> Result<Hub, String> + Send + Sync>;
type FromHub = Arc<dyn Fn(Hub) -> Result<Converted, String> + Send + Sync>;

/// Conversions of one version of a kind.
#[derive(Clone)]
struct VersionConverter {
    to_hub: ToHub,
    from_hub: FromHub,
}

/// Object in the desired version, with the metadata that the conversion returned.
struct Converted {
    object: Value,
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
}

/// Conversions of all versions of all kinds.
#[derive(Clone, Default)]
pub(super) struct Converters {
    /// By group and kind, then by version.
    kinds: BTreeMap<(String, String), BTreeMap<String, VersionConverter>>,
}

impl Converters {
    /// Adds a spoke version `S` of the hub `H`, and the hub itself.
    pub(super) fn add<H, S>(&mut self)
    where
        H: Hooked + TryFrom<S, Error: Display>,
        S: Hooked + TryFrom<H, Error: Display>,
    {
        let hub = VersionConverter {
            to_hub: Arc::new(|raw| Ok(Box::new(decode::<H>(raw.get().as_bytes())?))),
            from_hub: Arc::new(|hub| converted::<H>(&unwrap_hub(hub)?)),
        };
        let spoke = VersionConverter {
            to_hub: Arc::new(|raw| {
                let spoke: S = decode(raw.get().as_bytes())?;
                Ok(Box::new(H::try_from(spoke).map_err(|error| error.to_string())?))
            }),
            from_hub: Arc::new(|hub| {
                let spoke = S::try_from(unwrap_hub(hub)?).map_err(|error| error.to_string())?;
                converted(&spoke)
            }),
        };
        let versions = self.kinds.entry(group_kind::<H>()).or_default();
        versions.insert(H::version(&()).into_owned(), hub);
        versions.insert(S::version(&()).into_owned(), spoke);
    }

    /// Converts all objects of a request, and returns the ConversionReview.
    ///
    /// Upstream: `handleConvertRequest`.
    pub(super) async fn answer(&self, request: &ConversionRequest) -> Value {
        let (mut objects, mut failures) = (Vec::with_capacity(request.objects.len()), Vec::new());
        for (index, object) in request.objects.iter().enumerate() {
            if index % OBJECTS_PER_TURN == OBJECTS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
            match self.convert(object, &request.desired_api_version) {
                Ok(object) => objects.push(object),
                Err(reason) => failures.push(reason),
            }
        }
        let response = if failures.is_empty() {
            json!({"uid": request.uid, "convertedObjects": objects, "result": {"metadata": {}, "status": "Success"}})
        } else {
            let more = failures.len().saturating_sub(MAX_FAILURES);
            failures.truncate(MAX_FAILURES);
            if more > 0 {
                failures.push(format!("{more} more objects"));
            }
            let message = failures.join("; ");
            tracing::info!(reason = message, "objects cannot be converted");
            json!({"uid": request.uid, "convertedObjects": [], "result":
                {"metadata": {}, "status": "Failed", "message": message}})
        };
        json!({"kind": KIND, "apiVersion": API_VERSION, "response": response})
    }

    /// Converts one object. The reason of a failure names the object.
    fn convert(&self, raw: &RawValue, desired: &str) -> Result<Value, String> {
        let source: Value = decode(raw.get().as_bytes())?;
        self.convert_decoded(raw, &source, desired)
            .map_err(|reason| format!("{}: {reason}", name_of(&source)))
    }

    fn convert_decoded(
        &self,
        raw: &RawValue,
        source: &Value,
        desired: &str,
    ) -> Result<Value, String> {
        let text = |field: &str| source[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version == desired {
            return Ok(source.clone());
        }
        let from = self.version(api_version, kind)?;
        let to = self.version(desired, kind)?;
        if split(api_version).0 != split(desired).0 {
            return Err(format!("{api_version} and {desired} are of different groups"));
        }
        let mut converted = (to.from_hub)((from.to_hub)(raw)?)?;
        let metadata = keep_metadata(&source["metadata"], &converted.metadata)?;
        let fields = converted.object.as_object_mut();
        let fields = fields.ok_or_else(|| "the converted object is no JSON object".to_owned())?;
        fields.insert("apiVersion".to_owned(), desired.into());
        fields.insert("kind".to_owned(), kind.into());
        fields.insert("metadata".to_owned(), metadata);
        Ok(converted.object)
    }

    fn version(&self, api_version: &str, kind: &str) -> Result<&VersionConverter, String> {
        let (group, version) = split(api_version);
        let versions = self.kinds.get(&(group.to_owned(), kind.to_owned()));
        versions.and_then(|versions| versions.get(version)).ok_or_else(|| {
            let known: Vec<&str> =
                versions.into_iter().flat_map(BTreeMap::keys).map(String::as_str).collect();
            format!(
                "no conversion is known for {kind} of {api_version}, only for versions {known:?}"
            )
        })
    }
}

fn group_kind<K: Hooked>() -> (String, String) {
    (K::group(&()).into_owned(), K::kind(&()).into_owned())
}

/// Splits an `apiVersion` into group and version.
fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

fn unwrap_hub<H: 'static>(hub: Hub) -> Result<H, String> {
    let hub = hub.downcast::<H>().map_err(|_| "the versions have different hubs".to_owned())?;
    Ok(*hub)
}

fn converted<K: Hooked>(object: &K) -> Result<Converted, String> {
    let value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    Ok(Converted { object: value, metadata: object.meta().clone() })
}

/// Returns the kind, namespace and name of an object.
fn name_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let (kind, namespace, name) =
        (text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]));
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{kind} {namespace}{slash}{name}")
}

/// Returns the metadata of a converted object: that of its source, with the labels and annotations that the conversion
/// returned. A conversion that returned no name has not copied the metadata.
///
/// Upstream: `validateConvertedObject`, `restoreObjectMeta` of the API server.
fn keep_metadata(
    source: &Value,
    converted: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Result<Value, String> {
    let identity =
        [("name", &converted.name), ("namespace", &converted.namespace), ("uid", &converted.uid)];
    for (field, value) in identity {
        if let Some(value) = value
            && source[field].as_str().unwrap_or_default() != value
        {
            return Err(format!("the conversion must not change metadata.{field} to {value:?}"));
        }
    }
    // A conversion that does not copy the metadata keeps labels and annotations unchanged.
    let is_carried = converted.name.is_some() || converted.generate_name.is_some();
    let mut metadata = source.clone();
    if let Some(fields) = metadata.as_object_mut() {
        for (field, map) in [("labels", &converted.labels), ("annotations", &converted.annotations)]
        {
            match map {
                Some(map) if !map.is_empty() => drop(fields.insert(field.to_owned(), json!(map))),
                None if !is_carried => {}
                _ => drop(fields.remove(field)),
            }
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_a_conversion_removes_stay_removed() {
        let source =
            json!({"name": "a", "uid": "u", "labels": {"l": "1"}, "annotations": {"a": "1"}});
        let table = [
            (json!({}), source.clone()),
            (json!({"name": "a"}), json!({"name": "a", "uid": "u"})),
            (json!({"labels": {}}), json!({"name": "a", "uid": "u", "annotations": {"a": "1"}})),
            (
                json!({"name": "a", "labels": {"l": "2"}}),
                json!({"name": "a", "uid": "u", "labels": {"l": "2"}}),
            ),
            (
                json!({"annotations": {"b": "1"}}),
                json!({"name": "a", "uid": "u", "labels": {"l": "1"}, "annotations": {"b": "1"}}),
            ),
        ];
        for (converted, expected) in table {
            let metadata = serde_json::from_value(converted.clone()).unwrap();
            assert_eq!(keep_metadata(&source, &metadata), Ok(expected), "{converted}");
        }
    }
}
