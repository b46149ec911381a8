//! Objects of a custom resource, from one of its versions into another (upstream: `apiserver/conversion`).
//!
//! Without a webhook the versions differ in their schemas alone. What is stored gets the defaults of the version that it
//! is stored in, loses what that version does not know, is converted, and loses what the version that is asked for does
//! not know; that version's own defaults are for what clients send.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::Api;
use crate::resource::custom::{ConversionWebhook, Definition, Version};
use crate::webhook;
use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::validation::{Errors, Path, labels};
use evenkeel_apimachinery::value::text;

/// What a conversion may take, as upstream has it.
const SECONDS: i64 = 30;
/// A long list is converted in pieces of this many objects.
const AT_ONCE: usize = 100;
const GROUP: &str = "apiextensions.k8s.io";

impl ConversionWebhook {
    /// Has objects, none of them in version `to`, converted.
    async fn ask(&self, api: &Api, objects: &[Value], to: &str) -> Result<Vec<Value>, String> {
        let Some(what) = objects.first().map(kind_of) else { return Ok(Vec::new()) };
        let uid = api.uid();
        let sent: Vec<Value> = objects.iter().map(without_version).collect();
        let review = json!({"kind": "ConversionReview", "apiVersion": format!("{GROUP}/{}", self.review),
            "request": {"uid": uid, "desiredAPIVersion": to, "objects": sent}});
        let answer = webhook::post(api, &self.config, &review, SECONDS).await;
        let converted = answer.and_then(|answer| self.converted(&uid, answer));
        let converted =
            converted.map_err(|why| format!("conversion webhook for {what} failed: {why}"))?;
        if converted.len() != objects.len() {
            let (some, all) = (converted.len(), objects.len());
            return Err(format!(
                "conversion webhook for {what} returned {some} objects, expected {all}"
            ));
        }
        let single = objects.len() == 1;
        let originals = objects.iter().enumerate();
        originals
            .zip(converted)
            .map(|((i, original), converted)| {
                accept(original, converted, to).map_err(|wrong| {
                    format!("conversion webhook for {what} returned {}", wrong.told(i, single))
                })
            })
            .collect()
    }

