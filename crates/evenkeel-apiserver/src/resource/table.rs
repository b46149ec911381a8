//! Table of resources. The built-in ones come from `data/resources.jsonl`; all servers of a process share them.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock, RwLock};

use serde::Deserialize;

use super::document::{Document, OpenApiDocuments};
use super::source::Source;
use super::types::{Column, ResourceType, Subresource, Verb, Verbs};
use crate::strategy;
use evenkeel_apimachinery::group_version::{GroupResource, GroupVersionKind};

/// Built-in resources as JSON: one [`Row`] in each line.
const BUILTIN_ROWS: &str = include_str!("../../data/resources.jsonl");

/// Table of a server's resources. Clones share it. The CRD controller adds and removes custom resources at run time.
#[derive(Clone)]
pub(crate) struct Table(Arc<RwLock<Arc<Rows>>>);

/// Snapshot of the table.
#[derive(Clone, Default)]
pub(crate) struct Rows {
    /// All resources in discovery order.
    pub(crate) all: Vec<Arc<ResourceType>>,
    by_version: BTreeMap<Box<str>, BTreeMap<Arc<str>, Arc<ResourceType>>>,
    /// Cached discovery documents: of all groups except the core group, and of the core group.
    pub(crate) documents: [OnceLock<Document>; 2],
    pub(crate) openapi: OpenApiDocuments,
}

impl Rows {
    /// Returns a resource by `apiVersion` (`v1`, `apps/v1`) and plural name.
    pub(crate) fn get(&self, api_version: &str, resource: &str) -> Option<&Arc<ResourceType>> {
        self.by_version.get(api_version)?.get(resource)
    }

    /// Returns the resources of a kind in discovery order.
    pub(crate) fn of_kind<'a>(
        &'a self,
        api_version: &'a str,
        kind: &'a str,
    ) -> impl Iterator<Item = &'a Arc<ResourceType>> {
        self.all.iter().filter(move |row| *row.api_version == *api_version && row.kind() == kind)
    }

    /// Returns whether any resource has this group and version.
    pub(crate) fn has_version(&self, api_version: &str) -> bool {
        self.by_version.contains_key(api_version)
    }

    fn add(&mut self, resource: Arc<ResourceType>) {
        self.by_version
            .entry(resource.api_version.clone())
            .or_default()
            .insert(resource.name.resource.clone(), resource.clone());
        self.all.push(resource);
        self.documents = Default::default();
        self.openapi = OpenApiDocuments::default();
    }
}

/// Built-in resources, without documents.
static BUILTIN: LazyLock<Rows> = LazyLock::new(|| {
    let mut rows = Rows::default();
    for line in BUILTIN_ROWS.lines() {
        match serde_json::from_str::<Row>(line) {
            Ok(row) => rows.add(Arc::new(row.into_type())),
            Err(error) => tracing::error!(%error, "a row of the resource table cannot be read"),
        }
    }
    rows
});

impl Table {
    /// Creates a table of the built-in resources.
    pub(crate) fn builtin() -> Self {
        Self(Arc::new(RwLock::new(Arc::new(BUILTIN.clone()))))
    }

    /// Returns the current snapshot of the table.
    pub(crate) fn rows(&self) -> Arc<Rows> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Replaces the custom resources. They follow the built-in ones, ordered by group. Skips a custom resource with the
    /// version and name of a built-in one.
    pub(crate) fn set_custom(&self, custom: impl Iterator<Item = Arc<ResourceType>>) {
        let mut custom: Vec<Arc<ResourceType>> = custom.collect();
        custom.sort_by(|a, b| a.gvk.group.cmp(&b.gvk.group));
        let mut current = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut rows = Rows::default();
        for row in current.all.iter().filter(|row| row.custom.is_none()).cloned() {
            rows.add(row);
        }
        for row in custom {
            if rows.get(&row.api_version, row.plural()).is_none() {
                rows.add(row);
            }
        }
        *current = Arc::new(rows);
    }

    /// Adds resources, except those that the table already has.
    pub(crate) fn add(&self, resources: Vec<Arc<ResourceType>>) {
        let mut current = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut rows = Rows::clone(&current);
        for resource in resources {
            if rows.get(&resource.api_version, resource.plural()).is_none() {
                rows.add(resource);
            }
        }
        *current = Arc::new(rows);
    }

    /// Returns the same resource in its storage version.
    pub(crate) fn stored_version(&self, resource: &Arc<ResourceType>) -> Arc<ResourceType> {
        if !resource.converts() {
            return resource.clone();
        }
        let rows = self.rows();
        let is_same = |row: &&Arc<ResourceType>| {
            row.stored && row.resource_prefix == resource.resource_prefix
        };
        rows.all.iter().find(is_same).unwrap_or(resource).clone()
    }

