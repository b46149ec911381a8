//! Validation of webhook configurations.

use super::{
    FAILURE_POLICIES, MATCH_POLICIES, REINVOCATION_POLICIES, client, dns_1035_label, dns_subdomain,
    get, int, is_changed, items, labels, list, match_conditions, optional, rule_with_operations,
    text,
};
use evenkeel_apimachinery::validation::{Errors, Path};
use serde_json::Value;
use std::collections::BTreeSet;

const SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const TIMEOUT_SECONDS: std::ops::RangeInclusive<i64> = 1..=30;

/// Optional rules for webhooks. The first three apply if the old object obeyed them. All apply to a new object.
struct Options {
    /// Whether each webhook must have no side effects.
    require_no_side_effects: bool,
    /// Whether each webhook must support a review version that the server recognizes.
    require_recognized_version: bool,
    /// Whether the names of webhooks must be unique.
    require_unique_names: bool,
    /// Whether match conditions are validated, because they changed or the object is new.
    validate_match_conditions: bool,
}

impl Options {
    fn new(new: &Value, old: Option<&Value>) -> Self {
        let old_hooks = old.map_or(&[][..], |old| list(old, "webhooks"));
        let new_hooks = list(new, "webhooks");
        let mut names = BTreeSet::new();
        Self {
            require_no_side_effects: old_hooks
                .iter()
                .all(|hook| NO_SIDE_EFFECTS.contains(&text(hook, "sideEffects"))),
            require_recognized_version: old_hooks.iter().all(|hook| {
                let versions = items(hook, "admissionReviewVersions");
                versions.is_empty() || versions.iter().any(|version| is_recognized(version))
            }),
            require_unique_names: old_hooks.iter().all(|hook| names.insert(text(hook, "name"))),
            validate_match_conditions: old.is_none()
                || new_hooks.len() != old_hooks.len()
                || new_hooks
                    .iter()
                    .zip(old_hooks)
                    .any(|(new, old)| is_changed(new, Some(old), "matchConditions")),
        }
    }
}

fn is_recognized(version: &str) -> bool {
    REVIEW_VERSIONS.contains(&version)
}

/// Validates the webhooks of a configuration, and their names and review versions. Some rules only apply if the old
/// object follows them.
///
/// Upstream: `validateValidatingWebhookConfiguration`, `validateMutatingWebhookConfiguration`.
pub(super) fn configuration(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let options = Options::new(new, old);
    let webhooks_path = Path::new("webhooks");
    let mut seen = BTreeSet::new();
    for (index, hook) in list(new, "webhooks").iter().enumerate() {
        let path = webhooks_path.index(index);
        webhook(hook, &options, &path, errors);
        let versions = items(hook, "admissionReviewVersions");
        let require_recognized = options.require_recognized_version;
        let versions_path = path.field("admissionReviewVersions");
        review_versions(&versions, require_recognized, &versions_path, errors);
        let name = text(hook, "name");
        if options.require_unique_names && !name.is_empty() && !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
    }
}

/// Validates a webhook: name, rules, policies, side effects, timeout, selectors, client and match conditions.
///
/// Upstream: `validateValidatingWebhook`, `validateMutatingWebhook`.
fn webhook(hook: &Value, options: &Options, path: &Path<'_>, errors: &mut Errors) {
    fully_qualified_name(text(hook, "name"), &path.field("name"), errors);
    let rules = path.field("rules");
    for (index, rule) in list(hook, "rules").iter().enumerate() {
        rule_with_operations(rule, &rules.index(index), errors);
    }
    optional(hook, "failurePolicy", &FAILURE_POLICIES, path, errors);
    optional(hook, "matchPolicy", &MATCH_POLICIES, path, errors);
    let effects: &[&str] =
        if options.require_no_side_effects { &NO_SIDE_EFFECTS } else { &SIDE_EFFECTS };
    if get(hook, "sideEffects").is_none() {
        let detail = format!("must specify one of {}", effects.join(", "));
        errors.required(&path.field("sideEffects"), &detail);
    }
    optional(hook, "sideEffects", effects, path, errors);
    if let Some(seconds) =
        int(hook, "timeoutSeconds").filter(|seconds| !TIMEOUT_SECONDS.contains(seconds))
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.field("timeoutSeconds"), seconds, detail);
    }
    for name in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = get(hook, name) {
            labels::selector(selector, &path.field(name), errors);
        }
    }
    optional(hook, "reinvocationPolicy", &REINVOCATION_POLICIES, path, errors);
    client::config(hook.get("clientConfig").unwrap_or(&Value::Null), path, errors);
    if options.validate_match_conditions {
        let field_path = path.field("matchConditions");
        match_conditions(list(hook, "matchConditions"), &field_path, errors);
    }
}

/// Requires a DNS name of at least three segments.
///
/// Upstream: `IsFullyQualifiedName`.
fn fully_qualified_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let messages = dns_subdomain(name);
    if name.is_empty() {
        errors.required(path, "");
    } else if !messages.is_empty() {
        errors.invalid(path, name, &messages.join(","));
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.invalid(path, name, detail);
    }
}

/// Requires unique review versions. `require_recognized` is whether one of them must be known to this server.
///
/// Upstream: `validateAdmissionReviewVersions`.
fn review_versions(
    versions: &[String],
    require_recognized: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let known = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        errors.required(path, &format!("must specify one of {known}"));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        let path = path.index(index);
        if seen.insert(version) {
            errors.invalid_for_each(&path, version, &dns_1035_label(version));
        } else {
            errors.invalid(&path, version.as_str(), "duplicate version");
        }
    }
    if require_recognized
        && !versions.iter().any(|version| is_recognized(version))
        && !errors.is_full()
    {
        let detail = format!("must include at least one of {known}");
        errors.invalid(path, versions.to_vec(), &detail);
    }
}
