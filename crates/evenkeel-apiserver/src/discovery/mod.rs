//! Discovery at `/api`, `/apis` and below: groups, versions and resources, in the unaggregated and the aggregated
//! format.

mod aggregated;
mod groups;
mod legacy;
mod merged;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};

use crate::api::Api;
use crate::output::Format;
use evenkeel_apimachinery::encode::accept;
use evenkeel_apimachinery::status::StatusError;

/// Media types of the documents.
pub(crate) const FORMS: [&str; 3] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// Returns whether upstream's router has a route for the path: below the core group, or below a version of a built-in
/// group.
pub(crate) fn is_routed(api: &Api, path: &str) -> bool {
    let rows = api.table.rows();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", ..] => true,
        ["apis", group, _, ..] => {
            rows.all.iter().any(|row| row.group() == *group && row.custom.is_none())
        }
        _ => false,
    }
}

/// Returns the response to a request for a discovery path, or `None` if the path names no discovery document. The
/// response may be a 404 or a 406.
pub(crate) fn serve(
    api: &Api,
    path: &str,
    headers: &HeaderMap,
    query: &[(String, String)],
) -> Option<Response<Bytes>> {
    let (rows, remotes) = (api.table.rows(), api.aggregation.current());
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let status = |error: &StatusError| status_response(headers, query, error);
    let document = match parts.as_slice() {
        ["api" | "apis"] if wants_aggregated(headers) => {
            let is_core = parts[0] == "api";
            let document = aggregated::discovery_document(&rows, &remotes, is_core);
            return Some(document.response(headers));
        }
        ["api"] => legacy::versions(headers),
        ["apis"] => legacy::groups_document(&rows, &remotes),
        ["api", version] if rows.has_version(version) => legacy::resources(&rows, version),
        ["apis", group] => legacy::group(&rows, &remotes, group)?,
        ["apis", group, version] => {
            let api_version = format!("{group}/{version}");
            if rows.has_version(&api_version) {
                legacy::resources(&rows, &api_version)
            } else if is_routed(api, path) {
                return Some(status(&StatusError::resource_not_found()));
            } else {
                return None;
            }
        }
        ["api", _] => return Some(status(&StatusError::resource_not_found())),
        _ => return None,
    };
    let Some((content_type, bytes)) = Format::document(headers, query, &document) else {
        return Some(status(&StatusError::not_acceptable(&FORMS)));
    };
    Some(document_response(content_type, bytes))
}

/// Returns whether `Accept` prefers the aggregated document to the unaggregated one.
fn wants_aggregated(headers: &HeaderMap) -> bool {
    let prefers_aggregated =
        accept::media_ranges(headers).into_iter().find_map(|media_range| {
            match (media_range.param("g"), media_range.param("v"), media_range.param("as")) {
                ("", "", "") => Some(false),
                ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => {
                    media_range.includes("application/json").then_some(true)
                }
                _ => None,
            }
        });
    prefers_aggregated.unwrap_or_default()
}

fn document_response(content_type: HeaderValue, bytes: Bytes) -> Response<Bytes> {
    let mut response = Response::new(bytes);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn status_response(
    headers: &HeaderMap,
    query: &[(String, String)],
    error: &StatusError,
) -> Response<Bytes> {
    let (content_type, bytes) = Format::status(headers, query, &error.to_json());
    let mut response = document_response(content_type, bytes);
    *response.status_mut() = error.code();
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_aggregated_document_needs_its_media_type() {
        let headers = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::ACCEPT, HeaderValue::from_static(accept));
            headers
        };
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        assert!(wants_aggregated(&headers(v2)));
        assert!(!wants_aggregated(&headers("application/json")));
        let v9 = "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList";
        assert!(!wants_aggregated(&headers(v9)));
    }
}
