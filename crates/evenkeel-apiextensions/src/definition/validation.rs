//! Validation of CustomResourceDefinitions, except their schemas.
//!
//! Errors use the field paths of upstream's internal version, which has one field for a value that all versions
//! share. An error in a shared schema is at `spec.validation`, an error in another schema at
//! `spec.versions[i].schema`.
//!
//! Upstream: `apis/apiextensions/validation/validation.go`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::Value;

use super::schema;
use crate::conditions;
use crate::field_path;
use evenkeel_api::forms::{dns_1035_label, dns_subdomain};
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::{flag, get, list, same, text};

/// Maximum number of selectable fields per version.
///
/// Upstream: `MaxSelectableFields`.
const MAX_SELECTABLE_FIELDS: u64 = 8;

/// Validates a definition. `old` is the stored definition of an update.
///
/// Upstream: `ValidateCustomResourceDefinition`, `validateCustomResourceDefinitionUpdate`.
pub fn validate_custom_resource_definition(
    crd: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    validate_group_and_scope(crd, errors);
    validate_versions(crd, old, errors);
    let requested_names = &crd["spec"]["names"];
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(requested_names, name).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{name}"), ""));
        }
    }
    validate_names(requested_names, "spec.names", errors);
    validate_conversion(crd, errors);
    if let Some(old) = old {
        validate_spec_update(crd, old, errors);
    }
    validate_names(&crd["status"]["acceptedNames"], "status.acceptedNames", errors);
    validate_stored_versions(crd, errors);
    let has_defaults = || {
        let versions = list(crd, "spec.versions");
        versions.iter().any(|version| has_default(&version["schema"]["openAPIV3Schema"]))
    };
    if flag(crd, "spec.preserveUnknownFields") && has_defaults() {
        let detail = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
    }
    if flag(crd, "spec.preserveUnknownFields")
        && !old.is_some_and(|o| flag(o, "spec.preserveUnknownFields"))
    {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
    }
}

/// Requires a group that is a domain with a dot, and a known scope.
fn validate_group_and_scope(crd: &Value, errors: &mut Vec<FieldError>) {
    let group = text(crd, "spec.group");
    let problems = dns_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid("spec.group", group, problems.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", group, detail));
    }
    validate_enum_string("spec.scope", text(crd, "spec.scope"), &["Cluster", "Namespaced"], errors);
}

/// Requires one of the known values.
///
/// Upstream: `validateEnumStrings`.
fn validate_enum_string(field: &str, value: &str, known: &[&str], errors: &mut Vec<FieldError>) {
    if value.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if !known.contains(&value) {
        errors.push(FieldError::not_supported(field, value, known));
    }
}

/// Returns whether all versions have the same value at `field`, and the value is not null.
///
/// Upstream: `hasIdenticalPerVersionSchema`.
fn is_identical_in_all_versions(versions: &[Value], field: &str) -> bool {
    let Some(first) = versions.first().and_then(|v| v.get(field)).filter(|v| !v.is_null()) else {
        return false;
    };
    versions.iter().all(|v| v.get(field) == Some(first))
}

