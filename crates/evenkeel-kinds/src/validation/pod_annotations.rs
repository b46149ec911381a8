//! Validation of the annotations of pods that have a meaning, and of their agreement with newer fields.

use super::containers::each_container;
use super::volume::descending_path;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{Object, get, object, text};
use serde_json::Value;

/// Annotation of a mirror pod, the API object of a static pod.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Annotation that names the seccomp profile of a pod.
pub const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// Start of the annotations that name the seccomp profile of a container.
pub const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// Start of the annotations that name the AppArmor profile of a container.
pub const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

fn annotations(owner: &Value) -> impl Iterator<Item = (&str, &str)> {
    let annotations = object(owner, "metadata.annotations").into_iter().flatten();
    annotations.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

fn annotation<'a>(owner: &'a Value, key: &str) -> Option<&'a str> {
    object(owner, "metadata.annotations")?.get(key)?.as_str()
}

/// Returns whether a pod is the mirror of a static one.
pub(super) fn is_mirror(pod: &Value) -> bool {
    annotation(pod, MIRROR).is_some()
}

/// Validates the annotations of a pod or of a template. `old` is the previous pod or template of an update. An update
/// may keep its invalid deletion cost.
///
/// Upstream: `ValidatePodSpecificAnnotations`.
pub(super) fn values(owner: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    if let Some(value) = annotation(owner, MIRROR)
        && text(owner, "spec.nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(&path.key(MIRROR), value, detail);
    }
    let cost = |owner| annotation(owner, DELETION_COST).filter(|cost| !is_deletion_cost(cost));
    if let Some(cost) = cost(owner).filter(|_| old.and_then(cost).is_none()) {
        errors.invalid(&path.key(DELETION_COST), cost, "must be a 32bit integer");
    }
    for (key, value) in annotations(owner) {
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp_profile(value, &path.field(key), errors);
        }
    }
    for (key, value) in annotations(owner) {
        let Some(name) = key.strip_prefix(APP_ARMOR) else { continue };
        let path = path.key(key);
        if !has_container(owner, name) {
            errors.invalid(&path, name, "container not found");
        }
        let is_known = matches!(value, "" | "runtime/default" | "unconfined");
        if !is_known && !value.starts_with("localhost/") {
            let quoted = evenkeel_apimachinery::status::quote(value);
            errors.invalid(&path, value, &format!("invalid AppArmor profile name: {quoted}"));
        }
    }
}

/// Returns whether a string is a 32-bit integer without a plus sign or leading zeros.
///
/// Upstream: `GetDeletionCostFromPodAnnotations`.
fn is_deletion_cost(text: &str) -> bool {
    let starts_well =
        text == "0" || text.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    starts_well && text.parse::<i32>().is_ok()
}

/// Validates a seccomp profile in an annotation: a known name, or `localhost/` with a path.
///
/// Upstream: `ValidateSeccompProfile`.
fn seccomp_profile(profile: &str, path: &Path<'_>, errors: &mut Errors) {
    match profile.strip_prefix("localhost/") {
        Some(file) => descending_path(file, path, errors),
        None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
        None => errors.invalid(path, profile, "must be a valid seccomp profile"),
    }
}

fn has_container(owner: &Value, name: &str) -> bool {
    let mut has = false;
    if let Some(spec) = get(owner, "spec") {
        each_container(spec, &Path::new("spec"), |container, _| {
            has |= text(container, "name") == name;
        });
    }
    has
}

/// Rejects changes of annotations that are immutable after a pod's creation.
///
/// Upstream: `ValidatePodSpecificAnnotationUpdates`.
pub(super) fn changes(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (before, after, words) in [(old, new, "remove or update"), (new, old, "add")] {
        for (key, value) in annotations(before) {
            let other = annotation(after, key);
            let is_same = if words == "add" { other.is_some() } else { other == Some(value) };
            let what = match key {
                MIRROR => "mirror pod annotation",
                _ if key.starts_with(APP_ARMOR) => "AppArmor annotations",
                _ => continue,
            };
            if !is_same {
                errors.forbidden(&path.key(key), &format!("may not {words} {what}"));
            }
        }
    }
}

/// Requires that annotations and fields of a new pod or of a template name the same profiles.
///
/// Upstream: `validateSeccompAnnotationsAndFields`, `validateAppArmorAnnotationsAndFieldsMatchOnCreate`.
pub(super) fn match_fields(owner: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(spec) = get(owner, "spec") else { return };
    if object(owner, "metadata.annotations").is_none_or(Object::is_empty) {
        return;
    }
    let seccomp = Kind { name: "seccomp", defaults: &["runtime/default", "docker/default"] };
    let app_armor = Kind { name: "apparmor", defaults: &["runtime/default"] };
    const SECCOMP: &str = "securityContext.seccompProfile";
    if let Some(profile) = get(spec, SECCOMP) {
        seccomp.matches(annotation(owner, SECCOMP_POD), profile, &path.field(SECCOMP), errors);
    }
    each_container(spec, path, |container, path| {
        if let Some(profile) = get(container, SECCOMP) {
            let annotation =
                annotation(owner, &format!("{SECCOMP_CONTAINER}{}", text(container, "name")));
            seccomp.matches(annotation, profile, &path.field(SECCOMP), errors);
        }
    });
    if text(spec, "os.name") == "windows" {
        return;
    }
    const FIELD: &str = "securityContext.appArmorProfile";
    let of_pod = get(spec, FIELD);
    each_container(spec, path, |container, path| {
        if let Some(profile) = get(container, FIELD).or(of_pod) {
            let annotation = annotation(owner, &format!("{APP_ARMOR}{}", text(container, "name")));
            app_armor.matches(annotation, profile, &path.field(FIELD), errors);
        }
    });
}

