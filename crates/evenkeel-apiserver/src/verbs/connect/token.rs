//! POST on `serviceaccounts/NAME/token`: issues a signed token for a service account.

use http::StatusCode;
use serde_json::{Value, json};

use crate::api::Answer;
use crate::audit::Level;
use crate::auth::Claims;
use crate::request::RequestContext;
use crate::resource::GroupKind;
use crate::resource::key;
use crate::verbs::attempt::Write;
use crate::verbs::meta;
use evenkeel_api::time::{SignedDuration, saturating_add};
use evenkeel_apimachinery::group_version::GroupResource;
use evenkeel_apimachinery::status::{FieldError, StatusError, quote};
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::value::text;
use evenkeel_kinds::validation::authentication;

/// Default of `expirationSeconds`.
const DEFAULT_EXPIRATION_SECONDS: i64 = 3600;
/// `expirationSeconds` that the ServiceAccount admission plug-in requests for a pod's token. Upstream chose an unusual
/// number to recognize these requests.
///
/// Upstream: `WarnOnlyBoundTokenExpirationSeconds`.
const WARN_ONLY_EXPIRATION_SECONDS: i64 = 60 * 60 + 7;
/// Lifetime in seconds of a token that was requested with [`WARN_ONLY_EXPIRATION_SECONDS`], for clients that do not
/// read the renewed token in time.
///
/// Upstream: `ExpirationExtensionSeconds`.
const EXTENDED_EXPIRATION_SECONDS: i64 = 365 * 24 * 60 * 60;

/// Records a TokenRequest for the request's audit event, with its defaults.
pub(super) fn log(request: &RequestContext<'_>, token_request: &Value) {
    if !request.audit.wants(Level::Request) {
        return request.audit.request_object(token_request);
    }
    let mut logged = token_request.clone();
    if logged["spec"]["expirationSeconds"].is_null() {
        logged["spec"]["expirationSeconds"] = Value::from(DEFAULT_EXPIRATION_SECONDS);
    }
    request.audit.request_object(&logged);
}

/// Annotation of a request's audit event: the ID of the issued token.
const ISSUED: &str = "authentication.kubernetes.io/issued-credential-id";
/// Annotation of a request's audit event: the UID in the request belongs to another service account with the same name.
const UID_MISMATCH: &str = "authentication.k8s.io/token-request-uid-mismatch";

/// Serves a TokenRequest: checks it, and responds with a signed token.
///
/// Upstream: `TokenREST.Create`.
pub(super) fn serve(
    request: &RequestContext<'_>,
    token_request: &Value,
    write: &Write<'_>,
) -> Result<Answer, StatusError> {
    let resource = request.resource();
    let (namespace, name) = (request.target.namespace, request.target.name);
    let kind = || GroupKind { group: "authentication.k8s.io".into(), kind: "TokenRequest".into() };
    for (field, expected) in [("name", name), ("namespace", namespace)] {
        let value = meta::text(token_request, field);
        if !value.is_empty() && value != expected {
            let why = format!("must match the service account {field} if specified");
            let error = FieldError::invalid(format!("metadata.{field}"), value, why);
            return Err(StatusError::invalid(&kind(), name, &[error]));
        }
    }
    let Some(entry) =
        request.api.store.get(&resource.resource_prefix, &key(resource, namespace, name))
    else {
        return Err(StatusError::not_found(&resource.name, name));
    };
    let account = entry.decode().map_err(StatusError::internal)?;
    let uid = meta::text(&account, "uid");
    let requested_uid = meta::text(token_request, "uid");
    if !requested_uid.is_empty() && requested_uid != uid {
        let requests = GroupResource {
            group: "authentication.k8s.io".into(),
            resource: "TokenRequest".into(),
        };
        let why = format!(
            "the UID in the token request ({requested_uid}) does not match the UID of the service account ({uid})"
        );
        request.audit.annotate(UID_MISMATCH, why.as_str());
        return Err(StatusError::conflict(&requests, name, why));
    }
    let requested = token_request
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(DEFAULT_EXPIRATION_SECONDS);
    let issuer = &request.api.authenticator.service_accounts;
    let audiences: Vec<String> =
        match token_request.pointer("/spec/audiences").and_then(Value::as_array) {
            Some(list) if !list.is_empty() => {
                list.iter().filter_map(Value::as_str).map(Into::into).collect()
            }
            _ => issuer.audiences().to_vec(),
        };
    let errors = authentication::token_request(&token_request["spec"], requested, &audiences);
    if !errors.is_empty() {
        return Err(StatusError::invalid(&kind(), "", &errors));
    }
    let bound = bound_objects(request, token_request)?;
    let for_pod = bound.iter().any(|(claim, ..)| *claim == "pod");
    let for_server = audiences.iter().all(|audience| issuer.audiences().contains(audience));
    let is_extended = for_pod && for_server && requested == WARN_ONLY_EXPIRATION_SECONDS;
    let claims = Claims {
        namespace,
        name,
        uid,
        bound: &bound,
        audiences: &audiences,
        id: &request.api.uid(),
        issued: request.now,
        seconds: if is_extended { EXTENDED_EXPIRATION_SECONDS } else { requested },
        warn_after: is_extended.then_some(requested),
    };
    request.audit.annotate(ISSUED, format!("JTI={}", claims.id));
    let token = issuer.sign(&claims);
    let token = token.ok_or_else(|| StatusError::internal("no token can be signed"))?;
    // The response contains the requested expiration, even if the token's lifetime is extended.
    let expiration = seconds(saturating_add(request.now, SignedDuration::from_secs(requested)));
    let mut answer = token_request.clone();
    answer["spec"]["expirationSeconds"] = Value::from(requested);
    write.set_managed_fields_of_unstored(&mut answer);
    answer["metadata"]["name"] = name.into();
    answer["metadata"]["namespace"] = namespace.into();
    answer["metadata"]["uid"] = uid.into();
    answer["metadata"]["creationTimestamp"] = seconds(request.now).into();
    answer["spec"]["audiences"] = audiences.into();
    // Go encodes an absent reference as null.
    answer["spec"]["boundObjectRef"] = answer["spec"]["boundObjectRef"].take();
    answer["status"] = json!({"token": token, "expirationTimestamp": expiration});
    Ok(Answer::Object(StatusCode::CREATED, answer))
}

