//! Subresource `eviction`: deletes a pod if its PodDisruptionBudget allows this (KEP-85, KEP-3017).

use super::{binding, conditions};
use crate::api::{Answer, Call};
use crate::loopback;
use crate::resource::{GroupKind, GroupResource, ResourceType};
use crate::verbs::delete::{Deletion, delete};
use crate::verbs::delete_options::{DeleteOptions, Preconditions};
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::validation::labels::selects;
use evenkeel_apimachinery::value::{get, int, list, object, object_mut, set, text};
use http::StatusCode;
use serde_json::{Value, json};

/// Maximum number of evictions that the disruption controller has not confirmed yet, which are the entries of
/// `status.disruptedPods`.
///
/// Upstream: `MaxDisruptedPodSize`.
const MAX_DISRUPTED_PODS: usize = 2000;

/// Maximum number of retries when the deletion of a pod that can ignore its budget fails with a conflict.
///
/// Upstream: `EvictionsRetry`.
const MAX_CONFLICT_RETRIES: usize = 20;

/// `retryAfterSeconds` of the response if the budget's status is stale or its update conflicts.
const RETRY_AFTER_SECONDS: u32 = 10;

/// Serves POST on a pod's `eviction`.
///
/// Upstream: `EvictionREST.Create`.
pub(super) async fn evict(call: &Call<'_>) -> Result<Answer, StatusError> {
    let cx = &call.cx;
    if text(&call.body, "metadata.name") != cx.name {
        return Err(StatusError::bad_request("name in URL does not match name in Eviction object"));
    }
    let eviction = Eviction::new(call)?;
    // Delete a pod that can ignore its budget immediately, and retry if it changes in the meantime.
    let mut retries = 0;
    let pod = loop {
        let pod = eviction.pod()?;
        if !can_ignore_pdb(&pod) {
            break pod;
        }
        let version = text(&pod, "metadata.resourceVersion");
        let precondition = needs_version_precondition(&pod).then_some(version);
        match eviction.add_condition_and_delete(precondition).await {
            Err(error)
                if error.code() == StatusCode::CONFLICT
                    && !eviction.has_resource_version_precondition()
                    && retries < MAX_CONFLICT_RETRIES =>
            {
                retries += 1;
            }
            result => return result.map(|()| binding::created_answer()),
        }
    };
    match eviction.check_budget(&pod).await? {
        BudgetCheck::Allowed => eviction.add_condition_and_delete(None).await?,
        BudgetCheck::UnhealthyAllowed(budget) => {
            let version = text(&pod, "metadata.resourceVersion");
            let deleted = eviction.add_condition_and_delete(Some(version)).await;
            deleted.map_err(|error| {
                // The pod may have become ready since the check, so the client has to retry.
                let has_changed = error.code() == StatusCode::CONFLICT
                    && !eviction.has_resource_version_precondition();
                if has_changed { stale_status_error(&budget) } else { error }
            })?;
        }
    }
    Ok(binding::created_answer())
}

/// Reason why the disruption budget allows an eviction.
enum BudgetCheck {
    /// No budget covers the pod, or `disruptionsAllowed` was decremented.
    Allowed,
    /// The pod is not ready, and the policy of the budget with this name allows its eviction without a decrement.
    UnhealthyAllowed(String),
}

/// Eviction request with its deletion options.
struct Eviction<'a> {
    call: &'a Call<'a>,
    options: DeleteOptions,
}

impl<'a> Eviction<'a> {
    fn new(call: &'a Call<'a>) -> Result<Self, StatusError> {
        const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
        let options = get(&call.body, "deleteOptions").filter(|options| !options.is_null());
        let options = options.cloned().unwrap_or_else(|| json!({}));
        if options.get(IGNORE_READ_ERROR).and_then(Value::as_bool) == Some(true) {
            let why = "can not be set for pod eviction, try after removing the option";
            let field = format!("deleteOptions.{IGNORE_READ_ERROR}");
            let kind = GroupKind { group: "policy".into(), kind: "Eviction".into() };
            let errors = [FieldError::invalid(field, true, why)];
            return Err(StatusError::invalid(&kind, call.cx.name, &errors));
        }
        let mut options: DeleteOptions = serde_json::from_value(options)
            .map_err(|error| StatusError::bad_request(error.to_string()))?;
        propagate_dry_run(&mut options, call.query)?;
        Ok(Self { call, options })
    }

