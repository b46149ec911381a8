//! Reads the configuration file as strictly as upstream does.

use super::{GROUP, KubeSchedulerConfiguration, schema};
use serde_json::{Value, json};

/// Reason why a configuration file is invalid. The message is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReadError(String);

const KIND: &str = "KubeSchedulerConfiguration";

/// Parses YAML or JSON, and checks the arguments of in-tree plugins. The arguments of other plugins stay unchanged.
///
/// # Errors
/// Fails if a field is unknown or has a value of a wrong type, or if the file is not a configuration.
pub(super) fn read(text: &str) -> Result<KubeSchedulerConfiguration, ReadError> {
    let strict = |error: String| ReadError(format!("strict decoding error: {error}"));
    let mut tree: Value =
        serde_saphyr::from_str(text).map_err(|error| strict(format!("yaml: {error}")))?;
    check_version_and_kind(&tree, GROUP, KIND).map_err(ReadError)?;
    let unknown_fields = schema::reduce_to_struct(&mut tree, KIND).map_err(ReadError)?;
    let errors_of_args = check_all_plugin_args(&mut tree)?;
    let errors: Vec<String> =
        unknown_fields.iter().map(|path| unknown_field(path)).chain(errors_of_args).collect();
    if !errors.is_empty() {
        return Err(strict(errors.join(", ")));
    }
    serde_json::from_value(tree).map_err(|error| ReadError(error.to_string()))
}

/// Returns the error of an unknown field.
fn unknown_field(path: &str) -> String {
    format!("unknown field {path:?}")
}

/// Checks `apiVersion` and `kind`.
fn check_version_and_kind(tree: &Value, version: &str, kind: &str) -> Result<(), String> {
    let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        (_, "") => Err(format!("Object 'Kind' is missing in '{tree}'")),
        ("", _) => Err(format!("Object 'apiVersion' is missing in '{tree}'")),
        (found_version, found_kind) if found_version == version && found_kind == kind => Ok(()),
        (found_version, found_kind) => Err(not_registered(found_kind, found_version)),
    }
}

/// Returns the error of an unknown kind or version.
fn not_registered(kind: &str, version: &str) -> String {
    format!("no kind {kind:?} is registered for version {version:?}")
}

/// Checks the arguments of in-tree plugins. Returns the errors about unknown fields.
fn check_all_plugin_args(tree: &mut Value) -> Result<Vec<String>, ReadError> {
    let mut errors = Vec::new();
    let profiles = tree.get_mut("profiles").and_then(Value::as_array_mut);
    for (profile_index, profile) in profiles.into_iter().flatten().enumerate() {
        let Some(configs) = profile.get_mut("pluginConfig").and_then(Value::as_array_mut) else {
            continue;
        };
        for (config_index, config) in configs.iter_mut().enumerate() {
            let path = format!("decoding .profiles[{profile_index}].pluginConfig[{config_index}]");
            let checked = check_plugin_args(config);
            let unknown = checked.map_err(|error| ReadError(format!("{path}: {error}")))?;
            errors.extend(unknown.map(|error| format!("{path}: strict decoding error: {error}")));
        }
    }
    Ok(errors)
}

/// Checks the arguments of one plugin, and sets their kind and version. Returns one error about all unknown fields.
fn check_plugin_args(config: &mut Value) -> Result<Option<String>, String> {
    let name = config.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = format!("{name}Args");
    if !schema::has_struct(&kind) {
        return Ok(None);
    }
    let args = &mut config["args"];
    if args.is_null() {
        *args = json!({});
    }
    let path = format!("decoding args for plugin {name}");
    let text_or = |field: &str, default: &str| {
        args.get(field)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
            .unwrap_or(default)
            .to_owned()
    };
    let (found_kind, version) = (text_or("kind", &kind), text_or("apiVersion", GROUP));
    if version != GROUP || !schema::has_struct(&found_kind) {
        return Err(format!("{path}: {}", not_registered(&found_kind, &version)));
    }
    if found_kind != kind {
        let (group, _) = GROUP.split_once('/').unwrap_or((GROUP, ""));
        return Err(format!(
            "args for plugin {name} were not of type {kind}.{group}, got {found_kind}.{group}"
        ));
    }
    let unknown =
        schema::reduce_to_struct(args, &kind).map_err(|error| format!("{path}: {error}"))?;
    args["kind"] = kind.into();
    args["apiVersion"] = GROUP.into();
    if unknown.is_empty() {
        return Ok(None);
    }
    let fields: Vec<String> = unknown.iter().map(|path| unknown_field(path)).collect();
    Ok(Some(format!("{path}: strict decoding error: {}", fields.join(", "))))
}
