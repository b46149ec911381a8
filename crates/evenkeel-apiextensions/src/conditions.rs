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

/// Returns the condition of a type.
fn condition<'a>(crd: &'a Value, kind: &str) -> Option<&'a Value> {
    list(crd, "status.conditions").iter().find(|c| text(c, "type") == kind)
}

/// Sets the condition of a type to a status, a reason and a message, in this order in `state`. Its transition time
/// changes only with its status.
///
/// Upstream: `SetCRDCondition`.
pub fn set_condition(crd: &mut Value, kind: &str, state: [&str; 3], now: &str) {
    let [status, reason, message] = state;
    let with_same_status = condition(crd, kind).filter(|old| text(old, "status") == status);
    let transition_time = with_same_status
        .map(|old| text(old, "lastTransitionTime"))
        .filter(|time| !time.is_empty())
        .unwrap_or(now);
    let new = json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": transition_time});
    let mut conditions = list(crd, "status.conditions").to_vec();
    match conditions.iter_mut().find(|old| text(old, "type") == kind) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
    set(crd, "status.conditions", conditions);
}

/// Returns the definition with its next status, or `None` if the status does not change. `others` are all other
/// definitions.
pub fn next_status(crd: &Value, others: &[&Value], now: &str) -> Option<Value> {
    let mut new = crd.clone();
    accept_names(&mut new, others, now);
    set_approval(&mut new, now);
    // A definition is established only after its names have been accepted in an earlier status.
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
    // Reason and message of the last conflict.
    let mut conflict: Option<(&str, String)> = None;
    for (field, reason, used) in [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ] {
        // Upstream checks the short names before the kinds, so that a conflict of kinds wins.
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
            set_condition(crd, "NamesAccepted", ["False", reason, &detail], now);
        }
        None => {
            let state = ["True", "NoConflicts", "no conflicts found"];
            set_condition(crd, "NamesAccepted", state, now);
        }
    }
    if is_true(crd, "Established") {
        return;
    }
    if all_accepted {
        let state = ["False", "Installing", "the initial names have been accepted"];
        set_condition(crd, "Established", state, now);
    } else if condition(crd, "Established").is_none() {
        let state = ["False", "NotAccepted", "not all names are accepted"];
        set_condition(crd, "Established", state, now);
    }
}

/// Accepts the short names unless other definitions use some of them, which is a conflict.
fn accept_short_names(
    requested: &Value,
    accepted: &Value,
    used: &BTreeSet<String>,
    new: &mut Value,
    conflict: &mut Option<(&str, String)>,
) {
    let requested = list(requested, "shortNames");
    let accepted = list(accepted, "shortNames");
    if requested == accepted {
        return;
    }
    let messages: Vec<String> = requested
        .iter()
        .filter(|name| !accepted.contains(name))
        .filter_map(Value::as_str)
        .filter(|name| used.contains(*name))
        .map(|name| format!("\"{name}\" is already in use"))
        .collect();
    match messages.as_slice() {
        [] if requested.is_empty() => {
            evenkeel_apimachinery::value::remove(new, "shortNames");
        }
        [] => set(new, "shortNames", requested.to_vec()),
        [message] => *conflict = Some(("ShortNamesConflict", message.clone())),
        messages => {
            let message = format!("[{}]", messages.join(", "));
            *conflict = Some(("ShortNamesConflict", message));
        }
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
        let state = ["True", "InitialNamesAccepted", "the initial names have been accepted"];
        set_condition(crd, "Established", state, now);
    }
}

/// Returns whether the group is protected: the Kubernetes community has reserved it for approved APIs.
///
/// Upstream: `IsProtectedCommunityGroup`.
pub fn is_protected_community_group(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        let prefix = group.strip_suffix(domain);
        prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('.'))
    })
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
        Some(_) => {
            let message = format!(
                "protected groups must have approval annotation \"{APPROVAL_ANNOTATION}\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
            );
            return ["False".to_owned(), "InvalidAnnotation".to_owned(), message];
        }
    };
    [status, reason, message].map(str::to_owned)
}

/// Sets the condition `KubernetesAPIApprovalPolicyConformant` of a definition in a protected group.
fn set_approval(crd: &mut Value, now: &str) {
    if !is_protected_community_group(text(crd, "spec.group")) {
        return;
    }
    let [status, reason, message] = approval_state(crd);
    let kind = "KubernetesAPIApprovalPolicyConformant";
    set_condition(crd, kind, [&status, &reason, &message], now);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a definition without accepted names. All have the same singular and short name.
    fn crd(name: &str, kind: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"group": "e.com", "names": {"plural": name, "singular": "x", "kind": kind,
            "listKind": format!("{kind}List"), "shortNames": ["s"]}}, "status": {"acceptedNames": {"plural": "", "kind": ""}, "conditions": null}})
    }

    /// Applies next statuses until the status does not change. Returns the definition and the number of changes.
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
