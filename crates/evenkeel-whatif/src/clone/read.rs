//! Reads all objects of a cluster, page by page.

use super::filter::{CloneOptions, is_left_out_type, keep};
use crate::Cluster;
use bytes::Bytes;
use evenkeel_runtime::{
    client::{ApiError, Client},
    discovery::Resource,
};
use http::{Request, header::ACCEPT};
use serde_json::Value;

/// Number of objects in a page, as kubectl's.
const PAGE: usize = 500;
/// Maximum number of times that a list starts again because the server has compacted its resource version.
const MAX_RESTARTS: usize = 3;

/// Copy of a cluster, and the resources that it lacks.
#[derive(Debug, Clone, Default)]
pub struct Cloned {
    /// Objects of the copy.
    pub cluster: Cluster,
    /// Resources that could not be listed.
    pub skipped: Vec<Skipped>,
}

/// Resource that could not be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Resource with its group, such as `deployments.apps`.
    pub resource: String,
    /// Error of the server.
    pub reason: String,
}

/// Reads the objects of all resources that the client may list.
///
/// # Errors
/// Fails if the server does not respond. A resource is skipped if the server responds to its list with an error.
pub async fn read(client: &Client, options: &CloneOptions) -> Result<Cloned, ApiError> {
    let resources = client.api_resources().await?;
    let mut cloned = Cloned::default();
    for failed in &resources.failed {
        let resource = format!("*.{}/{}", failed.group, failed.version);
        cloned.skipped.push(Skipped { resource, reason: failed.reason.to_string() });
    }
    for resource in resources.preferred() {
        if !resource.supports_verb("list")
            || is_left_out_type(&resource.kind.group, &resource.kind.kind)
        {
            continue;
        }
        match list(client, resource, options).await {
            Ok(objects) => cloned.cluster.extend(objects),
            Err(error @ ApiError::Status(_)) => {
                let reason = error.to_string();
                cloned.skipped.push(Skipped { resource: full_resource(resource), reason });
            }
            Err(error) => return Err(error),
        }
    }
    cloned.cluster.sort();
    Ok(cloned)
}

/// Returns the plural of a resource with its group.
fn full_resource(resource: &Resource) -> String {
    let kind = &resource.kind;
    if kind.group.is_empty() {
        kind.plural.to_string()
    } else {
        format!("{}.{}", kind.plural, kind.group)
    }
}

/// Lists a resource. It starts again if the server no longer has the version of the first page.
async fn list(
    client: &Client,
    resource: &Resource,
    options: &CloneOptions,
) -> Result<Vec<Value>, ApiError> {
    let mut restarts = 0;
    loop {
        match list_pages(client, resource, options).await {
            Err(error) if error.is_expired() && restarts < MAX_RESTARTS => restarts += 1,
            result => return result,
        }
    }
}

async fn list_pages(
    client: &Client,
    resource: &Resource,
    options: &CloneOptions,
) -> Result<Vec<Value>, ApiError> {
    let path = resource.kind.path("");
    let (mut objects, mut next) = (Vec::new(), String::new());
    loop {
        let mut target = format!("{path}?limit={PAGE}");
        if !next.is_empty() {
            target = format!("{target}&continue={next}");
        }
        let request = Request::get(&target).header(ACCEPT, "application/json").body(Bytes::new());
        let request = request.map_err(|error| ApiError::Request {
            path: target.as_str().into(),
            reason: error.to_string().as_str().into(),
        })?;
        let answer = client.raw(request).await?;
        let mut page: Value =
            serde_json::from_slice(answer.body()).map_err(|error| ApiError::Request {
                path: target.as_str().into(),
                reason: format!("the answer is no JSON: {error}").as_str().into(),
            })?;
        if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
            for mut item in items {
                item["apiVersion"] = resource.kind.api_version().into();
                item["kind"] = (*resource.kind.kind).into();
                objects.extend(keep(item, options));
            }
        }
        match page.pointer("/metadata/continue").and_then(Value::as_str) {
            // Tokens are URL-safe base64, perhaps with padding.
            Some(token) if !token.is_empty() => next = token.replace('=', "%3D"),
            _ => return Ok(objects),
        }
    }
}
