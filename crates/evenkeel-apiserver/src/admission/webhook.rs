//! Admission webhooks, which change or refuse writes before they are stored (upstream: `admission/plugin/webhook`).

use base64::Engine as _;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::StatusCode;
use serde::{Deserialize as _, Serialize};
use serde_json::{Value, json};

use super::attributes::{Attributes, Operation, admission_request, is_excluded, is_exempt};
use super::plugins::Plugin;
use super::policy;
use super::policy::Matched;
use super::reinvocation::Reinvocation;
use super::versioned::readmitted;
use crate::api::Context;
use crate::audit::Level;
use crate::webhook::{Limits, post};
use evenkeel_apimachinery::patch;
use evenkeel_apimachinery::status::{Details, StatusError, quote};
use evenkeel_apimachinery::value::{flag, get, int, list, object, text};

/// Resource prefix of the configurations of mutating webhooks.
const MUTATING_PREFIX: &str = "admissionregistration.k8s.io/mutatingwebhookconfigurations";
/// Resource prefix of the configurations of validating webhooks.
const VALIDATING_PREFIX: &str = "admissionregistration.k8s.io/validatingwebhookconfigurations";
/// Default of `timeoutSeconds`.
const DEFAULT_TIMEOUT_SECONDS: i64 = 10;

/// Response of a webhook that allows the request.
struct Allowed {
    patch: Option<Value>,
    warnings: Vec<String>,
}

/// Reason why a webhook does not allow a request.
enum WebhookError {
    /// The webhook denies the request.
    Denied(Box<StatusError>),
    /// The call to the webhook failed. Whether this refuses the request depends on the failure policy.
    Failed(String),
}

/// Webhook with the name of its configuration.
struct Hook {
    configuration: String,
    webhook: Value,
}

impl Hook {
    fn name(&self) -> &str {
        text(&self.webhook, "name")
    }
}

/// Returns the webhooks of all configurations under a resource prefix, in upstream's order. Returns none if the plug-in
/// is disabled or the resource is exempt.
fn configured_webhooks(cx: &Context<'_>, plugin: Plugin, resource_prefix: &str) -> Vec<Hook> {
    let is_exempt = is_exempt(cx) || is_excluded(cx);
    if !cx.api.plugins.has(plugin) || cx.api.store.count(resource_prefix) == 0 || is_exempt {
        return Vec::new();
    }
    let configurations =
        cx.api.store.all(resource_prefix).into_iter().filter_map(|entry| entry.decode().ok());
    let hooks = |configuration: Value| {
        let name = text(&configuration, "metadata.name").to_owned();
        let hook = |webhook: &Value| Hook { configuration: name.clone(), webhook: webhook.clone() };
        list(&configuration, "webhooks").iter().map(hook).collect::<Vec<_>>()
    };
    configurations.flat_map(hooks).collect()
}

/// Mutating webhooks for one request, which run in one or two passes of mutating admission.
pub(super) struct Mutating {
    webhooks: Vec<Hook>,
    /// State of the passes. The keys are the indexes of webhooks.
    passes: Reinvocation<usize>,
}

impl Mutating {
    pub(super) fn new(cx: &Context<'_>) -> Self {
        let webhooks = configured_webhooks(cx, Plugin::MutatingAdmissionWebhook, MUTATING_PREFIX);
        Self { webhooks, passes: Reinvocation::default() }
    }

    /// Returns whether no webhooks are configured. A webhook need not match the request.
    pub(super) fn is_empty(&self) -> bool {
        self.webhooks.is_empty()
    }

