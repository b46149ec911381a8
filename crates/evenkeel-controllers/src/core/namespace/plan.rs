//! What a namespace that is being deleted needs next, and what its conditions say.
//!
//! Pods go first, so that nothing they stand on (secrets, service accounts, network policies) is taken from under them;
//! everything else follows in any order (KEP-5080). Upstream: `pkg/controller/namespace/deletion`.
//!
//! | documented | where |
//! |---|---|
//! | `status.phase`: `Terminating` | `terminating` |
//! | `spec.finalizers`, the `finalize` sub-resource | `next`, `finalized` |
//! | conditions `NamespaceDeletionDiscoveryFailure`, `NamespaceDeletionGroupVersionParsingFailure`, `NamespaceDeletionContentFailure`, `NamespaceContentRemaining`, `NamespaceFinalizersRemaining` | `conditions` |
//! | `terminationGracePeriodSeconds` of pods that are waited for, `--namespace-sync-period` | `pods_estimate`, `within` |
//! | which kinds there are, pods first, and how they are deleted | `content::delete`, `content::delete_all` |
//! | nothing new in a namespace that goes (`NamespaceLifecycle`) | `../../../../evenkeel-apiserver/src/verbs/namespace.rs` |

use evenkeel_api::{
    Kind, Text,
    time::{Timestamp, seconds},
};
use evenkeel_runtime::discovery::FailedGroup;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// Finalizer in `spec.finalizers` that this controller takes off.
pub(super) const FINALIZER: &str = "kubernetes";

/// How long finalizers of content are given, when nothing better is known.
const FINALIZERS_ESTIMATE: Duration = Duration::from_secs(15);

/// What is left of one resource after all of it was asked to go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Remains {
    /// How many objects.
    pub(super) count: usize,
    /// How many of them have each finalizer.
    pub(super) finalizers: BTreeMap<Text, usize>,
    /// How long they are expected to take.
    pub(super) estimate: Duration,
    /// Why they could not be asked to go, or not be counted.
    pub(super) error: Option<String>,
}

/// What one pass over a namespace found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// By resource.
    pub(super) remains: Vec<(Kind, Remains)>,
    /// Groups whose resources could not be found out.
    pub(super) discovery: Option<String>,
    /// Whether only pods were looked at, because some remain.
    pub(super) pods_only: bool,
}

/// What to do after a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing is left: take the finalizer off.
    Finalize,
    /// Come back after this time.
    Wait(Duration),
    /// Something went wrong: come back with back-off.
    Failed(String),
}

impl Remains {
    /// Judges what a list still shows, `estimate` being how long pods may take.
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

    /// Something could not be done at all.
    pub(super) fn failed(error: &dyn std::fmt::Display) -> Self {
        Self { error: Some(error.to_string()), ..Self::default() }
    }
}

/// As upstream prints a resource: `/v1, Resource=pods`.
fn resource(kind: &Kind) -> String {
    format!("{}/{}, Resource={}", kind.group, kind.version, kind.plural)
}

/// How long pods may still take: their longest grace period, until so much time has passed since the namespace's deletion.
pub(super) fn pods_estimate(
    longest_grace: Duration,
    deleted_at: Timestamp,
    now: Timestamp,
) -> Duration {
    let passed = Duration::try_from(now.duration_since(deleted_at)).unwrap_or_default();
    if passed >= longest_grace { Duration::ZERO } else { longest_grace }
}

/// How long is waited for what is left, where namespaces are looked at again after this period at the latest: pods may well
/// take less than the grace that they have.
pub(super) fn within(wait: Duration, period: Duration) -> Duration {
    if period.is_zero() { wait } else { wait.min(period) }
}

/// What is said of groups whose resources could not be found out, each with its version and why; `None` where there are none.
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

/// Whether what a resource's group and version has was found out; else nothing is asked of it.
pub(super) fn is_discovered(kind: &Kind, failed: &[FailedGroup]) -> bool {
    !failed.iter().any(|group| *group.group == *kind.group && *group.version == *kind.version)
}

impl Findings {
    /// What follows from them.
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

