//! Validation of device classes, and of driver configurations.

use super::super::quantity;
use super::selector::selectors;
use super::{ErrorLists, items, names};
use evenkeel_api::forms;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::Value;

/// Maximum number of configurations of a class or a claim.
pub(super) const MAX_CONFIGS: usize = 32;
/// Maximum length of a driver's parameters in bytes.
const MAX_PARAMETERS: usize = 10 * 1024;

/// Validates the selectors, the configurations and the extended resource's name of a class.
///
/// Upstream: `ValidateDeviceClass`, `ValidateDeviceClassUpdate`.
pub(super) fn device_class(class: &Value, old: Option<&Value>, lists: &mut ErrorLists) {
    let path = Path::new("spec");
    let is_stored = |field: &str| old.is_some_and(|old| get(class, field) == get(old, field));
    let stored = is_stored("spec.selectors");
    selectors(list(class, "spec.selectors"), stored, &path.field("selectors"), lists);
    let stored = is_stored("spec.config");
    let config = list(class, "spec.config");
    items(config, MAX_CONFIGS, &path.field("config"), lists, |config, path, lists| {
        device_configuration(config, stored, path, lists);
    });
    if let Some(name) = get(class, "spec.extendedResourceName").and_then(Value::as_str) {
        extended_resource_name(name, &path.field("extendedResourceName"), &mut lists.declarative);
    }
}

/// Validates the name of an extended resource.
///
/// Upstream: `ExtendedResourceName`.
fn extended_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if !name.contains('/') {
        errors.invalid(
            path,
            name,
            "a name must be a domain-prefixed path, such as 'example.com/my-prop'",
        );
    } else if quantity::is_native(name) {
        errors.invalid(path, name, "must not have \"kubernetes.io/\" domain");
    }
    if name.starts_with("requests.") {
        errors.invalid(path, name, "must not have \"requests.\" prefix");
    }
    errors.invalid_for_each(path, name, &forms::qualified_name(&format!("requests.{name}")));
}

/// Validates a driver configuration. If `stored`, the stored object has the same configurations, and no size limit
/// applies.
///
/// Upstream: `validateDeviceConfiguration`, `validateOpaqueConfiguration`.
pub(super) fn device_configuration(
    config: &Value,
    stored: bool,
    path: &Path<'_>,
    lists: &mut ErrorLists,
) {
    let path = path.field("opaque");
    let Some(opaque) = get(config, "opaque") else {
        return lists.handwritten.required(&path, "");
    };
    let parameters = path.field("parameters");
    raw_extension(get(opaque, "parameters"), stored, &parameters, &mut lists.handwritten);
    names::declared_driver(text(opaque, "driver"), &path.field("driver"), &mut lists.declarative);
}

/// Validates a value that must be an object. Unless it is `stored`, its size is limited.
///
/// Upstream: `validateRawExtension`.
pub(super) fn raw_extension(
    value: Option<&Value>,
    stored: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    match value {
        None => errors.required(path, ""),
        Some(value) if !stored && value.to_string().len() > MAX_PARAMETERS => {
            errors.too_long(path, MAX_PARAMETERS);
        }
        Some(Value::Object(_)) => {}
        Some(_) => errors.invalid(path, "<value omitted>", "must be a valid JSON object"),
    }
}
