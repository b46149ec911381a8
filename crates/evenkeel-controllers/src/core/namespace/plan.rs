//! Next step of a terminating namespace, and its conditions. Upstream: `pkg/controller/namespace/deletion`.
//!
//! Pods are deleted before all other objects, so that they keep their secrets, service accounts and network policies to
//! the end (KEP-5080).
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `status.phase`: `Terminating` | `with_terminating_phase` |
//! | `spec.finalizers`, the `finalize` subresource | `next`, `without_finalizer` |
//! | conditions `NamespaceDeletionDiscoveryFailure`, `NamespaceDeletionGroupVersionParsingFailure`, `NamespaceDeletionContentFailure`, `NamespaceContentRemaining`, `NamespaceFinalizersRemaining` | `conditions` |
//! | `terminationGracePeriodSeconds` of remaining pods, `--namespace-sync-period` | `pods_estimate`, `limit_wait` |
//! | deletable kinds, pods first, and their deletion | `content::delete`, `content::delete_all` |
//! | no creates in a terminating namespace (`NamespaceLifecycle`) | `../../../../evenkeel-apiserver/src/verbs/namespace.rs` |

mod conditions;

use crate::conditions::Condition;
use conditions::{
    CONTENT_FAILURE, CONTENT_REMAINING, DISCOVERY_FAILURE, FINALIZERS_REMAINING,
    GROUP_VERSION_PARSING_FAILURE,
};
use evenkeel_api::{
    Kind, Text,
    time::{Timestamp, seconds},
};
use evenkeel_runtime::discovery::FailedGroup;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// This controller's finalizer in `spec.finalizers`. Upstream: `FinalizerKubernetes`.
pub(super) const FINALIZER: &str = "kubernetes";

/// Estimated time until finalizers release the content. Upstream: `finalizerEstimateSeconds`.
const FINALIZER_ESTIMATE: Duration = Duration::from_secs(15);

/// Remaining objects of one resource after their deletion was requested. Upstream: `gvrDeletionMetadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RemainingObjects {
    /// Number of objects.
    pub(super) count: usize,
    /// Number of objects by finalizer.
    pub(super) finalizers: BTreeMap<Text, usize>,
    /// Estimated time until they are deleted.
    pub(super) estimate: Duration,
    /// Error of the deletion or of the list.
    pub(super) error: Option<String>,
}

/// Result of the deletion of a namespace's content. Upstream: `allGVRDeletionMetadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeletionResult {
    /// Remaining objects by resource.
    pub(super) remaining: Vec<(Kind, RemainingObjects)>,
    /// Error about groups whose discovery failed.
    pub(super) discovery_error: Option<String>,
    /// Whether pods remain, so that no other objects have been deleted yet.
    pub(super) pods_only: bool,
}

/// Next step for a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Remove the finalizer: no content remains.
    Finalize,
    /// Process the namespace again after this delay.
    Wait(Duration),
    /// Process the namespace again with backoff.
    Failed(String),
}