    /// Runs one pass: calls the webhooks one after the other. Returns whether a webhook changed the object.
    ///
    /// Upstream: `mutatingDispatcher.Dispatch`.
    pub(super) async fn pass(
        &mut self,
        cx: &Context<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, StatusError> {
        let mut changed = false;
        self.passes.begin(object);
        let round = self.passes.round();
        for (index, hook) in self.webhooks.iter().enumerate() {
            if !self.passes.calls(&index) {
                continue;
            }
            let position = WebhookPosition { prefix: MUTATION, round, index };
            let result = mutate(cx, operation, hook, &position, object, old, warnings).await?;
            let Some(webhook_changed) = result else {
                continue;
            };
            let reinvoke_if_needed = text(&hook.webhook, "reinvocationPolicy") == "IfNeeded";
            self.passes.record(index, reinvoke_if_needed, webhook_changed);
            changed |= webhook_changed;
        }
        self.passes.end(object);
        Ok(changed)
    }
}

/// Calls a mutating webhook. Returns whether it changed the object, or `None` if it does not match the request.
async fn mutate(
    cx: &Context<'_>,
    operation: Operation,
    hook: &Hook,
    position: &WebhookPosition,
    object: &mut Value,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<Option<bool>, StatusError> {
    let webhook = &hook.webhook;
    let null = Value::Null;
    let request = Attributes::new(cx, operation, object, old.unwrap_or(&null));
    let Some(matched) = match_webhook(&request, webhook).await? else { return Ok(None) };
    let converted = request.converted(matched.version(&request)).await?;
    let converted = converted.as_ref().map(|converted| converted.attributes(&request));
    let versioned_request = converted.as_ref().unwrap_or(&request);
    let response = call(versioned_request, webhook, position, warnings).await;
    let Ok(Some(Allowed { patch: Some(patch), .. })) = &response else {
        annotate_mutation(cx, hook, position, false);
        return response.map(|_| Some(false));
    };
    let new = apply_patch(hook.name(), versioned_request.object, patch)
        .inspect_err(|_| annotate_mutation(cx, hook, position, false))?;
    let is_changed = new != *versioned_request.object;
    annotate_mutation(cx, hook, position, is_changed);
    annotate_patch(cx, hook, position, patch);
    if !is_changed {
        return Ok(Some(false));
    }
    let new = readmitted(cx, new, converted.is_some()).await?;
    let previous = std::mem::replace(object, new);
    Ok(Some(*object != previous))
}

/// Calls the mutating webhooks for a deletion, one after the other. They may refuse the deletion, but a patch is an
/// error, because there is no object to change.
///
/// Upstream: `mutatingDispatcher.Dispatch`.
pub(crate) async fn admit_delete(
    request: &Attributes<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    let hooks = configured_webhooks(request.cx, Plugin::MutatingAdmissionWebhook, MUTATING_PREFIX);
    for (index, hook) in hooks.iter().enumerate() {
        let webhook = &hook.webhook;
        let position = WebhookPosition { prefix: MUTATION, round: 0, index };
        let Some(matched) = match_webhook(request, webhook).await? else { continue };
        let converted = request.converted(matched.version(request)).await?;
        let converted = converted.as_ref().map(|converted| converted.attributes(request));
        let versioned_request = converted.as_ref().unwrap_or(request);
        let response = call(versioned_request, webhook, &position, warnings).await;
        annotate_mutation(request.cx, hook, &position, false);
        let Some(response) = response? else { continue };
        let has_operations =
            |patch: &Value| patch.as_array().is_none_or(|operations| !operations.is_empty());
        if response.patch.as_ref().is_some_and(has_operations) {
            return Err(StatusError::internal(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                quote(hook.name())
            )));
        }
    }
    Ok(())
}

/// Returns the object after the JSON patch in a webhook's response.
fn apply_patch(name: &str, object: &Value, operations: &Value) -> Result<Value, StatusError> {
    let patched = patch::apply_json_patch(object, operations).map_err(StatusError::internal)?;
    patched.ok_or_else(|| {
        StatusError::internal(format!("the patch of webhook \"{name}\" cannot be applied"))
    })
}

/// Applies the patch in an AdmissionReview as [`Mutating::pass`] does, for fuzz targets. Returns `None` without a valid
/// patch.
pub(crate) fn mutated(uid: &str, review: &Value, object: &Value) -> Option<Value> {
    let operations = decode_review("w", uid, review).ok()?.patch?;
    apply_patch("w", object, &operations).ok()
}

/// Maximum number of parallel calls to validating webhooks for one request. It bounds memory, because each call has a
/// copy of the request's object.
const MAX_PARALLEL: usize = 100;

/// Result of one call to a validating webhook.
struct CallResult {
    /// Index of the webhook among those that match the request.
    index: usize,
    result: Result<(), StatusError>,
    warnings: Vec<String>,
}

/// Calls the matching validating webhooks in parallel. Returns the refusal that arrives first.
///
/// Upstream: `validatingDispatcher.Dispatch`.
pub(crate) async fn validate(
    request: &Attributes<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    let mut matching = Vec::new();
    for hook in
        configured_webhooks(request.cx, Plugin::ValidatingAdmissionWebhook, VALIDATING_PREFIX)
    {
        if let Some(matched) = match_webhook(request, &hook.webhook).await? {
            matching.push((hook, matched));
        }
    }
    let calls = matching.iter().enumerate().map(|(index, (hook, matched))| {
        let call = async move {
            let position =
                WebhookPosition { prefix: "validating.webhook.admission.k8s.io/", round: 0, index };
            let mut warnings = Vec::new();
            let result = async {
                let converted = request.converted(matched.version(request)).await?;
                let converted = converted.as_ref().map(|converted| converted.attributes(request));
                let versioned_request = converted.as_ref().unwrap_or(request);
                call(versioned_request, &hook.webhook, &position, &mut warnings).await
            };
            let result = result.await.map(drop);
            CallResult { index, result, warnings }
        };
        call.boxed()
    });
    let calls: Vec<BoxFuture<'_, _>> = calls.collect();
    let mut finished: Vec<CallResult> =
        stream::iter(calls).buffer_unordered(MAX_PARALLEL).collect().await;
    let mut results = finished.iter_mut();
    let result = match results.find(|call| call.result.is_err()) {
        Some(refusal) => std::mem::replace(&mut refusal.result, Ok(())),
        None => Ok(()),
    };
    // Order the warnings by webhook, not by the time of the responses.
    finished.sort_by_key(|call| call.index);
    warnings.extend(finished.into_iter().flat_map(|call| call.warnings));
    result
}

/// Returns the resource in the version that a webhook receives, or `None` if the webhook does not match the request.
/// Match conditions that fail refuse the request unless the failure policy is `Ignore`.
///
/// Upstream: `Webhook.ShouldCallHook`.
async fn match_webhook(
    request: &Attributes<'_>,
    webhook: &Value,
) -> Result<Option<Matched>, StatusError> {
    let cx = request.cx;
    match policy::match_webhook(request, webhook).await? {
        Ok(matched) => Ok(matched),
        Err(_) if text(webhook, "failurePolicy") == "Ignore" => Ok(None),
        Err(error) => Err(StatusError::forbidden(&cx.requested.name, cx.name, error)),
    }
}

/// Calls one webhook. Returns `None` if the call fails and the webhook's failure policy is `Ignore`.
async fn call(
    request: &Attributes<'_>,
    webhook: &Value,
    position: &WebhookPosition,
    warnings: &mut Vec<String>,
) -> Result<Option<Allowed>, StatusError> {
    let cx = request.cx;
    let name = text(webhook, "name");
    let ignores_failures = text(webhook, "failurePolicy") == "Ignore";
    if cx.dry_run && !matches!(text(webhook, "sideEffects"), "None" | "NoneOnDryRun") {
        return Err(StatusError::bad_request(format!(
            "admission webhook \"{name}\" does not support dry run"
        )));
    }
    let uid = cx.api.uid();
    let mut admission_request = admission_request(request);
    admission_request["uid"] = Value::from(uid.as_str());
    admission_request["object"] = request.object.clone();
    admission_request["oldObject"] = request.old.clone();
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": admission_request,
    });
    let seconds = int(webhook, "timeoutSeconds").unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    let limits = Limits::of_seconds(seconds);
    let reply = post(cx.api, &webhook["clientConfig"], &review, limits).await;
    let response = match &reply {
        Ok(review) => decode_review(name, &uid, review),
        Err(why) => Err(WebhookError::Failed(format!("failed to call webhook: {why}"))),
    };
    if let (Ok(review), Ok(_) | Err(WebhookError::Denied(_))) = (&reply, &response) {
        for (key, value) in object(review, "response.auditAnnotations").into_iter().flatten() {
            if let Some(value) = value.as_str() {
                cx.audit.annotate(format!("{name}/{key}"), value);
            }
        }
    }
    match response {
        Ok(allowed) => {
            warnings.extend(allowed.warnings.iter().cloned());
            Ok(Some(allowed))
        }
        Err(WebhookError::Denied(error)) => Err(*error),
        Err(WebhookError::Failed(why)) if ignores_failures => {
            cx.audit.annotate(format!("failed-open.{}", position.key()), name);
            tracing::warn!(webhook = name, error = why, "a webhook failed and is passed over");
            Ok(None)
        }
        Err(WebhookError::Failed(why)) => {
            Err(StatusError::internal(format!("failed calling webhook \"{name}\": {why}")))
        }
    }
}

