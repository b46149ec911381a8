//! Aggregated discovery documents (KEP-3352), with an ETag for conditional requests.

use super::groups::verbs;
use super::merged::{Resources, Tie, Version, merged};
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
pub(super) fn answer(rows: &Arc<Rows>, remotes: &Remotes, core: bool) -> Document {
    if !core && !remotes.by_name.is_empty() {
        return remotes.discovery(rows, || document(rows, remotes, core));
    }
    let made = &rows.documents[usize::from(core)];
    made.get_or_init(|| document(rows, &Remotes::default(), core)).clone()
}

fn document(rows: &Rows, remotes: &Remotes, core: bool) -> Document {
    let items: Vec<Value> = merged(rows, remotes, Tie::Group)
        .into_iter()
        .filter(|(name, _)| name.is_empty() == core)
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions.iter().map(|one| version(remotes, one)).collect();
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    Document::new(Bytes::from(format!("{list}\n")), CONTENT_TYPE)
}

fn version(remotes: &Remotes, version: &Version<'_>) -> Value {
    match &version.resources {
        Resources::Own(rows) => {
            let resources: Vec<Value> = rows.iter().map(|row| resource(row)).collect();
            json!({"version": version.name, "resources": resources, "freshness": "Current"})
        }
        Resources::Remote(remote) => match remotes.documents(&remote.name) {
            Some(documents) => documents.discovery.clone(),
            // Its server has not been asked yet.
            None => stale(version.name),
        },
    }
}

/// Returns the kind of a resource or a subresource. As in upstream's documents, a built-in kind has an empty group and
/// version unless they differ from the resource's.
fn kind_of(resource: &ResourceType, part: Option<&Subresource>) -> Value {
    match part {
        Some(part) if part.foreign_kind => {
            json!({"group": &*part.kind.group, "version": &*part.kind.version, "kind": &*part.kind.kind})
        }
        Some(part) => own_kind(resource, &part.kind.kind),
        None => own_kind(resource, resource.kind()),
    }
}

fn own_kind(resource: &ResourceType, kind: &str) -> Value {
    if evenkeel_apimachinery::schema::Schema::builtin(
        resource.group(),
        resource.version(),
        resource.kind(),
    )
    .is_some()
    {
        json!({"group": "", "version": "", "kind": kind})
    } else {
        json!({"group": resource.group(), "version": resource.version(), "kind": kind})
    }
}

fn resource(resource: &ResourceType) -> Value {
    let mut row = json!({"resource": resource.plural(), "responseKind": kind_of(resource, None),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": &*resource.singular, "verbs": verbs(resource, resource.verbs)});
    if !resource.short_names.is_empty() {
        row["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        row["categories"] = json!(resource.categories);
    }
    let parts: Vec<Value> = resource
        .subresources
        .iter()
        .map(|part| json!({"subresource": &*part.name, "responseKind": kind_of(resource, Some(part)), "verbs": verbs(resource, part.verbs)}))
        .collect();
    if !parts.is_empty() {
        row["subresources"] = json!(parts);
    }
    row
}
