//! Builds the resource types of a CustomResourceDefinition, one per served version.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

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
    let mut served: Vec<&Value> = versions.iter().filter(|v| flag(v, "served")).collect();
    served.sort_by(|a, b| {
        version_preference(text(b, "name")).cmp(&version_preference(text(a, "name")))
    });
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
    let status = version["subresources"]["status"].is_object();
    let scale = version["subresources"]["scale"]
        .as_object()
        .map(|_| ScalePaths::new(&version["subresources"]["scale"]));
    let boxed = |name: &str| -> Box<[Box<str>]> {
        list(names, name).iter().filter_map(Value::as_str).map(Into::into).collect()
    };
    let (columns, paths) = columns(version);
    let api_version: Box<str> = gvk.api_version().into();
    let custom = Arc::new(Version {
        definition: definition.clone(),
        schema: Schema::custom(&gvk, &document, status),
        structural: definition.structural(&api_version).cloned().unwrap_or_default(),
        api_version: api_version.clone(),
        document,
        status,
        columns: paths,
        selectable: list(version, "selectableFields")
            .iter()
            .map(|field| text(field, "jsonPath"))
            .map(|path| (path.trim_start_matches('.').into(), JsonPath::parse(path)))
            .collect(),
        deprecation: deprecation(&gvk, version, list(crd, "spec.versions")),
        scale: scale.clone(),
    });
    let plural: Arc<str> = text(names, "plural").into();
    let name = GroupResource { group: gvk.group.clone(), resource: plural.clone() };
    let kind = GroupKind { group: gvk.group.clone(), kind: gvk.kind.clone() };
    ResourceType {
        api_version,
        list_kind: text(names, "listKind").into(),
        singular: text(names, "singular").into(),
        short_names: boxed("shortNames"),
        categories: boxed("categories"),
        namespaced: text(crd, "spec.scope") == "Namespaced",
        verbs: Verb::ALL.into_iter().collect(),
        subresources: subresources(&gvk, status, scale.is_some()),
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

fn subresources(gvk: &GroupVersionKind, status: bool, scale: bool) -> Box<[Subresource]> {
    let verbs: Verbs = [Verb::Get, Verb::Patch, Verb::Update].into_iter().collect();
    let mut parts = Vec::new();
    if status {
        let kind = gvk.clone();
        parts.push(Subresource { name: "status".into(), kind, foreign_kind: false, verbs });
    }
    if scale {
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
    let own = list(version, "additionalPrinterColumns");
    for printer_column in own {
        let path = text(printer_column, "jsonPath");
        let described = match text(printer_column, "description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            words => words.to_owned(),
        };
        columns.push(column(
            text(printer_column, "name"),
            text(printer_column, "type"),
            text(printer_column, "format"),
            int(printer_column, "priority").unwrap_or(0),
            Some(&described),
        ));
        paths.push(JsonPath::parse(path));
    }
    if own.is_empty() {
        columns.push(column("Age", "date", "", 0, None));
        paths.push(JsonPath::parse(".metadata.creationTimestamp"));
    }
    (columns.into(), paths)
}

/// Returns the warning of a deprecated version. It names the most preferred version to use instead.
///
/// Upstream: `defaultDeprecationWarning`.
fn deprecation(gvk: &GroupVersionKind, version: &Value, all: &[Value]) -> Option<Box<str>> {
    if !flag(version, "deprecated") {
        return None;
    }
    Some(match get(version, "deprecationWarning").and_then(Value::as_str) {
        Some(words) => words.into(),
        None => {
            let better = all
                .iter()
                .filter(|other| flag(other, "served") && !flag(other, "deprecated"))
                .map(|other| text(other, "name"))
                .filter(|name| version_preference(name) > version_preference(&gvk.version))
                .max_by_key(|name| version_preference(name));
            let mut words = format!("{} {} is deprecated", gvk.api_version(), gvk.kind);
            if let Some(better) = better {
                words.push_str(&format!("; use {}/{better} {}", gvk.group, gvk.kind));
            }
            words.into()
        }
    })
}
