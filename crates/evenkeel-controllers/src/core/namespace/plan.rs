//! Next step of a terminating namespace, and its conditions. Upstream: `pkg/controller/namespace/deletion`.
//!
//! Pods are deleted before all other objects, so that they keep their secrets, service accounts and network policies to
//! the end (KEP-5080).
//!
//! | documented | where |
//! |---|---|
//! | `status.phase`: `Terminating` | `terminating` |
//! | `spec.finalizers`, the `finalize` subresource | `next`, `finalized` |
//! | conditions `NamespaceDeletionDiscoveryFailure`, `NamespaceDeletionGroupVersionParsingFailure`, `NamespaceDeletionContentFailure`, `NamespaceContentRemaining`, `NamespaceFinalizersRemaining` | `conditions` |
//! | `terminationGracePeriodSeconds` of remaining pods, `--namespace-sync-period` | `pods_estimate`, `within` |
//! | deletable kinds, pods first, and their deletion | `content::delete`, `content::delete_all` |
//! | no creates in a terminating namespace (`NamespaceLifecycle`) | `../../../../evenkeel-apiserver/src/verbs/namespace.rs` |

use evenkeel_api::{
    Kind, Text,
    time::{Timestamp, seconds},
};
use evenkeel_runtime::discovery::FailedGroup;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// This controller's finalizer in `spec.finalizers`. Upstream: `FinalizerKubernetes`.
pub(super) const FINALIZER: &str = "kubernetes";

/// Estimated time until finalizers release the content: 15 s. Upstream: `finalizerEstimateSeconds`.
const FINALIZERS_ESTIMATE: Duration = Duration::from_secs(15);

/// Remaining objects of one resource after their deletion was requested. Upstream: `gvrDeletionMetadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Remains {
    /// Number of objects.
    pub(super) count: usize,
    /// Number of objects by finalizer.
    pub(super) finalizers: BTreeMap<Text, usize>,
    /// Estimated time until they are deleted.
    pub(super) estimate: Duration,
    /// Error of the deletion or of the list.
    pub(super) error: Option<String>,
}

/// Findings about a namespace. Upstream: `allGVRDeletionMetadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Remaining objects by resource.
    pub(super) remains: Vec<(Kind, Remains)>,
    /// Error about groups whose discovery failed.
    pub(super) discovery: Option<String>,
    /// Whether only pods were deleted, because some remain.
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