/// Prefix of annotations about mutating webhooks.
const MUTATION: &str = "mutation.webhook.admission.k8s.io/";

/// Position of a webhook among the others, which is the key of annotations in the request's audit event.
struct WebhookPosition {
    prefix: &'static str,
    /// Index of the pass.
    round: u8,
    /// Index of the webhook.
    index: usize,
}

impl WebhookPosition {
    /// Returns the key of the annotation.
    fn key(&self) -> String {
        format!("{}round_{}_index_{}", self.prefix, self.round, self.index)
    }
}

/// Annotation of the audit event about one mutating webhook, in JSON.
///
/// Upstream: `MutationAuditAnnotation`, `PatchAuditAnnotation`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Annotation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mutated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'a str>,
}

/// Adds an annotation about whether a webhook changed the object, at the level `Metadata` or above.
fn annotate_mutation(cx: &Context<'_>, hook: &Hook, position: &WebhookPosition, mutated: bool) {
    if cx.audit.wants(Level::Metadata) {
        let (configuration, webhook) = (hook.configuration.as_str(), hook.name());
        let (mutated, patch, patch_type) = (Some(mutated), None, None);
        let value = Annotation { configuration, webhook, mutated, patch, patch_type };
        cx.audit.annotate(position.key(), serde_json::to_string(&value).unwrap_or_default());
    }
}