/// A kind of profiles that annotations can name.
struct Kind {
    name: &'static str,
    /// Annotations of the runtime's default.
    defaults: &'static [&'static str],
}

impl Kind {
    /// Rejects a profile that an annotation contradicts.
    ///
    /// Upstream: `validateSeccompAnnotationsAndFieldsMatch`.
    fn matches(
        &self,
        annotation: Option<&str>,
        profile: &Value,
        path: &Path<'_>,
        errors: &mut Errors,
    ) {
        let Some(annotation) = annotation else { return };
        let is_type = match text(profile, "type") {
            "Unconfined" => annotation == "unconfined",
            "RuntimeDefault" => self.defaults.contains(&annotation),
            "Localhost" => annotation.starts_with("localhost/"),
            _ => return,
        };
        let file = get(profile, "localhostProfile").and_then(Value::as_str);
        let name = self.name;
        if !is_type {
            let detail = format!("{name} type in annotation and field must match");
            errors.forbidden(&path.field("type"), &detail);
        } else if text(profile, "type") == "Localhost"
            && annotation.strip_prefix("localhost/") != file
        {
            let detail = format!("{name} profile in annotation and field must match");
            errors.forbidden(&path.field("localhostProfile"), &detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(errors: Errors) -> Vec<String> {
        errors.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn annotations_with_a_meaning_are_validated() {
        for (key, value, expected) in [
            (DELETION_COST, "-10", None),
            (DELETION_COST, "+10", Some("must be a 32bit integer")),
            (DELETION_COST, "08", None),
            (SECCOMP_POD, "localhost/a", None),
            (SECCOMP_POD, "localhost/../a", Some("must not contain '..'")),
            (SECCOMP_POD, "x", Some("must be a valid seccomp profile")),
            (MIRROR, "x", Some("must set spec.nodeName if mirror pod annotation is set")),
        ] {
            let expected = if value == "08" { Some("must be a 32bit integer") } else { expected };
            let pod = json!({"metadata": {"annotations": {key: value}}});
            let mut errors = Errors::default();
            values(&pod, None, &Path::new("a"), &mut errors);
            let found = texts(errors).pop();
            let ends = found.as_deref().zip(expected).is_none_or(|(text, end)| text.ends_with(end));
            assert!(ends && found.is_some() == expected.is_some(), "{key} {value}: {found:?}");
            let mut errors = Errors::default();
            values(&pod, Some(&pod), &Path::new("a"), &mut errors);
            assert_eq!(errors.is_empty(), key == DELETION_COST || expected.is_none(), "{key}");
        }
        let key = format!("{APP_ARMOR}c");
        let pod = json!({"metadata": {"annotations": {&*key: "x"}}, "spec": {"containers": [{"name": "d"}]}});
        let mut errors = Errors::default();
        values(&pod, None, &Path::new("a"), &mut errors);
        let expected = [
            format!("a[{key}]: Invalid value: \"c\": container not found"),
            format!("a[{key}]: Invalid value: \"x\": invalid AppArmor profile name: \"x\""),
        ];
        assert_eq!(texts(errors), expected);
    }

    #[test]
    fn some_annotations_stay() {
        let pod = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let (with, without) = (pod(json!({MIRROR: "a", "b": "c"})), pod(json!({})));
        let other = pod(json!({MIRROR: "b"}));
        for (new, old, expected) in [
            (&with, &with, None),
            (&with, &without, Some("may not add")),
            (&without, &with, Some("may not remove or update")),
            (&other, &with, Some("may not remove or update")),
        ] {
            let mut errors = Errors::default();
            changes(new, old, &Path::new("a"), &mut errors);
            let expected: Vec<String> = expected
                .map(|words| format!("a[{MIRROR}]: Forbidden: {words} mirror pod annotation"))
                .into_iter()
                .collect();
            assert_eq!(texts(errors), expected, "{new} {old}");
        }
    }

    #[test]
    fn profiles_of_annotations_and_fields_agree() {
        let pod = |annotation: &str, type_: &str, file: Option<&str>| {
            let key = format!("{APP_ARMOR}c");
            json!({"metadata": {"annotations": {key: annotation}}, "spec": {"containers": [{
                "name": "c", "securityContext": {"appArmorProfile": {"type": type_, "localhostProfile": file}}}]}})
        };
        for (pod, expected) in [
            (pod("unconfined", "Unconfined", None), None),
            (pod("localhost/a", "Localhost", Some("a")), None),
            (pod("localhost/a", "Localhost", Some("b")), Some("localhostProfile")),
            (pod("unconfined", "RuntimeDefault", None), Some("type")),
        ] {
            let mut errors = Errors::default();
            match_fields(&pod, &Path::new("s"), &mut errors);
            let fields: Vec<String> = errors.into_vec().into_iter().map(|one| one.field).collect();
            let expected: Vec<String> = expected
                .map(|field| format!("s.containers[0].securityContext.appArmorProfile.{field}"))
                .into_iter()
                .collect();
            assert_eq!(fields, expected, "{pod}");
        }
    }
}
