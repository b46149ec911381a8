//! Validation of environment variables whose values are in files of a volume.

use super::names;
use super::persistentvolumesource::no_backsteps;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::Value;

/// Validates a reference to a value in a file of a volume.
///
/// Upstream: `validateFileKeySelector`.
pub(super) fn file_key_ref(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    errors.required_valid(&path.field("key"), text(reference, "key"), names::env_name);
    let volume = text(reference, "volumeName");
    errors.required_valid(&path.field("volumeName"), volume, names::dns_label);
    match text(reference, "path") {
        "" => errors.required(&path.field("path"), ""),
        file => no_backsteps(file, &path.field("path"), errors),
    }
}

/// Requires that files with values of environment variables are in `emptyDir` volumes of the pod.
///
/// Upstream: `validateFileKeyRefVolumes`.
pub(super) fn file_key_volumes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        let all = path.field(field);
        for (index, container) in list(spec, field).iter().enumerate() {
            let path = all.index(index);
            let all = path.field("env");
            for (index, variable) in list(container, "env").iter().enumerate() {
                let Some(reference) = get(variable, "valueFrom.fileKeyRef") else { continue };
                let name = text(reference, "volumeName");
                let volumes = list(spec, "volumes");
                let volume = volumes.iter().rfind(|volume| text(volume, "name") == name);
                let path = all.index(index);
                let path = path.field("valueFrom.fileKeyRef.volumeName");
                match volume {
                    None => errors.not_found(&path, name),
                    Some(volume) if get(volume, "emptyDir").is_none() => {
                        errors.invalid(&path, name, "referenced volume must be of type emptyDir");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn files_are_in_empty_dir_volumes_of_the_pod() {
        let variable = |volume: &str| json!({"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": volume}}});
        let spec = json!({
            "volumes": [{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {}}],
            "containers": [{"env": [variable("e"), variable("s"), variable("x")]}],
        });
        let mut errors = Errors::default();
        file_key_volumes(&spec, &Path::new("spec"), &mut errors);
        let place = "valueFrom.fileKeyRef.volumeName";
        let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        let expected = [
            format!(
                "spec.containers[0].env[1].{place}: Invalid value: \"s\": referenced volume must be of type emptyDir"
            ),
            format!("spec.containers[0].env[2].{place}: Not found: \"x\""),
        ];
        assert_eq!(found, expected);
        let mut errors = Errors::default();
        let reference = json!({"key": "a=b", "volumeName": "A", "path": "a/../b"});
        file_key_ref(&reference, &Path::new("r"), &mut errors);
        let fields: Vec<String> = errors.into_vec().into_iter().map(|one| one.field).collect();
        assert_eq!(fields, ["r.key", "r.volumeName", "r.path"]);
    }
}
