//! Validation of the environment of containers, and of references to fields of the pod.

use super::containers::each_container;
use super::names;
use super::persistentvolumesource::no_backsteps;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::Value;

/// Validates the environment of a container.
///
/// Upstream: `ValidateEnv`, `ValidateEnvFrom`.
pub(super) fn env(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let env_path = path.field("env");
    for (index, variable) in list(container, "env").iter().enumerate() {
        let path = env_path.index(index);
        errors.required_valid(&path.field("name"), text(variable, "name"), names::env_name);
        if let Some(source) = get(variable, "valueFrom") {
            env_source(variable, source, &path.field("valueFrom"), errors);
        }
    }
    let env_from_path = path.field("envFrom");
    for (index, source) in list(container, "envFrom").iter().enumerate() {
        let path = env_from_path.index(index);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            errors.invalid_for_each(&path.field("prefix"), prefix, &names::env_name(prefix));
        }
        let mut source_count = 0;
        for field in ["configMapRef", "secretRef"] {
            let Some(reference) = get(source, field) else { continue };
            source_count += 1;
            let path = path.field(field);
            // As in upstream, the name may be a prefix, which may end with a dash.
            let name = |name: &str| crate::names::dns_subdomain(name, true);
            errors.required_valid(&path.field("name"), text(reference, "name"), name);
        }
        match source_count {
            // As in upstream, the error is about the list, not its item.
            0 => errors.invalid(
                &env_from_path,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            ),
            1 => {}
            _ => errors.invalid(
                &env_from_path,
                "",
                "may not have more than one field specified at a time",
            ),
        }
    }
}

/// Validates the source of an environment variable. Exactly one source must be set.
///
/// Upstream: `validateEnvVarValueFrom`.
fn env_source(variable: &Value, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut source_count = 0;
    if let Some(reference) = get(source, "fieldRef") {
        source_count += 1;
        field_ref(reference, ENV_FIELDS, &path.field("fieldRef"), errors);
    }
    if let Some(reference) = get(source, "resourceFieldRef") {
        source_count += 1;
        resource_field_ref(reference, false, &path.field("resourceFieldRef"), errors);
    }
    for field in ["configMapKeyRef", "secretKeyRef"] {
        let Some(reference) = get(source, field) else { continue };
        source_count += 1;
        let path = path.field(field);
        let name = text(reference, "name");
        errors.invalid_for_each(&path.field("name"), name, &names::dns_subdomain(name));
        errors.required_valid(&path.field("key"), text(reference, "key"), names::config_key);
    }
    if let Some(reference) = get(source, "fileKeyRef") {
        source_count += 1;
        file_key_ref(reference, &path.field("fileKeyRef"), errors);
    }
    let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
    if source_count == 0 {
        errors.invalid(path, "", detail);
    } else if !text(variable, "value").is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if source_count > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

/// Pod fields that an environment variable may reference.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Pod fields that a downward API volume may reference.
pub(super) const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// Pod fields that upstream supports in selectors only.
const SELECTOR_FIELDS: [&str; 3] = ["spec.restartPolicy", "spec.schedulerName", "status.phase"];

/// Resources of a container, other than huge pages, that `resourceFieldRef` may reference.
const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Validates a reference to a field of the pod.
///
/// Upstream: `validateObjectFieldSelector`, `ConvertDownwardAPIFieldLabel`.
pub(super) fn field_ref(reference: &Value, allowed: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let (version, field) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    let field_path = path.field("fieldPath");
    if version.is_empty() {
        return errors.required(&path.field("apiVersion"), "");
    }
    if field.is_empty() {
        return errors.required(&field_path, "");
    }
    let subscripted = field.strip_suffix("']").and_then(|field| field.split_once("['"));
    let subscripted = subscripted.filter(|(map, _)| !map.is_empty());
    let field = if field == "spec.host" { "spec.nodeName" } else { field };
    let is_known =
        || [ENV_FIELDS, VOLUME_FIELDS, &SELECTOR_FIELDS].iter().any(|known| known.contains(&field));
    let problem = match subscripted {
        _ if version != "v1" => Some(format!("unsupported pod version: {version}")),
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {field}")),
        None if is_known() => None,
        None => Some(format!("field label not supported: {field}")),
    };
    if let Some(problem) = problem {
        return errors.invalid(
            &field_path,
            field,
            &format!("error converting fieldPath: {problem}"),
        );
    }
    match subscripted {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            errors.invalid_for_each(path, &key, &names::qualified_name(&key));
        }
        Some((_, key)) => errors.invalid_for_each(path, key, &names::qualified_name(key)),
        None => errors.one_of(&field_path, field, allowed),
    }
}