    /// The conditions that must stand in the status, in their order.
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
        // While pods are waited for, nothing is said of what else there is.
        let counted = !self.pods_only;
        let mut left: Vec<String> = self
            .remains
            .iter()
            .filter(|(_, r)| counted && r.count > 0)
            .map(|(kind, remains)| {
                format!("{}.{} has {} resource instances", kind.plural, kind.group, remains.count)
            })
            .collect();
        left.sort();
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
        let of = |failure: Option<String>, bad: &'static str, good: &'static str, fine: &str| {
            match failure {
                Some(message) => (true, bad, message),
                None => (false, good, fine.to_owned()),
            }
        };
        let some = |list: Vec<String>, lead: &str| {
            (!list.is_empty()).then(|| format!("{lead}: {}", list.join(", ")))
        };
        let with = |kind, (status, reason, message)| (kind, status, reason, message);
        [
            with(
                "NamespaceDeletionDiscoveryFailure",
                of(
                    self.discovery.clone(),
                    "DiscoveryFailed",
                    "ResourcesDiscovered",
                    "All resources successfully discovered",
                ),
            ),
            with(
                "NamespaceDeletionGroupVersionParsingFailure",
                of(
                    None,
                    "GroupVersionParsingFailed",
                    "ParsedGroupVersions",
                    "All legacy kube types successfully parsed",
                ),
            ),
            with(
                "NamespaceDeletionContentFailure",
                of(
                    content_failure,
                    "ContentDeletionFailed",
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                ),
            ),
            with(
                "NamespaceContentRemaining",
                of(
                    some(left, "Some resources are remaining"),
                    "SomeResourcesRemain",
                    "ContentRemoved",
                    "All content successfully removed",
                ),
            ),
            with(
                "NamespaceFinalizersRemaining",
                of(
                    some(held, "Some content in the namespace has finalizers remaining"),
                    "SomeFinalizersRemain",
                    "ContentHasNoFinalizers",
                    "All content-preserving finalizers finished",
                ),
            ),
        ]
    }

    /// The namespace with its conditions brought up to date; `None` when they are so already.
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

/// The namespace with phase `Terminating`; `None` when it says so already.
pub(super) fn terminating(namespace: &Value) -> Option<Value> {
    if namespace["status"]["phase"] == "Terminating" {
        return None;
    }
    let mut updated = namespace.clone();
    let status = updated.as_object_mut()?.entry("status").or_insert_with(|| json!({}));
    status.as_object_mut()?.insert("phase".to_owned(), json!("Terminating"));
    Some(updated)
}

/// The namespace without this controller's finalizer.
pub(super) fn finalized(namespace: &Value) -> Value {
    let others = namespace["spec"]["finalizers"].as_array().into_iter().flatten();
    let others: Vec<Value> = others.filter(|name| **name != FINALIZER).cloned().collect();
    json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": namespace["metadata"], "spec": {"finalizers": others},
    })
}

/// Whether no finalizer of the spec is left.
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
    fn an_empty_namespace_is_finalized() {
        let findings =
            Findings { remains: vec![(PODS, Remains::default())], ..Findings::default() };
        assert_eq!(findings.next(), Next::Finalize);
        let updated = findings.with_conditions(&json!({}), T0).expect("all five are written");
        assert_eq!(updated["status"]["conditions"].as_array().map(Vec::len), Some(5));
        assert_eq!(condition(&updated, "NamespaceContentRemaining")["reason"], "ContentRemoved");
        assert_eq!(findings.with_conditions(&updated, T0), None, "and not a second time");
    }

    #[test]
    fn what_remains_is_waited_for_and_told() {
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
    fn objects_that_stay_for_no_reason_are_an_error() {
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
    fn failed_discovery_holds_the_finalizer() {
        let findings = Findings { discovery: Some("x".to_owned()), ..Findings::default() };
        assert!(matches!(findings.next(), Next::Failed(_)));
    }

    #[test]
    fn failed_discovery_is_told_of_in_upstreams_words() {
        let failed = |group: &str, reason: &str| FailedGroup {
            group: group.into(),
            version: "v1".into(),
            reason: reason.into(),
        };
        assert_eq!(undiscovered(&[]), None);
        let groups = [failed("x.io", "stale GroupVersion discovery: x.io/v1"), failed("", "no")];
        let told = "Discovery failed for some groups, 2 failing: unable to retrieve the complete list of server APIs: \
                    v1: no, x.io/v1: stale GroupVersion discovery: x.io/v1";
        assert_eq!(undiscovered(&groups).as_deref(), Some(told));
        assert!(is_discovered(&JOBS, &groups));
        assert!(!is_discovered(&PODS, &groups));
    }

    #[test]
    fn nothing_is_waited_for_longer_than_the_period() {
        let [wait, period] = [1801, 300].map(Duration::from_secs);
        assert_eq!(within(wait, period), period);
        assert_eq!(within(period, wait), period);
        assert_eq!(within(wait, Duration::ZERO), wait, "there is no period");
    }

    #[test]
    fn pods_are_given_their_grace_but_not_more() {
        let grace = Duration::from_secs(30);
        assert_eq!(pods_estimate(grace, T0, T0 + Duration::from_secs(10)), grace);
        assert_eq!(pods_estimate(grace, T0, T0 + grace), Duration::ZERO);
    }

    #[test]
    fn other_finalizers_of_the_spec_stay() {
        let namespace =
            json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes", "x/y"]}});
        assert_eq!(finalized(&namespace)["spec"]["finalizers"], json!(["x/y"]));
        assert!(is_finalized(&finalized(&json!({"spec": {"finalizers": ["kubernetes"]}}))));
    }
}