    /// Returns the stored pod.
    fn pod(&self) -> Result<Value, StatusError> {
        let cx = &self.call.cx;
        let pod = cx.api.read(cx.resource, cx.namespace, cx.name)?;
        pod.ok_or_else(|| StatusError::not_found(&cx.resource.name, cx.name))
    }

    /// Returns whether the client's options contain a precondition on `resourceVersion`.
    ///
    /// Upstream: the negation of `resourceVersionIsUnset`.
    fn has_resource_version_precondition(&self) -> bool {
        self.options
            .preconditions
            .as_ref()
            .is_some_and(|preconditions| preconditions.resource_version.is_some())
    }

    fn is_dry_run(&self) -> bool {
        !self.options.dry_run.is_empty()
    }

    /// Adds the condition `DisruptionTarget` to the pod, and deletes the pod. `version` is a precondition on the pod's
    /// resource version, which the client's own precondition overrides.
    ///
    /// Upstream: `addConditionAndDeletePod`, `setPreconditionsResourceVersion`.
    async fn add_condition_and_delete(&self, version: Option<&str>) -> Result<(), StatusError> {
        let cx = &self.call.cx;
        let mut options = self.options.clone();
        if let Some(version) = version
            && !self.has_resource_version_precondition()
        {
            let preconditions = options.preconditions.get_or_insert_default();
            preconditions.resource_version = Some(version.to_owned());
        }
        if !self.is_dry_run() {
            let new_version =
                self.add_disruption_target_condition(options.preconditions.as_ref()).await?;
            if let Some(preconditions) = &mut options.preconditions
                && preconditions.resource_version.is_some()
            {
                preconditions.resource_version = Some(new_version);
            }
        }
        let Some(resource) = cx.api.table.get("v1", "pods") else {
            return Err(StatusError::not_found(&cx.resource.name, cx.name));
        };
        // As in upstream, validate the options only now, after the condition is set.
        options.validate()?;
        let key = crate::resource::key(&resource, cx.namespace, cx.name);
        // Admission plug-ins get the eviction, not the deletion.
        let deletion = Deletion {
            api: cx.api,
            stored: &resource,
            user: cx.user,
            options: &options,
            admission: None,
        };
        delete(&deletion, &key).await?;
        Ok(())
    }

    /// Sets the pod's condition `DisruptionTarget`. Returns the pod's new resource version.
    ///
    /// Upstream: `conditionAppender` of `addConditionAndDeletePod`.
    async fn add_disruption_target_condition(
        &self,
        preconditions: Option<&Preconditions>,
    ) -> Result<String, StatusError> {
        let cx = &self.call.cx;
        let now = seconds(cx.now);
        let add_condition = |pod: &mut Value| {
            check_preconditions(pod, cx.name, preconditions)?;
            let (reason, message) = ("EvictionByEvictionAPI", "Eviction API: evicting");
            conditions::set_pod_condition(pod, "DisruptionTarget", "True", reason, message, &now);
            Ok(())
        };
        let pod =
            loopback::change(cx.api, cx.resource, cx.namespace, cx.name, false, add_condition)
                .await?;
        Ok(text(&pod, "metadata.resourceVersion").to_owned())
    }