/// Validates a reference to a resource of a container, which a volume must name.
///
/// Upstream: `validateContainerResourceFieldSelector`.
pub(super) fn resource_field_ref(
    reference: &Value,
    of_volume: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let name = text(reference, "resource");
    let is_huge = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    match name {
        _ if of_volume && text(reference, "containerName").is_empty() => {
            errors.required(&path.field("containerName"), "");
        }
        "" => errors.required(&path.field("resource"), ""),
        _ if is_huge => {}
        name => errors.one_of(&path.field("resource"), name, RESOURCE_FIELDS),
    }
    divisor(reference, name, is_huge, path, errors);
}

/// Validates the divisor of a resource reference. The allowed divisors depend on the resource.
///
/// Upstream: `validateContainerResourceDivisor`.
fn divisor(reference: &Value, name: &str, is_huge: bool, path: &Path<'_>, errors: &mut Errors) {
    const SIZES: [&str; 13] =
        ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let divisor = text(reference, "divisor");
    let (known, resource) = match name {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"][..], "cpu"),
        "limits.memory" | "requests.memory" => (&SIZES[..], "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (&SIZES[..], "local ephemeral storage")
        }
        _ if is_huge => (&SIZES[..], "hugepages"),
        _ => return,
    };
    if !["", "0"].contains(&divisor) && !known.contains(&divisor) {
        let known = if resource == "cpu" { known.join(" and ") } else { known.join(", ") };
        let detail =
            format!("only divisor's values {known} are supported with the {resource} resource");
        errors.invalid(&path.field("divisor"), name, &detail);
    }
}

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
    each_container(spec, path, |container, path| {
        let env_path = path.field("env");
        for (index, variable) in list(container, "env").iter().enumerate() {
            let Some(reference) = get(variable, "valueFrom.fileKeyRef") else { continue };
            let name = text(reference, "volumeName");
            let volumes = list(spec, "volumes");
            let volume = volumes.iter().rfind(|volume| text(volume, "name") == name);
            let path = env_path.index(index);
            let path = path.field("valueFrom.fileKeyRef.volumeName");
            match volume {
                None => errors.not_found(&path, name),
                Some(volume) if get(volume, "emptyDir").is_none() => {
                    errors.invalid(&path, name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    });
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

    #[test]
    fn references_name_known_fields() {
        for (version, field, expected) in [
            ("v1", "metadata.name", None),
            ("v1", "spec.host", None),
            ("v1", "metadata.labels['a']", None),
            ("v1", "metadata.annotations['A']", None),
            ("", "metadata.name", Some("r.apiVersion")),
            ("v1", "", Some("r.fieldPath")),
            ("v2", "metadata.name", Some("r.fieldPath")),
            ("v1", "status.phase", Some("r.fieldPath")),
            ("v1", "metadata.labels", Some("r.fieldPath")),
            ("v1", "spec.x['a']", Some("r.fieldPath")),
            ("v1", "metadata.labels['a b']", Some("r")),
        ] {
            let mut errors = Errors::default();
            let reference = json!({"apiVersion": version, "fieldPath": field});
            field_ref(&reference, ENV_FIELDS, &Path::new("r"), &mut errors);
            let fields: Vec<String> = errors.into_vec().into_iter().map(|one| one.field).collect();
            let expected: Vec<&str> = expected.into_iter().collect();
            assert_eq!(fields, expected, "{version} {field}");
        }
        for (of_volume, expected) in [(false, None), (true, Some("r.containerName"))] {
            let mut errors = Errors::default();
            let reference = json!({"resource": "limits.cpu", "divisor": "1m"});
            resource_field_ref(&reference, of_volume, &Path::new("r"), &mut errors);
            let found = errors.into_vec().into_iter().map(|one| one.field).next();
            assert_eq!(found.as_deref(), expected);
        }
    }
}