/// Requires unique names of versions and exactly one storage version, and validates each version. Skips a schema that the
/// update leaves unchanged.
///
/// Upstream: `validateCustomResourceDefinitionSpec`, `validateCustomResourceDefinitionVersion`.
fn validate_versions(crd: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let versions = list(crd, "spec.versions");
    let all_versions = get(crd, "spec.versions").cloned().unwrap_or_default();
    let mut n_storage_versions = 0;
    let mut names = BTreeSet::new();
    let mut old_versions: BTreeMap<&str, &Value> = BTreeMap::new();
    for version in old.map(|old| list(old, "spec.versions")).unwrap_or_default() {
        old_versions.entry(text(version, "name")).or_insert(version);
    }
    let shared: BTreeSet<&str> =
        ["schema", "subresources", "additionalPrinterColumns", "selectableFields"]
            .into_iter()
            .filter(|field| is_identical_in_all_versions(versions, field))
            .collect();
    let mut has_unique_names = true;
    for (version_index, version) in versions.iter().enumerate() {
        n_storage_versions += usize::from(flag(version, "storage"));
        let name = text(version, "name");
        has_unique_names &= names.insert(name);
        if !version["schema"]["openAPIV3Schema"].is_object() {
            let field = format!("spec.versions[{version_index}].schema.openAPIV3Schema");
            errors.push(FieldError::required(field, ""));
        }
        let problems = dns_1035_label(name);
        if !problems.is_empty() {
            let field = format!("spec.versions[{version_index}].name");
            errors.push(FieldError::invalid(field, name, problems.join(",")));
            // Upstream's internal version also has the name of the first version here.
            if version_index == 0 && !name.is_empty() {
                errors.push(FieldError::invalid("spec.version", name, problems.join(",")));
            }
        }
        validate_deprecation_warning(version, version_index, errors);
        // Path of a field in errors. A value that all versions share is validated once, with the first version, at
        // `spec.<shared_name>`; `None` for the later versions.
        let path_in_errors = |field: &str, shared_name: &str| match shared.contains(field) {
            true if version_index > 0 => None,
            true => Some(format!("spec.{shared_name}")),
            false => Some(format!("spec.versions[{version_index}].{field}")),
        };
        if let Some(field_path) = path_in_errors("schema", "validation") {
            // Skip a schema that the update leaves unchanged.
            let is_unchanged = old_versions.get(name).is_some_and(|old| {
                old["schema"] == version["schema"] && old["subresources"] == version["subresources"]
            });
            if !is_unchanged {
                schema::validate_schema(version, &field_path, errors);
            }
        }
        if let Some(field_path) = path_in_errors("subresources", "subresources") {
            validate_subresources(version, &field_path, errors);
        }
        let columns = "additionalPrinterColumns";
        if let Some(field_path) = path_in_errors(columns, columns) {
            for (i, column) in list(version, columns).iter().enumerate() {
                validate_column_definition(column, &format!("{field_path}[{i}]"), errors);
            }
        }
        if let Some(field_path) = path_in_errors("selectableFields", "selectableFields") {
            let fields = list(version, "selectableFields");
            if shared.contains("schema") && !shared.contains("selectableFields") {
                // Upstream looks for the schema in the version, from which it is moved.
                if !fields.is_empty() {
                    let detail =
                        "may only be set when `version.schema.openAPIV3Schema` is not included";
                    errors.push(FieldError::invalid(field_path, "", detail));
                }
            } else {
                validate_selectable_fields(version, &field_path, errors);
            }
        }
    }
    if !has_unique_names {
        let detail = "must contain unique version names";
        errors.push(FieldError::invalid("spec.versions", all_versions.clone(), detail));
    }
    if n_storage_versions != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", all_versions, detail));
    }
}

/// Allows a warning only for deprecated versions: 1 to 256 printable characters.
///
/// Upstream: `validateDeprecationWarning`.
fn validate_deprecation_warning(
    version: &Value,
    version_index: usize,
    errors: &mut Vec<FieldError>,
) {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return };
    let mut report = |detail: &str| {
        let field = format!("spec.versions[{version_index}].deprecationWarning");
        errors.push(FieldError::invalid(field, warning, detail));
    };
    if !flag(version, "deprecated") {
        return report("can only be set for deprecated versions");
    }
    if warning.len() > 256 {
        report("must be <= 256 characters long");
    }
    if warning.is_empty() {
        report("must not be an empty string");
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        report(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

/// Requires simple JSON paths in the scale subresource, below `.spec` or `.status` as the field demands.
///
/// Upstream: `ValidateCustomResourceDefinitionSubresources`.
fn validate_subresources(version: &Value, field_path: &str, errors: &mut Vec<FieldError>) {
    let Some(scale) = get(version, "subresources.scale") else { return };
    for (name, roots, is_optional) in [
        ("specReplicasPath", &[".spec."][..], false),
        ("statusReplicasPath", &[".status."], false),
        ("labelSelectorPath", &[".spec.", ".status."], true),
    ] {
        let path = text(scale, name);
        let field = format!("{field_path}.scale.{name}");
        if path.is_empty() {
            if !is_optional {
                errors.push(FieldError::required(field, ""));
            }
        } else if !path.starts_with('.') {
            let detail = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(field, path, detail));
        } else if !roots.iter().any(|root| path.starts_with(root)) {
            let roots: Vec<&str> = roots.iter().map(|r| r.trim_end_matches('.')).collect();
            let either = if roots.len() > 1 { "either " } else { "" };
            let detail = format!("should be a json path under {either}{}", roots.join(" or "));
            errors.push(FieldError::invalid(field, path, detail));
        }
    }
}

/// Requires a name, a known type and a simple JSON path of a printer column. Its format must be known if it is set.
///
/// Upstream: `ValidateCustomResourceColumnDefinition`.
fn validate_column_definition(column: &Value, field_path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] =
        ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    let field = |name: &str| format!("{field_path}.{name}");
    if text(column, "name").is_empty() {
        errors.push(FieldError::required(field("name"), ""));
    }
    let (kind, format, path) =
        (text(column, "type"), text(column, "format"), text(column, "jsonPath"));
    let known = format!("must be one of {}", TYPES.join(","));
    if kind.is_empty() {
        errors.push(FieldError::required(field("type"), known));
    } else if !TYPES.contains(&kind) {
        errors.push(FieldError::invalid(field("type"), kind, known));
    }
    if !format.is_empty() && !FORMATS.contains(&format) {
        let known = format!("must be one of {}", FORMATS.join(","));
        errors.push(FieldError::invalid(field("format"), format, known));
    }
    if path.is_empty() {
        errors.push(FieldError::required(field("JSONPath"), ""));
    } else if !path.starts_with('.') {
        let detail = "must be a simple json path starting with .";
        errors.push(FieldError::invalid(field("JSONPath"), path, detail));
    }
}

