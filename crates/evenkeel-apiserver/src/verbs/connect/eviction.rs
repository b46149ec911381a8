//! The `eviction` sub-resource: deletes a pod when its disruption budget allows it (KEP-85, KEP-3017).

use super::{binding, conditions};
use crate::api::{Answer, Call};
use crate::loopback;
use crate::resource::{GroupKind, GroupResource, ResourceType};
use crate::verbs::delete::delete;
use crate::verbs::delete_options::{DeleteOptions, Preconditions};
use evenkeel_apimachinery::patch::{self, Writer};
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::validation::labels::selects;
use evenkeel_apimachinery::value::{at, int, list, object, object_mut, set, text};
use http::StatusCode;
use serde_json::{Value, json};

/// Evictions that were admitted and not yet confirmed by a budget's controller are at most this many.
const MAX_DISRUPTED: usize = 2000;

/// How often the deletion of a pod that needs no budget is tried when others write to the pod meanwhile.
const TRIES: usize = 20;

/// Seconds after which a client may try again, where the budget has yet to be looked at.
const PATIENCE: u32 = 10;

/// Serves POST on a pod's `eviction`.
pub(super) async fn evict(call: &Call<'_>) -> Result<Answer, StatusError> {
    let cx = &call.cx;
    if text(&call.body, "metadata.name") != cx.name {
        return Err(StatusError::bad_request("name in URL does not match name in Eviction object"));
    }
    let eviction = Eviction::new(call)?;
    let mut tried = 0;
    let pod = loop {
        let pod = eviction.pod()?;
        if !needs_no_budget(&pod) {
            break pod;
        }
        // Whether it is pending is looked at again where it changes: it may have become healthy.
        let bound = text(&pod, "status.phase") == "Pending"
            && at(&pod, "metadata.deletionTimestamp").is_none();
        let version = text(&pod, "metadata.resourceVersion");
        match eviction.delete(bound.then_some(version)).await {
            Err(error)
                if error.code() == StatusCode::CONFLICT
                    && !eviction.names_version()
                    && tried < TRIES =>
            {
                tried += 1;
            }
            done => return done.map(|()| binding::created()),
        }
    };
    match eviction.charge(&pod).await? {
        Charged::Counted => eviction.delete(None).await?,
        Charged::Unhealthy(budget) => {
            let version = text(&pod, "metadata.resourceVersion");
            let deleted = eviction.delete(Some(version)).await;
            deleted.map_err(|error| {
                // It may be healthy by now, and has to be looked at again.
                let changed = error.code() == StatusCode::CONFLICT && !eviction.names_version();
                if changed { unobserved(&budget) } else { error }
            })?;
        }
    }
    Ok(binding::created())
}

/// What the budget says to an eviction that it does not forbid.
enum Charged {
    /// There is no budget, or one disruption was taken from it.
    Counted,
    /// The pod was not healthy, and so does not count; the budget's name.
    Unhealthy(String),
}

/// One request.
struct Eviction<'a> {
    call: &'a Call<'a>,
    options: DeleteOptions,
}

impl<'a> Eviction<'a> {
    fn new(call: &'a Call<'a>) -> Result<Self, StatusError> {
        const UNREADABLE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
        let given = at(&call.body, "deleteOptions").filter(|given| !given.is_null());
        let given = given.cloned().unwrap_or_else(|| json!({}));
        if given.get(UNREADABLE).and_then(Value::as_bool) == Some(true) {
            let why = "can not be set for pod eviction, try after removing the option";
            let field = format!("deleteOptions.{UNREADABLE}");
            let kind = GroupKind { group: "policy".into(), kind: "Eviction".into() };
            let errors = [FieldError::invalid(field, true, why)];
            return Err(StatusError::invalid(&kind, call.cx.name, &errors));
        }
        let mut options: DeleteOptions = serde_json::from_value(given)
            .map_err(|error| StatusError::bad_request(error.to_string()))?;
        if call.cx.dry_run && options.dry_run.is_empty() {
            options.dry_run.push("All".to_owned());
        }
        Ok(Self { call, options })
    }

    fn pod(&self) -> Result<Value, StatusError> {
        let cx = &self.call.cx;
        let pod = cx.api.read(cx.resource, cx.namespace, cx.name)?;
        pod.ok_or_else(|| StatusError::not_found(&cx.resource.name, cx.name))
    }

    /// Whether the client said which version of the pod it means.
    fn names_version(&self) -> bool {
        self.options.preconditions.as_ref().is_some_and(|wanted| wanted.resource_version.is_some())
    }