    /// Returns a resource by `apiVersion` (`v1`, `apps/v1`) and plural name.
    pub(crate) fn get(&self, api_version: &str, resource: &str) -> Option<Arc<ResourceType>> {
        self.rows().get(api_version, resource).cloned()
    }
}

/// Recorded resource, as in discovery documents.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    group: Arc<str>,
    version: Arc<str>,
    resource: Arc<str>,
    kind: Arc<str>,
    scope: Box<str>,
    singular: Box<str>,
    short_names: Box<[Box<str>]>,
    categories: Box<[Box<str>]>,
    verbs: Vec<Box<str>>,
    subresources: Vec<SubresourceRow>,
    #[serde(default)]
    columns: Vec<ColumnRow>,
}

/// Column with name, type, format and priority.
type ColumnRow = (Arc<str>, Arc<str>, Arc<str>, i64);

/// Subresource in a row of the resource table.
#[derive(Deserialize)]
struct SubresourceRow {
    name: Arc<str>,
    kind: SubresourceKind,
    verbs: Vec<Box<str>>,
}

/// Kind of a subresource. Group and version are empty if they equal the parent's.
#[derive(Deserialize)]
struct SubresourceKind {
    group: Arc<str>,
    version: Arc<str>,
    kind: Arc<str>,
}

fn verbs(names: &[Box<str>]) -> Verbs {
    let verb = |name: &str| Verb::ALL.into_iter().find(|verb| verb.as_str() == name);
    names.iter().filter_map(|name| verb(name)).collect()
}

impl ResourceType {
    /// Creates a resource from a row of data, with objects that `source` computes.
    pub(crate) fn computed(row: serde_json::Value, source: Arc<dyn Source>) -> Option<Self> {
        match serde_json::from_value::<Row>(row) {
            Ok(row) => Some(Self { source: Some(source), ..row.into_type() }),
            Err(error) => {
                tracing::error!(%error, "a row of the resource table cannot be read");
                None
            }
        }
    }
}

impl SubresourceRow {
    fn into_subresource(self, parent: &GroupVersionKind) -> Subresource {
        let SubresourceKind { group, version, kind } = self.kind;
        let foreign_kind = !version.is_empty();
        let kind = if foreign_kind {
            GroupVersionKind { group, version, kind }
        } else {
            GroupVersionKind { kind, ..parent.clone() }
        };
        Subresource { name: self.name, kind, foreign_kind, verbs: verbs(&self.verbs) }
    }
}

impl Row {
    fn into_type(self) -> ResourceType {
        let gvk = GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind,
        };
        let subresources =
            self.subresources.into_iter().map(|row| row.into_subresource(&gvk)).collect();
        let (resource_prefix, stored) = resource_prefix(&self.group, &self.version, &self.resource);
        ResourceType {
            api_version: gvk.api_version().into(),
            list_kind: format!("{}List", gvk.kind).into(),
            singular: self.singular,
            short_names: self.short_names,
            categories: self.categories,
            namespaced: &*self.scope == "Namespaced",
            verbs: verbs(&self.verbs),
            subresources,
            columns: self
                .columns
                .into_iter()
                .map(|(name, kind, format, priority)| Column {
                    name,
                    kind,
                    format,
                    priority,
                    description: None,
                })
                .collect(),
            resource_prefix,
            stored,
            strategy: strategy::of(&self.group, &self.resource),
            source: None,
            custom: None,
            name: GroupResource { group: self.group, resource: self.resource },
            gvk,
        }
    }
}

/// Returns a resource's prefix in the store, and whether `version` is its storage version. As in upstream, Events of
/// the core group and of `events.k8s.io` are stored as core Events, and HorizontalPodAutoscalers are stored as v2.
fn resource_prefix(group: &str, version: &str, resource: &str) -> (Arc<str>, bool) {
    match (group, resource) {
        ("events.k8s.io", "events") => ("/events".into(), false),
        ("autoscaling", "horizontalpodautoscalers") => {
            (format!("{group}/{resource}").into(), version == "v2")
        }
        _ => (format!("{group}/{resource}").into(), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_all_recorded_resources() {
        let table = Table::builtin();
        assert_eq!(table.rows().all.len(), BUILTIN_ROWS.lines().count());
        let deployments = table.get("apps/v1", "deployments").expect("deployments are built in");
        assert!(deployments.namespaced && deployments.verbs.has(Verb::Watch));
        let scale = deployments.subresource("scale").expect("deployments scale");
        assert_eq!(scale.kind.api_version(), "autoscaling/v1");
        let status = deployments.subresource("status").expect("deployments have a status");
        assert_eq!(status.kind, deployments.gvk);
        let events = table.get("events.k8s.io/v1", "events").expect("events are built in");
        assert_eq!(
            &*events.resource_prefix,
            &*table.get("v1", "events").expect("core events are built in").resource_prefix
        );
    }
}