impl Remains {
    /// Evaluates a list of remaining objects; `estimate` is the estimated time for pods, zero for other kinds.
    pub(super) fn of(
        kind: &Kind,
        namespace: &str,
        finalizers_of_items: &[Box<[Text]>],
        estimate: Duration,
    ) -> Self {
        let mut remains = Self { count: finalizers_of_items.len(), ..Self::default() };
        for finalizer in finalizers_of_items.iter().flatten() {
            *remains.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        if remains.count == 0 {
            return remains;
        }
        remains.estimate = match (estimate.is_zero(), remains.finalizers.is_empty()) {
            (false, _) => estimate,
            (true, false) => FINALIZERS_ESTIMATE,
            (true, true) => {
                remains.error = Some(format!(
                    "unexpected items still remain in namespace: {namespace} for gvr: {}",
                    resource(kind)
                ));
                Duration::ZERO
            }
        };
        remains
    }

    /// Records the failure of a request.
    pub(super) fn failed(error: &dyn std::fmt::Display) -> Self {
        Self { error: Some(error.to_string()), ..Self::default() }
    }
}

/// Formats a resource as upstream does: `/v1, Resource=pods`.
fn resource(kind: &Kind) -> String {
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

/// Limits `wait` to `period`, because pods often end before their grace period does. A zero `period` is no limit.
pub(super) fn within(wait: Duration, period: Duration) -> Duration {
    if period.is_zero() { wait } else { wait.min(period) }
}

/// Returns the error about groups whose discovery failed, each with its version; `None` without any.
pub(super) fn undiscovered(failed: &[FailedGroup]) -> Option<String> {
    if failed.is_empty() {
        return None;
    }
    let group_version = |group: &FailedGroup| match &*group.group {
        "" => group.version.to_string(),
        name => format!("{name}/{}", group.version),
    };
    let each = failed.iter().map(|group| format!("{}: {}", group_version(group), group.reason));
    let mut each: Vec<String> = each.collect();
    each.sort();
    Some(format!(
        "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
        each.len(),
        each.join(", ")
    ))
}

/// Whether discovery of the resource's group version succeeded. If it failed, the controller does not delete the
/// objects.
pub(super) fn is_discovered(kind: &Kind, failed: &[FailedGroup]) -> bool {
    !failed.iter().any(|group| *group.group == *kind.group && *group.version == *kind.version)
}

impl Findings {
    /// Returns the next step. Any error is retried; nothing left to wait for means finalization; otherwise the
    /// controller waits for half of the longest estimate.
    pub(super) fn next(&self) -> Next {
        let mut errors: Vec<&str> = self.discovery.as_deref().into_iter().collect();
        errors.extend(self.remains.iter().filter_map(|(_, remains)| remains.error.as_deref()));
        if !errors.is_empty() {
            return Next::Failed(errors.join(", "));
        }
        let estimate =
            self.remains.iter().map(|(_, remains)| remains.estimate).max().unwrap_or_default();
        if estimate.is_zero() {
            Next::Finalize
        } else {
            Next::Wait(Duration::from_secs(estimate.as_secs() / 2 + 1))
        }
    }

    /// Returns the conditions, in upstream's order. Upstream: `namespaceConditionUpdater`.
    fn conditions(&self) -> [(&'static str, bool, &'static str, String); 5] {
        let errors = self.remains.iter().filter_map(|(_, remains)| remains.error.clone());
        let mut errors: Vec<String> = errors.collect();
        errors.sort();
        let content_failure = (!errors.is_empty()).then(|| {
            format!(
                "Failed to delete all resource types, {} remaining: {}",
                errors.len(),
                errors.join(", ")
            )
        });
        // While pods remain, other content is unknown.
        let counted = !self.pods_only;
        let mut remaining_resources: Vec<String> = self
            .remains
            .iter()
            .filter(|(_, r)| counted && r.count > 0)
            .map(|(kind, remains)| {
                format!("{}.{} has {} resource instances", kind.plural, kind.group, remains.count)
            })
            .collect();
        remaining_resources.sort();
        let mut finalizers = BTreeMap::<&str, usize>::new();
        for (name, count) in
            self.remains.iter().filter(|_| counted).flat_map(|(_, remains)| &remains.finalizers)
        {
            *finalizers.entry(name).or_default() += count;
        }
        let held: Vec<String> = finalizers
            .iter()
            .map(|(name, count)| format!("{name} in {count} resource instances"))
            .collect();
        let outcome =
            |failure: Option<String>, bad: &'static str, good: &'static str, fine: &str| {
                match failure {
                    Some(message) => (true, bad, message),
                    None => (false, good, fine.to_owned()),
                }
            };
        let joined = |list: Vec<String>, lead: &str| {
            (!list.is_empty()).then(|| format!("{lead}: {}", list.join(", ")))
        };
        let condition = |kind, (status, reason, message)| (kind, status, reason, message);
        [
            condition(
                "NamespaceDeletionDiscoveryFailure",
                outcome(
                    self.discovery.clone(),
                    "DiscoveryFailed",
                    "ResourcesDiscovered",
                    "All resources successfully discovered",
                ),
            ),
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                outcome(
                    None,
                    "GroupVersionParsingFailed",
                    "ParsedGroupVersions",
                    "All legacy kube types successfully parsed",
                ),
            ),
            condition(
                "NamespaceDeletionContentFailure",
                outcome(
                    content_failure,
                    "ContentDeletionFailed",
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                ),
            ),
            condition(
                "NamespaceContentRemaining",
                outcome(
                    joined(remaining_resources, "Some resources are remaining"),
                    "SomeResourcesRemain",
                    "ContentRemoved",
                    "All content successfully removed",
                ),
            ),
            condition(
                "NamespaceFinalizersRemaining",
                outcome(
                    joined(held, "Some content in the namespace has finalizers remaining"),
                    "SomeFinalizersRemain",
                    "ContentHasNoFinalizers",
                    "All content-preserving finalizers finished",
                ),
            ),
        ]
    }

    /// Returns the namespace with current conditions; `None` if they are unchanged.
    pub(super) fn with_conditions(&self, namespace: &Value, now: Timestamp) -> Option<Value> {
        let mut updated = namespace.clone();
        let status = updated.as_object_mut()?.entry("status").or_insert_with(|| json!({}));
        let list = status
            .as_object_mut()?
            .entry("conditions")
            .or_insert_with(|| json!([]))
            .as_array_mut()?;
        let now = seconds(now);
        for (kind, bad, reason, message) in self.conditions() {
            let text = if bad { "True" } else { "False" };
            match list.iter_mut().find(|condition| condition["type"] == kind) {
                None => list.push(json!({
                    "type": kind, "status": text, "reason": reason, "message": message, "lastTransitionTime": now,
                })),
                Some(condition) => {
                    if condition["status"] != text {
                        condition["lastTransitionTime"] = json!(now);
                    }
                    condition["status"] = json!(text);
                    condition["reason"] = json!(reason);
                    condition["message"] = json!(message);
                }
            }
        }
        (updated != *namespace).then_some(updated)
    }
}

/// Returns the namespace with the phase `Terminating`; `None` if it already has that phase. Upstream:
/// `updateNamespaceStatusFunc`.
pub(super) fn terminating(namespace: &Value) -> Option<Value> {
    if namespace["status"]["phase"] == "Terminating" {
        return None;
    }
    let mut updated = namespace.clone();
    let status = updated.as_object_mut()?.entry("status").or_insert_with(|| json!({}));
    status.as_object_mut()?.insert("phase".to_owned(), json!("Terminating"));
    Some(updated)
}

/// Returns the namespace without the controller's finalizer. Upstream: `finalizeNamespace`.
pub(super) fn finalized(namespace: &Value) -> Value {
    let others = namespace["spec"]["finalizers"].as_array().into_iter().flatten();
    let others: Vec<Value> = others.filter(|name| **name != FINALIZER).cloned().collect();
    json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": namespace["metadata"], "spec": {"finalizers": others},
    })
}

