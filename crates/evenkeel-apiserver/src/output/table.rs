//! Tables for kubectl: recorded columns, and cells by kind.

use super::partial::partial_of_value;
use super::stored::parse;
use crate::resource::{Column, ResourceType};
use bytes::Bytes;
use evenkeel_kinds::printers::cells::{self, Cells, PrintedObject, age, name};
use evenkeel_kinds::printers::duration::human;
use evenkeel_kinds::printers::{self, RowPrinter};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use evenkeel_apimachinery::value::text;

/// Value of `includeObject`: which part of the object a row of a Table contains in addition to the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Include {
    None,
    Metadata,
    Object,
    /// An invalid value.
    Unknown,
}

/// Column definitions of upstream's Tables: one resource in each line.
static RECORDED_COLUMNS: &str = include_str!("../../data/columns.jsonl");

#[derive(Deserialize)]
struct Row<'a> {
    resource: &'a str,
    #[serde(borrow)]
    columns: &'a RawValue,
}

/// Returns the recorded column definitions by `apiVersion/resource`, in JSON. The server decodes the definitions of a
/// resource when a client requests its Table.
fn columns() -> &'static BTreeMap<&'static str, &'static RawValue> {
    static ALL: OnceLock<BTreeMap<&'static str, &'static RawValue>> = OnceLock::new();
    ALL.get_or_init(|| {
        RECORDED_COLUMNS
            .lines()
            .filter_map(|line| serde_json::from_str::<Row<'static>>(line).ok())
            .map(|row| (row.resource, row.columns))
            .collect()
    })
}

/// Returns whether a Table can show objects of the resource.
pub(super) fn has_columns(resource: &ResourceType) -> bool {
    !resource.columns.is_empty()
}

/// Returns the definitions of a resource's columns: upstream's with descriptions, or those of a custom resource.
fn column_definitions(resource: &ResourceType, subresource: &str) -> Value {
    let key = if subresource.is_empty() {
        format!("{}/{}", resource.api_version, resource.plural())
    } else {
        "autoscaling/v1/scale".to_owned()
    };
    let is_custom_scale = resource.custom.is_some() && !subresource.is_empty();
    if is_custom_scale {
        return custom_scale_columns();
    }
    let recorded = columns().get(&*key);
    if let Some(Ok(definitions)) = recorded.map(|text| serde_json::from_str(text.get())) {
        return definitions;
    }
    resource
        .columns
        .iter()
        .map(|column| {
            let description = column.description.as_deref();
            json!({
                "name": &*column.name, "type": &*column.kind, "format": &*column.format,
                "description": description.unwrap_or_else(|| column_description(&column.name)),
                "priority": column.priority,
            })
        })
        .collect()
}

/// Returns the definitions of the columns of a custom resource's `scale`.
///
/// Upstream: `getScaleColumnsForVersion`.
fn custom_scale_columns() -> Value {
    let column = |name: &str, kind: &str, format: &str, description: &str| json!({"name": name, "type": kind, "format": format, "description": description, "priority": 0});
    json!([
        column("Name", "string", "name", column_description("Name")),
        column("Desired", "integer", "", "Number of desired replicas"),
        column("Available", "integer", "", "Number of actual replicas"),
        column("Age", "date", "", column_description("Age")),
    ])
}

/// Returns the description of a column that every custom resource may have.
fn column_description(name: &str) -> &'static str {
    match name {
        "Name" => {
            "Name must be unique within a namespace. Is required when creating resources, although some resources may \
             allow a client to request the generation of an appropriate name automatically. Name is primarily intended \
             for creation idempotence and configuration definition. Cannot be updated. More info: \
             https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
        }
        "Age" => {
            "CreationTimestamp is a timestamp representing the server time when this object was created. It is not \
             guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It \
             is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More \
             info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
        }
        _ => "",
    }
}

/// Returns the printer of the rows of one Table. A kind whose rows depend on all objects of the list reads them ahead;
/// objects that cannot be decoded have no effect on the others.
pub(super) fn row_printer(
    resource: &Arc<ResourceType>,
    objects: &mut dyn Iterator<Item = Bytes>,
) -> RowPrinter {
    let (group, kind) = (resource.group(), resource.kind());
    if let Some(print) = printers::list_printer(group, kind) {
        return print(&mut objects.filter_map(|object| parse(&object).ok()));
    }
    if let Some(print) = printers::printer(group, kind) {
        return Box::new(print);
    }
    let resource = resource.clone();
    Box::new(move |printed| cells_at_paths(&resource, printed))
}

