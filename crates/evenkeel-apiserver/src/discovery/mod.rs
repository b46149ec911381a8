//! Discovery at `/api`, `/apis` and below: groups, versions and resources, in the unaggregated and the aggregated
//! format.

mod aggregated;
mod groups;
mod legacy;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::Value;

use crate::api::Api;
use crate::resource::Rows;
use evenkeel_apimachinery::encode::accept;
use evenkeel_apimachinery::status::StatusError;

/// Format of the discovery documents.
enum DiscoveryFormat {
    Legacy,
    Aggregated,
}

/// Responds to a GET of a discovery path; `None` for other paths. The response may be a 404 or a 406.
pub(crate) fn serve(api: &Api, path: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
    let rows = api.table.rows();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let document = match parts.as_slice() {
        ["api" | "apis"] => match requested_format(headers, true) {
            Some(DiscoveryFormat::Aggregated) => {
                return Some(aggregated::answer(&rows, parts[0] == "api").response(headers));
            }
            Some(DiscoveryFormat::Legacy) if parts[0] == "api" => legacy::versions(headers),
            Some(DiscoveryFormat::Legacy) => legacy::groups_document(&rows),
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
    if requested_format(headers, false).is_none() {
        return Some(refused(headers));
    }
    Some(json(&document))
}

fn has_group(rows: &Rows, group: &str) -> bool {
    rows.all.iter().any(|resource| resource.group() == group)
}

/// Returns the first format in `Accept` that the server has, or `None`.
fn requested_format(headers: &HeaderMap, aggregates: bool) -> Option<DiscoveryFormat> {
    accept::media_ranges(headers).iter().find_map(|media_range| {
        if !media_range.includes("application/json") {
            return None;
        }
        match (media_range.param("g"), media_range.param("v"), media_range.param("as")) {
            ("", "", "") => Some(DiscoveryFormat::Legacy),
            ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") if aggregates => {
                Some(DiscoveryFormat::Aggregated)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_negotiated() {
        let headers = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::ACCEPT, HeaderValue::from_static(accept));
            headers
        };
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        assert!(matches!(requested_format(&headers(v2), true), Some(DiscoveryFormat::Aggregated)));
        assert!(matches!(
            requested_format(&headers("application/json"), true),
            Some(DiscoveryFormat::Legacy)
        ));
        let v9 = "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList";
        assert!(requested_format(&headers(v9), true).is_none());
    }
}