impl RemainingObjects {
    /// Evaluates the finalizers of each remaining object. `estimate` is the estimated time for pods, zero for other
    /// kinds. Objects that neither a finalizer nor an estimate explains are an error.
    pub(super) fn of(
        kind: &Kind,
        namespace: &str,
        finalizers_of_items: &[Box<[Text]>],
        estimate: Duration,
    ) -> Self {
        let mut remaining = Self { count: finalizers_of_items.len(), ..Self::default() };
        for finalizer in finalizers_of_items.iter().flatten() {
            *remaining.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        if remaining.count == 0 {
            return remaining;
        }
        if !estimate.is_zero() {
            remaining.estimate = estimate;
        } else if !remaining.finalizers.is_empty() {
            remaining.estimate = FINALIZER_ESTIMATE;
        } else {
            remaining.error = Some(format!(
                "unexpected items still remain in namespace: {namespace} for gvr: {}",
                format_resource(kind)
            ));
        }
        remaining
    }

    /// Records the failure of a request.
    pub(super) fn failed(error: &dyn std::fmt::Display) -> Self {
        Self { error: Some(error.to_string()), ..Self::default() }
    }
}

/// Formats a resource as upstream does: `/v1, Resource=pods`.
fn format_resource(kind: &Kind) -> String {
    format!("{}/{}, Resource={}", kind.group, kind.version, kind.plural)
}

/// Estimates the time until the pods are deleted. This is their longest grace period, or zero if that has passed
/// since the namespace's deletion. Upstream: `estimateGracefulTermination`.
pub(super) fn pods_estimate(
    longest_grace: Duration,
    deleted_at: Timestamp,
    now: Timestamp,
) -> Duration {
    let passed = Duration::try_from(now.duration_since(deleted_at)).unwrap_or_default();
    if passed >= longest_grace { Duration::ZERO } else { longest_grace }
}

/// Limits `wait` to `period` (`--namespace-sync-period`), because pods often end before their grace period does. A zero
/// `period` is no limit.
pub(super) fn limit_wait(wait: Duration, period: Duration) -> Duration {
    if period.is_zero() { wait } else { wait.min(period) }
}

/// Returns the error about groups whose discovery failed, each with its version, or `None` without any.
pub(super) fn discovery_error(failed: &[FailedGroup]) -> Option<String> {
    if failed.is_empty() {
        return None;
    }
    let group_version = |group: &FailedGroup| match &*group.group {
        "" => group.version.to_string(),
        name => format!("{name}/{}", group.version),
    };
    let failures = failed.iter().map(|group| format!("{}: {}", group_version(group), group.reason));
    let mut failures: Vec<String> = failures.collect();
    failures.sort();
    Some(format!(
        "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
        failures.len(),
        failures.join(", ")
    ))
}

/// Returns whether discovery of the resource's group version succeeded. If it failed, the controller does not delete
/// the objects.
pub(super) fn is_discovered(kind: &Kind, failed: &[FailedGroup]) -> bool {
    !failed.iter().any(|group| *group.group == *kind.group && *group.version == *kind.version)
}

impl DeletionResult {
    /// Returns the next step: a retry after any error, finalization if nothing remains to wait for, otherwise a wait
    /// for half of the longest estimate.
    pub(super) fn next(&self) -> Next {
        let discovery_error = self.discovery_error.as_deref().into_iter();
        let deletion_errors =
            self.remaining.iter().filter_map(|(_, remaining)| remaining.error.as_deref());
        let errors: Vec<&str> = discovery_error.chain(deletion_errors).collect();
        if !errors.is_empty() {
            return Next::Failed(errors.join(", "));
        }
        let estimates = self.remaining.iter().map(|(_, remaining)| remaining.estimate);
        let longest = estimates.max().unwrap_or_default();
        if longest.is_zero() {
            Next::Finalize
        } else {
            // One second more, so that an estimate of one second does not lead to an immediate retry.
            Next::Wait(Duration::from_secs(longest.as_secs() / 2 + 1))
        }
    }

    /// Returns the conditions, in upstream's order. Upstream: `namespaceConditionUpdater`.
    fn conditions(&self) -> [Condition; 5] {
        [
            DISCOVERY_FAILURE.evaluate(self.discovery_error.clone()),
            // Discovery returns parsed group versions.
            GROUP_VERSION_PARSING_FAILURE.evaluate(None),
            CONTENT_FAILURE.evaluate(self.content_failure()),
            CONTENT_REMAINING.evaluate(self.remaining_content()),
            FINALIZERS_REMAINING.evaluate(self.remaining_finalizers()),
        ]
    }

    /// Returns the message about kinds whose deletion failed, or `None` if none failed.
    fn content_failure(&self) -> Option<String> {
        let errors = self.remaining.iter().filter_map(|(_, remaining)| remaining.error.clone());
        let mut errors: Vec<String> = errors.collect();
        errors.sort();
        (!errors.is_empty()).then(|| {
            format!(
                "Failed to delete all resource types, {} remaining: {}",
                errors.len(),
                errors.join(", ")
            )
        })
    }

