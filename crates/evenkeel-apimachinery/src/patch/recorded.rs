//! Comparison of patches and applies with recorded responses of kube-apiserver v1.37.1.

use jiff::Timestamp;
use serde_json::Value;

use super::{FieldValidation, PatchType, Patched, Writer, apply, patch, update_managed_fields};
use crate::group_version::GroupVersionKind;
use crate::schema::Schema;
use crate::status::StatusError;

fn kind(object: &Value) -> GroupVersionKind {
    let text = |name: &str| object[name].as_str().unwrap_or("");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    GroupVersionKind { group: group.into(), version: version.into(), kind: text("kind").into() }
}

/// Removes fields that other parts of the server set, such as versions, and the times of managers.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let Some(metadata) = object["metadata"].as_object_mut() else { return object };
    for name in ["resourceVersion", "generation", "uid", "creationTimestamp", "namespace"] {
        metadata.remove(name);
    }
    if let Some(managers) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
        for entry in managers.iter_mut() {
            entry.as_object_mut().map(|e| e.remove("time"));
        }
        // The server sorts managers by time, which differs here.
        managers.sort_by_key(Value::to_string);
    }
    object
}

fn run(case: &Value) -> Result<Patched, StatusError> {
    let start = Some(&case["start"]).filter(|s| !s.is_null());
    let body = case["patch"].as_str().expect("a body").as_bytes();
    let now = Timestamp::from_second(1_800_000_000).expect("in range");
    let writer =
        Writer { manager: case["manager"].as_str().expect("a name"), subresource: "", now };
    let form = match case["form"].as_str() {
        Some("json") => PatchType::Json,
        Some("merge") => PatchType::Merge,
        Some("strategic-merge") => PatchType::Strategic,
        _ => PatchType::Apply,
    };
    if form == PatchType::Apply {
        let kind = kind(&serde_json::from_slice(body).expect("these bodies are JSON"));
        return apply(
            &kind,
            Schema::of(&kind).as_ref(),
            start,
            body,
            &writer,
            case["force"] == true,
            FieldValidation::Warn,
        );
    }
    let start = start.expect("there is something to patch");
    let schema = Schema::of(&kind(start));
    let mut patched =
        patch(&kind(start), schema.as_ref(), form, start, body, FieldValidation::Warn)?;
    update_managed_fields(schema.as_ref(), Some(start), &mut patched.object, &writer);
    Ok(patched)
}

#[test]
fn responses_equal_upstreams() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../testdata/patches.json")).expect("valid");
    assert!(cases.len() > 30);
    for case in &cases {
        let name = format!("{} step {}", case["case"], case["step"]);
        match run(case) {
            Ok(patched) => {
                assert!(case["code"].as_u64() < Some(300), "{name}: was not refused");
                assert_eq!(comparable(&patched.object), comparable(&case["want"]), "{name}");
                let warnings: Vec<String> = patched
                    .warnings
                    .iter()
                    .map(|w| format!("299 - {}", crate::decode::typed::quoted(w)))
                    .collect();
                assert_eq!(
                    serde_json::json!(warnings),
                    case.get("warnings").cloned().unwrap_or(serde_json::json!([])),
                    "{name}"
                );
            }
            Err(error) => {
                assert_eq!(
                    u64::from(error.code().as_u16()),
                    case["code"].as_u64().unwrap_or(0),
                    "{name}: {error}"
                );
                if let Some(message) = case["message"].as_str() {
                    assert_eq!(error.message(), message, "{name}");
                }
            }
        }
    }
}
