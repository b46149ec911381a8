//! POST on `serviceaccounts/NAME/token`: a signed token for a service account.

use http::StatusCode;
use serde_json::{Value, json};

use crate::api::Answer;
use crate::auth::{Grant, ISSUER};
use crate::request::RequestContext;
use crate::resource::GroupKind;
use crate::resource::key;
use crate::verbs::attempt::Write;
use crate::verbs::meta;
use evenkeel_apimachinery::status::{FieldError, StatusError, quote};
use evenkeel_apimachinery::time::seconds;

/// Shortest and longest life of a token, and what it is when nobody says.
const LIFE: (i64, i64, i64) = (600, 1 << 32, 3600);

/// Signs a token.
pub(super) fn serve(
    request: &RequestContext<'_>,
    token_request: &Value,
    write: &Write<'_>,
) -> Result<Answer, StatusError> {
    let resource = request.resource();
    let (namespace, name) = (request.target.namespace, request.target.name);
    let Some(entry) =
        request.api.store.peek(&resource.resource_prefix, &key(resource, namespace, name))
    else {
        return Err(StatusError::not_found(&resource.name, name));
    };
    let account = entry.decode().map_err(StatusError::internal)?;
    let uid = meta::text(&account, "uid");
    let seconds_of_life =
        token_request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(LIFE.2);
    let mut errors = Vec::new();
    if seconds_of_life < LIFE.0 {
        let why = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid("spec.expirationSeconds", seconds_of_life, why));
    } else if seconds_of_life > LIFE.1 {
        let why = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid("spec.expirationSeconds", seconds_of_life, why));
    }
    if !errors.is_empty() {
        let kind = GroupKind { group: "authentication.k8s.io".into(), kind: "TokenRequest".into() };
        return Err(StatusError::invalid(&kind, name, &errors));
    }
    let audiences: Vec<String> =
        match token_request.pointer("/spec/audiences").and_then(Value::as_array) {
            Some(list) if !list.is_empty() => {
                list.iter().filter_map(Value::as_str).map(Into::into).collect()
            }
            _ => vec![ISSUER.to_owned()],
        };
    let bound = bound(request, token_request)?;
    let id = request.api.uid();
    let grant = Grant {
        namespace,
        name,
        uid,
        bound: bound.as_ref().map(|(kind, name, uid)| (kind.as_str(), name.as_str(), uid.as_str())),
        audiences: &audiences,
        id: &id,
        issued: request.now,
        seconds: seconds_of_life,
    };
    let token = request.api.authenticator.accounts().and_then(|accounts| accounts.sign(&grant));
    let token = token.ok_or_else(|| StatusError::internal("no token can be signed"))?;
    let until = seconds(request.now + jiff::SignedDuration::from_secs(seconds_of_life));
    let reference = token_request.pointer("/spec/boundObjectRef").cloned().unwrap_or(Value::Null);
    let mut given = token_request.clone();
    given["spec"]["expirationSeconds"] = Value::from(seconds_of_life);
    write.track_new(&mut given);
    let mut answer = json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": seconds(request.now)},
        "spec": {"audiences": audiences, "expirationSeconds": seconds_of_life, "boundObjectRef": reference},
        "status": {"token": token, "expirationTimestamp": until},
    });
    answer["metadata"]["managedFields"] = given["metadata"]["managedFields"].take();
    Ok(Answer::Object(StatusCode::CREATED, answer))
}

/// The object that the token goes with: its kind, name and uid.
fn bound(
    request: &RequestContext<'_>,
    token_request: &Value,
) -> Result<Option<(String, String, String)>, StatusError> {
    let Some(reference) = token_request.pointer("/spec/boundObjectRef").filter(|r| r.is_object())
    else {
        return Ok(None);
    };
    let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
    let (plural, namespace) = match text("kind") {
        "Pod" => ("pods", request.target.namespace),
        "Secret" => ("secrets", request.target.namespace),
        "Node" => ("nodes", ""),
        kind => {
            return Err(StatusError::bad_request(format!(
                "cannot bind token for serviceaccount to object of type {}, Kind={kind}",
                text("apiVersion")
            )));
        }
    };
    let Some(resource) = request.api.table.get("v1", plural) else {
        return Err(StatusError::resource_not_found());
    };
    let object = request.api.read(&resource, namespace, text("name"))?;
    let object = object.ok_or_else(|| StatusError::not_found(&resource.name, text("name")))?;
    let account = object.pointer("/spec/serviceAccountName").and_then(Value::as_str);
    if plural == "pods" && account.unwrap_or_default() != request.target.name {
        return Err(StatusError::bad_request(format!(
            "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
            quote(request.target.name)
        )));
    }
    let uid = meta::text(&object, "uid").to_owned();
    let wanted = text("uid");
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(StatusError::conflict(&resource.name, text("name"), why));
    }
    Ok(Some((text("kind").to_owned(), text("name").to_owned(), uid)))
}
