//! Lists of objects, in the columns that kubectl prints.

use super::{
    Chip, Link,
    ago::Ago,
    podlist::{NOT_READY, rank},
    podstatus, shorten,
};
use crate::route::{ListQuery, ObjectPath, list_href};
use askama::Template;
use evenkeel_api::{Kind, time::Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum number of objects on a page.
pub(crate) const MAX_ROWS: usize = 500;
/// Maximum length of a cell.
const MAX_CELL: usize = 200;
/// Frequently used kinds in the order of the page, as plural and group.
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
    /// Frequently used kinds.
    pub(crate) common: Vec<Link>,
    /// All kinds, by group.
    pub(crate) groups: Vec<Group>,
}

/// Returns the page of kinds that can be listed.
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
    /// Whether the cell is the object's namespace.
    pub(crate) is_namespace: bool,
    /// State, in place of the text.
    pub(crate) chip: Option<Chip>,
    /// Namespace of the object that the cell names, if the list has objects of all namespaces.
    pub(crate) namespace: String,
}

/// A status to filter by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatusLink {
    /// The status, with the list of its objects.
    pub(crate) link: Link,
    /// Number of objects.
    pub(crate) count: usize,
    /// Whether the list is filtered by this status.
    pub(crate) is_here: bool,
}

/// Objects of a kind.
#[derive(Debug, Clone, Template)]
#[template(path = "list.html")]
pub(crate) struct ListPage {
    /// Kind of the objects, in the plural.
    pub(crate) kind: String,
    /// Status of the objects to choose from. Empty if there is nothing to choose.
    pub(crate) statuses: Vec<StatusLink>,
    /// Query of the list.
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

/// Returns a list. `table` is the response of the API server as a `Table` (`meta.k8s.io/v1`). Objects with problems are first.
/// `statuses` are the numbers of objects by status, if the table is already sorted and filtered by status.
pub(crate) fn list(
    now: Timestamp,
    kind: &Kind,
    query: ListQuery,
    namespaces: Vec<String>,
    table: &Value,
    statuses: Option<Vec<(String, usize)>>,
) -> ListPage {
    let definitions = table["columnDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Columns of a higher priority are those of `-o wide`.
    let shown: Vec<(usize, &Value)> =
        definitions.iter().enumerate().filter(|(_, column)| column["priority"] == 0).collect();
    let with_namespace = kind.namespaced && query.namespace.is_empty();
    let mut columns: Vec<String> = shown.iter().map(|(_, column)| column_name(column)).collect();
    if with_namespace {
        columns.insert(0, "Namespace".to_owned());
    }
    let rows = table["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut rows: Vec<Vec<TableCell>> = rows
        .iter()
        .take(MAX_ROWS)
        .map(|row| cells(now, kind, with_namespace, &shown, row))
        .collect();
    let state = |row: &Vec<TableCell>| row.iter().find_map(|cell| cell.chip.clone());
    let statuses = statuses.unwrap_or_else(|| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for chip in rows.iter().filter_map(state) {
            *counts.entry(chip.text).or_default() += 1;
        }
        if !query.status.is_empty() {
            rows.retain(|row| state(row).is_some_and(|chip| chip.text == query.status));
        }
        rows.sort_by_key(|row| state(row).map_or(u8::MAX, |chip| rank(chip.tone)));
        counts.into_iter().collect()
    });
    let metadata = &table["metadata"];
    let next = match metadata["continue"].as_str() {
        Some(after) if !after.is_empty() => {
            list_href(&ListQuery { after: after.to_owned(), ..query.clone() })
        }
        _ => String::new(),
    };
    ListPage {
        kind: plural(&kind.kind),
        statuses: status_links(&query, statuses),
        namespaced: kind.namespaced,
        namespaces,
        columns,
        rows,
        remaining: metadata["remainingItemCount"].as_u64(),
        next,
        query,
    }
}

fn column_name(column: &Value) -> String {
    column["name"].as_str().unwrap_or_default().to_owned()
}

fn cells(
    now: Timestamp,
    kind: &Kind,
    with_namespace: bool,
    columns: &[(usize, &Value)],
    row: &Value,
) -> Vec<TableCell> {
    let metadata = &row["object"]["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let object = ObjectPath::of(kind, text("namespace"), text("name")).href();
    let namespace = if with_namespace { text("namespace") } else { "" };
    let cell = |name: &str| {
        let (index, _) = columns.iter().find(|(_, column)| column["name"] == name)?;
        row["cells"][*index].as_str()
    };
    let mut cells: Vec<TableCell> = columns
        .iter()
        .map(|(index, column)| {
            let is_name = column["format"] == "name";
            let name = column_name(column);
            let created = (name == "Age").then(|| text("creationTimestamp"));
            let value = cell_text(now, &row["cells"][*index], created);
            let chip = matches!(&*name, "Status" | "Phase").then(|| {
                match kind.group.is_empty() && kind.kind == "Pod" {
                    true => pod_chip(&value, cell("Ready").unwrap_or_default()),
                    false => Chip::of_state(&value),
                }
            });
            let (href, namespace) = if is_name { (&*object, namespace) } else { ("", "") };
            TableCell {
                link: Link::new(value, href),
                is_name,
                is_namespace: false,
                chip,
                namespace: namespace.to_owned(),
            }
        })
        .collect();
    if with_namespace {
        let link = Link::new(text("namespace"), "");
        cells.insert(
            0,
            TableCell {
                link,
                is_name: false,
                is_namespace: true,
                chip: None,
                namespace: String::new(),
            },
        );
    }
    cells
}

/// Returns the state of a pod by its cells in the columns Status and Ready.
fn pod_chip(word: &str, ready: &str) -> Chip {
    let all = ready.split_once('/').is_none_or(|(ready, total)| ready == total);
    match podstatus::tone_of(word) {
        "good" if !all => Chip::new(word, "warn"),
        tone => Chip::new(word, tone),
    }
}

/// Returns the links that filter a list by status. The first one removes the filter.
fn status_links(query: &ListQuery, statuses: Vec<(String, usize)>) -> Vec<StatusLink> {
    if statuses.len() < 2 && query.status.is_empty() {
        return Vec::new();
    }
    let all: usize =
        statuses.iter().filter(|(word, _)| word != NOT_READY).map(|(_, count)| count).sum();
    let link = |(word, count): (String, usize)| {
        let text = match &*word {
            "" => "All",
            NOT_READY => "Not ready",
            word => word,
        };
        let query = ListQuery { status: word.clone(), after: String::new(), ..query.clone() };
        let link = Link::new(text, list_href(&query));
        (link, count, word)
    };
    let links = std::iter::once((String::new(), all)).chain(statuses).map(link);
    links
        .map(|(link, count, word)| StatusLink { link, count, is_here: word == query.status })
        .collect()
}

/// Returns the plural of a kind's name in English, such as `Policies` of `Policy`.
fn plural(kind: &str) -> String {
    let vowels = ["ay", "ey", "oy", "uy"];
    match kind.strip_suffix('y') {
        Some(stem) if !vowels.iter().any(|end| kind.ends_with(end)) => format!("{stem}ies"),
        _ if kind.ends_with("points") || kind.ends_with("Metrics") => kind.to_owned(),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| kind.ends_with(end)) => format!("{kind}es"),
        _ => format!("{kind}s"),
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
        list(now, &PODS, query, vec!["shop".to_owned()], &table, None)
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
    fn titles_are_plural() {
        for (kind, want) in [
            ("Pod", "Pods"),
            ("Ingress", "Ingresses"),
            ("NetworkPolicy", "NetworkPolicies"),
            ("Endpoints", "Endpoints"),
            ("StorageClass", "StorageClasses"),
            ("Gateway", "Gateways"),
        ] {
            assert_eq!(plural(kind), want);
        }
    }

    #[test]
    fn a_list_of_any_kind_is_filtered_by_status_with_problems_first() {
        let row = |name: &str, status: &str| json!({"cells": [name, status], "object": {"metadata": {"name": name}}});
        let table = json!({
            "columnDefinitions": [{"name": "Name", "format": "name", "priority": 0}, {"name": "Status", "priority": 0}],
            "rows": [row("a", "Ready"), row("b", "Ready,SchedulingDisabled"), row("c", "NotReady")],
        });
        let nodes = Kind::new("", "v1", "Node", "nodes", false);
        let now = Timestamp::from_second(0).expect("a time");
        let shown = |status: &str| {
            let query = ListQuery {
                resource: "nodes".to_owned(),
                status: status.to_owned(),
                ..ListQuery::default()
            };
            let page = list(now, &nodes, query, Vec::new(), &table, None);
            let names: Vec<String> = page.rows.iter().map(|row| row[0].link.text.clone()).collect();
            (names, page)
        };
        let (names, page) = shown("");
        assert_eq!(names, ["c", "a", "b"]);
        let tone = |row: usize| page.rows[row][1].chip.as_ref().map(|chip| chip.tone);
        assert_eq!([tone(0), tone(1), tone(2)], [Some("bad"), Some("good"), Some("quiet")]);
        let links: Vec<_> =
            page.statuses.iter().map(|s| (&*s.link.text, s.count, s.is_here)).collect();
        let want = [
            ("All", 3, true),
            ("NotReady", 1, false),
            ("Ready", 1, false),
            ("Ready,SchedulingDisabled", 1, false),
        ];
        assert_eq!(links, want);
        assert_eq!(page.statuses[1].link.href, "/objects?kind=nodes&status=NotReady");
        assert_eq!(shown("Ready").0, ["a"]);
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