/// Returns the row of an object that is not in a list. `version` is the API version of the Table.
pub(super) fn one_row(
    resource: &ResourceType,
    version: &'static str,
    include: Include,
    object: Value,
    now: Timestamp,
) -> Value {
    match printers::printer(resource.group(), resource.kind()) {
        Some(print) => row(resource, version, include, &print, object, now),
        None => {
            let print = |printed: &PrintedObject<'_>| cells_at_paths(resource, printed);
            row(resource, version, include, &print, object, now)
        }
    }
}

/// Returns the row of an object in its stored version, whose cells `print` returns. `version` is the API version of the
/// Table.
pub(super) fn row(
    resource: &ResourceType,
    version: &'static str,
    include: Include,
    print: &dyn Fn(&PrintedObject<'_>) -> Cells,
    mut object: Value,
    now: Timestamp,
) -> Value {
    let condition = completed_condition(resource, &object);
    let cells = print(&PrintedObject { object: &object, now });
    let included = match include {
        Include::None | Include::Unknown => Value::Null,
        Include::Metadata => partial_of_value(version, &object),
        Include::Object => {
            if !resource.stored {
                resource.strategy.convert_out(&resource.gvk, &mut object);
            }
            object
        }
    };
    let mut row = json!({"cells": cells, "object": included});
    if let Some(condition) = condition {
        row["conditions"] = json!([condition]);
    }
    row
}

/// Returns whether the resource has upstream's default printer, which does not make an empty list of rows.
///
/// Upstream: `defaultTableConvertor.ConvertToTable`.
pub(super) fn has_default_printer(resource: &ResourceType) -> bool {
    matches!(
        (resource.group(), resource.kind()),
        ("", "LimitRange")
            | ("storage.k8s.io", "CSIStorageCapacity")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

/// Returns the condition `Completed` in the row of a finished pod, which clients may hide.
///
/// Upstream: `podSuccessConditions`, `podFailedConditions`.
fn completed_condition(resource: &ResourceType, object: &Value) -> Option<Value> {
    if resource.group() != "" || resource.kind() != "Pod" {
        return None;
    }
    let message = match text(object, "status.phase") {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    let reason = text(object, "status.phase");
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

/// Returns the row of a `scale`, the only subresource with a row.
pub(super) fn scale_row(
    version: &'static str,
    include: Include,
    object: Value,
    now: Timestamp,
) -> Value {
    let cells = cells::scale(&PrintedObject { object: &object, now });
    let included = match include {
        Include::None | Include::Unknown => Value::Null,
        Include::Metadata => partial_of_value(version, &object),
        Include::Object => object,
    };
    json!({"cells": cells, "object": included})
}

/// Returns a Table. In a stream, only the first Table has the column definitions (`with_columns`).
pub(super) fn table(
    resource: &ResourceType,
    version: &'static str,
    subresource: &str,
    rows: &[Value],
    meta: &Value,
    with_columns: bool,
) -> Value {
    let mut table = table_without_rows(resource, version, subresource, meta, with_columns);
    table["rows"] = json!(rows);
    table
}

/// Returns a Table without the field `rows`. See [`table`].
pub(super) fn table_without_rows(
    resource: &ResourceType,
    version: &'static str,
    subresource: &str,
    meta: &Value,
    with_columns: bool,
) -> Value {
    let columns =
        if with_columns { column_definitions(resource, subresource) } else { Value::Null };
    json!({"kind": "Table", "apiVersion": version, "metadata": meta, "columnDefinitions": columns})
}

/// Returns the cells of a kind without a printer: for a custom resource, its name, then the values at its columns'
/// paths.
fn cells_at_paths(resource: &ResourceType, object: &PrintedObject<'_>) -> Cells {
    let Some(custom) = &resource.custom else {
        return cells_by_name(&resource.columns, object);
    };
    let kinds: Vec<&str> = resource.columns.iter().skip(1).map(|column| &*column.kind).collect();
    let age = |at: Timestamp| human(object.now.as_second() - at.as_second());
    let mut cells = vec![json!(name(object))];
    cells.extend(evenkeel_apiextensions::tableconvertor::cells(
        &custom.columns,
        &kinds,
        object,
        age,
    ));
    cells
}

/// Returns the cells of a built-in kind that has no printer.
fn cells_by_name(columns: &[Column], object: &PrintedObject<'_>) -> Cells {
    columns
        .iter()
        .enumerate()
        .map(|(index, column)| match &*column.name {
            "Name" if index == 0 => json!(name(object)),
            "Age" => json!(age(object)),
            "Created At" => json!(text(object, "metadata.creationTimestamp")),
            _ => Value::Null,
        })
        .collect()
}