/// Returns whether a schema or a part of it has a default.
///
/// Upstream: `schemaHasDefaults`.
fn has_default(schema: &Value) -> bool {
    if !schema.is_object() {
        return false;
    }
    let has_part = |name: &str| match &schema[name] {
        Value::Array(parts) => parts.iter().any(has_default),
        part => has_default(part),
    };
    let has_named =
        |name: &str| schema[name].as_object().is_some_and(|parts| parts.values().any(has_default));
    !schema["default"].is_null()
        || ["items", "additionalItems", "additionalProperties", "not", "allOf", "anyOf", "oneOf"]
            .into_iter()
            .any(has_part)
        || ["properties", "patternProperties", "definitions"].into_iter().any(has_named)
}

/// Requires that selectable fields are distinct fields of the schema with a type of string, boolean or integer, outside of
/// the metadata, and at most [`MAX_SELECTABLE_FIELDS`].
///
/// Upstream: `ValidateCustomResourceSelectableFields`.
fn validate_selectable_fields(version: &Value, field_path: &str, errors: &mut Vec<FieldError>) {
    let schema = &version["schema"]["openAPIV3Schema"];
    if version["schema"].is_null() && !list(version, "selectableFields").is_empty() {
        let detail = "may only be set when validations.schema is included";
        errors.push(FieldError::invalid(field_path, "", detail));
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, selectable) in list(version, "selectableFields").iter().enumerate() {
        let path = text(selectable, "jsonPath");
        let field = format!("{field_path}[{i}].jsonPath");
        if path.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        let target = match field_path::resolve(path, schema, false) {
            Ok(target) => target,
            Err(detail) => {
                let detail = format!("is an invalid path: {detail}");
                errors.push(FieldError::invalid(field, path, detail));
                continue;
            }
        };
        if target.path.split(['.', '[']).next() == Some("metadata") {
            let detail = "must not point to fields in metadata";
            errors.push(FieldError::invalid(field.clone(), path, detail));
        }
        if !matches!(text(target.schema, "type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(field.clone(), path, detail));
        }
        if !seen.insert(target.path) {
            errors.push(FieldError::duplicate(field, path));
        }
    }
    if seen.len() as u64 > MAX_SELECTABLE_FIELDS {
        errors.push(FieldError::too_many(field_path, seen.len() as u64, MAX_SELECTABLE_FIELDS));
    }
}

/// Validates the requested names in `spec.names`, or those in `status.acceptedNames`.
///
/// Upstream: `ValidateCustomResourceDefinitionNames`.
pub fn validate_names(names: &Value, field_path: &str, errors: &mut Vec<FieldError>) {
    let mut validate_label = |field: String, name: &str, is_kind: bool| {
        let lower_case = if is_kind { name.to_lowercase() } else { name.to_owned() };
        let problems = dns_1035_label(&lower_case);
        if !problems.is_empty() {
            let prefix =
                if is_kind { "may have mixed case, but should otherwise match: " } else { "" };
            let detail = format!("{prefix}{}", problems.join(","));
            errors.push(FieldError::invalid(format!("{field_path}.{field}"), name, detail));
        }
    };
    for field in ["plural", "singular", "kind", "listKind"] {
        let is_kind = matches!(field, "kind" | "listKind");
        if !text(names, field).is_empty() {
            validate_label(field.to_owned(), text(names, field), is_kind);
        }
    }
    for field in ["shortNames", "categories"] {
        for (i, name) in list(names, field).iter().enumerate() {
            validate_label(format!("{field}[{i}]"), name.as_str().unwrap_or_default(), false);
        }
    }
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(format!("{field_path}.listKind"), list_kind, detail));
    }
}

