//! Lists of objects, in the columns that kubectl prints.

use super::{Chip, Link, ago::Ago, shorten};
use crate::route::{ListQuery, ObjectPath, list_href};
use askama::Template;
use evenkeel_api::{Kind, time::Timestamp};
use serde_json::Value;

/// Maximum number of objects on a page.
pub(crate) const MAX_ROWS: usize = 500;
/// Maximum length of a cell.
const MAX_CELL: usize = 200;
/// Kinds that most users look for, in this order, as plural and group.
const COMMON: [&str; 12] = [
    "pods",
    "nodes",
    "deployments.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "replicasets.apps",
    "jobs.batch",
    "cronjobs.batch",
    "services",
    "configmaps",
    "persistentvolumeclaims",
    "namespaces",
];

/// A group of kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// API group, or `core`.
    pub(crate) name: String,
    /// Kinds of the group.
    pub(crate) kinds: Vec<Link>,
}

/// Page of all kinds.
#[derive(Debug, Clone, Template)]
#[template(path = "kinds.html")]
pub(crate) struct KindsPage {
    /// Kinds that most users look for.
    pub(crate) common: Vec<Link>,
    /// All kinds, by group.
    pub(crate) groups: Vec<Group>,
}

/// Returns the page of kinds, those that can be listed.
pub(crate) fn kinds<'a>(listable: impl Iterator<Item = &'a Kind>) -> KindsPage {
    let mut groups: Vec<Group> = Vec::new();
    let mut common: Vec<(usize, Link)> = Vec::new();
    for kind in listable {
        let query = ListQuery { resource: resource_name(kind), ..ListQuery::default() };
        let link = Link::new(&*kind.kind, list_href(&query));
        if let Some(place) = COMMON.iter().position(|name| *name == query.resource) {
            common.push((place, link.clone()));
        }
        let name = if kind.group.is_empty() { "core" } else { &*kind.group };
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.kinds.push(link),
            None => groups.push(Group { name: name.to_owned(), kinds: vec![link] }),
        }
    }
    common.sort_by_key(|(place, _)| *place);
    for group in &mut groups {
        group.kinds.sort_by(|a, b| a.text.cmp(&b.text));
    }
    KindsPage { common: common.into_iter().map(|(_, link)| link).collect(), groups }
}

/// Returns plural and group, such as `deployments.apps`.
pub(crate) fn resource_name(kind: &Kind) -> String {
    let dot = if kind.group.is_empty() { "" } else { "." };
    format!("{}{dot}{}", kind.plural, kind.group)
}

/// A cell of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableCell {
    /// Text, with a page for the object's name.
    pub(crate) link: Link,
    /// Whether the cell names the row.
    pub(crate) is_name: bool,
    /// State, in place of the text.
    pub(crate) chip: Option<Chip>,
}

/// Objects of a kind.
#[derive(Debug, Clone, Template)]
#[template(path = "list.html")]
pub(crate) struct ListPage {
    /// Kind of the objects.
    pub(crate) kind: String,
    /// What is listed.
    pub(crate) query: ListQuery,
    /// Whether objects of the kind have namespaces.
    pub(crate) namespaced: bool,
    /// Namespaces to choose from.
    pub(crate) namespaces: Vec<String>,
    /// Names of the columns.
    pub(crate) columns: Vec<String>,
    /// Rows of cells.
    pub(crate) rows: Vec<Vec<TableCell>>,
    /// Number of objects on further pages, if there are any.
    pub(crate) remaining: Option<u64>,
    /// Next page. Empty for none.
    pub(crate) next: String,
}

