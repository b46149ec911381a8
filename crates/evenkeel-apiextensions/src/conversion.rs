//! Conversion by webhook: builds the ConversionReview and checks the response.

use serde_json::{Value, json};

use evenkeel_apimachinery::status::quote;
use evenkeel_apimachinery::validation::{Errors, Path, labels};
use evenkeel_apimachinery::value::{get, list, text};

/// API group of ConversionReviews.
const GROUP: &str = "apiextensions.k8s.io";

/// Conversion webhook of a CRD.
pub struct ConversionWebhook {
    /// Client configuration of the webhook.
    pub client_config: Value,
    /// Version of the ConversionReview: the first supported one in `conversionReviewVersions`.
    review_version: Box<str>,
}

impl ConversionWebhook {
    /// Returns the conversion webhook of a CRD, or `None` if it has none.
    pub fn of(crd: &Value) -> Option<Self> {
        let conversion = get(crd, "spec.conversion")?;
        if text(conversion, "strategy") != "Webhook" {
            return None;
        }
        let versions = list(conversion, "webhook.conversionReviewVersions");
        let mut versions = versions.iter().filter_map(Value::as_str);
        Some(Self {
            client_config: get(conversion, "webhook.clientConfig")?.clone(),
            review_version: versions.find(|version| matches!(*version, "v1" | "v1beta1"))?.into(),
        })
    }

    /// Returns the ConversionReview that requests version `to` for objects of other versions.
    ///
    /// Upstream: `createConversionReviewObjects`.
    pub fn review(&self, uid: &str, objects: &[Value], to: &str) -> Value {
        let sent: Vec<Value> = objects.iter().map(without_server_fields).collect();
        json!({"kind": "ConversionReview", "apiVersion": format!("{GROUP}/{}", self.review_version),
            "request": {"uid": uid, "desiredAPIVersion": to, "objects": sent}})
    }

    /// Returns the converted objects from the response to a review of `objects`, or the reason why the response is
    /// invalid.
    ///
    /// Upstream: `webhookConverter.Convert`.
    pub fn converted(
        &self,
        uid: &str,
        response: Result<Value, String>,
        objects: &[Value],
        to: &str,
    ) -> Result<Vec<Value>, String> {
        let kind = objects.first().map(kind_of).unwrap_or_default();
        let converted = response
            .and_then(|response| self.converted_objects(uid, response))
            .map_err(|why| format!("conversion webhook for {kind} failed: {why}"))?;
        if converted.len() != objects.len() {
            return Err(format!(
                "conversion webhook for {kind} returned {} objects, expected {}",
                converted.len(),
                objects.len()
            ));
        }
        let is_single = objects.len() == 1;
        let mut accepted = Vec::with_capacity(objects.len());
        for (i, (original, converted)) in objects.iter().zip(converted).enumerate() {
            let object = with_original_metadata(original, converted, to).map_err(|defect| {
                let message = defect.message(i, is_single);
                format!("conversion webhook for {kind} returned {message}")
            })?;
            accepted.push(object);
        }
        Ok(accepted)
    }

    /// Returns the objects of a response.
    ///
    /// Upstream: `getConvertedObjectsFromResponse`.
    fn converted_objects(&self, uid: &str, mut review: Value) -> Result<Vec<Value>, String> {
        let is_v1 = &*self.review_version == "v1";
        let expected = format!("{GROUP}/v1, Kind=ConversionReview");
        let kind = kind_of(&review);
        if is_v1 && kind != expected {
            return Err(format!("expected webhook response of {expected}, got {kind}"));
        }
        let Some(response) = review.get_mut("response").filter(|r| r.is_object()) else {
            return Err("no response provided".to_owned());
        };
        if is_v1 && text(response, "uid") != uid {
            let got = quote(text(response, "uid"));
            return Err(format!("expected response.uid={}, got {got}", quote(uid)));
        }
        match (text(response, "result.status"), text(response, "result.message")) {
            ("Success", _) => {}
            (status, "") => {
                return Err(format!("response.result.status was '{status}', not 'Success'"));
            }
            (_, message) => return Err(message.to_owned()),
        }
        match response.get_mut("convertedObjects").map(Value::take) {
            Some(Value::Array(objects)) => Ok(objects),
            _ => Ok(Vec::new()),
        }
    }
}

