//! Aggregated discovery documents (KEP-3352), with an ETag for conditional requests.

use super::groups::verbs;
use super::merged::{Resources, TieBreaker, Version, merged};
use crate::aggregation::discovery::stale;
use crate::aggregation::remotes::Remotes;
use crate::resource::document::Document;
use crate::resource::{ResourceType, Rows, Subresource};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;

const CONTENT_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Returns the document of `/api` (the core group) or `/apis` (all other groups). Clients request it often, so the
/// server encodes it once for each state of the table and of the extension API servers.
pub(super) fn discovery_document(rows: &Arc<Rows>, remotes: &Remotes, core: bool) -> Document {
    if !core && !remotes.by_name.is_empty() {
        return remotes.discovery(rows, || encode_document(rows, remotes, core));
    }
    let encoded = &rows.documents[usize::from(core)];
    encoded.get_or_init(|| encode_document(rows, &Remotes::default(), core)).clone()
}

fn encode_document(rows: &Rows, remotes: &Remotes, core: bool) -> Document {
    let items: Vec<Value> = merged(rows, remotes, TieBreaker::Group)
        .into_iter()
        .filter(|(name, _)| name.is_empty() == core)
        .map(|(name, versions)| {
            let versions: Vec<Value> =
                versions.iter().map(|version| version_discovery(remotes, version)).collect();
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    Document::new(Bytes::from(format!("{list}\n")), CONTENT_TYPE)
}

/// Returns the `APIVersionDiscovery` of a version.
fn version_discovery(remotes: &Remotes, version: &Version<'_>) -> Value {
    match &version.resources {
        Resources::Own(resources) => {
            let resources: Vec<Value> =
                resources.iter().map(|resource| resource_discovery(resource)).collect();
            json!({"version": version.name, "resources": resources, "freshness": "Current"})
        }
        Resources::Remote(remote) => match remotes.documents(&remote.name) {
            Some(documents) => documents.discovery.clone(),
            // The server has not requested the documents of the extension API server yet.
            None => stale(version.name),
        },
    }
}

/// Returns the kind of a resource or a subresource. As in upstream's documents, a built-in kind has an empty group and
/// version unless they differ from the resource's.
fn response_kind(resource: &ResourceType, part: Option<&Subresource>) -> Value {
    match part {
        Some(part) if part.foreign_kind => {
            json!({"group": &*part.kind.group, "version": &*part.kind.version, "kind": &*part.kind.kind})
        }
        Some(part) => own_kind(resource, &part.kind.kind),
        None => own_kind(resource, resource.kind()),
    }
}

/// Returns a kind in the resource's own group and version.
fn own_kind(resource: &ResourceType, kind: &str) -> Value {
    let (group, version) = (resource.group(), resource.version());
    let schema = evenkeel_apimachinery::schema::Schema::builtin(group, version, resource.kind());
    if schema.is_some() {
        json!({"group": "", "version": "", "kind": kind})
    } else {
        json!({"group": group, "version": version, "kind": kind})
    }
}

/// Returns the `APIResourceDiscovery` of a resource.
fn resource_discovery(resource: &ResourceType) -> Value {
    let mut discovery = json!({"resource": resource.plural(), "responseKind": response_kind(resource, None),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": &*resource.singular, "verbs": verbs(resource, resource.verbs)});
    if !resource.short_names.is_empty() {
        discovery["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        discovery["categories"] = json!(resource.categories);
    }
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|part| json!({"subresource": &*part.name, "responseKind": response_kind(resource, Some(part)), "verbs": verbs(resource, part.verbs)}))
        .collect();
    if !subresources.is_empty() {
        discovery["subresources"] = json!(subresources);
    }
    discovery
}
