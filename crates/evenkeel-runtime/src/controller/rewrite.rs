//! Change of an object by GET and PUT, for controllers whose role grants update but not patch.

use crate::{
    client::{Client, Metadata},
    plan::{Failure, PatchType, Rewrite, Target},
};
use bytes::Bytes;
use http::{Request, header::ACCEPT};
use serde_json::Value;

/// Reads the object live, verifies that it is the version that the planner observed, changes it and
/// updates it.
///
/// # Errors
/// Fails if the live object has another version or uid, or the server rejects the request.
pub async fn rewrite(client: &Client, rewrite: &Rewrite) -> Result<Metadata, Failure> {
    let Target { kind, namespace, name, uid } = &rewrite.target;
    let path = format!("{}/{name}", kind.path(namespace));
    let request = Request::get(path).header(ACCEPT, "application/json").body(Bytes::new());
    let request = request.map_err(|error| local_failure(400, "BadRequest", error.to_string()))?;
    let answer = client.raw(request).await.map_err(Failure::from)?;
    let mut object: Value = evenkeel_api::json::from_slice(answer.body()).map_err(|error| {
        local_failure(0, "", format!("{} {namespace}/{name} cannot be read: {error}", kind.plural))
    })?;
    let live_version =
        object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
    let live_uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    if !uid.is_empty() && live_uid != &**uid {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {live_uid}"
        );
        return Err(conflict(&rewrite.target, &why));
    }
    if !rewrite.resource_version.is_empty() && live_version != &*rewrite.resource_version {
        return Err(conflict(&rewrite.target, MODIFIED));
    }
    apply(&mut object, rewrite.form, &rewrite.body)
        .map_err(|error| local_failure(422, "Invalid", error))?;
    let body = object.to_string().into();
    client.update(kind, namespace, name, rewrite.subresource, body).await.map_err(Failure::from)
}

fn apply(object: &mut Value, form: PatchType, change: &[u8]) -> Result<(), String> {
    match form {
        PatchType::Merge => {
            let change = serde_json::from_slice(change).map_err(|error| error.to_string())?;
            json_patch::merge(object, &change);
            Ok(())
        }
        PatchType::Json => {
            let change: json_patch::Patch =
                serde_json::from_slice(change).map_err(|error| error.to_string())?;
            json_patch::patch(object, &change).map_err(|error| error.to_string())
        }
        PatchType::Strategic | PatchType::Apply(_) => {
            Err("a rewrite takes a merge patch or a JSON patch".to_owned())
        }
    }
}

/// Upstream's message for a write to an object whose resourceVersion has changed.
const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Returns the error with which the server would refuse the PUT.
fn conflict(target: &Target, why: &str) -> Failure {
    let Target { kind, name, .. } = target;
    let dot = if kind.group.is_empty() { "" } else { "." };
    let resource = format!("{}{dot}{}", kind.plural, kind.group);
    let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
    local_failure(409, "Conflict", message)
}

/// Returns a failure that did not come from the API server.
fn local_failure(code: u16, reason: &str, message: String) -> Failure {
    Failure { code, reason: reason.to_owned(), message, namespace_terminating: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_and_json_patches_keep_other_fields() {
        let start = json!({"spec": {"replicas": 1, "paused": true}, "other": [1, 2]});
        let table = [
            (PatchType::Merge, r#"{"spec":{"replicas":3,"paused":null}}"#),
            (
                PatchType::Json,
                r#"[{"op":"replace","path":"/spec/replicas","value":3},{"op":"remove","path":"/spec/paused"}]"#,
            ),
        ];
        for (form, change) in table {
            let mut object = start.clone();
            apply(&mut object, form, change.as_bytes()).unwrap();
            assert_eq!(object, json!({"spec": {"replicas": 3}, "other": [1, 2]}), "{form:?}");
        }
        assert!(apply(&mut start.clone(), PatchType::Strategic, b"{}").is_err());
        assert!(apply(&mut start.clone(), PatchType::Merge, b"{").is_err());
    }
}
