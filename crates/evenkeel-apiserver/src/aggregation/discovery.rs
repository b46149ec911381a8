//! Converts the discovery documents of extension API servers to the form of aggregated discovery.

use evenkeel_api::json;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decode::listed;

/// Version of a group in an `APIGroupDiscoveryList`. Unknown fields of extension API servers are dropped.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Version {
    version: String,
    #[serde(deserialize_with = "listed", skip_serializing_if = "Vec::is_empty")]
    resources: Vec<Resource>,
    freshness: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Resource {
    resource: String,
    response_kind: Kind,
    scope: String,
    singular_resource: String,
    #[serde(deserialize_with = "listed")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "listed", skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "listed", skip_serializing_if = "Vec::is_empty")]
    categories: Vec<String>,
    #[serde(deserialize_with = "listed", skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<Subresource>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Subresource {
    subresource: String,
    response_kind: Kind,
    #[serde(deserialize_with = "listed", skip_serializing_if = "Vec::is_empty")]
    accepted_types: Vec<Kind>,
    #[serde(deserialize_with = "listed")]
    verbs: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct Kind {
    group: String,
    version: String,
    kind: String,
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default, deserialize_with = "listed")]
    items: Vec<Group>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Group {
    metadata: Name,
    #[serde(deserialize_with = "listed")]
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Name {
    name: String,
}

/// Resource or subresource of an `APIResourceList`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ApiResource {
    name: String,
    singular_name: String,
    namespaced: bool,
    group: String,
    version: String,
    kind: String,
    #[serde(deserialize_with = "listed")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "listed")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "listed")]
    categories: Vec<String>,
}

#[derive(Deserialize)]
struct ApiResourceList {
    #[serde(default, deserialize_with = "listed")]
    resources: Vec<ApiResource>,
}

/// Returns the JSON of a version whose server responded (`freshness: Current`).
pub(super) fn current(mut version: Version) -> Value {
    "Current".clone_into(&mut version.freshness);
    serde_json::to_value(version).unwrap_or_default()
}

/// Returns the JSON of a version whose server did not respond (`freshness: Stale`).
pub(crate) fn stale(version: &str) -> Value {
    let version = Version {
        version: version.to_owned(),
        freshness: "Stale".to_owned(),
        ..Version::default()
    };
    serde_json::to_value(version).unwrap_or_default()
}

/// Reads a version of a group from an `APIGroupDiscoveryList`. If the list lacks it, the version has no resources.
pub(super) fn aggregated(bytes: &[u8], group: &str, version: &str) -> Result<Version, String> {
    let groups: Groups = decode(bytes)?;
    let mut versions = groups
        .items
        .into_iter()
        .filter(|candidate| candidate.metadata.name == group)
        .flat_map(|group| group.versions);
    let found = versions.find(|candidate| candidate.version == version);
    Ok(found.unwrap_or_else(|| Version { version: version.to_owned(), ..Version::default() }))
}

/// Reads a version of a group from its `APIResourceList`, where subresources are items named `RESOURCE/SUBRESOURCE`.
///
/// Upstream: `ConvertGroupVersionIntoToDiscovery`.
pub(super) fn legacy(bytes: &[u8], version: &str) -> Result<Version, String> {
    let list: ApiResourceList = decode(bytes)?;
    let scope = |item: &ApiResource| if item.namespaced { "Namespaced" } else { "Cluster" };
    let kind = |item: &ApiResource| Kind {
        group: item.group.clone(),
        version: item.version.clone(),
        kind: item.kind.clone(),
    };
    let mut resources: Vec<Resource> = Vec::new();
    for item in list.resources.iter().filter(|item| !item.name.contains('/')) {
        resources.push(Resource {
            resource: item.name.clone(),
            response_kind: kind(item),
            scope: scope(item).to_owned(),
            singular_resource: item.singular_name.clone(),
            verbs: item.verbs.clone(),
            short_names: item.short_names.clone(),
            categories: item.categories.clone(),
            subresources: Vec::new(),
        });
    }
    for item in &list.resources {
        let Some((parent, subresource)) = item.name.split_once('/') else { continue };
        let subresource = Subresource {
            subresource: subresource.to_owned(),
            response_kind: if item.kind.is_empty() { Kind::default() } else { kind(item) },
            accepted_types: Vec::new(),
            verbs: item.verbs.clone(),
        };
        match resources.iter_mut().find(|resource| resource.resource == parent) {
            Some(resource) if resource.scope != scope(item) => {
                let (parent_scope, scope) = (&resource.scope, scope(item));
                return Err(format!(
                    "Error: Parent {parent} (scope: {parent_scope}) and subresource {} (scope: {scope}) scope do not match",
                    subresource.subresource
                ));
            }
            Some(resource) => resource.subresources.push(subresource),
            None => resources.push(Resource {
                resource: parent.to_owned(),
                scope: scope(item).to_owned(),
                subresources: vec![subresource],
                ..Resource::default()
            }),
        }
    }
    Ok(Version { version: version.to_owned(), resources, ..Version::default() })
}