    fn is_dry_run(&self) -> bool {
        !self.options.dry_run.is_empty()
    }

    /// Notes on the pod why it goes, and deletes it; only this version of it, where one is named.
    async fn delete(&self, version: Option<&str>) -> Result<(), StatusError> {
        let cx = &self.call.cx;
        let mut options = self.options.clone();
        if let Some(version) = version.filter(|_| !self.names_version()) {
            let wanted = options.preconditions.get_or_insert_default();
            wanted.resource_version = Some(version.to_owned());
        }
        if !self.is_dry_run() {
            let marked = self.mark(options.preconditions.as_ref()).await?;
            if let Some(wanted) = &mut options.preconditions
                && wanted.resource_version.is_some()
            {
                wanted.resource_version = Some(marked);
            }
        }
        let Some(resource) = cx.api.table.get("v1", "pods") else {
            return Err(StatusError::not_found(&cx.resource.name, cx.name));
        };
        let key = crate::resource::key(&resource, cx.namespace, cx.name);
        delete(cx.api, &resource, &key, cx.user, &options).await?;
        Ok(())
    }

    /// Puts the condition on the pod, and gives its new version.
    async fn mark(&self, wanted: Option<&Preconditions>) -> Result<String, StatusError> {
        let cx = &self.call.cx;
        let now = seconds(cx.now);
        let mark = |pod: &mut Value| {
            check(pod, cx.name, wanted)?;
            let (reason, message) = ("EvictionByEvictionAPI", "Eviction API: evicting");
            conditions::pod(pod, "DisruptionTarget", "True", reason, message, &now);
            Ok(())
        };
        let pod = loopback::change(cx.api, cx.resource, cx.namespace, cx.name, false, mark).await?;
        Ok(text(&pod, "metadata.resourceVersion").to_owned())
    }

