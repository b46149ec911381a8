//! Discovery: the resources that the API server serves.

use crate::client::{ApiError, Client, full_text};
use bytes::Bytes;
use evenkeel_api::{Kind, time::Timestamp};
use http::{HeaderValue, Request, Response, header};
use serde::Deserialize;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// `Accept` header of a request for aggregated discovery. An older server responds with an unaggregated document.
const ACCEPT_AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList, application/json;q=0.9";

/// Paths of the discovery documents.
const DOCUMENT_PATHS: [&str; 2] = ["/api", "/apis"];

/// All resources of a server, and the groups whose discovery failed.
#[doc(alias = "ServerGroupsAndResources")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerResources {
    /// Resources of every group and version, in the server's order. Sub-resources are part of their resource.
    pub resources: Vec<Resource>,
    /// Groups whose discovery failed (`ErrGroupDiscoveryFailed`). Their resources are unknown, not absent.
    pub failed: Vec<FailedGroup>,
}

/// Resource in one version of its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Group, version, kind, plural and scope.
    pub kind: Kind,
    /// Singular name, in lower case.
    pub singular: Box<str>,
    /// Supported verbs, such as `list`.
    pub verbs: Box<[Box<str>]>,
    /// Short names that kubectl accepts, such as `po`.
    pub short_names: Box<[Box<str>]>,
    /// Categories that contain the resource, such as `all`.
    pub categories: Box<[Box<str>]>,
    /// Names of the sub-resources, such as `status`.
    pub subresources: Box<[Box<str>]>,
    /// Whether this version is the group's preferred version.
    pub preferred: bool,
}

/// Group version whose discovery failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedGroup {
    /// API group. Empty for the core group.
    pub group: Box<str>,
    /// API version, such as `v1beta1`.
    pub version: Box<str>,
    /// Error message of the failed request.
    pub reason: Box<str>,
}

impl Resource {
    /// Returns group and plural, which all versions of a resource share.
    fn name(&self) -> (&str, &str) {
        (&self.kind.group, &self.kind.plural)
    }

    /// Returns whether the resource supports `verb`.
    pub fn supports_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|supported| **supported == *verb)
    }
}

impl ServerResources {
    /// Returns the resources in their groups' preferred versions. A resource that the preferred version lacks
    /// is returned in the first version that has it.
    ///
    /// Upstream: `ServerPreferredResources`.
    pub fn preferred(&self) -> impl Iterator<Item = &Resource> {
        let mut best_indexes: HashMap<(&str, &str), usize> = HashMap::new();
        for (index, resource) in self.resources.iter().enumerate() {
            let best = best_indexes.entry(resource.name()).or_insert(index);
            if resource.preferred && !self.resources[*best].preferred {
                *best = index;
            }
        }
        let all = self.resources.iter().enumerate();
        all.filter(move |(index, resource)| best_indexes.get(&resource.name()) == Some(index))
            .map(|(_, resource)| resource)
    }

    /// Returns the resource of a kind in the given version, such as `v1` or `apps/v1`.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| {
            resource.kind.kind == kind && resource.kind.api_version() == api_version
        })
    }
}

/// Last discovery of a server, with the ETags of its two documents.
#[derive(Debug, Clone, Default)]
pub(crate) struct CachedDiscovery {
    etags: [Option<HeaderValue>; 2],
    resources: Arc<ServerResources>,
    /// Time when the server last confirmed the documents.
    confirmed_at: Option<Timestamp>,
}

/// Returns the last discovery if it is less than `max_age` ago.
pub(crate) fn recent(
    cached: &Mutex<CachedDiscovery>,
    now: Timestamp,
    max_age: Duration,
) -> Option<Arc<ServerResources>> {
    let cached = cached.lock().unwrap_or_else(PoisonError::into_inner);
    let age = Duration::try_from(now.duration_since(cached.confirmed_at?)).unwrap_or_default();
    (age < max_age).then(|| cached.resources.clone())
}

