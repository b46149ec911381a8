//! Builds the resource types of a CustomResourceDefinition, one per served version.

use std::cmp::Reverse;
use std::sync::Arc;

use evenkeel_tasks::watch;
use serde_json::Value;

use super::strategy::CustomResourceStrategy;
use crate::resource::custom::{Definition, Version};
use crate::resource::{
    Column, GroupKind, GroupResource, GroupVersionKind, ResourceType, Subresource, Verb, Verbs,
    version_preference,
};
use evenkeel_apiextensions::jsonpath::JsonPath;
use evenkeel_apiextensions::scale::ScalePaths;
use evenkeel_apimachinery::schema::Schema;
use evenkeel_apimachinery::value::{flag, get, int, list, text};

/// Returns the resource types of a definition's served versions, in order of preference. `replaced` becomes true when
/// other resource types replace them.
pub(super) fn resource_types(
    crd: &Value,
    replaced: watch::Receiver<bool>,
) -> Vec<Arc<ResourceType>> {
    let versions = list(crd, "spec.versions");
    let definition = Arc::new(Definition::new(crd, replaced));
    let mut served: Vec<&Value> =
        versions.iter().filter(|version| flag(version, "served")).collect();
    served.sort_by_key(|version| Reverse(version_preference(text(version, "name"))));
    served.into_iter().map(|version| Arc::new(resource_type(crd, version, &definition))).collect()
}

fn resource_type(crd: &Value, version: &Value, definition: &Arc<Definition>) -> ResourceType {
    let names = &crd["status"]["acceptedNames"];
    let gvk = GroupVersionKind {
        group: text(crd, "spec.group").into(),
        version: text(version, "name").into(),
        kind: text(names, "kind").into(),
    };
    let document = version["schema"]["openAPIV3Schema"].clone();
    let has_status = version["subresources"]["status"].is_object();
    let scale = version["subresources"]["scale"]
        .as_object()
        .map(|_| ScalePaths::new(&version["subresources"]["scale"]));
    let name_list = |name: &str| -> Box<[Box<str>]> {
        list(names, name).iter().filter_map(Value::as_str).map(Into::into).collect()
    };
    let (columns, column_paths) = columns(version);
    let api_version: Box<str> = gvk.api_version().into();
    let custom = Arc::new(Version {
        definition: definition.clone(),
        schema: Schema::custom(&gvk, &document, has_status),
        structural: definition.structural(&api_version).cloned().unwrap_or_default(),
        api_version: api_version.clone(),
        document,
        status: has_status,
        columns: column_paths,
        selectable: list(version, "selectableFields")
            .iter()
            .map(|field| text(field, "jsonPath"))
            .map(|path| (path.trim_start_matches('.').into(), JsonPath::parse(path)))
            .collect(),
        deprecation: deprecation_warning(&gvk, version, list(crd, "spec.versions")),
        scale: scale.clone(),
    });
    let plural: Arc<str> = text(names, "plural").into();
    let name = GroupResource { group: gvk.group.clone(), resource: plural.clone() };
    let kind = GroupKind { group: gvk.group.clone(), kind: gvk.kind.clone() };
    ResourceType {
        api_version,
        list_kind: text(names, "listKind").into(),
        singular: text(names, "singular").into(),
        short_names: name_list("shortNames"),
        categories: name_list("categories"),
        namespaced: text(crd, "spec.scope") == "Namespaced",
        verbs: Verb::ALL.into_iter().collect(),
        subresources: subresources(&gvk, has_status, scale.is_some()),
        columns,
        resource_prefix: format!("{}/{plural}", gvk.group).into(),
        stored: false,
        strategy: Arc::new(CustomResourceStrategy::new(custom.clone(), name.clone(), kind)),
        source: None,
        name,
        custom: Some(custom),
        gvk,
    }
}

fn subresources(gvk: &GroupVersionKind, has_status: bool, has_scale: bool) -> Box<[Subresource]> {
    let verbs: Verbs = [Verb::Get, Verb::Patch, Verb::Update].into_iter().collect();
    let mut parts = Vec::new();
    if has_status {
        let kind = gvk.clone();
        parts.push(Subresource { name: "status".into(), kind, foreign_kind: false, verbs });
    }
    if has_scale {
        let kind = GroupVersionKind {
            group: "autoscaling".into(),
            version: "v1".into(),
            kind: "Scale".into(),
        };
        parts.push(Subresource { name: "scale".into(), kind, foreign_kind: true, verbs });
    }
    parts.into()
}

/// Returns the columns of a Table, and the JSONPaths of the cells after the name.
fn columns(version: &Value) -> (Box<[Column]>, Vec<JsonPath>) {
    let column =
        |name: &str, kind: &str, format: &str, priority: i64, description: Option<&str>| Column {
            name: name.into(),
            kind: kind.into(),
            format: format.into(),
            priority,
            description: description.map(Into::into),
        };
    let mut columns = vec![column("Name", "string", "name", 0, None)];
    let mut paths = Vec::new();
    let printer_columns = list(version, "additionalPrinterColumns");
    for printer_column in printer_columns {
        let path = text(printer_column, "jsonPath");
        let description = match text(printer_column, "description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            configured => configured.to_owned(),
        };
        columns.push(column(
            text(printer_column, "name"),
            text(printer_column, "type"),
            text(printer_column, "format"),
            int(printer_column, "priority").unwrap_or(0),
            Some(&description),
        ));
        paths.push(JsonPath::parse(path));
    }
    if printer_columns.is_empty() {
        columns.push(column("Age", "date", "", 0, None));
        paths.push(JsonPath::parse(".metadata.creationTimestamp"));
    }
    (columns.into(), paths)
}

/// Returns the warning of a deprecated version. It names the most preferred version to use instead.
///
/// Upstream: `defaultDeprecationWarning`.
fn deprecation_warning(
    gvk: &GroupVersionKind,
    version: &Value,
    versions: &[Value],
) -> Option<Box<str>> {
    if !flag(version, "deprecated") {
        return None;
    }
    if let Some(warning) = get(version, "deprecationWarning").and_then(Value::as_str) {
        return Some(warning.into());
    }
    let replacement = versions
        .iter()
        .filter(|other| flag(other, "served") && !flag(other, "deprecated"))
        .map(|other| text(other, "name"))
        .filter(|name| version_preference(name) > version_preference(&gvk.version))
        .max_by_key(|name| version_preference(name));
    let mut warning = format!("{} {} is deprecated", gvk.api_version(), gvk.kind);
    if let Some(replacement) = replacement {
        warning.push_str(&format!("; use {}/{replacement} {}", gvk.group, gvk.kind));
    }
    Some(warning.into())
}
