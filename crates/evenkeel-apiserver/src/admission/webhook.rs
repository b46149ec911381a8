//! Admission webhooks, which change or refuse writes before the store (upstream: `admission/plugin/webhook`).

use base64::Engine as _;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::attributes::{Attributes, Operation, described, is_exempt};
use super::plugins::Plugin;
use super::policy::Matched;
use super::reinvocation::Reinvocation;
use super::{mutated, policy};
use crate::api::Context;
use crate::audit::Level;
use crate::webhook::post;
use evenkeel_apimachinery::patch;
use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::value::{flag, get, int, list, object, text};

const MUTATING: &str = "admissionregistration.k8s.io/mutatingwebhookconfigurations";
const VALIDATING: &str = "admissionregistration.k8s.io/validatingwebhookconfigurations";
/// Default of `timeoutSeconds`, in seconds.
const SECONDS: i64 = 10;

/// Response of a webhook.
struct Answer {
    patch: Option<Value>,
    warnings: Vec<String>,
}

/// Reason why a webhook stops a request.
enum No {
    /// The webhook denies the request.
    Denied(Box<StatusError>),
    /// The call to the webhook failed.
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

/// Returns the webhooks of all configurations, in upstream's order.
fn all(cx: &Context<'_>, plugin: Plugin, resource_prefix: &str) -> Vec<Hook> {
    if !cx.api.plugins.has(plugin) || cx.api.store.count(resource_prefix) == 0 || is_exempt(cx) {
        return Vec::new();
    }
    let configurations =
        cx.api.store.all(resource_prefix).into_iter().filter_map(|e| e.decode().ok());
    let hooks = |configuration: Value| {
        let name = text(&configuration, "metadata.name").to_owned();
        let hook = |webhook: &Value| Hook { configuration: name.clone(), webhook: webhook.clone() };
        list(&configuration, "webhooks").iter().map(hook).collect::<Vec<_>>()
    };
    configurations.flat_map(hooks).collect()
}

/// Mutating webhooks of one request, which run in up to two passes.
pub(super) struct Mutating {
    webhooks: Vec<Hook>,
    /// Identifies a webhook by its index.
    passes: Reinvocation<usize>,
}

impl Mutating {
    pub(super) fn new(cx: &Context<'_>) -> Self {
        let webhooks = all(cx, Plugin::MutatingAdmissionWebhook, MUTATING);
        Self { webhooks, passes: Reinvocation::default() }
    }

    /// Returns whether there is no webhook, for whichever objects.
    pub(super) fn is_empty(&self) -> bool {
        self.webhooks.is_empty()
    }

    /// Calls the webhooks of this pass one after the other. Returns whether one changed the object.
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
        for (at, hook) in self.webhooks.iter().enumerate() {
            if !self.passes.calls(&at) {
                continue;
            }
            let place = WebhookPosition { prefix: MUTATION, round, at };
            let changed_by = change(cx, operation, hook, &place, object, old, warnings).await?;
            let Some(by_this) = changed_by else {
                continue;
            };
            let if_needed = text(&hook.webhook, "reinvocationPolicy") == "IfNeeded";
            self.passes.record(at, if_needed, by_this);
            changed |= by_this;
        }
        self.passes.end(object);
        Ok(changed)
    }
}