/// Returns a list. `table` is the answer of the API server in the form of a `Table` (`meta.k8s.io/v1`).
pub(crate) fn list(
    now: Timestamp,
    kind: &Kind,
    query: ListQuery,
    namespaces: Vec<String>,
    table: &Value,
) -> ListPage {
    let definitions = table["columnDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Columns of a higher priority are those of `-o wide`.
    let shown: Vec<(usize, &Value)> =
        definitions.iter().enumerate().filter(|(_, column)| column["priority"] == 0).collect();
    let with_namespace = kind.namespaced && query.namespace.is_empty();
    let name = |column: &Value| column["name"].as_str().unwrap_or_default().to_owned();
    let mut columns: Vec<String> = shown.iter().map(|(_, column)| name(column)).collect();
    if with_namespace {
        columns.insert(0, "Namespace".to_owned());
    }
    let rows = table["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = rows.iter().take(MAX_ROWS).map(|row| {
        let metadata = &row["object"]["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let href = ObjectPath::of(kind, text("namespace"), text("name")).href();
        let mut cells: Vec<TableCell> = shown
            .iter()
            .map(|(index, column)| {
                let is_name = column["format"] == "name";
                let is_time = name(column) == "Age";
                let text = cell_text(
                    now,
                    &row["cells"][*index],
                    is_time.then(|| text("creationTimestamp")),
                );
                let chip =
                    matches!(&*name(column), "Status" | "Phase").then(|| Chip::of_state(&text));
                let href = if is_name { &*href } else { "" };
                TableCell { link: Link::new(text, href), is_name, chip }
            })
            .collect();
        if with_namespace {
            let link = Link::new(text("namespace"), "");
            cells.insert(0, TableCell { link, is_name: false, chip: None });
        }
        cells
    });
    let metadata = &table["metadata"];
    let next = match metadata["continue"].as_str() {
        Some(after) if !after.is_empty() => {
            list_href(&ListQuery { after: after.to_owned(), ..query.clone() })
        }
        _ => String::new(),
    };
    ListPage {
        kind: kind.kind.to_string(),
        namespaced: kind.namespaced,
        namespaces,
        columns,
        rows: rows.collect(),
        remaining: metadata["remainingItemCount"].as_u64(),
        next,
        query,
    }
}

/// Returns the text of a cell. Ages follow the object's creation, so that they are as coarse as all ages of the console.
fn cell_text(now: Timestamp, cell: &Value, created: Option<&str>) -> String {
    if let Some(age) = created.and_then(|created| Ago::parse(now, created)) {
        return age.text;
    }
    match cell {
        Value::String(text) => shorten(text, MAX_CELL),
        Value::Null => String::new(),
        other => shorten(&other.to_string(), MAX_CELL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);

    fn page(query: ListQuery) -> ListPage {
        let table = json!({
            "metadata": {"continue": "t", "remainingItemCount": 9},
            "columnDefinitions": [
                {"name": "Name", "format": "name", "priority": 0},
                {"name": "Status", "priority": 0},
                {"name": "Restarts", "priority": 0},
                {"name": "Age", "priority": 0},
                {"name": "IP", "priority": 1},
            ],
            "rows": [{
                "cells": ["web-<1>", "Pending", 2, "31s", "10.0.0.1"],
                "object": {"metadata": {"name": "web-<1>", "namespace": "shop", "creationTimestamp": "1970-01-01T00:00:00Z"}},
            }],
        });
        let now = Timestamp::from_second(31).expect("a time");
        list(now, &PODS, query, vec!["shop".to_owned()], &table)
    }

    #[test]
    fn a_list_has_the_columns_of_kubectl() {
        let all = page(ListQuery { resource: "pods".to_owned(), ..ListQuery::default() });
        assert_eq!(all.columns, ["Namespace", "Name", "Status", "Restarts", "Age"]);
        let texts: Vec<_> = all.rows[0].iter().map(|cell| &*cell.link.text).collect();
        assert_eq!(texts, ["shop", "web-<1>", "Pending", "2", "30s"]);
        assert_eq!(all.rows[0][1].link.href, "/object/core/v1/pods/shop/web-%3C1%3E");
        assert_eq!(all.rows[0][2].chip.as_ref().map(|chip| chip.tone), Some("warn"));
        assert_eq!((&*all.next, all.remaining), ("/objects?kind=pods&after=t", Some(9)));
        let html = all.render().expect("rendered");
        assert!(html.contains("web-&#60;1&#62;") && !html.contains("web-<1>"), "{html}");
        let shop = ListQuery {
            resource: "pods".to_owned(),
            namespace: "shop".to_owned(),
            ..ListQuery::default()
        };
        assert_eq!(page(shop).columns[0], "Name");
    }

    #[test]
    fn kinds_are_grouped() {
        let deployment = Kind::new("apps", "v1", "Deployment", "deployments", true);
        let secret = Kind::new("", "v1", "Secret", "secrets", true);
        let page = kinds([&secret, &deployment, &PODS].into_iter());
        let common: Vec<_> = page.common.iter().map(|link| &*link.text).collect();
        assert_eq!(common, ["Pod", "Deployment"]);
        let groups: Vec<_> = page.groups.iter().map(|g| (&*g.name, g.kinds.len())).collect();
        assert_eq!(groups, [("core", 2), ("apps", 1)]);
        assert_eq!(page.groups[1].kinds[0].href, "/objects?kind=deployments.apps");
    }
}
