//! Conditions and accepted names of CustomResourceDefinitions: computes the next status of a definition from all
//! definitions.
//!
//! Upstream: `pkg/controller/status`, `pkg/controller/establish`, `pkg/controller/apiapproval`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use evenkeel_apimachinery::value::{get, list, set, text};

/// Finalizer that keeps a deleted definition until its custom resources are gone.
///
/// Upstream: `CustomResourceCleanupFinalizer`.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Annotation that approves a definition in a protected group.
const APPROVAL_ANNOTATION: &str = "api-approved.kubernetes.io";

/// Returns whether a condition has the status `True`.
///
/// Upstream: `IsCRDConditionTrue`.
pub fn is_true(crd: &Value, kind: &str) -> bool {
    condition(crd, kind).is_some_and(|c| text(c, "status") == "True")
}

fn condition<'a>(crd: &'a Value, kind: &str) -> Option<&'a Value> {
    list(crd, "status.conditions").iter().find(|c| text(c, "type") == kind)
}

/// Sets a condition from type, status, reason and message. Its transition time changes only with its status.
///
/// Upstream: `SetCRDCondition`.
pub fn set_condition(crd: &mut Value, fields: [&str; 4], now: &str) {
    let [kind, status, reason, message] = fields;
    let same = condition(crd, kind).filter(|c| text(c, "status") == status);
    let since = same.map(|c| text(c, "lastTransitionTime")).filter(|t| !t.is_empty());
    let new = json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since.unwrap_or(now)});
    let mut all = list(crd, "status.conditions").to_vec();
    match all.iter_mut().find(|c| text(c, "type") == kind) {
        Some(old) => *old = new,
        None => all.push(new),
    }
    set(crd, "status.conditions", all);
}

/// Returns the definition with its next status, or `None` if the status stays the same. `others` are all other
/// definitions.
pub fn next_status(crd: &Value, others: &[&Value], now: &str) -> Option<Value> {
    let mut new = crd.clone();
    accept_names(&mut new, others, now);
    set_approval(&mut new, now);
    if new == *crd {
        establish(&mut new, now);
    }
    (new != *crd).then_some(new)
}

/// Accepts the names that no other definition of the group uses, and sets the condition `NamesAccepted`.
///
/// Upstream: `calculateNamesAndConditions`.
fn accept_names(crd: &mut Value, others: &[&Value], now: &str) {
    let requested = crd["spec"]["names"].clone();
    let accepted = crd["status"]["acceptedNames"].clone();
    if requested == accepted && condition(crd, "NamesAccepted").is_some() {
        return;
    }
    let (resources, kinds) = names_in_use(crd, others);
    let mut new = accepted.clone();
    let mut conflict: Option<(&str, String)> = None;
    for (field, reason, used) in [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ] {
        if field == "kind" {
            accept_short_names(&requested, &accepted, &resources, &mut new, &mut conflict);
        }
        let name = text(&requested, field);
        if name != text(&accepted, field) && used.contains(name) {
            conflict = Some((reason, format!("\"{name}\" is already in use")));
        } else {
            set(&mut new, field, name);
        }
    }
    match requested.get("categories") {
        Some(categories) => set(&mut new, "categories", categories.clone()),
        None => {
            evenkeel_apimachinery::value::remove(&mut new, "categories");
        }
    }
    set(crd, "status.acceptedNames", new);
    let all_accepted = conflict.is_none();
    match conflict {
        Some((reason, detail)) => {
            set_condition(crd, ["NamesAccepted", "False", reason, &detail], now);
        }
        None => {
            set_condition(crd, ["NamesAccepted", "True", "NoConflicts", "no conflicts found"], now);
        }
    }
    if is_true(crd, "Established") {
        return;
    }
    if all_accepted {
        let fields = ["Established", "False", "Installing", "the initial names have been accepted"];
        set_condition(crd, fields, now);
    } else if condition(crd, "Established").is_none() {
        let fields = ["Established", "False", "NotAccepted", "not all names are accepted"];
        set_condition(crd, fields, now);
    }
}

fn accept_short_names(
    requested: &Value,
    accepted: &Value,
    used: &BTreeSet<String>,
    new: &mut Value,
    conflict: &mut Option<(&str, String)>,
) {
    let (names, own) = (list(requested, "shortNames"), list(accepted, "shortNames"));
    if names == own {
        return;
    }
    let taken: Vec<String> = names
        .iter()
        .filter(|name| !own.contains(name))
        .filter_map(Value::as_str)
        .filter(|name| used.contains(*name))
        .map(|name| format!("\"{name}\" is already in use"))
        .collect();
    match taken.as_slice() {
        [] if names.is_empty() => {
            evenkeel_apimachinery::value::remove(new, "shortNames");
        }
        [] => set(new, "shortNames", names.to_vec()),
        [one] => *conflict = Some(("ShortNamesConflict", one.clone())),
        many => *conflict = Some(("ShortNamesConflict", format!("[{}]", many.join(", ")))),
    }
}