/// Defect of one converted object.
#[derive(Debug, PartialEq, Eq)]
enum Defect {
    /// The name, namespace or UID differs from that of the original.
    Identity(String),
    /// The object has another kind or version.
    Kind(String),
    /// The labels, the annotations or all of the metadata are invalid.
    Metadata(String),
}

impl Defect {
    /// Returns the error message. Upstream's messages differ if only one object was sent.
    fn message(&self, i: usize, is_single: bool) -> String {
        match self {
            Self::Identity(why) if is_single => format!("invalid object: {why}"),
            Self::Kind(why) if is_single => format!("invalid object at index {i}: {why}"),
            Self::Metadata(why) if is_single => format!("invalid metadata: {why}"),
            Self::Identity(why) | Self::Kind(why) => {
                format!("invalid converted object at index {i}: {why}")
            }
            Self::Metadata(why) => format!("invalid metadata in object at index {i}: {why}"),
        }
    }
}

/// Returns a converted object with the metadata of its original, except labels and annotations: a webhook may convert
/// only these.
///
/// Upstream: `validateConvertedObject`.
fn with_original_metadata(
    original: &Value,
    mut converted: Value,
    to: &str,
) -> Result<Value, Defect> {
    let version = text(&converted, "apiVersion");
    if version != to {
        let why = format!("invalid groupVersion (expected {to}, received {version})");
        return Err(Defect::Kind(why));
    }
    let (kind, received) = (text(original, "kind"), text(&converted, "kind"));
    if kind != received {
        let why = format!("invalid kind (expected {kind}, received {received})");
        return Err(Defect::Kind(why));
    }
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let path = format!("metadata.{field}");
        let (before, after) = (text(original, &path), text(&converted, &path));
        if before != after {
            return Err(Defect::Identity(format!(
                "must have the same {name}: {before} != {after}"
            )));
        }
    }
    converted["metadata"] = restored_metadata(original, &converted).map_err(Defect::Metadata)?;
    Ok(converted)
}

/// Returns the metadata of `original` with the labels and annotations of `converted`.
///
/// Upstream: `restoreObjectMeta`.
fn restored_metadata(original: &Value, converted: &Value) -> Result<Value, String> {
    let converted = converted.get("metadata").ok_or("missing metadata in converted object")?;
    if !converted.is_object() {
        return Err(format!("invalid metadata of type {} in converted object", go_type(converted)));
    }
    let mut metadata = original.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let Some(fields) = metadata.as_object_mut() else { return Ok(metadata) };
    for name in ["labels", "annotations"] {
        let before = fields.remove(name).unwrap_or_default();
        let Some(after) = converted.get(name).filter(|after| !after.is_null()) else { continue };
        let Some(pairs) = after.as_object() else {
            let kind = go_type(after);
            return Err(format!("invalid metadata.{name} of type {kind} in converted object"));
        };
        if let Some((key, value)) = pairs.iter().find(|(_, value)| !value.is_string()) {
            let kind = go_type(value);
            return Err(format!(
                "metadata.{name}[{key}] must be a string, but is {kind} in converted object"
            ));
        }
        // An invalid stored value may remain unchanged.
        if *after != before {
            validate_pairs(name, after)?;
        }
        fields.insert(name.to_owned(), after.clone());
    }
    Ok(metadata)
}

/// Validates labels or annotations that a webhook changed. `name` is `labels` or `annotations`.
fn validate_pairs(name: &str, pairs: &Value) -> Result<(), String> {
    let mut errors = Errors::default();
    let path = Path::new("metadata");
    if name == "labels" {
        labels::labels(pairs.as_object(), &path.field("labels"), &mut errors);
    } else {
        let owner = json!({ "annotations": pairs });
        labels::annotations(&owner, &path.field("annotation"), &mut errors); // Singular, as upstream.
    }
    let messages: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
    match &messages[..] {
        [] => Ok(()),
        [message] => Err(message.clone()),
        messages => Err(format!("[{}]", messages.join(", "))),
    }
}

/// Returns kind and version of an object as upstream's messages print them.
fn kind_of(object: &Value) -> String {
    let version = text(object, "apiVersion");
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={}", text(object, "kind"))
}

/// Returns an object without the metadata fields that the server sets on responses.
fn without_server_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("selfLink");
    }
    object
}