/// Discovers the server's resources. Reads both documents again only if the ETag of one has changed.
pub(crate) async fn discover(
    client: &Client,
    cached: &Mutex<CachedDiscovery>,
) -> Result<Arc<ServerResources>, ApiError> {
    let before = cached.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if unchanged(client, &before.etags).await? {
        let now = Some(client.clock().now());
        cached.lock().unwrap_or_else(PoisonError::into_inner).confirmed_at = now;
        return Ok(before.resources);
    }
    let (mut found, mut etags) = (ServerResources::default(), [None, None]);
    for (path, etag) in DOCUMENT_PATHS.into_iter().zip(&mut etags) {
        let answer = get(client, path, ACCEPT_AGGREGATED, None).await?;
        match serde_json::from_slice::<Aggregated>(answer.body()) {
            Ok(list) if list.kind == "APIGroupDiscoveryList" => {
                list.add_to(&mut found);
                *etag = answer.headers().get(header::ETAG).cloned();
            }
            // The ETag of an unaggregated document does not cover its groups' documents.
            _ => add_unaggregated(client, path, answer.body(), &mut found).await,
        }
    }
    let resources = Arc::new(found);
    let confirmed_at = Some(client.clock().now());
    let now = CachedDiscovery { etags, resources: resources.clone(), confirmed_at };
    *cached.lock().unwrap_or_else(PoisonError::into_inner) = now;
    Ok(resources)
}