    /// Decrements `disruptionsAllowed` of the budget that covers the pod, unless no budget covers it or the budget's
    /// policy allows the eviction of an unhealthy pod.
    ///
    /// Upstream: the second part of `EvictionREST.Create`, `getPodDisruptionBudgets`.
    async fn check_budget(&self, pod: &Value) -> Result<BudgetCheck, StatusError> {
        let cx = &self.call.cx;
        let labels = object(pod, "metadata.labels");
        let mut budgets = loopback::list(cx.api, "policy/v1", "poddisruptionbudgets", cx.namespace);
        budgets.retain(|budget| selects(get(budget, "spec.selector"), labels));
        let budget = match budgets.as_slice() {
            [] => return Ok(BudgetCheck::Allowed),
            [budget] => budget,
            _ => {
                return Err(StatusError::plain_internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let name = text(budget, "metadata.name");
        if !is_ready(pod) && unhealthy_pod_can_be_evicted(budget) {
            return Ok(BudgetCheck::UnhealthyAllowed(name.to_owned()));
        }
        if let Some(resource) = cx.api.table.get("policy/v1", "poddisruptionbudgets") {
            self.decrement(&resource, name).await?;
        }
        Ok(BudgetCheck::Allowed)
    }

    /// Runs [`check_and_decrement`] on the stored budget. Retries on conflicts.
    async fn decrement(&self, resource: &ResourceType, budget: &str) -> Result<(), StatusError> {
        let cx = &self.call.cx;
        let now = seconds(cx.now);
        let decrement = |budget: &mut Value| check_and_decrement(budget, cx.name, &now);
        let dry_run = self.is_dry_run();
        // Upstream's server updates the budget through its own client, so that it becomes a field manager.
        let updated = loopback::change_managed(
            cx.api,
            resource,
            cx.namespace,
            budget,
            "status",
            dry_run,
            decrement,
        )
        .await;
        updated.map(drop).map_err(|error| {
            if error.code() != StatusCode::CONFLICT {
                return error;
            }
            let why = format!("couldn't update PodDisruptionBudget {budget:?} due to conflicts");
            StatusError::timeout(why, RETRY_AFTER_SECONDS)
        })
    }
}

/// Copies `dryRun` from the URL to the options. If both have it, they must be equal.
///
/// Upstream: `propagateDryRun`.
fn propagate_dry_run(
    options: &mut DeleteOptions,
    query: &[(String, String)],
) -> Result<(), StatusError> {
    let url_values =
        query.iter().filter(|(key, _)| key == "dryRun").map(|(_, value)| value.clone());
    let url_values: Vec<String> = url_values.collect();
    if options.dry_run.is_empty() {
        options.dry_run = url_values;
    } else if !url_values.is_empty() && options.dry_run != url_values {
        return Err(StatusError::plain_internal(format!(
            "Non-matching dry-run options in request and content: [{}] and [{}]",
            url_values.join(" "),
            options.dry_run.join(" ")
        )));
    }
    Ok(())
}

/// Refuses preconditions on another UID or resource version than the pod's.
///
/// Upstream: `getLatestPod` of `addConditionAndDeletePod`.
fn check_preconditions(
    pod: &Value,
    name: &str,
    preconditions: Option<&Preconditions>,
) -> Result<(), StatusError> {
    let Some(preconditions) = preconditions else { return Ok(()) };
    let kind = GroupResource { group: "".into(), resource: "Pod".into() };
    let differs = |expected: &str, actual: &str| !expected.is_empty() && expected != actual;
    let expected = preconditions.uid.as_deref().unwrap_or_default();
    let actual = text(pod, "metadata.uid");
    if differs(expected, actual) {
        let why = format!(
            "the UID in the precondition ({expected}) does not match the UID in record ({actual}). The object might have been deleted and then recreated"
        );
        return Err(StatusError::conflict(&kind, name, why));
    }
    let expected = preconditions.resource_version.as_deref().unwrap_or_default();
    let actual = text(pod, "metadata.resourceVersion");
    if differs(expected, actual) {
        let why = format!(
            "the ResourceVersion in the precondition ({expected}) does not match the ResourceVersion in record ({actual}). The object might have been modified"
        );
        return Err(StatusError::conflict(&kind, name, why));
    }
    Ok(())
}

/// Returns whether the pod can be deleted regardless of budgets, because it is pending, finished or terminating.
///
/// Upstream: `canIgnorePDB`.
fn can_ignore_pdb(pod: &Value) -> bool {
    matches!(text(pod, "status.phase"), "Succeeded" | "Failed" | "Pending")
        || get(pod, "metadata.deletionTimestamp").is_some()
}

/// Returns whether the deletion needs a precondition on the resource version that was read, because a pending pod may
/// become ready in the meantime.
///
/// Upstream: `shouldEnforceResourceVersion`.
fn needs_version_precondition(pod: &Value) -> bool {
    text(pod, "status.phase") == "Pending" && get(pod, "metadata.deletionTimestamp").is_none()
}

/// Returns whether the pod's condition `Ready` is true.
///
/// Upstream: `IsPodReady`.
fn is_ready(pod: &Value) -> bool {
    list(pod, "status.conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Ready" && text(condition, "status") == "True")
}

/// Returns whether the budget's `unhealthyPodEvictionPolicy` allows the eviction of a pod that is not ready, without a
/// decrement.
///
/// Upstream: the case `!IsPodReady` of `EvictionREST.Create`.
fn unhealthy_pod_can_be_evicted(budget: &Value) -> bool {
    let count = |field: &str| int(budget, &format!("status.{field}")).unwrap_or_default();
    match text(budget, "spec.unhealthyPodEvictionPolicy") {
        "AlwaysAllow" => true,
        _ => count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0,
    }
}

/// Returns the error 429 of an eviction that would violate the pod's budget.
fn budget_violation_error(cause: String) -> StatusError {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    StatusError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).cause(
        "DisruptionBudget",
        cause,
        "",
    )
}

/// Returns the error for a budget whose status the disruption controller has not updated to the newest generation.
///
/// Upstream: `createTooManyRequestsError`.
fn stale_status_error(budget: &str) -> StatusError {
    budget_violation_error(format!(
        "The disruption budget {budget} is still being processed by the server."
    ))
    .retry_after(RETRY_AFTER_SECONDS)
}

/// Returns the error for a budget with an invalid status.
fn invalid_status_error(budget: &str, why: &str, cause: &str) -> StatusError {
    let kind = GroupResource { group: "policy".into(), resource: "poddisruptionbudget".into() };
    let cause =
        format!("The disruption budget {budget} does not allow evicting pods currently: {cause}");
    StatusError::forbidden(&kind, budget, why).cause("DisruptionBudget", cause, "")
}

/// Returns the reason why a budget allows no more disruptions: a failed sync, missing healthy pods, or the message of
/// the condition `DisruptionAllowed`.
///
/// Upstream: the case `DisruptionsAllowed == 0` of `checkAndDecrement`.
fn no_disruptions_cause(budget: &Value) -> String {
    let count = |field: &str| int(budget, &format!("status.{field}")).unwrap_or_default();
    let name = text(budget, "metadata.name");
    let condition = list(budget, "status.conditions").iter().find(|condition| {
        text(condition, "type") == "DisruptionAllowed"
            && text(condition, "status") == "False"
            && !text(condition, "message").is_empty()
    });
    let (reason, message) =
        condition.map_or(("", ""), |found| (text(found, "reason"), text(found, "message")));
    let start = format!("The disruption budget {name}");
    if reason == "SyncFailed" {
        return format!(
            "{start} does not allow evicting pods currently because it failed sync: {message}"
        );
    }
    let (desired, current) = (count("desiredHealthy"), count("currentHealthy"));
    if current <= desired {
        format!("{start} needs {desired} healthy pods and has {current} currently")
    } else if condition.is_some() {
        format!("{start} does not allow evicting pods currently ({reason}): {message}")
    } else {
        format!("{start} does not allow evicting pods currently")
    }
}

/// Decrements `status.disruptionsAllowed`, and adds the pod to `status.disruptedPods`. Returns an error if the budget
/// allows no disruption.
///
/// Upstream: `checkAndDecrement`.
fn check_and_decrement(budget: &mut Value, pod: &str, now: &str) -> Result<(), StatusError> {
    let count = |budget: &Value, path: &str| int(budget, path).unwrap_or_default();
    let name = text(budget, "metadata.name").to_owned();
    if count(budget, "status.observedGeneration") < count(budget, "metadata.generation") {
        return Err(stale_status_error(&name));
    }
    let allowed = count(budget, "status.disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(invalid_status_error(&name, why, why));
    }
    if object(budget, "status.disruptedPods").is_some_and(|pods| pods.len() > MAX_DISRUPTED_PODS) {
        return Err(invalid_status_error(
            &name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        return Err(budget_violation_error(no_disruptions_cause(budget)));
    }
    set(budget, "status.disruptionsAllowed", allowed - 1);
    // This was the last allowed disruption.
    if allowed == 1 {
        let generation = count(budget, "status.observedGeneration");
        conditions::set_condition(
            budget,
            json!({"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                "observedGeneration": generation, "lastTransitionTime": now}),
        );
    }
    if let Some(pods) = object_mut(budget, "status.disruptedPods") {
        pods.insert(pod.to_owned(), Value::from(now));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(status: &Value) -> Value {
        json!({"metadata": {"name": "b", "generation": 1}, "status": status})
    }

    fn refusal(status: &Value) -> (StatusCode, String) {
        let error = check_and_decrement(&mut budget(status), "p", "now")
            .expect_err("the eviction is refused");
        let status = serde_json::from_slice::<Value>(&error.to_json()).expect("JSON");
        let cause = &status["details"]["causes"][0];
        assert_eq!(cause["reason"], "DisruptionBudget");
        (error.code(), cause["message"].as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn evictions_decrement_the_budget() {
        let mut budget = budget(
            &json!({"observedGeneration": 1, "disruptionsAllowed": 1, "desiredHealthy": 1, "currentHealthy": 2}),
        );
        check_and_decrement(&mut budget, "p", "now").expect("one disruption is allowed");
        assert_eq!(int(&budget, "status.disruptionsAllowed"), Some(0));
        assert_eq!(text(&budget, "status.disruptedPods.p"), "now");
        let error =
            check_and_decrement(&mut budget, "q", "now").expect_err("no disruption is left");
        assert_eq!(error.code(), StatusCode::TOO_MANY_REQUESTS);
        assert!(text(&budget, "status.disruptedPods.q").is_empty());
    }

    #[test]
    fn refusals_name_their_cause() {
        let many: serde_json::Map<String, Value> =
            (0..=MAX_DISRUPTED_PODS).map(|n| (n.to_string(), "now".into())).collect();
        let failed = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale"}]);
        let held = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "Held", "message": "by hand"}]);
        let table = [
            (json!({"disruptionsAllowed": 1}), 429, "is still being processed by the server."),
            (
                json!({"observedGeneration": 1, "disruptionsAllowed": -1}),
                403,
                "does not allow evicting pods currently: pdb disruptions allowed is negative",
            ),
            (
                json!({"observedGeneration": 1, "disruptionsAllowed": 1, "disruptedPods": many}),
                403,
                "does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller",
            ),
            (
                json!({"observedGeneration": 1, "desiredHealthy": 3, "currentHealthy": 2}),
                429,
                "needs 3 healthy pods and has 2 currently",
            ),
            (
                json!({"observedGeneration": 1, "desiredHealthy": 3, "currentHealthy": 2, "conditions": failed}),
                429,
                "does not allow evicting pods currently because it failed sync: no scale",
            ),
            (
                json!({"observedGeneration": 1, "currentHealthy": 2, "conditions": held}),
                429,
                "does not allow evicting pods currently (Held): by hand",
            ),
            (
                json!({"observedGeneration": 1, "currentHealthy": 2}),
                429,
                "does not allow evicting pods currently",
            ),
        ];
        for (status, code, why) in table {
            let (got, message) = refusal(&status);
            assert_eq!((got.as_u16(), message), (code, format!("The disruption budget b {why}")));
        }
    }

    #[test]
    fn dry_runs_of_url_and_body_agree() {
        let options = |values: &[&str]| DeleteOptions {
            dry_run: values.iter().map(|value| (*value).to_owned()).collect(),
            ..DeleteOptions::default()
        };
        for (url, body, expected) in [
            (&[][..], &[][..], Some(&[][..])),
            (&["All"], &[], Some(&["All"])),
            (&[], &["All"], Some(&["All"])),
            (&["All"], &["All"], Some(&["All"])),
            (&["All"], &["a", "b"], None),
            (&["All", "All"], &["All"], None),
        ] {
            let query: Vec<(String, String)> =
                url.iter().map(|value| ("dryRun".to_owned(), (*value).to_owned())).collect();
            let mut given = options(body);
            let result = propagate_dry_run(&mut given, &query);
            match expected {
                Some(expected) => assert_eq!(given.dry_run, expected, "{url:?} {body:?}"),
                None => {
                    let error = result.expect_err("they differ");
                    let parts = [url, body].map(|part| part.join(" "));
                    let message = format!(
                        "Non-matching dry-run options in request and content: [{}] and [{}]",
                        parts[0], parts[1]
                    );
                    assert_eq!((error.code().as_u16(), error.message()), (500, &*message));
                }
            }
        }
    }

    #[test]
    fn unhealthy_pods_are_evicted_by_policy() {
        let can_evict = |policy: &str, status: Value| {
            let mut budget = budget(&status);
            budget["spec"] = json!({"unhealthyPodEvictionPolicy": policy});
            unhealthy_pod_can_be_evicted(&budget)
        };
        let short = || json!({"currentHealthy": 1, "desiredHealthy": 2});
        let enough = || json!({"currentHealthy": 2, "desiredHealthy": 2});
        let nothing = || json!({});
        for policy in ["", "IfHealthyBudget"] {
            assert_eq!(
                [short(), enough(), nothing()].map(|s| can_evict(policy, s)),
                [false, true, false]
            );
        }
        assert_eq!([short(), enough(), nothing()].map(|s| can_evict("AlwaysAllow", s)), [true; 3]);
    }
}
