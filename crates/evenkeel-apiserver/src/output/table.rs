//! Tables, as kubectl shows them: columns from data, cells by kind.

use super::partial::partial_value;
use crate::resource::{Column, ResourceType};
use evenkeel_kinds::printers;
use evenkeel_kinds::printers::cells::{self, Cells, PrintedObject, age, name};
use evenkeel_kinds::printers::duration::human;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::OnceLock;

use evenkeel_apimachinery::value::text;

/// Object that a row of a Table has besides its cells (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Include {
    None,
    Metadata,
    Object,
    /// None that there is.
    Unknown,
}

static DATA: &str = include_str!("../../data/columns.jsonl");

#[derive(Deserialize)]
struct Row<'a> {
    resource: &'a str,
    #[serde(borrow)]
    columns: &'a RawValue,
}

/// Column definitions by `apiVersion/resource`, as text: each is read when somebody looks at such a table.
fn columns() -> &'static BTreeMap<&'static str, &'static RawValue> {
    static ALL: OnceLock<BTreeMap<&'static str, &'static RawValue>> = OnceLock::new();
    ALL.get_or_init(|| {
        DATA.lines()
            .filter_map(|line| serde_json::from_str::<Row<'static>>(line).ok())
            .map(|row| (row.resource, row.columns))
            .collect()
    })
}

/// Whether objects of a resource can be shown in a Table.
pub(super) fn has(resource: &ResourceType) -> bool {
    !resource.columns.is_empty()
}

/// Definitions of a resource's columns: upstream's, with their descriptions, or what a custom resource says.
fn definitions(resource: &ResourceType, part: &str) -> Value {
    let key = if part.is_empty() {
        format!("{}/{}", resource.api_version, resource.plural())
    } else {
        "autoscaling/v1/scale".to_owned()
    };
    if let Some(Ok(known)) = columns().get(&*key).map(|text| serde_json::from_str(text.get())) {
        return known;
    }
    resource
        .columns
        .iter()
        .map(|column| {
            json!({"name": &*column.name, "type": &*column.kind, "format": &*column.format,
                "description": column.description.as_deref().unwrap_or_else(|| column_description(&column.name)), "priority": column.priority})
        })
        .collect()
}

/// Descriptions of the columns that every custom resource has.
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

/// The row of an object in its stored version.
pub(super) fn row(
    resource: &ResourceType,
    version: &'static str,
    include: Include,
    mut object: Value,
    now: Timestamp,
) -> Value {
    let completed = completed(resource, &object);
    let shown = PrintedObject { object: &object, now };
    let cells = match printers::printer(resource.group(), resource.kind()) {
        Some(print) => print(&shown),
        None => custom(resource, &shown),
    };
    let shown = match include {
        Include::None | Include::Unknown => Value::Null,
        Include::Metadata => partial_value(version, &object),
        Include::Object => {
            if !resource.stored {
                resource.strategy.convert_out(&resource.gvk, &mut object);
            }
            object
        }
    };
    let mut row = json!({"cells": cells, "object": shown});
    if let Some(condition) = completed {
        row["conditions"] = json!([condition]);
    }
    row
}

/// The condition of the row of a pod that has ended, by which clients show it apart.
///
/// Upstream: `podSuccessConditions`, `podFailedConditions`.
fn completed(resource: &ResourceType, object: &Value) -> Option<Value> {
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

/// The row of a `scale`, the one part of an object that has one.
pub(super) fn part_row(
    version: &'static str,
    include: Include,
    object: Value,
    now: Timestamp,
) -> Value {
    let cells = cells::scale(&PrintedObject { object: &object, now });
    let shown = match include {
        Include::None | Include::Unknown => Value::Null,
        Include::Metadata => partial_value(version, &object),
        Include::Object => object,
    };
    json!({"cells": cells, "object": shown})
}

/// A Table; later ones of a stream leave the columns out.
pub(super) fn table(
    resource: &ResourceType,
    version: &'static str,
    part: &str,
    rows: &[Value],
    meta: &Value,
    first: bool,
) -> Value {
    let columns = if first { definitions(resource, part) } else { Value::Null };
    json!({"kind": "Table", "apiVersion": version, "metadata": meta, "columnDefinitions": columns, "rows": rows})
}

/// Cells of a custom resource: its name, then what its columns' paths lead to.
fn custom(resource: &ResourceType, object: &PrintedObject<'_>) -> Cells {
    let Some(version) = &resource.custom else {
        return plain_columns(&resource.columns, object);
    };
    let kinds: Vec<&str> = resource.columns.iter().skip(1).map(|column| &*column.kind).collect();
    let age = |at: Timestamp| human(object.now.as_second() - at.as_second());
    let mut cells = vec![json!(name(object))];
    cells.extend(evenkeel_apiextensions::tableconvertor::cells(
        &version.columns,
        &kinds,
        object,
        age,
    ));
    cells
}

/// Cells of a built-in kind that has no printer of its own.
fn plain_columns(columns: &[Column], object: &PrintedObject<'_>) -> Cells {
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
