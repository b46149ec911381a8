//! Non-resource paths: version, metrics, discovery, OpenAPI and health.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::health;
use crate::api::Api;
use crate::request::Query;
use crate::response::Body;
use crate::response::answer;
use crate::verbs::route;
use crate::{discovery, openapi};
use evenkeel_apimachinery::status::StatusError;

/// Returns whether all KMS plugins are healthy; `None` without plugins.
fn kms_health(api: &Api) -> Option<Result<(), String>> {
    let mut plugins = api.kms_plugins.iter().map(|plugin| plugin.health()).peekable();
    plugins.peek()?;
    Some(plugins.collect())
}

/// Paths below which upstream's router answers for what it does not serve.
const ROUTED: [&str; 3] = ["/version/", "/.well-known/openid-configuration/", "/openid/v1/jwks/"];

/// Serves a non-resource path.
pub(super) fn serve(
    api: &Arc<Api>,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    query: &Query,
) -> Result<Response<Body>, StatusError> {
    // Checks the method and the media types like upstream's router (go-restful). Without consumed media types, a route
    // takes any.
    let check_route = |consumed: &[&str], produced: &[&str]| {
        if *method != Method::GET {
            return Err(StatusError::method_not_allowed());
        }
        if !consumed.is_empty() {
            route::consumes(headers, consumed)?;
        }
        route::accepts(headers, produced)
    };
    if path.contains("//") {
        return Ok(not_found());
    }
    if let Some((root, check)) = health::parse_path(path) {
        let results = health::Results {
            etcd: api.store.etcd_health(),
            kms: kms_health(api),
            storage: api.store.health(),
            tasks: api.tasks.check(),
        };
        return Ok(
            health::serve(&api.metrics, root, check, query, &results).unwrap_or_else(not_found)
        );
    }
    let trimmed = path.strip_suffix('/').unwrap_or(path);
    let response = match path {
        "/version" | "/version/" => {
            check_route(&["application/json"], &["application/json"])?;
            json_response(&version())
        }
        "/metrics" => {
            let mut text = api.metrics.render(&api.table, &api.store);
            api.flows.render(&mut text);
            api.authenticator.render(&mut text);
            api.authorizer.render(&mut text);
            if let Some(auditor) = &api.auditor {
                auditor.render(&mut text);
            }
            api.aggregation.current().render(&mut text);
            metrics_response(text)
        }
        "/metrics/slis" => metrics_response(api.metrics.render_checks()),
        "/" => json_response(&index(api)),
        "/.well-known/openid-configuration" | "/.well-known/openid-configuration/" => {
            check_route(&[], &["application/json"])?;
            let issuer = &api.authenticator.service_accounts;
            openid_response("application/json", &issuer.openid_configuration())
        }
        "/openid/v1/jwks" | "/openid/v1/jwks/" => {
            check_route(&[], &["application/jwk-set+json"])?;
            let issuer = &api.authenticator.service_accounts;
            openid_response("application/jwk-set+json", &issuer.jwks())
        }
        path if ROUTED.iter().any(|root| path.starts_with(root)) => {
            return Err(StatusError::resource_not_found());
        }
        _ => match discovery::serve(api, trimmed, headers, &query.0) {
            Some(response) => {
                // Upstream serves discovery of all groups and of custom resources without its router.
                if response.status() != StatusCode::NOT_FOUND && discovery::is_routed(api, trimmed)
                {
                    check_route(&discovery::FORMS, &discovery::FORMS)?;
                }
                response.map(Body::whole)
            }
            None => match openapi::serve(api, method, path, headers, &query.0) {
                Some(response) => response.map(Body::whole),
                None if discovery::is_routed(api, trimmed) => {
                    return Err(StatusError::resource_not_found());
                }
                None => not_found(),
            },
        },
    };
    Ok(response)
}

fn not_found() -> Response<Body> {
    let mut response = answer(
        StatusCode::NOT_FOUND,
        HeaderValue::from_static("text/plain; charset=utf-8"),
        Body::whole(Bytes::from_static(b"404 page not found\n")),
    );
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

fn metrics_response(text: String) -> Response<Body> {
    let kind = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    answer(StatusCode::OK, HeaderValue::from_static(kind), Body::whole(text.into()))
}

fn json_response(value: &serde_json::Value) -> Response<Body> {
    let text = serde_json::to_vec_pretty(value).unwrap_or_default();
    answer(StatusCode::OK, HeaderValue::from_static("application/json"), Body::whole(text.into()))
}

/// Responds with a discovery document of the service account issuer, which clients may cache for an hour.
///
/// Upstream: `OpenIDMetadataServer`.
fn openid_response(content_type: &'static str, document: &serde_json::Value) -> Response<Body> {
    let body = Body::whole(document.to_string().into());
    let mut response = answer(StatusCode::OK, HeaderValue::from_static(content_type), body);
    let one_hour = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(CACHE_CONTROL, one_hour);
    response
}

/// Returns the document of `/version`. It describes the Kubernetes release whose behavior the server implements.
fn version() -> serde_json::Value {
    serde_json::json!({
        "major": "1",
        "minor": "37",
        "emulationMajor": "1",
        "emulationMinor": "37",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36",
        "gitVersion": "v1.37.1",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "gc",
        "platform": format!("{}/{}", std::env::consts::OS, match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }),
    })
}

/// Returns the paths that `/` lists.
fn index(api: &Api) -> serde_json::Value {
    let mut paths =
        vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned(), "/apis/".to_owned()];
    for resource in &api.table.rows().all {
        if !resource.group().is_empty() {
            paths.push(format!("/apis/{}", resource.group()));
            paths.push(format!("/apis/{}", resource.api_version));
        }
    }
    for remote in api.aggregation.current().by_name.values() {
        paths.push(remote.path().to_owned());
        if !remote.group.is_empty() {
            paths.push(format!("/apis/{}", remote.group));
        }
    }
    paths.extend(
        [
            "/.well-known/openid-configuration",
            "/metrics",
            "/metrics/slis",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/",
            "/openid/v1/jwks",
            "/version",
        ]
        .map(Into::into),
    );
    paths.extend(health::paths());
    paths.sort();
    paths.dedup();
    serde_json::json!({ "paths": paths })
}
