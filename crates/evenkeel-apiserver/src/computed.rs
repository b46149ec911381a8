//! APIs, such as `metrics.k8s.io`, whose objects another part of the process computes for each request. In a cluster,
//! an extension API server serves them. Here the server itself handles discovery, authorization, selectors and
//! encoding.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::resource::{ResourceType, Source};

/// API with computed objects, which the server serves in addition to the stored ones.
pub struct ComputedApi {
    /// API group, such as `metrics.k8s.io`.
    pub group: &'static str,
    /// Version in the group, such as `v1beta1`.
    pub version: &'static str,
    /// The resources of this group and version.
    pub resources: &'static [ComputedResource],
    /// Source that computes the objects for each request.
    pub source: Arc<dyn Source>,
}

/// Resource that clients can get and list.
#[derive(Debug, Clone, Copy)]
pub struct ComputedResource {
    /// Plural name, as in paths.
    pub plural: &'static str,
    /// Kind of one object.
    pub kind: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Titles of the columns that kubectl shows.
    pub columns: &'static [&'static str],
}

/// Returns the resource types of an API, for the resource table.
pub(crate) fn resource_types(api: &ComputedApi) -> Vec<Arc<ResourceType>> {
    let row = |resource: &ComputedResource| {
        // Name, type, format and priority of a column.
        let column = |title: &&str| match *title {
            "Name" => json!(["Name", "string", "name", 0]),
            title => json!([title, "string", "", 0]),
        };
        let columns: Vec<Value> = resource.columns.iter().map(column).collect();
        let row = json!({
            "group": api.group, "version": api.version, "resource": resource.plural,
            "kind": resource.kind, "singular": "", "shortNames": [], "categories": [],
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "verbs": ["get", "list"], "subresources": [], "columns": columns,
        });
        ResourceType::computed(row, api.source.clone())
    };
    api.resources.iter().filter_map(row).map(Arc::new).collect()
}

/// Returns the APIService of an API served in this process. `now` is the time at which it became available.
pub(crate) fn apiservice(api: &ComputedApi, now: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("{}.{}", api.version, api.group),
            "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
        },
        "spec": {
            "group": api.group, "version": api.version,
            "groupPriorityMinimum": 100, "versionPriority": 100,
        },
        "status": {"conditions": [{
            "type": "Available", "status": "True", "reason": "Local",
            "message": "Local APIServices are always available", "lastTransitionTime": now,
        }]},
    })
}