/// Returns the names of resources and the kinds that other definitions of the group use.
///
/// Upstream: `getAcceptedNamesForGroup`.
fn names_in_use(crd: &Value, others: &[&Value]) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    let group = text(crd, "spec.group");
    for other in others.iter().filter(|other| text(other, "spec.group") == group) {
        let Some(names) = get(other, "status.acceptedNames") else { continue };
        resources.insert(text(names, "plural").to_owned());
        resources.insert(text(names, "singular").to_owned());
        let short = list(names, "shortNames").iter().filter_map(Value::as_str);
        resources.extend(short.map(str::to_owned));
        kinds.insert(text(names, "kind").to_owned());
        kinds.insert(text(names, "listKind").to_owned());
    }
    (resources, kinds)
}

/// Sets the condition `Established` to true if all names are accepted.
///
/// Upstream: `EstablishingController`.
fn establish(crd: &mut Value, now: &str) {
    if is_true(crd, "NamesAccepted") && !is_true(crd, "Established") {
        let fields =
            ["Established", "True", "InitialNamesAccepted", "the initial names have been accepted"];
        set_condition(crd, fields, now);
    }
}

/// Returns whether the group is protected: the Kubernetes community has reserved it for approved APIs.
///
/// Upstream: `IsProtectedCommunityGroup`.
pub fn is_protected_community_group(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group == *own || group.strip_suffix(own).is_some_and(|rest| rest.ends_with('.')))
}

/// Returns status, reason and message of the condition `KubernetesAPIApprovalPolicyConformant`, for a definition in
/// a protected group.
///
/// Upstream: `GetAPIApprovalState`.
pub fn approval_state(crd: &Value) -> [String; 3] {
    let annotations = get(crd, "metadata.annotations");
    let approved = annotations.and_then(|a| a.get(APPROVAL_ANNOTATION)).and_then(Value::as_str);
    let [status, reason, message] = match approved {
        None | Some("") => [
            "False",
            "MissingAnnotation",
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
        ],
        Some(value) if value.starts_with("unapproved") => {
            let message = format!("not approved: {}", evenkeel_apimachinery::status::quote(value));
            return ["False".to_owned(), "UnapprovedAnnotation".to_owned(), message];
        }
        Some(value) if value.starts_with("https://") || value.starts_with("http://") => {
            let message = format!("approved in {value}");
            return ["True".to_owned(), "ApprovedAnnotation".to_owned(), message];
        }
        Some(value) => {
            let message = format!(
                "protected groups must have approval annotation \"{APPROVAL_ANNOTATION}\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111: {value}"
            );
            return ["False".to_owned(), "InvalidAnnotation".to_owned(), message];
        }
    };
    [status, reason, message].map(str::to_owned)
}

fn set_approval(crd: &mut Value, now: &str) {
    if !is_protected_community_group(text(crd, "spec.group")) {
        return;
    }
    let [status, reason, message] = approval_state(crd);
    set_condition(crd, ["KubernetesAPIApprovalPolicyConformant", &status, &reason, &message], now);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a definition without accepted names. All have the same singular and short name.
    fn crd(name: &str, kind: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"group": "e.com", "names": {"plural": name, "singular": "x", "kind": kind,
            "listKind": format!("{kind}List"), "shortNames": ["s"]}}, "status": {"acceptedNames": {"plural": "", "kind": ""}, "conditions": null}})
    }

    /// Applies next statuses until the status stays the same. Returns the definition and the number of changes.
    fn settle(mut crd: Value, others: &[&Value]) -> (Value, usize) {
        let mut steps = 0;
        while let Some(next) = next_status(&crd, others, "t") {
            crd = next;
            steps += 1;
            assert!(steps < 10);
        }
        (crd, steps)
    }

    #[test]
    fn names_are_accepted_before_the_definition_is_established() {
        let (first, steps) = settle(crd("a", "A"), &[]);
        assert_eq!(steps, 2);
        assert!(is_true(&first, "NamesAccepted") && is_true(&first, "Established"));
        assert_eq!(first["status"]["acceptedNames"], first["spec"]["names"]);
        let (second, _) = settle(crd("b", "A"), &[&first]);
        assert!(!is_true(&second, "Established"));
        let names = condition(&second, "NamesAccepted").expect("the condition is set");
        assert_eq!(text(names, "reason"), "ListKindConflict");
        assert_eq!(second["status"]["acceptedNames"], json!({"plural": "b", "kind": ""}));
        let (second, _) = settle(second, &[]);
        assert!(is_true(&second, "Established"));
    }

    #[test]
    fn protected_groups_require_an_approval_annotation() {
        assert!(
            is_protected_community_group("x.k8s.io")
                && is_protected_community_group("kubernetes.io")
                && !is_protected_community_group("ak8s.io")
        );
        let mut crd = crd("a", "A");
        set(&mut crd, "spec.group", "x.k8s.io");
        assert_eq!(approval_state(&crd)[1], "MissingAnnotation");
        set(&mut crd, "metadata.annotations", json!({APPROVAL_ANNOTATION: "https://x"}));
        assert_eq!(approval_state(&crd)[0], "True");
    }
}