    /// Returns the message about remaining objects, or `None` if none are known to remain.
    fn remaining_content(&self) -> Option<String> {
        let remaining = self.reported_remaining().filter(|(_, remaining)| remaining.count > 0);
        let counts = remaining.map(|(kind, remaining)| {
            format!("{}.{} has {} resource instances", kind.plural, kind.group, remaining.count)
        });
        let mut counts: Vec<String> = counts.collect();
        counts.sort();
        let counts = (!counts.is_empty()).then(|| counts.join(", "))?;
        Some(format!("Some resources are remaining: {counts}"))
    }

    /// Returns the message about finalizers of remaining objects, or `None` if they have none.
    fn remaining_finalizers(&self) -> Option<String> {
        let mut totals = BTreeMap::<&str, usize>::new();
        for (name, count) in
            self.reported_remaining().flat_map(|(_, remaining)| &remaining.finalizers)
        {
            *totals.entry(name).or_default() += count;
        }
        let counts: Vec<String> = totals
            .iter()
            .map(|(name, count)| format!("{name} in {count} resource instances"))
            .collect();
        let counts = (!counts.is_empty()).then(|| counts.join(", "))?;
        Some(format!("Some content in the namespace has finalizers remaining: {counts}"))
    }

    /// Returns the remaining objects by resource that the conditions report. There are none while pods remain, because
    /// other objects are not counted yet.
    fn reported_remaining(&self) -> impl Iterator<Item = &(Kind, RemainingObjects)> {
        let remaining = if self.pods_only { &[] } else { &self.remaining[..] };
        remaining.iter()
    }

    /// Returns the namespace with current conditions, or `None` if they are unchanged.
    pub(super) fn with_conditions(&self, namespace: &Value, now: Timestamp) -> Option<Value> {
        let mut updated = namespace.clone();
        let status = updated.as_object_mut()?.entry("status").or_insert_with(|| json!({}));
        let list = status
            .as_object_mut()?
            .entry("conditions")
            .or_insert_with(|| json!([]))
            .as_array_mut()?;
        let now = seconds(now);
        for Condition { type_, status, reason, message, .. } in self.conditions() {
            match list.iter_mut().find(|condition| condition["type"] == *type_) {
                None => list.push(json!({
                    "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
                })),
                Some(condition) => {
                    if condition["status"] != *status {
                        condition["lastTransitionTime"] = json!(now);
                    }
                    condition["status"] = json!(status);
                    condition["reason"] = json!(reason);
                    condition["message"] = json!(message);
                }
            }
        }
        (updated != *namespace).then_some(updated)
    }
}

/// Returns the namespace with the phase `Terminating`, or `None` if it already has that phase. Upstream:
/// `updateNamespaceStatusFunc`.
pub(super) fn with_terminating_phase(namespace: &Value) -> Option<Value> {
    if namespace["status"]["phase"] == "Terminating" {
        return None;
    }
    let mut updated = namespace.clone();
    let status = updated.as_object_mut()?.entry("status").or_insert_with(|| json!({}));
    status.as_object_mut()?.insert("phase".to_owned(), json!("Terminating"));
    Some(updated)
}

/// Returns the namespace without the controller's finalizer. Upstream: `finalizeNamespace`.
pub(super) fn without_finalizer(namespace: &Value) -> Value {
    let others = namespace["spec"]["finalizers"].as_array().into_iter().flatten();
    let others: Vec<Value> = others.filter(|name| **name != FINALIZER).cloned().collect();
    json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": namespace["metadata"], "spec": {"finalizers": others},
    })
}