/// Calls a mutating webhook. Returns whether it changed the object, or `None` if it does not match the request.
async fn change(
    cx: &Context<'_>,
    operation: Operation,
    hook: &Hook,
    place: &WebhookPosition,
    object: &mut Value,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<Option<bool>, StatusError> {
    let webhook = &hook.webhook;
    let null = Value::Null;
    let request = Attributes::new(cx, operation, object, old.unwrap_or(&null));
    let Some(matched) = is_called(&request, webhook)? else { return Ok(None) };
    let converted = request.converted(matched.version(&request));
    let converted = converted.as_ref().map(|converted| converted.attributes(&request));
    let seen = converted.as_ref().unwrap_or(&request);
    let answer = call(seen, webhook, place, warnings).await;
    let Ok(Some(Answer { patch: Some(patch), .. })) = &answer else {
        annotate_mutation(cx, hook, place, false);
        return answer.map(|_| Some(false));
    };
    let mut new = patched(hook.name(), seen.object, patch)
        .inspect_err(|_| annotate_mutation(cx, hook, place, false))?;
    annotate_mutation(cx, hook, place, new != *seen.object);
    annotate_patch(cx, hook, place, patch);
    if converted.is_some() {
        cx.resource.strategy.convert_in(&cx.resource.gvk, &mut new);
    }
    let before = std::mem::replace(object, new);
    mutated::settle(cx, object);
    Ok(Some(*object != before))
}

/// Calls the mutating webhooks for a deletion, one after the other. They may refuse it, but there is no object to change.
///
/// Upstream: `mutatingDispatcher.Dispatch`.
pub(crate) async fn admit_delete(
    request: &Attributes<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    let hooks = all(request.cx, Plugin::MutatingAdmissionWebhook, MUTATING);
    for (at, hook) in hooks.iter().enumerate() {
        let webhook = &hook.webhook;
        let place = WebhookPosition { prefix: MUTATION, round: 0, at };
        let Some(matched) = is_called(request, webhook)? else { continue };
        let converted = request.converted(matched.version(request));
        let converted = converted.as_ref().map(|converted| converted.attributes(request));
        let seen = converted.as_ref().unwrap_or(request);
        let answer = call(seen, webhook, &place, warnings).await;
        annotate_mutation(request.cx, hook, &place, false);
        let Some(answer) = answer? else { continue };
        let patches = |patch: &Value| patch.as_array().is_none_or(|list| !list.is_empty());
        if answer.patch.as_ref().is_some_and(patches) {
            return Err(StatusError::internal(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                quote(hook.name())
            )));
        }
    }
    Ok(())
}

/// Applies the JSON patch in a webhook's response.
fn patched(name: &str, object: &Value, operations: &Value) -> Result<Value, StatusError> {
    let patched = patch::apply_json_patch(object, operations).map_err(StatusError::internal)?;
    patched.ok_or_else(|| {
        StatusError::internal(format!("the patch of webhook \"{name}\" cannot be applied"))
    })
}

/// Applies a response's patch, as [`Mutating::pass`] does, for fuzz targets. Returns `None` without a valid patch.
pub(crate) fn mutated(uid: &str, review: &Value, object: &Value) -> Option<Value> {
    let operations = read("w", uid, review).ok()?.patch?;
    patched("w", object, &operations).ok()
}

/// Maximum number of parallel calls to validating webhooks for one request; each call holds the request's object.
const MAX_PARALLEL: usize = 100;

/// Calls the validating webhooks in parallel. Returns the refusal that arrives first.
///
/// Upstream: `validatingDispatcher.Dispatch`.
pub(crate) async fn validate(
    request: &Attributes<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    let mut called = Vec::new();
    for hook in all(request.cx, Plugin::ValidatingAdmissionWebhook, VALIDATING) {
        if let Some(matched) = is_called(request, &hook.webhook)? {
            called.push((hook, matched));
        }
    }
    let calls = called.iter().enumerate().map(|(at, (hook, matched))| {
        let asked = async move {
            let place =
                WebhookPosition { prefix: "validating.webhook.admission.k8s.io/", round: 0, at };
            let mut warnings = Vec::new();
            let converted = request.converted(matched.version(request));
            let converted = converted.as_ref().map(|converted| converted.attributes(request));
            let seen = converted.as_ref().unwrap_or(request);
            let answer = call(seen, &hook.webhook, &place, &mut warnings).await;
            (at, answer.map(drop), warnings)
        };
        asked.boxed()
    });
    let calls: Vec<BoxFuture<'_, _>> = calls.collect();
    let mut answers: Vec<_> = stream::iter(calls).buffer_unordered(MAX_PARALLEL).collect().await;
    let refusal = answers.iter().position(|(_, answer, _)| answer.is_err());
    let answer = refusal.map_or(Ok(()), |at| std::mem::replace(&mut answers[at].1, Ok(())));
    // Order warnings by webhook, whichever responded first.
    answers.sort_by_key(|(at, ..)| *at);
    warnings.extend(answers.into_iter().flat_map(|(.., said)| said));
    answer
}

