//! AppArmor profiles that deprecated annotations name. A new pod gets them in its fields.
//!
//! Upstream: `applyAppArmorVersionSkew`.

use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{self, get, object, set, text};
use serde_json::{Value, json};

use crate::validation::pod_annotations::APP_ARMOR;
use crate::validation::pod_security::app_armor_profile;

/// Field of a container or a pod.
const FIELD: &str = "securityContext.appArmorProfile";

/// Sets the profile of each container whose profile only an annotation names, unless that profile equals the pod's.
pub(crate) fn copy_annotations(pod: &mut Value) {
    if !has_annotation(pod) || text(pod, "spec.os.name") == "windows" {
        return;
    }
    let annotations = object(pod, "metadata.annotations").cloned().unwrap_or_default();
    let of_pod = get(pod, &format!("spec.{FIELD}")).cloned();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        value::each(pod, &format!("spec?.{list}.*"), &mut |container| {
            let annotation = annotations.get(&annotation_key(container)).and_then(Value::as_str);
            if get(container, FIELD).is_none()
                && let Some(profile) = annotation.and_then(valid_profile)
                && Some(&profile) != of_pod.as_ref()
            {
                set(container, FIELD, profile);
            }
        });
    }
}

/// Returns warnings about the annotations of a new pod in the form that its client sent: annotations without a valid
/// profile, and annotations whose profile no field names.
pub fn warnings(pod: &Value) -> Vec<String> {
    if text(pod, "spec.os.name") == "windows" {
        return Vec::new();
    }
    let Some(spec) = get(pod, "spec") else { return Vec::new() };
    let of_pod = get(spec, FIELD);
    let is_covered = |annotation: &str| {
        valid_profile(annotation).is_some_and(|profile| of_pod == Some(&profile))
    };
    uncovered(pod, spec, "", is_covered)
}

/// Returns warnings about annotations of the pod template at `path` whose profile no field names.
///
/// Upstream: `warningsForPodSpecAndMeta`.
pub(crate) fn template_warnings(template: &Value, spec: &Value, path: &str) -> Vec<String> {
    let of_pod = get(spec, FIELD);
    let is_covered = |annotation: &str| of_pod.is_some() && of_pod == profile(annotation).as_ref();
    uncovered(template, spec, &format!("{path}."), is_covered)
}

/// Returns a warning about the annotation of each container without a profile, unless the annotation is covered.
fn uncovered(
    owner: &Value,
    spec: &Value,
    prefix: &str,
    is_covered: impl Fn(&str) -> bool,
) -> Vec<String> {
    if !has_annotation(owner) {
        return Vec::new();
    }
    let annotations = object(owner, "metadata.annotations");
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let containers = lists.iter().flat_map(|list| value::list(spec, list));
    let without_field = containers.filter(|container| get(container, FIELD).is_none());
    without_field
        .filter_map(|container| {
            let key = annotation_key(container);
            let annotation = annotations?.get(&key)?.as_str()?;
            (!is_covered(annotation)).then(|| {
                format!(
                    "{prefix}metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
                )
            })
        })
        .collect()
}

/// Returns whether a pod or template has such an annotation. Few have one, and the others need no further work.
fn has_annotation(owner: &Value) -> bool {
    let mut keys = object(owner, "metadata.annotations").into_iter().flat_map(|map| map.keys());
    keys.any(|key| key.starts_with(APP_ARMOR))
}

fn annotation_key(container: &Value) -> String {
    format!("{APP_ARMOR}{}", text(container, "name"))
}

/// Returns the profile that an annotation names.
///
/// Upstream: `ApparmorFieldForAnnotation`.
fn profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let name = annotation.strip_prefix("localhost/").filter(|name| !name.is_empty())?;
            Some(json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}

/// Returns the profile that an annotation names, if a field can have it.
fn valid_profile(annotation: &str) -> Option<Value> {
    let profile = profile(annotation)?;
    let mut errors = Errors::default();
    app_armor_profile(&json!({"appArmorProfile": profile}), &Path::new("spec"), &mut errors);
    errors.into_vec().is_empty().then_some(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_become_fields_unless_the_pod_has_the_profile() {
        let default = json!({"type": "RuntimeDefault"});
        let unconfined = json!({"type": "Unconfined"});
        // Annotation, profile of the pod, profile of the container before and after, and whether there is a warning.
        for (annotation, of_pod, before, after, warns) in [
            (Some("unconfined"), None, None, Some(&unconfined), true),
            (Some("unconfined"), Some(&default), None, Some(&unconfined), true),
            (Some("runtime/default"), Some(&default), None, None, false),
            (Some("unconfined"), None, Some(&default), Some(&default), false),
            (Some("localhost/"), None, None, None, true),
            (Some("unknown"), None, None, None, true),
            (None, Some(&default), None, None, false),
        ] {
            let mut pod = json!({"metadata": {"annotations": {}},
                "spec": {"containers": [{"name": "c"}], "securityContext": {}}});
            if let Some(annotation) = annotation {
                pod["metadata"]["annotations"][format!("{APP_ARMOR}c")] = annotation.into();
            }
            if let Some(of_pod) = of_pod {
                pod["spec"]["securityContext"]["appArmorProfile"] = of_pod.clone();
            }
            if let Some(before) = before {
                set(&mut pod["spec"]["containers"][0], FIELD, before.clone());
            }
            assert_eq!(!warnings(&pod).is_empty(), warns, "{pod}");
            copy_annotations(&mut pod);
            assert!(pod["spec"].get("initContainers").is_none(), "{pod}");
            assert_eq!(get(&pod["spec"]["containers"][0], FIELD), after, "{pod}");
        }
    }
}
