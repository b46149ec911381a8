//! Admission plug-in PodSecurity: enforces the Pod Security Standard that the labels of a pod's namespace name
//! (KEP-2579, `pod-security-admission/admission`).

mod checks;
mod levels;

use crate::api::Context;
use crate::audit;
use checks::{Violations, check};
use evenkeel_apimachinery::group_version::GroupKind;
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::value::{Object, list, object, text};
use levels::{LATEST, Level, Version, parse_version};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Annotation of a request's audit event with the enforced level and version.
const ENFORCED_ANNOTATION: &str = "pod-security.kubernetes.io/enforce-policy";
/// Annotation of a request's audit event with the violations of the namespace's `audit` level.
const VIOLATIONS_ANNOTATION: &str = "pod-security.kubernetes.io/audit-violations";

/// Maximum number of pods of a namespace that are checked when its enforced level changes.
const MAX_PODS: usize = 3000;

/// A standard in one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standard {
    level: Level,
    version: Version,
}

/// What a namespace's labels ask for.
#[derive(Debug, PartialEq, Eq)]
struct Policy {
    enforce: Standard,
    audit: Standard,
    warn: Standard,
}

/// Refuses a pod that violates the `enforce` level of its namespace.
pub(super) fn admit(cx: &Context<'_>, pod: &Value, old: Option<&Value>) -> Result<(), StatusError> {
    if !is_evaluated(cx) || old.is_some_and(|old| !is_significant(pod, old)) {
        return Ok(());
    }
    let policy = policy_of(cx);
    let violations = policy.enforce.violations(&pod["metadata"], &pod["spec"]);
    cx.audit.annotate(ENFORCED_ANNOTATION, policy.enforce.to_string());
    annotate_violations(cx, policy.audit, &pod["metadata"], &pod["spec"]);
    if violations.is_empty() {
        return Ok(());
    }
    let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, violations.message());
    Err(StatusError::forbidden(&cx.resource.name, text(pod, "metadata.name"), why))
}

/// Refuses a namespace with invalid labels of Pod Security, unless an update does not change them.
pub(super) fn admit_namespace(
    _: &Context<'_>,
    namespace: &Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    let (_, errors) = Policy::of(namespace);
    if errors.is_empty() || old.is_some_and(|old| Policy::of(old).1 == errors) {
        return Ok(());
    }
    let kind = GroupKind { group: "".into(), kind: "Namespace".into() };
    Err(StatusError::invalid(&kind, text(namespace, "metadata.name"), &errors))
}

