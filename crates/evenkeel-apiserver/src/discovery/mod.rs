//! `/api`, `/apis` and below: which groups, versions and resources there are, in the old form and the aggregated one.

mod aggregated;
pub(crate) mod document;
mod legacy;

use base64::Engine as _;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::Value;
use std::sync::Arc;

use crate::api::Api;
use crate::resource::{ResourceType, Rows, Verb, Verbs};
use evenkeel_apimachinery::encode::accept;
use evenkeel_apimachinery::status::StatusError;

/// What is asked for.
enum Asked {
    Legacy,
    Aggregated,
}

/// Answers a GET of a discovery path; `None` where `path` is none. An answer may be a 404 or a 406.
pub(crate) fn serve(api: &Api, path: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
    let rows = api.table.rows();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let document = match parts.as_slice() {
        ["api" | "apis"] => match asked(headers, true) {
            Some(Asked::Aggregated) => {
                return Some(aggregated::answer(&rows, parts[0] == "api").response(headers));
            }
            Some(Asked::Legacy) if parts[0] == "api" => legacy::versions(headers),
            Some(Asked::Legacy) => legacy::groups_document(&rows),
            None => return Some(refused(headers)),
        },
        ["api", version] if rows.has_version(version) => legacy::resources(&rows, version),
        ["apis", group] => match legacy::group(&rows, group) {
            Some(document) => document,
            None => return Some(no_such_page()),
        },
        ["apis", group, version] => {
            let api_version = format!("{group}/{version}");
            if rows.has_version(&api_version) {
                legacy::resources(&rows, &api_version)
            } else if has_group(&rows, group) {
                return Some(status(headers, &StatusError::resource_not_found()));
            } else {
                return Some(no_such_page());
            }
        }
        ["api", _] => return Some(status(headers, &StatusError::resource_not_found())),
        _ => return None,
    };
    if asked(headers, false).is_none() {
        return Some(refused(headers));
    }
    Some(json(&document))
}

fn has_group(rows: &Rows, group: &str) -> bool {
    rows.all.iter().any(|resource| resource.group() == group)
}

/// The form that `Accept` asks for; `None` where none of its forms is served.
fn asked(headers: &HeaderMap, aggregates: bool) -> Option<Asked> {
    accept::media_ranges(headers).iter().find_map(|media_range| {
        if !media_range.includes("application/json") {
            return None;
        }
        match (media_range.param("g"), media_range.param("v"), media_range.param("as")) {
            ("", "", "") => Some(Asked::Legacy),
            ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") if aggregates => {
                Some(Asked::Aggregated)
            }
            _ => None,
        }
    })
}

fn json(document: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(document.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(headers: &HeaderMap) -> Response<Bytes> {
    let forms = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
    status(headers, &StatusError::not_acceptable(&forms))
}

fn status(headers: &HeaderMap, error: &StatusError) -> Response<Bytes> {
    let (content_type, bytes) = crate::output::Format::status(headers, &error.to_json());
    let mut response = Response::new(bytes);
    *response.status_mut() = error.code();
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn no_such_page() -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(b"404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// The resources of a version, with its name.
type Version<'a> = (&'a str, Vec<&'a Arc<ResourceType>>);
/// The versions of a group, with its name.
type Group<'a> = (&'a str, Vec<Version<'a>>);

/// Groups in discovery's order, each with its versions in order of preference.
fn groups(rows: &Rows) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for resource in &rows.all {
        let at =
            groups.iter().position(|(name, _)| *name == resource.group()).unwrap_or_else(|| {
                groups.push((resource.group(), Vec::new()));
                groups.len() - 1
            });
        let versions = &mut groups[at].1;
        match versions.iter_mut().find(|(version, _)| *version == resource.version()) {
            Some((_, resources)) => resources.push(resource),
            None => versions.push((resource.version(), vec![resource])),
        }
    }
    groups
}

/// Kinds whose stored form is of another version (or group) than the one that the rule would name.
const STORED_AS: &[(&str, &str, &str)] = &[
    ("autoscaling/v1", "HorizontalPodAutoscaler", "qwQve8ut294="),
    ("certificates.k8s.io/v1", "ClusterTrustBundle", "v5yhuVertL4="),
    ("certificates.k8s.io/v1", "PodCertificateRequest", "wYA9yXQH8fg="),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "jfWCUB31mvA="),
    ("resource.k8s.io/v1", "DeviceTaintRule", "i+85+TcIKpA="),
    ("storagemigration.k8s.io/v1", "StorageVersionMigration", "pCjmmKOkLy4="),
];

/// A short hash of the form that objects are stored in; clients that migrate storage compare it.
fn storage_version_hash(resource: &ResourceType) -> Option<String> {
    if !resource.verbs.has(crate::resource::Verb::Watch) {
        return None;
    }
    if let Some(custom) = &resource.custom {
        let name =
            format!("{}/{}/{}", resource.group(), custom.definition.storage, resource.kind());
        return Some(hash_of(&name));
    }
    let known = STORED_AS
        .iter()
        .find(|(version, kind, _)| **version == *resource.api_version && *kind == resource.kind());
    if let Some((_, _, hash)) = known {
        return Some((*hash).to_owned());
    }
    let group = if resource.group() == "events.k8s.io" { "" } else { resource.group() };
    let name = format!("{group}/{}/{}", resource.version(), resource.kind());
    Some(hash_of(&name))
}

fn hash_of(name: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

/// What a resource can do, in the order in which upstream lists it: that of custom ones is its own.
fn verbs(resource: &ResourceType, verbs: Verbs) -> Vec<&'static str> {
    const CUSTOM: [Verb; 8] = [
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Create,
        Verb::Update,
        Verb::Watch,
    ];
    let all = if resource.custom.is_some() { CUSTOM } else { Verb::ALL };
    all.into_iter().filter(|verb| verbs.has(*verb)).map(Verb::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Table;

    #[test]
    fn hashes_are_upstreams() {
        let table = Table::builtin();
        let hash = |version: &str, name: &str| {
            table.get(version, name).as_deref().and_then(storage_version_hash).unwrap_or_default()
        };
        assert_eq!(hash("apps/v1", "deployments"), "8aSe+NMegvE=");
        assert_eq!(hash("v1", "configmaps"), "qFsyl6wFWjQ=");
        assert_eq!(hash("autoscaling/v1", "horizontalpodautoscalers"), "qwQve8ut294=");
        assert_eq!(hash("v1", "bindings"), "");
    }

    #[test]
    fn forms_are_negotiated() {
        let headers = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::ACCEPT, HeaderValue::from_static(accept));
            headers
        };
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        assert!(matches!(asked(&headers(v2), true), Some(Asked::Aggregated)));
        assert!(matches!(asked(&headers("application/json"), true), Some(Asked::Legacy)));
        let v9 = "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList";
        assert!(asked(&headers(v9), true).is_none());
    }
}