/// Returns whether `spec.finalizers` is empty. Upstream: `finalized`.
pub(super) fn is_finalized(namespace: &Value) -> bool {
    namespace["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);
    const JOBS: Kind = Kind::new("batch", "v1", "Job", "jobs", true);
    const T0: Timestamp = Timestamp::UNIX_EPOCH;

    fn condition<'a>(namespace: &'a Value, kind: &str) -> &'a Value {
        let all = namespace["status"]["conditions"].as_array().expect("conditions");
        all.iter().find(|condition| condition["type"] == kind).expect("the condition")
    }

    #[test]
    fn empty_namespace_is_finalized() {
        let result = DeletionResult {
            remaining: vec![(PODS, RemainingObjects::default())],
            ..DeletionResult::default()
        };
        assert_eq!(result.next(), Next::Finalize);
        let updated = result.with_conditions(&json!({}), T0).expect("all five are written");
        assert_eq!(updated["status"]["conditions"].as_array().map(Vec::len), Some(5));
        assert_eq!(condition(&updated, "NamespaceContentRemaining")["reason"], "ContentRemoved");
        assert_eq!(
            result.with_conditions(&updated, T0),
            None,
            "unchanged conditions are not written"
        );
    }

    #[test]
    fn remaining_content_is_waited_for_and_reported() {
        let held: Box<[Text]> = ["example.com/hold".into()].into();
        let jobs = RemainingObjects::of(&JOBS, "ns", &[held.clone(), held], Duration::ZERO);
        let result = DeletionResult { remaining: vec![(JOBS, jobs)], ..DeletionResult::default() };
        assert_eq!(result.next(), Next::Wait(Duration::from_secs(8)));
        let updated = result.with_conditions(&json!({}), T0).expect("changed");
        assert_eq!(
            condition(&updated, "NamespaceContentRemaining")["message"],
            "Some resources are remaining: jobs.batch has 2 resource instances"
        );
        assert_eq!(
            condition(&updated, "NamespaceFinalizersRemaining")["message"],
            "Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances"
        );
    }

    #[test]
    fn remaining_objects_without_finalizer_or_grace_are_an_error() {
        let pods = RemainingObjects::of(&PODS, "ns", &[Box::default()], Duration::ZERO);
        let result = DeletionResult {
            remaining: vec![(PODS, pods)],
            pods_only: true,
            ..DeletionResult::default()
        };
        assert!(matches!(result.next(), Next::Failed(error) if error.contains("Resource=pods")));
        let updated = result.with_conditions(&json!({}), T0).expect("changed");
        assert_eq!(condition(&updated, "NamespaceDeletionContentFailure")["status"], "True");
        assert_eq!(
            condition(&updated, "NamespaceContentRemaining")["status"],
            "False",
            "not counted while pods remain"
        );
    }

    #[test]
    fn failed_discovery_blocks_finalization() {
        let result =
            DeletionResult { discovery_error: Some("x".to_owned()), ..DeletionResult::default() };
        assert!(matches!(result.next(), Next::Failed(_)));
    }

    #[test]
    fn discovery_failure_names_group_versions_in_order() {
        let failed = |group: &str, reason: &str| FailedGroup {
            group: group.into(),
            version: "v1".into(),
            reason: reason.into(),
        };
        assert_eq!(discovery_error(&[]), None);
        let groups = [failed("x.io", "stale GroupVersion discovery: x.io/v1"), failed("", "no")];
        let message = "Discovery failed for some groups, 2 failing: unable to retrieve the complete list of server APIs: \
                    v1: no, x.io/v1: stale GroupVersion discovery: x.io/v1";
        assert_eq!(discovery_error(&groups).as_deref(), Some(message));
        assert!(is_discovered(&JOBS, &groups));
        assert!(!is_discovered(&PODS, &groups));
    }

    #[test]
    fn wait_is_bounded_by_the_resync_period() {
        let [wait, period] = [1801, 300].map(Duration::from_secs);
        assert_eq!(limit_wait(wait, period), period);
        assert_eq!(limit_wait(period, wait), period);
        assert_eq!(limit_wait(wait, Duration::ZERO), wait, "no resync period");
    }

    #[test]
    fn pods_estimate_is_the_grace_period_until_it_ends() {
        let grace = Duration::from_secs(30);
        assert_eq!(pods_estimate(grace, T0, T0 + Duration::from_secs(10)), grace);
        assert_eq!(pods_estimate(grace, T0, T0 + grace), Duration::ZERO);
    }

    #[test]
    fn only_the_kubernetes_finalizer_is_removed() {
        let namespace =
            json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes", "x/y"]}});
        assert_eq!(without_finalizer(&namespace)["spec"]["finalizers"], json!(["x/y"]));
        assert!(is_finalized(&without_finalizer(&json!({"spec": {"finalizers": ["kubernetes"]}}))));
    }
}