/// Returns the API version of the resource that a webhook gets, or `None` if it does not match this request.
///
/// Upstream: `Webhook.ShouldCallHook`.
fn is_called(request: &Attributes<'_>, webhook: &Value) -> Result<Option<Matched>, StatusError> {
    let cx = request.cx;
    match policy::is_for_webhook(request, webhook) {
        Ok(matched) => Ok(matched),
        Err(_) if text(webhook, "failurePolicy") == "Ignore" => Ok(None),
        Err(error) => Err(StatusError::forbidden(&cx.requested.name, cx.name, error)),
    }
}

/// Calls one webhook. Returns `None` if the call fails and the webhook's failure policy is `Ignore`.
async fn call(
    request: &Attributes<'_>,
    webhook: &Value,
    place: &WebhookPosition,
    warnings: &mut Vec<String>,
) -> Result<Option<Answer>, StatusError> {
    let cx = request.cx;
    let name = text(webhook, "name");
    let open = text(webhook, "failurePolicy") == "Ignore";
    let failed = |why: String| {
        let why = format!("failed calling webhook \"{name}\": {why}");
        StatusError::internal(why)
    };
    if cx.dry_run && !matches!(text(webhook, "sideEffects"), "None" | "NoneOnDryRun") {
        return Err(StatusError::bad_request(format!(
            "admission webhook \"{name}\" does not support dry run"
        )));
    }
    let uid = cx.api.uid();
    let mut asked = described(request);
    asked["uid"] = Value::from(uid.as_str());
    asked["object"] = request.object.clone();
    asked["oldObject"] = request.old.clone();
    let review =
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": asked});
    let seconds = int(webhook, "timeoutSeconds").unwrap_or(SECONDS);
    let answered = post(cx.api, &webhook["clientConfig"], &review, seconds).await;
    let read = match &answered {
        Ok(review) => read(name, &uid, review),
        Err(why) => Err(No::Failed(format!("failed to call webhook: {why}"))),
    };
    if let (Ok(review), Ok(_) | Err(No::Denied(_))) = (&answered, &read) {
        let all = object(review, "response.auditAnnotations").into_iter().flatten();
        for (key, value) in all.filter_map(|(key, value)| Some((key, value.as_str()?))) {
            cx.audit.annotate(format!("{name}/{key}"), value);
        }
    }
    match read {
        Ok(answer) => {
            warnings.extend(answer.warnings.iter().cloned());
            Ok(Some(answer))
        }
        Err(No::Denied(error)) => Err(*error),
        Err(No::Failed(why)) if open => {
            cx.audit.annotate(format!("failed-open.{}", place.key()), name);
            tracing::warn!(webhook = name, error = why, "a webhook failed and is passed over");
            Ok(None)
        }
        Err(No::Failed(why)) => Err(failed(why)),
    }
}

/// Prefix of annotations about mutations.
const MUTATION: &str = "mutation.webhook.admission.k8s.io/";

/// Position of a webhook among the others, in annotations of the request's audit event.
struct WebhookPosition {
    prefix: &'static str,
    round: u8,
    at: usize,
}

impl WebhookPosition {
    fn key(&self) -> String {
        format!("{}round_{}_index_{}", self.prefix, self.round, self.at)
    }
}

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

/// Annotates whether a webhook changed the object.
fn annotate_mutation(cx: &Context<'_>, hook: &Hook, place: &WebhookPosition, mutated: bool) {
    if cx.audit.wants(Level::Metadata) {
        let (configuration, webhook) = (hook.configuration.as_str(), hook.name());
        let (mutated, patch, patch_type) = (Some(mutated), None, None);
        let value = Annotation { configuration, webhook, mutated, patch, patch_type };
        cx.audit.annotate(place.key(), serde_json::to_string(&value).unwrap_or_default());
    }
}

