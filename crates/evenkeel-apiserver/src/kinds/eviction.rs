//! The `eviction` sub-resource: deletes a pod when its disruption budget allows it (KEP-85).

use super::validate::selects;
use super::value::{at, int, list, object, object_mut, set, text};
use super::{binding, conditions, writes};
use crate::api::{Answer, Call, seconds};
use crate::patch::{self, Writer};
use crate::status::StatusError;
use crate::verbs::delete::delete;
use crate::verbs::delete_options::DeleteOptions;
use http::StatusCode;
use serde_json::{Value, json};

/// Pods whose disruption is accounted for but not yet seen are at most this many.
const MAX_DISRUPTED: usize = 2000;

/// Serves POST on a pod's `eviction`.
pub(super) async fn evict(call: &Call<'_>) -> Result<Answer, StatusError> {
    let cx = &call.cx;
    if text(&call.body, "metadata.name") != cx.name {
        return Err(StatusError::bad_request("name in URL does not match name in Eviction object"));
    }
    let Some(pod) = cx.api.read(cx.resource, cx.namespace, cx.name)? else {
        return Err(StatusError::not_found(&cx.resource.name, cx.name));
    };
    if !needs_no_budget(&pod) {
        take_from_budget(call, &pod).await?;
    }
    if cx.dry_run {
        return Ok(binding::created());
    }
    let now = seconds(cx.now);
    let mark = |pod: &mut Value| {
        conditions::pod(
            pod,
            "DisruptionTarget",
            "True",
            "EvictionByEvictionAPI",
            "Eviction API: evicting",
            &now,
        );
        Ok(())
    };
    writes::change(cx.api, cx.resource, cx.namespace, cx.name, false, mark).await?;
    let options = at(&call.body, "deleteOptions").cloned().unwrap_or_else(|| json!({}));
    let options: DeleteOptions = serde_json::from_value(options)
        .map_err(|error| StatusError::bad_request(error.to_string()))?;
    let Some(resource) = cx.api.table.get("v1", "pods") else {
        return Err(StatusError::not_found(&cx.resource.name, cx.name));
    };
    let key = crate::api::key(&resource, cx.namespace, cx.name);
    delete(cx.api, &resource, &key, cx.user, &options).await?;
    Ok(binding::created())
}

/// A pod that has ended, is going anyway, or has not begun may always go.
fn needs_no_budget(pod: &Value) -> bool {
    matches!(text(pod, "status.phase"), "Succeeded" | "Failed" | "Pending")
        || at(pod, "metadata.deletionTimestamp").is_some()
}

fn is_ready(pod: &Value) -> bool {
    list(pod, "status.conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Ready" && text(condition, "status") == "True")
}

/// Takes one disruption from the budget that covers the pod, if any does.
async fn take_from_budget(call: &Call<'_>, pod: &Value) -> Result<(), StatusError> {
    let cx = &call.cx;
    let labels = object(pod, "metadata.labels");
    let mut budgets = writes::all(cx.api, "policy/v1", "poddisruptionbudgets", cx.namespace);
    budgets.retain(|budget| selects(at(budget, "spec.selector"), labels));
    let budget = match budgets.as_slice() {
        [] => return Ok(()),
        [budget] => budget,
        _ => {
            return Err(StatusError::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    if !is_ready(pod) && unhealthy_may_go(budget) {
        return Ok(());
    }
    let Some(resource) = cx.api.table.get("policy/v1", "poddisruptionbudgets") else {
        return Ok(());
    };
    let now = seconds(cx.now);
    // Upstream writes the budget through a client of its own, which makes it a manager of its fields.
    let writer = Writer { manager: "kube-apiserver", subresource: "status", now: cx.now };
    let take = |budget: &mut Value| {
        let before = budget.clone();
        take_one(budget, cx.name, &now)?;
        patch::track(resource.schema(&resource.gvk).as_ref(), Some(&before), budget, &writer);
        Ok(())
    };
    let name = text(budget, "metadata.name");
    writes::change(cx.api, &resource, cx.namespace, name, cx.dry_run, take).await?;
    Ok(())
}

/// Whether a pod that is not healthy may go without being counted.
fn unhealthy_may_go(budget: &Value) -> bool {
    let count = |field: &str| int(budget, &format!("status.{field}")).unwrap_or_default();
    match text(budget, "spec.unhealthyPodEvictionPolicy") {
        "AlwaysAllow" => true,
        _ => count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0,
    }
}

fn refuse(cause: String) -> StatusError {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    StatusError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).cause(
        "DisruptionBudget",
        cause,
        "",
    )
}

fn take_one(budget: &mut Value, pod: &str, now: &str) -> Result<(), StatusError> {
    let count = |budget: &Value, path: &str| int(budget, path).unwrap_or_default();
    let name = text(budget, "metadata.name").to_owned();
    if count(budget, "status.observedGeneration") < count(budget, "metadata.generation") {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refuse(cause).retry_after(10));
    }
    let allowed = count(budget, "status.disruptionsAllowed");
    if object(budget, "status.disruptedPods").is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        let cause = format!(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller: {name}"
        );
        return Err(refuse(cause));
    }
    if allowed <= 0 {
        let (wanted, have) =
            (count(budget, "status.desiredHealthy"), count(budget, "status.currentHealthy"));
        return Err(refuse(format!(
            "The disruption budget {name} needs {wanted} healthy pods and has {have} currently"
        )));
    }
    set(budget, "status.disruptionsAllowed", allowed - 1);
    if allowed == 1 {
        let generation = count(budget, "status.observedGeneration");
        conditions::put(
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

    #[test]
    fn a_budget_is_spent_once() {
        let mut budget = json!({"metadata": {"name": "b", "generation": 1},
            "status": {"observedGeneration": 1, "disruptionsAllowed": 1, "desiredHealthy": 1, "currentHealthy": 2}});
        take_one(&mut budget, "p", "now").expect("one is allowed");
        assert_eq!(int(&budget, "status.disruptionsAllowed"), Some(0));
        assert_eq!(text(&budget, "status.disruptedPods.p"), "now");
        let error = take_one(&mut budget, "q", "now").expect_err("none is left");
        assert_eq!(error.code(), StatusCode::TOO_MANY_REQUESTS);
        assert!(text(&budget, "status.disruptedPods.q").is_empty());
    }
}