    /// The objects of an answer.
    fn converted(&self, uid: &str, mut answer: Value) -> Result<Vec<Value>, String> {
        let is_v1 = &*self.review == "v1";
        let wanted = format!("{GROUP}/v1, Kind=ConversionReview");
        let kind = kind_of(&answer);
        if is_v1 && kind != wanted {
            return Err(format!("expected webhook response of {wanted}, got {kind}"));
        }
        let Some(response) = answer.get_mut("response").filter(|r| r.is_object()) else {
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

/// What is wrong with one converted object.
#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    /// It is not the one that was sent.
    Object(String),
    /// It is of another kind or version.
    Kind(String),
    /// Its labels, annotations or all of its metadata.
    Metadata(String),
}

impl Wrong {
    /// Upstream words it otherwise when one object alone was sent.
    fn told(&self, i: usize, single: bool) -> String {
        match self {
            Self::Object(why) if single => format!("invalid object: {why}"),
            Self::Kind(why) if single => format!("invalid object at index {i}: {why}"),
            Self::Metadata(why) if single => format!("invalid metadata: {why}"),
            Self::Object(why) | Self::Kind(why) => {
                format!("invalid converted object at index {i}: {why}")
            }
            Self::Metadata(why) => format!("invalid metadata in object at index {i}: {why}"),
        }
    }
}

/// A converted object with the metadata of its original: nothing of that but labels and annotations may be converted.
fn accept(original: &Value, mut converted: Value, to: &str) -> Result<Value, Wrong> {
    let version = text(&converted, "apiVersion");
    if version != to {
        let why = format!("invalid groupVersion (expected {to}, received {version})");
        return Err(Wrong::Kind(why));
    }
    let (kind, received) = (text(original, "kind"), text(&converted, "kind"));
    if kind != received {
        let why = format!("invalid kind (expected {kind}, received {received})");
        return Err(Wrong::Kind(why));
    }
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let path = format!("metadata.{field}");
        let (before, after) = (text(original, &path), text(&converted, &path));
        if before != after {
            return Err(Wrong::Object(format!("must have the same {name}: {before} != {after}")));
        }
    }
    let metadata = metadata(original, &converted).map_err(Wrong::Metadata)?;
    converted["metadata"] = metadata;
    Ok(converted)
}

/// The metadata of `original` with the labels and annotations of `converted`.
fn metadata(original: &Value, converted: &Value) -> Result<Value, String> {
    let given = converted.get("metadata").ok_or("missing metadata in converted object")?;
    if !given.is_object() {
        return Err(format!("invalid metadata of type {} in converted object", go_type(given)));
    }
    let mut kept = original.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let Some(fields) = kept.as_object_mut() else { return Ok(kept) };
    for name in ["labels", "annotations"] {
        let before = fields.remove(name).unwrap_or_default();
        let Some(after) = given.get(name).filter(|after| !after.is_null()) else { continue };
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
        // What was stored may stay, whatever it is.
        if *after != before {
            valid(name, after)?;
        }
        fields.insert(name.to_owned(), after.clone());
    }
    Ok(kept)
}

/// Labels or annotations that a webhook changed.
fn valid(name: &str, pairs: &Value) -> Result<(), String> {
    let mut errors = Errors::default();
    let path = Path::new("metadata");
    if name == "labels" {
        labels::labels(pairs.as_object(), &path.field("labels"), &mut errors);
    } else {
        let owner = json!({ "annotations": pairs });
        labels::annotations(&owner, &path.field("annotation"), &mut errors);
    }
    let told: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
    match &told[..] {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

/// Kind and version of an object as upstream's messages have them.
fn kind_of(object: &Value) -> String {
    let version = text(object, "apiVersion");
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={}", text(object, "kind"))
}

/// An object without what only the store knows.
fn without_version(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("selfLink");
    }
    object
}

/// The type that Go has for a value.
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

/// Stored objects as `version` has them.
pub(crate) async fn read(
    api: &Api,
    version: &Version,
    mut objects: Vec<Value>,
) -> Result<Vec<Value>, StatusError> {
    let definition = &version.definition;
    for object in &mut objects {
        definition.prune_and_default(object);
    }
    let to = &*version.api_version;
    let other: Vec<bool> = objects.iter().map(|object| text(object, "apiVersion") != to).collect();
    let mut objects = convert(api, definition, objects, to).await?;
    for (object, _) in objects.iter_mut().zip(other).filter(|(_, other)| *other) {
        definition.prune(object);
    }
    Ok(objects)
}

/// An object in one of its versions as it is to be stored.
pub(crate) async fn store(
    api: &Api,
    definition: &Arc<Definition>,
    object: Value,
) -> Result<Value, StatusError> {
    let to = &*definition.stored_as;
    if text(&object, "apiVersion") == to {
        return Ok(object);
    }
    let mut converted = convert(api, definition, vec![object], to).await?;
    let mut object = converted.pop().unwrap_or_default();
    definition.prune(&mut object);
    Ok(object)
}

/// Brings objects into version `to`. Who is there already is not sent to the webhook.
async fn convert(
    api: &Api,
    definition: &Definition,
    mut objects: Vec<Value>,
    to: &str,
) -> Result<Vec<Value>, StatusError> {
    let Some(webhook) = &definition.webhook else {
        for object in &mut objects {
            set_version(object, to);
        }
        return Ok(objects);
    };
    let elsewhere = |object: &&mut Value| text(object, "apiVersion") != to;
    let mut moving: Vec<&mut Value> = objects.iter_mut().filter(elsewhere).collect();
    if let Some(lost) = moving.iter().find(|o| !definition.knows(text(o, "apiVersion"))) {
        let version = text(lost, "apiVersion");
        let why = format!("request to convert CR from an invalid group/version: {version}");
        return Err(StatusError::plain_internal(why));
    }
    for piece in moving.chunks_mut(AT_ONCE) {
        let sent: Vec<Value> = piece.iter_mut().map(|object| object.take()).collect();
        let converted = webhook.ask(api, &sent, to).await.map_err(StatusError::plain_internal)?;
        for (place, object) in piece.iter_mut().zip(converted) {
            **place = object;
        }
    }
    Ok(objects)
}

/// Says another version of an object.
fn set_version(object: &mut Value, api_version: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), Value::from(api_version));
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
    fn of_metadata_only_labels_and_annotations_are_taken() {
        let given = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "9", "generation": 5,
            "labels": {"kept": "Not a label!"}});
        let accepted = accept(&original(), converted(&given), TO).expect("it is the same object");
        let mut wanted = original()["metadata"].clone();
        wanted.as_object_mut().expect("an object").remove("annotations");
        assert_eq!((&accepted["metadata"], &accepted["spec"]), (&wanted, &json!(1)));
        let given = json!({"name": "a", "namespace": "n", "uid": "u", "annotations": {"c": "d"}});
        let accepted = accept(&original(), converted(&given), TO).expect("it is the same object");
        assert_eq!(accepted["metadata"]["annotations"], json!({"c": "d"}));
        assert_eq!(accepted["metadata"].get("labels"), None);
    }

    #[test]
    fn what_is_another_object_is_refused() {
        let good = json!({"name": "a", "namespace": "n", "uid": "u"});
        let with = |field: &str, value: Value| {
            let mut object = converted(&good);
            evenkeel_apimachinery::value::set(&mut object, field, value);
            object
        };
        for (object, told) in [
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
            let wrong = accept(&original(), object, TO).expect_err(told);
            assert_eq!(wrong.told(0, true), told);
        }
        let wrong = accept(&original(), with("metadata.labels", json!({"a": "b c"})), TO);
        let told = wrong.expect_err("no label").told(2, false);
        assert!(
            told.starts_with(
                "invalid metadata in object at index 2: metadata.labels: Invalid value: \"b c\": "
            ),
            "{told}"
        );
    }

    #[test]
    fn answers_are_those_to_the_request() {
        let webhook =
            |review: &str| ConversionWebhook { config: Value::Null, review: review.into() };
        let answer = |version: &str, response: &Value| json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "ConversionReview", "response": response});
        let good =
            json!({"uid": "u", "convertedObjects": [{}, {}], "result": {"status": "Success"}});
        let count = |read: Result<Vec<Value>, String>| read.map(|objects| objects.len());
        assert_eq!(count(webhook("v1").converted("u", answer("v1", &good))), Ok(2));
        // The old form of reviews was never checked so closely.
        assert_eq!(count(webhook("v1beta1").converted("other", answer("v1", &good))), Ok(2));
        for (response, told) in [
            (Value::Null, "no response provided"),
            (json!({"uid": "v"}), "expected response.uid=\"u\", got \"v\""),
            (json!({"uid": "u", "result": {"status": "Failure", "message": "never"}}), "never"),
            (json!({"uid": "u"}), "response.result.status was '', not 'Success'"),
        ] {
            let read = webhook("v1").converted("u", answer("v1", &response));
            assert_eq!(read.expect_err(told), told);
        }
        let read = webhook("v1").converted("u", answer("v1beta1", &good));
        let told = "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1beta1, Kind=ConversionReview";
        assert_eq!(read.expect_err("another version"), told);
        let read = webhook("v1").converted("u", json!({}));
        assert!(read.expect_err("nothing").ends_with("got /, Kind="));
    }
}