/// Decodes a JSON document.
fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let value: Value = json::from_slice(bytes).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_version_of_the_group_is_found_without_unknown_fields() {
        let kind = json!({"group": "a", "version": "v1", "kind": "Thing"});
        let verbs = json!(["get"]);
        let list = json!({"kind": "APIGroupDiscoveryList", "items": [
            {"metadata": {"name": "b"}, "versions": [{"version": "v1"}]},
            {"metadata": {"name": "a"}, "versions": null},
            {"metadata": {"name": "a"}, "versions": [{"version": "v2"}, {"version": "v1", "freshness": "Stale", "later": 1, "resources": [
                {"resource": "things", "responseKind": kind, "scope": "Cluster", "singularResource": "thing", "verbs": verbs, "later": {}},
                {"resource": "others", "scope": "Namespaced", "verbs": [], "subresources": [{"subresource": "status", "verbs": verbs}]},
                {"resource": "nulls", "scope": "Cluster", "verbs": null, "shortNames": null, "categories": null, "subresources": null},
                {"resource": "parents", "scope": "Cluster", "verbs": verbs, "subresources": [{"subresource": "null", "acceptedTypes": null, "verbs": null}]},
            ]}]},
        ]});
        let none = json!({"group": "", "version": "", "kind": ""});
        let expected = json!({"version": "v1", "freshness": "Current", "resources": [
            {"resource": "things", "responseKind": kind, "scope": "Cluster", "singularResource": "thing", "verbs": verbs},
            {"resource": "others", "responseKind": none, "scope": "Namespaced", "singularResource": "", "verbs": [],
                "subresources": [{"subresource": "status", "responseKind": none, "verbs": verbs}]},
            {"resource": "nulls", "responseKind": none, "scope": "Cluster", "singularResource": "", "verbs": []},
            {"resource": "parents", "responseKind": none, "scope": "Cluster", "singularResource": "", "verbs": verbs,
                "subresources": [{"subresource": "null", "responseKind": none, "verbs": []}]},
        ]});
        let bytes = list.to_string();
        assert_eq!(aggregated(bytes.as_bytes(), "a", "v1").map(current), Ok(expected));
        let absent = json!({"version": "v3", "freshness": "Current"});
        assert_eq!(aggregated(bytes.as_bytes(), "a", "v3").map(current), Ok(absent.clone()));
        for nulls in [
            r#"{"items": null}"#,
            r#"{"items": [{"metadata": {"name": "a"}, "versions": [{"version": "v3", "resources": null}]}]}"#,
        ] {
            let found = aggregated(nulls.as_bytes(), "a", "v3").map(current);
            assert_eq!(found, Ok(absent.clone()), "{nulls}");
        }
        assert!(aggregated(br#"{"items": [{"versions": 1}]}"#, "a", "v1").is_err());
        assert_eq!(stale("v1"), json!({"version": "v1", "freshness": "Stale"}));
    }

    #[test]
    fn a_list_of_resources_becomes_the_same_form() {
        let verbs = json!(["get"]);
        let list = json!({"resources": [
            {"name": "things/status", "namespaced": true, "kind": "Thing", "verbs": verbs},
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": verbs, "shortNames": ["t"]},
            {"name": "lone/part", "namespaced": false, "kind": "", "verbs": []},
            {"name": "nulls", "namespaced": false, "kind": "Null", "verbs": null, "shortNames": null, "categories": null},
        ]});
        let kind = |kind: &str| json!({"group": "", "version": "", "kind": kind});
        let expected = json!({"version": "v1", "freshness": "Current", "resources": [
            {"resource": "things", "responseKind": kind("Thing"), "scope": "Namespaced", "singularResource": "thing", "verbs": verbs,
                "shortNames": ["t"], "subresources": [{"subresource": "status", "responseKind": kind("Thing"), "verbs": verbs}]},
            {"resource": "nulls", "responseKind": kind("Null"), "scope": "Cluster", "singularResource": "", "verbs": []},
            {"resource": "lone", "responseKind": kind(""), "scope": "Cluster", "singularResource": "", "verbs": [],
                "subresources": [{"subresource": "part", "responseKind": kind(""), "verbs": []}]},
        ]});
        let read = |list: &Value| legacy(list.to_string().as_bytes(), "v1");
        assert_eq!(read(&list).map(current), Ok(expected));
        let empty = json!({"version": "v1", "freshness": "Current"});
        assert_eq!(read(&json!({"resources": null})).map(current), Ok(empty));
        let mut mixed = list;
        mixed["resources"][0]["namespaced"] = json!(false);
        let error = "Error: Parent things (scope: Namespaced) and subresource status (scope: Cluster) scope do not match";
        assert_eq!(read(&mixed), Err(error.to_owned()));
    }
}