/// Returns whether both documents have ETags, and the server reports both as not modified.
async fn unchanged(client: &Client, etags: &[Option<HeaderValue>; 2]) -> Result<bool, ApiError> {
    let [Some(core), Some(groups)] = etags else { return Ok(false) };
    for (path, etag) in DOCUMENT_PATHS.into_iter().zip([core, groups]) {
        match get(client, path, ACCEPT_AGGREGATED, Some(etag)).await {
            Err(error) if error.code() == 304 => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// Reads a document. If it still has this ETag, returns the error 304.
async fn get(
    client: &Client,
    path: &str,
    accept: &'static str,
    etag: Option<&HeaderValue>,
) -> Result<Response<Bytes>, ApiError> {
    let mut request = Request::get(path).header(header::ACCEPT, accept);
    if let Some(etag) = etag {
        request = request.header(header::IF_NONE_MATCH, etag);
    }
    let request = request.body(Bytes::new()).map_err(|error| ApiError::Request {
        path: path.into(),
        reason: error.to_string().into(),
    })?;
    client.raw(request).await
}

#[derive(Deserialize)]
struct Aggregated {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    items: Vec<AggregatedGroup>,
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: AggregatedName,
    #[serde(default)]
    versions: Vec<AggregatedVersion>,
}

#[derive(Deserialize, Default)]
struct AggregatedName {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
    #[serde(default)]
    resources: Vec<AggregatedResource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    #[serde(default)]
    response_kind: ResponseKind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: Box<str>,
    #[serde(default)]
    verbs: Box<[Box<str>]>,
    #[serde(default)]
    short_names: Box<[Box<str>]>,
    #[serde(default)]
    categories: Box<[Box<str>]>,
    #[serde(default)]
    subresources: Vec<AggregatedSubresource>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseKind {
    group: String,
    version: String,
    kind: String,
}

#[derive(Deserialize)]
struct AggregatedSubresource {
    subresource: Box<str>,
}

impl Aggregated {
    /// Adds the resources of all groups, and the versions whose discovery is stale.
    fn add_to(self, found: &mut ServerResources) {
        for group in self.items {
            for (index, version) in group.versions.into_iter().enumerate() {
                if version.freshness == "Stale" {
                    found.failed.push(FailedGroup {
                        group: group.metadata.name.as_str().into(),
                        version: version.version.as_str().into(),
                        reason: stale_message(&group.metadata.name, &version.version).into(),
                    });
                }
                for resource in version.resources {
                    // A parent resource that is not served itself has no kind.
                    if resource.response_kind.kind.is_empty() {
                        continue;
                    }
                    // The first version of a group is the preferred one.
                    let preferred = index == 0;
                    let (group, version) = (&group.metadata.name, &version.version);
                    found.resources.push(resource.into_resource(group, version, preferred));
                }
            }
        }
    }
}

/// Returns client-go's message for a version that aggregated discovery marks as stale.
///
/// Upstream: `StaleGroupVersionError`.
fn stale_message(group: &str, version: &str) -> String {
    format!("stale GroupVersion discovery: {group}/{version}")
}

impl AggregatedResource {
    fn into_resource(self, group: &str, version: &str, preferred: bool) -> Resource {
        Resource {
            kind: Kind {
                group: group.to_owned().into(),
                version: version.to_owned().into(),
                kind: self.response_kind.kind.into(),
                plural: self.resource.into(),
                namespaced: self.scope == "Namespaced",
            },
            singular: self.singular_resource,
            verbs: self.verbs,
            short_names: self.short_names,
            categories: self.categories,
            subresources: self.subresources.into_iter().map(|sub| sub.subresource).collect(),
            preferred,
        }
    }
}

/// Fields of both `APIVersions` and `APIGroupList`.
#[derive(Deserialize, Default)]
#[serde(default)]
struct GroupsAndVersions {
    versions: Vec<String>,
    groups: Vec<LegacyGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyGroup {
    name: String,
    versions: Vec<LegacyVersion>,
    #[serde(default)]
    preferred_version: Option<LegacyVersion>,
}

#[derive(Deserialize)]
struct LegacyVersion {
    version: String,
}

#[derive(Deserialize)]
struct LegacyList {
    #[serde(default)]
    resources: Vec<LegacyResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyResource {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    singular_name: Box<str>,
    #[serde(default)]
    verbs: Box<[Box<str>]>,
    #[serde(default)]
    short_names: Box<[Box<str>]>,
    #[serde(default)]
    categories: Box<[Box<str>]>,
}

/// Adds the resources of an unaggregated document, which only lists groups and versions.
async fn add_unaggregated(
    client: &Client,
    path: &str,
    document: &[u8],
    found: &mut ServerResources,
) {
    let listed: GroupsAndVersions = match serde_json::from_slice(document) {
        Ok(listed) => listed,
        Err(error) => {
            let reason = format!("{path} is not a discovery document: {error}");
            return found.failed.push(FailedGroup {
                group: "".into(),
                version: "".into(),
                reason: reason.into(),
            });
        }
    };
    for (index, version) in listed.versions.iter().enumerate() {
        add_unaggregated_version(client, "", version, index == 0, found).await;
    }
    for group in &listed.groups {
        let preferred = group
            .preferred_version
            .as_ref()
            .or(group.versions.first())
            .map(|version| version.version.as_str());
        for version in &group.versions {
            let is_preferred = preferred == Some(&version.version);
            add_unaggregated_version(client, &group.name, &version.version, is_preferred, found)
                .await;
        }
    }
}

/// Adds the resources of one group version from its own document.
async fn add_unaggregated_version(
    client: &Client,
    group: &str,
    version: &str,
    preferred: bool,
    found: &mut ServerResources,
) {
    let path = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    let failure = match get(client, &path, "application/json", None).await {
        Ok(answer) => match serde_json::from_slice::<LegacyList>(answer.body()) {
            Ok(list) => {
                return found.resources.extend(list.into_resources(group, version, preferred));
            }
            Err(error) => error.to_string(),
        },
        Err(error) => full_text(&error),
    };
    found.failed.push(FailedGroup {
        group: group.into(),
        version: version.into(),
        reason: failure.into(),
    });
}

impl LegacyList {
    fn into_resources(self, group: &str, version: &str, preferred: bool) -> Vec<Resource> {
        let (subresources, resources): (Vec<_>, Vec<_>) =
            self.resources.into_iter().partition(|resource| resource.name.contains('/'));
        let subresources_of = |parent: &str| {
            let names = subresources
                .iter()
                .filter_map(|sub| sub.name.strip_prefix(parent)?.strip_prefix('/'));
            names.map(Box::from).collect()
        };
        let to_resource = |resource: LegacyResource| Resource {
            subresources: subresources_of(&resource.name),
            kind: Kind {
                group: group.to_owned().into(),
                version: version.to_owned().into(),
                kind: resource.kind.into(),
                plural: resource.name.into(),
                namespaced: resource.namespaced,
            },
            singular: resource.singular_name,
            verbs: resource.verbs,
            short_names: resource.short_names,
            categories: resource.categories,
            preferred,
        };
        resources.into_iter().map(to_resource).collect()
    }
}