/// Returns the objects in the token's claims, each as claim, name and uid: the object that the token is bound to, and
/// the node of a pod.
fn bound_objects(
    request: &RequestContext<'_>,
    token_request: &Value,
) -> Result<Vec<(&'static str, String, String)>, StatusError> {
    let Some(reference) = token_request.pointer("/spec/boundObjectRef").filter(|r| r.is_object())
    else {
        return Ok(Vec::new());
    };
    let field = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind, name) = (field("apiVersion"), field("kind"), field("name"));
    let (claim, plural, namespace) = match (api_version.contains('/'), kind) {
        (false, "Pod") => ("pod", "pods", request.target.namespace),
        (false, "Secret") => ("secret", "secrets", request.target.namespace),
        (false, "Node") => ("node", "nodes", ""),
        _ if authentication::is_webhook_configuration(api_version, kind) => {
            return Err(StatusError::bad_request(format!(
                "cannot bind token to object of type {api_version}, Kind={kind} (feature gate APIServerWebhookAuthenticationToken is disabled)"
            )));
        }
        (has_group, _) => {
            let slash = if has_group { "" } else { "/" };
            return Err(StatusError::bad_request(format!(
                "cannot bind token to object of type {slash}{api_version}, Kind={kind}"
            )));
        }
    };
    let Some(resource) = request.api.table.get("v1", plural) else {
        return Err(StatusError::resource_not_found());
    };
    if name.is_empty() {
        return Err(StatusError::bad_request("Name parameter required."));
    }
    let object = request.api.read(&resource, namespace, name)?;
    let object = object.ok_or_else(|| StatusError::not_found(&resource.name, name))?;
    let account = text(&object, "spec.serviceAccountName");
    if claim == "pod" && account != request.target.name {
        return Err(StatusError::bad_request(format!(
            "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
            quote(request.target.name)
        )));
    }
    let (uid, expected_uid) = (meta::text(&object, "uid"), field("uid"));
    if !expected_uid.is_empty() && expected_uid != uid {
        let why = format!(
            "the UID in the bound object reference ({expected_uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        let kind = GroupResource { group: "".into(), resource: kind.into() };
        return Err(StatusError::conflict(&kind, name, why));
    }
    let mut bound = vec![(claim, name.to_owned(), uid.to_owned())];
    let node = text(&object, "spec.nodeName");
    if claim == "pod" && !node.is_empty() {
        let nodes = request.api.table.get("v1", "nodes");
        let stored = nodes.map(|nodes| request.api.read(&nodes, "", node)).transpose()?.flatten();
        // The token contains the name of a node that does not exist without a uid.
        let uid = stored.as_ref().map_or("", |node| meta::text(node, "uid"));
        bound.push(("node", node.to_owned(), uid.to_owned()));
    }
    Ok(bound)
}