/// Returns warnings about an admitted object:
///
/// - a pod or a workload's pod template that violates the `warn` level of its namespace
/// - pods of a namespace that violate its new `enforce` level
pub(super) fn warnings(cx: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
    match cx.resource.kind() {
        "Namespace" if cx.subresource.is_empty() => {
            old.map(|old| namespace_warnings(cx, object, old)).unwrap_or_default()
        }
        "Pod" if is_evaluated(cx) && old.is_none_or(|old| is_significant(object, old)) => {
            let warn = policy_of(cx).warn;
            let message = warn.violation_message(&object["metadata"], &object["spec"]);
            message.into_iter().collect()
        }
        _ if cx.subresource.is_empty() => {
            let Some((metadata, spec)) = template_of(cx, object) else { return Vec::new() };
            let policy = policy_of(cx);
            annotate_violations(cx, policy.audit, metadata, spec);
            policy.warn.violation_message(metadata, spec).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Returns whether a request for a pod or a subresource of it may change fields that a standard checks.
fn is_evaluated(cx: &Context<'_>) -> bool {
    matches!(cx.subresource, "" | "ephemeralcontainers" | "resize")
}

/// Annotates the request's audit event if a pod violates the `audit` level of its namespace.
fn annotate_violations(cx: &Context<'_>, audit: Standard, metadata: &Value, spec: &Value) {
    if cx.audit.wants(audit::Level::Metadata)
        && let Some(message) = audit.violation_message(metadata, spec)
    {
        cx.audit.annotate(VIOLATIONS_ANNOTATION, message);
    }
}

/// Returns the metadata and the spec of a workload's pod template; `None` for other kinds.
fn template_of<'a>(cx: &Context<'_>, object: &'a Value) -> Option<(&'a Value, &'a Value)> {
    let template = match (cx.resource.group(), cx.resource.plural()) {
        ("", "podtemplates") => &object["template"],
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("", "replicationcontrollers")
        | ("batch", "jobs") => &object["spec"]["template"],
        ("batch", "cronjobs") => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => return None,
    };
    (!template.is_null()).then(|| (&template["metadata"], &template["spec"]))
}

/// Warns of the pods of a namespace that violate its `enforce` level, if an update changes the version or makes the
/// level stricter.
///
/// Upstream: `EvaluatePodsInNamespace`.
fn namespace_warnings(cx: &Context<'_>, namespace: &Value, old: &Value) -> Vec<String> {
    let (new, old) = (Policy::of(namespace).0.enforce, Policy::of(old).0.enforce);
    let is_relaxed = new.version == old.version && new.level <= old.level;
    if new.level == Level::Privileged || is_relaxed {
        return Vec::new();
    }
    let name = text(namespace, "metadata.name");
    let pods = cx.api.store.within("/pods", name);
    let pods: Vec<Value> = pods.iter().filter_map(|pod| pod.decode().ok()).collect();
    existing_pods(new, name, pods)
}

/// Returns warnings about a namespace's pods that violate a standard, one line for all pods with the same violations.
fn existing_pods(standard: Standard, namespace: &str, pods: Vec<Value>) -> Vec<String> {
    let n_pods = pods.len();
    let mut named: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for pod in by_controller(pods).into_iter().take(MAX_PODS) {
        let violations = standard.violations(&pod["metadata"], &pod["spec"]);
        if violations.is_empty() {
            continue;
        }
        let name = text(&pod, "metadata.name");
        let (first, count) =
            named.entry(violations.reasons()).or_insert_with(|| (name.to_owned(), 0));
        if name < first.as_str() {
            name.clone_into(first);
        }
        *count += 1;
    }
    let mut warnings = Vec::new();
    if n_pods > MAX_PODS {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {MAX_PODS} of {n_pods} existing pods"
        ));
    }
    if !named.is_empty() {
        warnings.push(format!(
            "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{standard}\""
        ));
    }
    let mut of_pods: Vec<String> = named
        .into_iter()
        .map(|(reasons, (name, count))| match count {
            1 => format!("{name}: {reasons}"),
            2 => format!("{name} (and 1 other pod): {reasons}"),
            _ => format!("{name} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    of_pods.sort_unstable();
    warnings.extend(of_pods);
    warnings
}

/// Moves all pods of a controller, except its first one, after the other pods.
fn by_controller(pods: Vec<Value>) -> Vec<Value> {
    let mut controllers = HashSet::new();
    let (first, more): (Vec<Value>, Vec<Value>) = pods.into_iter().partition(|pod| {
        let mut owners = list(pod, "metadata.ownerReferences").iter();
        let controller = owners.find(|owner| owner["controller"] == true);
        controller.is_none_or(|owner| controllers.insert(text(owner, "uid").to_owned()))
    });
    first.into_iter().chain(more).collect()
}

impl Standard {
    /// Returns a pod's violations.
    fn violations(self, metadata: &Value, spec: &Value) -> Violations {
        check(self.level, self.version, metadata, spec)
    }

    /// Returns a message about a pod that violates the standard; `None` if the pod does not.
    fn violation_message(self, metadata: &Value, spec: &Value) -> Option<String> {
        let violations = self.violations(metadata, spec);
        let would = || format!("would violate PodSecurity \"{self}\": {}", violations.message());
        (!violations.is_empty()).then(would)
    }
}

impl std::fmt::Display for Standard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let level = self.level.name();
        match self.version {
            LATEST => write!(f, "{level}:latest"),
            version => write!(f, "{level}:v1.{version}"),
        }
    }
}

/// Returns the policy of the request's namespace.
fn policy_of(cx: &Context<'_>) -> Policy {
    let entry = cx.api.store.get("/namespaces", cx.namespace);
    // Few namespaces have such a label, and a search in the bytes is faster than decoding.
    const LABEL_PREFIX: &[u8] = b"\"pod-security.kubernetes.io/";
    let has_label =
        |json: &[u8]| json.windows(LABEL_PREFIX.len()).any(|window| window == LABEL_PREFIX);
    let entry = entry.filter(|entry| has_label(entry.json()));
    Policy::of(&entry.and_then(|entry| entry.decode().ok()).unwrap_or_default()).0
}

impl Policy {
    /// Returns the policy that a namespace's labels set, and the errors of those labels. An unknown version counts as
    /// the latest one. An unknown level to enforce counts as the strictest one; an unknown level of audits or warnings
    /// turns them off.
    ///
    /// Upstream: `PolicyToEvaluate`.
    fn of(namespace: &Value) -> (Self, Vec<FieldError>) {
        let labels = object(namespace, "metadata.labels");
        let mut errors = Vec::new();
        let mut mode = |mode: &str| {
            let level = parsed(labels, mode, Level::parse, &mut errors);
            let version = parsed(labels, &format!("{mode}-version"), parse_version, &mut errors);
            (level, version.map(|version| version.unwrap_or(LATEST)))
        };
        let (enforce, audit, warn) = (mode("enforce"), mode("audit"), mode("warn"));
        let standard = |(level, version): (Option<Result<Level, _>>, Option<Version>), invalid| {
            let level =
                level.map_or(Level::Privileged, |level: Result<_, &str>| level.unwrap_or(invalid));
            Standard { level, version: version.unwrap_or(LATEST) }
        };
        let mut policy = Self {
            enforce: standard(enforce, Level::Restricted),
            audit: standard(audit, Level::Privileged),
            warn: standard(warn, Level::Privileged),
        };
        // Violations of the enforced level also cause warnings, unless the namespace sets a level of warnings.
        if let (Some(Ok(level)), None) = (enforce.0, warn.0)
            && level > Level::Privileged
        {
            policy.warn.level = level;
            if warn.1.is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }
}

/// Parses the label of Pod Security with this name, if present. An invalid label is an error.
fn parsed<T>(
    labels: Option<&Object>,
    name: &str,
    parse: fn(&str) -> Result<T, &'static str>,
    errors: &mut Vec<FieldError>,
) -> Option<Result<T, &'static str>> {
    let key = format!("pod-security.kubernetes.io/{name}");
    let label = labels?.get(&key)?.as_str()?;
    let parsed = parse(label);
    if let Err(detail) = &parsed {
        errors.push(FieldError::invalid(format!("metadata.labels[{key}]"), label, *detail));
    }
    Some(parsed)
}

/// Returns whether an update adds a container, or changes the image of one.
///
/// Upstream: `isSignificantPodUpdate`.
fn is_significant(new: &Value, old: &Value) -> bool {
    let (new, old) = (&new["spec"], &old["spec"]);
    let images = |spec: &Value, field: &str| -> Vec<String> {
        list(spec, field).iter().map(|container| text(container, "image").to_owned()).collect()
    };
    let differ = |field: &str| images(new, field) != images(old, field);
    let is_new = |container: &Value| {
        !list(old, "ephemeralContainers")
            .iter()
            .any(|known| known["name"] == container["name"] && known["image"] == container["image"])
    };
    differ("containers")
        || differ("initContainers")
        || list(new, "ephemeralContainers").iter().any(is_new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn namespace(labels: &[(&str, &str)]) -> Value {
        let labels: serde_json::Map<String, Value> = labels
            .iter()
            .map(|(mode, value)| (format!("pod-security.kubernetes.io/{mode}"), json!(value)))
            .collect();
        json!({"metadata": {"labels": labels}})
    }

    #[test]
    fn versions_are_read_from_labels() {
        for (label, expected, is_valid) in [
            ("v1.24", "v1.24", true),
            ("v1.0", "v1.0", true),
            ("latest", "latest", true),
            ("", "latest", false),
            ("v1.024", "latest", false),
            ("v2.0", "latest", false),
            ("v1.", "latest", false),
            ("1.24", "latest", false),
            ("v1.+4", "latest", false),
            ("v1.99999999999", "latest", false),
        ] {
            let labels = [("enforce", "baseline"), ("enforce-version", label)];
            let (policy, errors) = Policy::of(&namespace(&labels));
            let expected = format!("baseline:{expected}");
            assert_eq!((policy.enforce.to_string(), errors.is_empty()), (expected, is_valid));
        }
    }

    #[test]
    fn what_is_enforced_is_warned_of() {
        for (labels, expected) in [
            (vec![("enforce", "baseline"), ("enforce-version", "v1.30")], "baseline:v1.30"),
            (vec![("enforce", "baseline"), ("warn-version", "v1.31")], "baseline:v1.31"),
            (vec![("enforce", "baseline"), ("warn", "privileged")], "privileged:latest"),
            (vec![("enforce", "bogus")], "privileged:latest"),
            (vec![("enforce", "baseline"), ("warn", "bogus")], "privileged:latest"),
        ] {
            let (policy, _) = Policy::of(&namespace(&labels));
            assert_eq!(policy.warn.to_string(), expected, "{labels:?}");
        }
    }

    #[test]
    fn pods_with_the_same_violations_are_named_once() {
        let pod = |name: &str, owner: Option<&str>, spec: Value| {
            let owners: Vec<Value> =
                owner.map(|uid| json!({"uid": uid, "controller": true})).into_iter().collect();
            json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": spec})
        };
        let standard = Standard { level: Level::Baseline, version: LATEST };
        let network = json!({"hostNetwork": true});
        let pods = vec![
            pod("z", Some("1"), network.clone()),
            pod("b", Some("1"), network.clone()),
            pod("c", None, network),
            pod("a", None, json!({"hostPID": true, "volumes": [{"name": "v", "hostPath": {}}]})),
            pod("good", None, json!({})),
        ];
        let warnings = existing_pods(standard, "n", pods);
        assert_eq!(
            warnings,
            [
                "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "a: host namespaces, hostPath volumes",
                "b (and 2 other pods): host namespaces",
            ]
        );
    }
}