/// Requires a client configuration and review versions with the strategy Webhook, and forbids them otherwise.
///
/// Upstream: `validateCustomResourceConversion`.
fn validate_conversion(crd: &Value, errors: &mut Vec<FieldError>) {
    let Some(conversion) = get(crd, "spec.conversion") else { return };
    let strategy = text(conversion, "strategy");
    validate_enum_string("spec.conversion.strategy", strategy, &["None", "Webhook"], errors);
    let config = get(conversion, "webhook.clientConfig");
    let reviews = list(conversion, "webhook.conversionReviewVersions");
    let field_path = "spec.conversion.webhookClientConfig";
    if strategy != "Webhook" {
        if config.is_some() {
            let detail = "should not be set when strategy is not set to Webhook";
            errors.push(FieldError::forbidden(field_path, detail));
        }
        if !reviews.is_empty() {
            let detail = "should not be set when strategy is not set to Webhook";
            errors.push(FieldError::forbidden("spec.conversion.conversionReviewVersions", detail));
        }
        return;
    }
    match config {
        None => {
            errors
                .push(FieldError::required(field_path, "required when strategy is set to Webhook"));
        }
        Some(config) if config.get("url").is_some() == config.get("service").is_some() => {
            errors.push(FieldError::required(
                field_path,
                "exactly one of url or service is required",
            ));
        }
        Some(config) => {
            evenkeel_apimachinery::validation::webhook::webhook_client(config, field_path, errors);
        }
    }
    validate_conversion_review_versions(reviews, errors);
}

/// Requires distinct valid names, among them one that this server supports.
///
/// Upstream: `validateConversionReviewVersions`.
fn validate_conversion_review_versions(versions: &[Value], errors: &mut Vec<FieldError>) {
    let field_path = "spec.conversion.conversionReviewVersions";
    if versions.is_empty() {
        errors.push(FieldError::required(field_path, ""));
        return;
    }
    let mut seen = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let name = version.as_str().unwrap_or_default();
        let field = format!("{field_path}[{i}]");
        if !seen.insert(version) {
            errors.push(FieldError::invalid(field, name, "duplicate version"));
            continue;
        }
        let problems = dns_1035_label(name);
        errors.extend(
            problems.into_iter().map(|detail| FieldError::invalid(field.clone(), name, detail)),
        );
    }
    if !versions.iter().any(|v| v == "v1" || v == "v1beta1") {
        let detail = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(field_path, Value::from(versions.to_vec()), detail));
    }
}

/// Rejects changes of immutable fields. The scope and the kind are immutable only once the definition is
/// established.
///
/// Upstream: `validateCustomResourceDefinitionSpecUpdate`.
fn validate_spec_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let established = conditions::is_true(old, "Established");
    for (field, is_always_immutable) in [
        ("spec.scope", false),
        ("spec.names.kind", false),
        ("spec.group", true),
        ("spec.names.plural", true),
    ] {
        if (is_always_immutable || established) && !same(get(new, field), get(old, field)) {
            errors.push(FieldError::invalid(field, text(new, field), "field is immutable"));
        }
    }
}

/// Requires that the stored versions are versions of the spec and contain the storage version.
///
/// Upstream: `ValidateCustomResourceDefinitionStoredVersions`.
fn validate_stored_versions(crd: &Value, errors: &mut Vec<FieldError>) {
    let field_path = "status.storedVersions";
    let stored = list(crd, field_path);
    let all_stored = || Value::from(stored.to_vec());
    if stored.is_empty() {
        errors.push(FieldError::invalid(
            field_path,
            Value::Null,
            "must have at least one stored version",
        ));
        return;
    }
    let versions = list(crd, "spec.versions");
    let names: BTreeSet<&str> = versions.iter().map(|v| text(v, "name")).collect();
    let known: BTreeSet<&str> = stored.iter().filter_map(Value::as_str).collect();
    for version in versions.iter().filter(|v| flag(v, "storage")) {
        let name = text(version, "name");
        if !known.contains(name) {
            let detail = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(field_path, all_stored(), detail));
        }
    }
    for (i, name) in stored.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        if !names.contains(name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{field_path}[{i}]"), name, detail));
        }
    }
}
