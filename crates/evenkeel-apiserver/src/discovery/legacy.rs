//! Unaggregated discovery documents: one list of groups, and one document for each group and version.

use super::groups::{storage_version_hash, verbs};
use super::merged::{TieBreaker, merged};
use crate::aggregation::remotes::Remotes;
use crate::resource::{ResourceType, Rows, Subresource};
use evenkeel_apimachinery::headers::text;
use http::HeaderMap;
use serde_json::{Value, json};

/// Returns the document of `/api`: the versions of the core group and the server's address.
pub(super) fn versions(headers: &HeaderMap) -> Value {
    let host = text(headers, http::header::HOST);
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]})
}

/// Returns all groups except the core group.
fn groups_list(rows: &Rows, remotes: &Remotes) -> Vec<Value> {
    merged(rows, remotes, TieBreaker::Service)
        .into_iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| json!({"groupVersion": format!("{name}/{}", version.name), "version": version.name}))
                .collect();
            let preferred = versions.first().cloned().unwrap_or_default();
            json!({"name": name, "versions": versions, "preferredVersion": preferred})
        })
        .collect()
}

/// Returns the document of `/apis`.
pub(super) fn groups_document(rows: &Rows, remotes: &Remotes) -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups_list(rows, remotes)})
}

/// Returns the document of `/apis/GROUP`, or `None` for an unknown group.
pub(super) fn group(rows: &Rows, remotes: &Remotes, name: &str) -> Option<Value> {
    let mut group = groups_list(rows, remotes).into_iter().find(|group| group["name"] == name)?;
    if let Some(fields) = group.as_object_mut() {
        fields.insert("kind".to_owned(), json!("APIGroup"));
        fields.insert("apiVersion".to_owned(), json!("v1"));
    }
    Some(group)
}

/// Returns the `APIResource` of a resource.
fn api_resource(resource: &ResourceType) -> Value {
    let mut api_resource = json!({"name": resource.plural(), "singularName": &*resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind(), "verbs": verbs(resource, resource.verbs)});
    if !resource.short_names.is_empty() {
        api_resource["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        api_resource["categories"] = json!(resource.categories);
    }
    if let Some(hash) = storage_version_hash(resource) {
        api_resource["storageVersionHash"] = json!(hash);
    }
    api_resource
}

/// Returns the `APIResource` of a subresource.
fn api_subresource(resource: &ResourceType, part: &Subresource) -> Value {
    let mut api_resource = json!({"name": format!("{}/{}", resource.plural(), part.name), "singularName": "",
        "namespaced": resource.namespaced, "kind": &*part.kind.kind, "verbs": verbs(resource, part.verbs)});
    if part.foreign_kind {
        api_resource["group"] = json!(&*part.kind.group);
        api_resource["version"] = json!(&*part.kind.version);
    }
    api_resource
}

/// Returns the document of `/api/v1` or `/apis/GROUP/VERSION`: the resources of a version.
pub(super) fn resources(rows: &Rows, api_version: &str) -> Value {
    let mut resources = Vec::new();
    for resource in rows.all.iter().filter(|row| *row.api_version == *api_version) {
        resources.push(api_resource(resource));
        resources.extend(resource.subresources.iter().map(|part| api_subresource(resource, part)));
    }
    let mut document =
        json!({"kind": "APIResourceList", "groupVersion": api_version, "resources": resources});
    // As in upstream, the document of the core group has no `apiVersion`.
    if api_version.contains('/') {
        document["apiVersion"] = json!("v1");
    }
    document
}