/// Returns Go's name for the type of a value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: &str = "example.com/v2";

    fn original() -> Value {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "n", "uid": "u",
            "resourceVersion": "7", "finalizers": ["x/y"], "labels": {"kept": "Not a label!"}, "annotations": {"a": "b"}}})
    }

    fn converted(metadata: &Value) -> Value {
        json!({"apiVersion": TO, "kind": "Widget", "metadata": metadata, "spec": 1})
    }

    #[test]
    fn only_labels_and_annotations_of_the_converted_metadata_are_kept() {
        let given = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "9", "generation": 5,
            "labels": {"kept": "Not a label!"}});
        let accepted = with_original_metadata(&original(), converted(&given), TO)
            .expect("it is the same object");
        let mut wanted = original()["metadata"].clone();
        wanted.as_object_mut().expect("an object").remove("annotations");
        assert_eq!((&accepted["metadata"], &accepted["spec"]), (&wanted, &json!(1)));
        let given = json!({"name": "a", "namespace": "n", "uid": "u", "annotations": {"c": "d"}});
        let accepted = with_original_metadata(&original(), converted(&given), TO)
            .expect("it is the same object");
        assert_eq!(accepted["metadata"]["annotations"], json!({"c": "d"}));
        assert_eq!(accepted["metadata"].get("labels"), None);
    }

    #[test]
    fn a_converted_object_with_another_identity_or_invalid_metadata_is_rejected() {
        let good = json!({"name": "a", "namespace": "n", "uid": "u"});
        let with = |field: &str, value: Value| {
            let mut object = converted(&good);
            evenkeel_apimachinery::value::set(&mut object, field, value);
            object
        };
        for (object, message) in [
            (
                with("apiVersion", json!("example.com/v3")),
                "invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
            ),
            (
                with("kind", json!("Gadget")),
                "invalid object at index 0: invalid kind (expected Widget, received Gadget)",
            ),
            (with("metadata.name", json!("b")), "invalid object: must have the same name: a != b"),
            (
                with("metadata.namespace", json!("")),
                "invalid object: must have the same namespace: n != ",
            ),
            (with("metadata.uid", json!("v")), "invalid object: must have the same UID: u != v"),
            (
                with("metadata.labels", json!([])),
                "invalid metadata: invalid metadata.labels of type []interface {} in converted object",
            ),
            (
                with("metadata.annotations", json!({"n": 3})),
                "invalid metadata: metadata.annotations[n] must be a string, but is int64 in converted object",
            ),
        ] {
            let wrong = with_original_metadata(&original(), object, TO).expect_err(message);
            assert_eq!(wrong.message(0, true), message);
        }
        let wrong =
            with_original_metadata(&original(), with("metadata.labels", json!({"a": "b c"})), TO);
        let message = wrong.expect_err("no label").message(2, false);
        assert!(
            message.starts_with(
                "invalid metadata in object at index 2: metadata.labels: Invalid value: \"b c\": "
            ),
            "{message}"
        );
    }

    #[test]
    fn responses_must_match_the_review_and_report_success() {
        let webhook = |review: &str| ConversionWebhook {
            client_config: Value::Null,
            review_version: review.into(),
        };
        let answer = |version: &str, response: &Value| json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "ConversionReview", "response": response});
        let good =
            json!({"uid": "u", "convertedObjects": [{}, {}], "result": {"status": "Success"}});
        let count = |read: Result<Vec<Value>, String>| read.map(|objects| objects.len());
        assert_eq!(count(webhook("v1").converted_objects("u", answer("v1", &good))), Ok(2));
        // Responses to v1beta1 reviews need no matching uid and version.
        assert_eq!(
            count(webhook("v1beta1").converted_objects("other", answer("v1", &good))),
            Ok(2)
        );
        for (response, message) in [
            (Value::Null, "no response provided"),
            (json!({"uid": "v"}), "expected response.uid=\"u\", got \"v\""),
            (json!({"uid": "u", "result": {"status": "Failure", "message": "never"}}), "never"),
            (json!({"uid": "u"}), "response.result.status was '', not 'Success'"),
        ] {
            let read = webhook("v1").converted_objects("u", answer("v1", &response));
            assert_eq!(read.expect_err(message), message);
        }
        let read = webhook("v1").converted_objects("u", answer("v1beta1", &good));
        let message = "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1beta1, Kind=ConversionReview";
        assert_eq!(read.expect_err("another version"), message);
        let read = webhook("v1").converted_objects("u", json!({}));
        assert!(read.expect_err("nothing").ends_with("got /, Kind="));
    }
}