/// Adds an annotation with the patch of a webhook, at the level `Request` or above, because it contains parts of the
/// object.
fn annotate_patch(cx: &Context<'_>, hook: &Hook, position: &WebhookPosition, patch: &Value) {
    if cx.audit.wants(Level::Request) {
        let (configuration, webhook) = (hook.configuration.as_str(), hook.name());
        let (mutated, patch, patch_type) = (None, Some(patch), Some("JSONPatch"));
        let value = Annotation { configuration, webhook, mutated, patch, patch_type };
        let key = WebhookPosition { prefix: "patch.webhook.admission.k8s.io/", ..*position }.key();
        cx.audit.annotate(key, serde_json::to_string(&value).unwrap_or_default());
    }
}

/// Decodes the AdmissionReview that a webhook returned. `uid` is the UID of the review request.
fn decode_review(name: &str, uid: &str, review: &Value) -> Result<Allowed, WebhookError> {
    let response = &review["response"];
    if !response.is_object() {
        return Err(WebhookError::Failed("webhook response was absent".to_owned()));
    }
    if text(response, "uid") != uid {
        let why = format!("expected response.uid=\"{uid}\", got \"{}\"", text(response, "uid"));
        return Err(WebhookError::Failed(why));
    }
    let warnings = list(response, "warnings").iter().filter_map(Value::as_str).map(str::to_owned);
    if !flag(response, "allowed") {
        return Err(WebhookError::Denied(Box::new(denied(name, &response["status"]))));
    }
    let patch = match get(response, "patch").and_then(Value::as_str) {
        None | Some("") => None,
        Some(encoded) => {
            let bytes = base64::prelude::BASE64_STANDARD.decode(encoded);
            let patch = bytes.ok().and_then(|bytes| evenkeel_api::json::from_slice(&bytes).ok());
            Some(patch.ok_or_else(|| WebhookError::Failed("the patch cannot be read".to_owned()))?)
        }
    };
    Ok(Allowed { patch, warnings: warnings.collect() })
}

/// Returns the error for a denied request from the `status` in the webhook's response. The code is the webhook's if
/// that is at least 400, or else 400. The webhook sets reason and details; they may be empty.
///
/// Upstream: `ToStatusErr` in `admission/plugin/webhook/errors`.
fn denied(name: &str, status: &Value) -> StatusError {
    let code = int(status, "code").and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| *code >= 400);
    let code =
        code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::BAD_REQUEST);
    let (message, reason) = (text(status, "message"), text(status, "reason"));
    let why = match (message, reason) {
        ("", "") => " without explanation".to_owned(),
        ("", reason) => format!(": {reason}"),
        (message, _) => format!(": {message}"),
    };
    let text = format!("admission webhook \"{name}\" denied the request{why}");
    let mut error = StatusError::new(code, reason.to_owned(), text);
    error.0.details = get(status, "details").and_then(|details| Details::deserialize(details).ok());
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let review = |response: Value| json!({"response": response});
        let patch =
            base64::prelude::BASE64_STANDARD.encode(r#"[{"op":"add","path":"/a","value":1}]"#);
        let good = decode_review(
            "w",
            "u",
            &review(json!({"uid": "u", "allowed": true, "patch": patch, "warnings": ["x"]})),
        );
        assert!(matches!(good, Ok(Allowed { patch: Some(_), ref warnings }) if warnings == &["x"]));
        let no = decode_review(
            "w",
            "u",
            &review(json!({"uid": "u", "allowed": false, "status":
                    {"message": "never", "code": 422, "details": {"causes": [{"field": "a"}]}}})),
        );
        let Err(WebhookError::Denied(error)) = no else { panic!("it was denied") };
        assert_eq!(
            (error.code().as_u16(), error.message()),
            (422, "admission webhook \"w\" denied the request: never")
        );
        let sent: Value = serde_json::from_slice(&error.to_json()).expect("JSON");
        assert_eq!(sent["details"], json!({"causes": [{"field": "a"}]}));
        assert!(matches!(
            decode_review("w", "u", &review(json!({"uid": "v", "allowed": true}))),
            Err(WebhookError::Failed(_))
        ));
        assert!(matches!(decode_review("w", "u", &json!({})), Err(WebhookError::Failed(_))));
    }
}