/// Annotates the patch of a webhook, which is a part of the request's object.
fn annotate_patch(cx: &Context<'_>, hook: &Hook, place: &WebhookPosition, patch: &Value) {
    if cx.audit.wants(Level::Request) {
        let (configuration, webhook) = (hook.configuration.as_str(), hook.name());
        let (mutated, patch, patch_type) = (None, Some(patch), Some("JSONPatch"));
        let value = Annotation { configuration, webhook, mutated, patch, patch_type };
        let key = WebhookPosition { prefix: "patch.webhook.admission.k8s.io/", ..*place }.key();
        cx.audit.annotate(key, serde_json::to_string(&value).unwrap_or_default());
    }
}

/// Decodes a webhook's AdmissionReview.
fn read(name: &str, uid: &str, review: &Value) -> Result<Answer, No> {
    let response = &review["response"];
    if !response.is_object() {
        return Err(No::Failed("webhook response was absent".to_owned()));
    }
    if text(response, "uid") != uid {
        let why = format!("expected response.uid=\"{uid}\", got \"{}\"", text(response, "uid"));
        return Err(No::Failed(why));
    }
    let warnings = list(response, "warnings").iter().filter_map(Value::as_str).map(str::to_owned);
    if !flag(response, "allowed") {
        return Err(No::Denied(Box::new(denied(name, &response["status"]))));
    }
    let patch = match get(response, "patch").and_then(Value::as_str) {
        None | Some("") => None,
        Some(encoded) => {
            let bytes = base64::prelude::BASE64_STANDARD.decode(encoded);
            let patch = bytes.ok().and_then(|bytes| evenkeel_api::json::from_slice(&bytes).ok());
            Some(patch.ok_or_else(|| No::Failed("the patch cannot be read".to_owned()))?)
        }
    };
    Ok(Answer { patch, warnings: warnings.collect() })
}

/// Returns the error for a denied request: its code is 400 or higher, its reason is the webhook's or empty.
///
/// Upstream: `ToStatusErr` in `admission/plugin/webhook/errors`.
fn denied(name: &str, status: &Value) -> StatusError {
    let code = int(status, "code").and_then(|c| u16::try_from(c).ok()).filter(|c| *c >= 400);
    let code = code.and_then(|c| StatusCode::from_u16(c).ok()).unwrap_or(StatusCode::BAD_REQUEST);
    let (message, reason) = (text(status, "message"), text(status, "reason"));
    let why = match (message, reason) {
        ("", "") => " without explanation".to_owned(),
        ("", reason) => format!(": {reason}"),
        (message, _) => format!(": {message}"),
    };
    let words = format!("admission webhook \"{name}\" denied the request{why}");
    StatusError::new(code, reason.to_owned(), words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let review = |response: Value| json!({"response": response});
        let patch =
            base64::prelude::BASE64_STANDARD.encode(r#"[{"op":"add","path":"/a","value":1}]"#);
        let good = read(
            "w",
            "u",
            &review(json!({"uid": "u", "allowed": true, "patch": patch, "warnings": ["x"]})),
        );
        assert!(matches!(good, Ok(Answer { patch: Some(_), ref warnings }) if warnings == &["x"]));
        let no = read(
            "w",
            "u",
            &review(
                json!({"uid": "u", "allowed": false, "status": {"message": "never", "code": 422}}),
            ),
        );
        let Err(No::Denied(error)) = no else { panic!("it was denied") };
        assert_eq!(
            (error.code().as_u16(), error.message()),
            (422, "admission webhook \"w\" denied the request: never")
        );
        assert!(matches!(
            read("w", "u", &review(json!({"uid": "v", "allowed": true}))),
            Err(No::Failed(_))
        ));
        assert!(matches!(read("w", "u", &json!({})), Err(No::Failed(_))));
    }
}