    /// Takes one disruption from the budget that covers the pod, if any does and the pod counts.
    async fn charge(&self, pod: &Value) -> Result<Charged, StatusError> {
        let cx = &self.call.cx;
        let labels = object(pod, "metadata.labels");
        let mut budgets = loopback::all(cx.api, "policy/v1", "poddisruptionbudgets", cx.namespace);
        budgets.retain(|budget| selects(at(budget, "spec.selector"), labels));
        let budget = match budgets.as_slice() {
            [] => return Ok(Charged::Counted),
            [budget] => budget,
            _ => {
                return Err(StatusError::plain_internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let name = text(budget, "metadata.name");
        if !is_ready(pod) && unhealthy_may_go(budget) {
            return Ok(Charged::Unhealthy(name.to_owned()));
        }
        if let Some(resource) = cx.api.table.get("policy/v1", "poddisruptionbudgets") {
            self.take(&resource, name).await?;
        }
        Ok(Charged::Counted)
    }

    async fn take(&self, resource: &ResourceType, budget: &str) -> Result<(), StatusError> {
        let cx = &self.call.cx;
        let now = seconds(cx.now);
        // Upstream writes the budget through a client of its own, which makes it a manager of its fields.
        let writer = Writer { manager: "kube-apiserver", subresource: "status", now: cx.now };
        let take = |budget: &mut Value| {
            let before = budget.clone();
            take_one(budget, cx.name, &now)?;
            patch::update_managed_fields(
                resource.schema(&resource.gvk).as_ref(),
                Some(&before),
                budget,
                &writer,
            );
            Ok(())
        };
        let dry_run = self.is_dry_run();
        let taken = loopback::change(cx.api, resource, cx.namespace, budget, dry_run, take).await;
        taken.map(drop).map_err(|error| {
            if error.code() != StatusCode::CONFLICT {
                return error;
            }
            let why = format!("couldn't update PodDisruptionBudget {budget:?} due to conflicts");
            StatusError::timeout(why, PATIENCE)
        })
    }
}

/// Whether the pod is still the one that is meant.
fn check(pod: &Value, name: &str, wanted: Option<&Preconditions>) -> Result<(), StatusError> {
    let Some(wanted) = wanted else { return Ok(()) };
    let kind = GroupResource { group: "".into(), resource: "Pod".into() };
    let differs = |field: &str, wanted: &Option<String>| {
        let own = text(pod, field).to_owned();
        wanted.clone().filter(|wanted| !wanted.is_empty() && *wanted != own).map(|w| (w, own))
    };
    if let Some((wanted, own)) = differs("metadata.uid", &wanted.uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({own}). The object might have been deleted and then recreated"
        );
        return Err(StatusError::conflict(&kind, name, why));
    }
    if let Some((wanted, own)) = differs("metadata.resourceVersion", &wanted.resource_version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({own}). The object might have been modified"
        );
        return Err(StatusError::conflict(&kind, name, why));
    }
    Ok(())
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

/// The budget has yet to be looked at by its controller.
fn unobserved(budget: &str) -> StatusError {
    refuse(format!("The disruption budget {budget} is still being processed by the server."))
        .retry_after(PATIENCE)
}

/// The budget's status makes no sense.
fn forbid(budget: &str, why: &str, cause: &str) -> StatusError {
    let kind = GroupResource { group: "policy".into(), resource: "poddisruptionbudget".into() };
    let cause =
        format!("The disruption budget {budget} does not allow evicting pods currently: {cause}");
    StatusError::forbidden(&kind, budget, why).cause("DisruptionBudget", cause, "")
}

/// Why a budget that is used up lets nobody go.
fn used_up(budget: &Value) -> String {
    let count = |field: &str| int(budget, &format!("status.{field}")).unwrap_or_default();
    let name = text(budget, "metadata.name");
    let told = list(budget, "status.conditions").iter().find(|condition| {
        text(condition, "type") == "DisruptionAllowed"
            && text(condition, "status") == "False"
            && !text(condition, "message").is_empty()
    });
    let (reason, message) =
        told.map_or(("", ""), |told| (text(told, "reason"), text(told, "message")));
    let start = format!("The disruption budget {name}");
    if reason == "SyncFailed" {
        return format!(
            "{start} does not allow evicting pods currently because it failed sync: {message}"
        );
    }
    let (wanted, have) = (count("desiredHealthy"), count("currentHealthy"));
    if have <= wanted {
        format!("{start} needs {wanted} healthy pods and has {have} currently")
    } else if told.is_some() {
        format!("{start} does not allow evicting pods currently ({reason}): {message}")
    } else {
        format!("{start} does not allow evicting pods currently")
    }
}

fn take_one(budget: &mut Value, pod: &str, now: &str) -> Result<(), StatusError> {
    let count = |budget: &Value, path: &str| int(budget, path).unwrap_or_default();
    let name = text(budget, "metadata.name").to_owned();
    if count(budget, "status.observedGeneration") < count(budget, "metadata.generation") {
        return Err(unobserved(&name));
    }
    let allowed = count(budget, "status.disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(forbid(&name, why, why));
    }
    if object(budget, "status.disruptedPods").is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        return Err(forbid(
            &name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        return Err(refuse(used_up(budget)));
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

    fn budget(status: &Value) -> Value {
        json!({"metadata": {"name": "b", "generation": 1}, "status": status})
    }

    fn refusal(status: &Value) -> (StatusCode, String) {
        let error = take_one(&mut budget(status), "p", "now").expect_err("nobody may go");
        let told = serde_json::from_slice::<Value>(&error.to_json()).expect("JSON");
        let cause = &told["details"]["causes"][0];
        assert_eq!(cause["reason"], "DisruptionBudget");
        (error.code(), cause["message"].as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn a_budget_is_spent_once() {
        let mut budget = budget(
            &json!({"observedGeneration": 1, "disruptionsAllowed": 1, "desiredHealthy": 1, "currentHealthy": 2}),
        );
        take_one(&mut budget, "p", "now").expect("one is allowed");
        assert_eq!(int(&budget, "status.disruptionsAllowed"), Some(0));
        assert_eq!(text(&budget, "status.disruptedPods.p"), "now");
        let error = take_one(&mut budget, "q", "now").expect_err("none is left");
        assert_eq!(error.code(), StatusCode::TOO_MANY_REQUESTS);
        assert!(text(&budget, "status.disruptedPods.q").is_empty());
    }

    #[test]
    fn refusals_say_why() {
        let many: serde_json::Map<String, Value> =
            (0..=MAX_DISRUPTED).map(|n| (n.to_string(), "now".into())).collect();
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
    fn unhealthy_pods_go_by_policy() {
        let may = |policy: &str, status: Value| {
            let mut budget = budget(&status);
            budget["spec"] = json!({"unhealthyPodEvictionPolicy": policy});
            unhealthy_may_go(&budget)
        };
        let short = || json!({"currentHealthy": 1, "desiredHealthy": 2});
        let enough = || json!({"currentHealthy": 2, "desiredHealthy": 2});
        let nothing = || json!({});
        for policy in ["", "IfHealthyBudget"] {
            assert_eq!(
                [short(), enough(), nothing()].map(|s| may(policy, s)),
                [false, true, false]
            );
        }
        assert_eq!([short(), enough(), nothing()].map(|s| may("AlwaysAllow", s)), [true; 3]);
    }
}