/// Whether `spec.finalizers` is empty. Upstream: `finalized`.
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
        let findings =
            Findings { remains: vec![(PODS, Remains::default())], ..Findings::default() };
        assert_eq!(findings.next(), Next::Finalize);
        let updated = findings.with_conditions(&json!({}), T0).expect("all five are written");
        assert_eq!(updated["status"]["conditions"].as_array().map(Vec::len), Some(5));
        assert_eq!(condition(&updated, "NamespaceContentRemaining")["reason"], "ContentRemoved");
        assert_eq!(
            findings.with_conditions(&updated, T0),
            None,
            "unchanged conditions are not written"
        );
    }

    #[test]
    fn remaining_content_is_waited_for_and_reported() {
        let held: Box<[Text]> = ["example.com/hold".into()].into();
        let jobs = Remains::of(&JOBS, "ns", &[held.clone(), held], Duration::ZERO);
        let findings = Findings { remains: vec![(JOBS, jobs)], ..Findings::default() };
        assert_eq!(findings.next(), Next::Wait(Duration::from_secs(8)));
        let updated = findings.with_conditions(&json!({}), T0).expect("changed");
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
        let pods = Remains::of(&PODS, "ns", &[Box::default()], Duration::ZERO);
        let findings =
            Findings { remains: vec![(PODS, pods)], pods_only: true, ..Findings::default() };
        assert!(matches!(findings.next(), Next::Failed(error) if error.contains("Resource=pods")));
        let updated = findings.with_conditions(&json!({}), T0).expect("changed");
        assert_eq!(condition(&updated, "NamespaceDeletionContentFailure")["status"], "True");
        assert_eq!(
            condition(&updated, "NamespaceContentRemaining")["status"],
            "False",
            "not counted while pods remain"
        );
    }

    #[test]
    fn failed_discovery_blocks_finalization() {
        let findings = Findings { discovery: Some("x".to_owned()), ..Findings::default() };
        assert!(matches!(findings.next(), Next::Failed(_)));
    }

    #[test]
    fn discovery_failure_names_group_versions_in_order() {
        let failed = |group: &str, reason: &str| FailedGroup {
            group: group.into(),
            version: "v1".into(),
            reason: reason.into(),
        };
        assert_eq!(undiscovered(&[]), None);
        let groups = [failed("x.io", "stale GroupVersion discovery: x.io/v1"), failed("", "no")];
        let message = "Discovery failed for some groups, 2 failing: unable to retrieve the complete list of server APIs: \
                    v1: no, x.io/v1: stale GroupVersion discovery: x.io/v1";
        assert_eq!(undiscovered(&groups).as_deref(), Some(message));
        assert!(is_discovered(&JOBS, &groups));
        assert!(!is_discovered(&PODS, &groups));
    }

    #[test]
    fn wait_is_bounded_by_the_resync_period() {
        let [wait, period] = [1801, 300].map(Duration::from_secs);
        assert_eq!(within(wait, period), period);
        assert_eq!(within(period, wait), period);
        assert_eq!(within(wait, Duration::ZERO), wait, "no resync period");
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
        assert_eq!(finalized(&namespace)["spec"]["finalizers"], json!(["x/y"]));
        assert!(is_finalized(&finalized(&json!({"spec": {"finalizers": ["kubernetes"]}}))));
    }
}
