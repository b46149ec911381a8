//! Non-resource paths: version, metrics, discovery, OpenAPI and health.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::health;
use crate::api::Api;
use crate::request::Query;
use crate::response::Body;
use crate::response::answer;
use crate::{discovery, openapi};
use evenkeel_apimachinery::headers;
use evenkeel_apimachinery::status::StatusError;

/// Serves a non-resource path.
pub(super) fn serve(
    api: &Arc<Api>,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    query: &Query,
) -> Result<Response<Body>, StatusError> {
    let path = if path.len() > 1 { path.strip_suffix('/').unwrap_or(path) } else { path };
    let get = matches!(*method, Method::GET | Method::HEAD);
    if let Some((root, check)) = health::of(path) {
        if !get {
            return Err(StatusError::method_not_allowed());
        }
        let results = health::Results { storage: api.store.health(), tasks: api.tasks.check() };
        return Ok(
            health::serve(&api.metrics, root, check, query, &results).unwrap_or_else(not_found)
        );
    }
    let response = match path {
        "/version" if get => json(&version()),
        "/metrics" if get => {
            let mut text = api.metrics.render(&api.table, &api.store);
            api.flows.render(&mut text);
            metrics(text)
        }
        "/metrics/slis" if get => metrics(api.metrics.render_checks()),
        "/" if get => json(&index(api)),
        "/.well-known/openid-configuration" | "/openid/v1/jwks" if !get => {
            return Err(StatusError::method_not_allowed());
        }
        "/.well-known/openid-configuration" => {
            let issuer = &api.authenticator.service_accounts;
            openid(headers, "application/json", &issuer.openid_configuration())
        }
        "/openid/v1/jwks" => {
            let issuer = &api.authenticator.service_accounts;
            openid(headers, "application/jwk-set+json", &issuer.jwks())
        }
        _ => {
            let known = if get {
                discovery::serve(api, path, headers)
                    .or_else(|| openapi::serve(api, path, headers, &query.0))
            } else if matches!(path, "/version" | "/api" | "/apis")
                || discovery::serve(api, path, headers).is_some()
            {
                return Err(StatusError::method_not_allowed());
            } else {
                None
            };
            match known {
                Some(response) => response.map(Body::whole),
                None => not_found(),
            }
        }
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

fn metrics(text: String) -> Response<Body> {
    let kind = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    answer(StatusCode::OK, HeaderValue::from_static(kind), Body::whole(text.into()))
}

fn json(value: &serde_json::Value) -> Response<Body> {
    let text = serde_json::to_vec_pretty(value).unwrap_or_default();
    answer(StatusCode::OK, HeaderValue::from_static("application/json"), Body::whole(text.into()))
}

/// Responds with a discovery document of the service account issuer, which clients may cache for an hour.
///
/// Upstream: `OpenIDMetadataServer`.
fn openid(
    headers: &HeaderMap,
    content_type: &'static str,
    document: &serde_json::Value,
) -> Response<Body> {
    let accept = headers::text(headers, ACCEPT);
    let mut accepted = accept.split([',', ';']).map(str::trim);
    if !accept.is_empty() && !accepted.any(|one| one == "*/*" || one == content_type) {
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        let body = Bytes::from_static(b"406: Not Acceptable");
        return answer(StatusCode::NOT_ACCEPTABLE, text, Body::whole(body));
    }
    let body = Body::whole(document.to_string().into());
    let mut response = answer(StatusCode::OK, HeaderValue::from_static(content_type), body);
    let kept = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(CACHE_CONTROL, kept);
    response
}

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
    paths.extend(
        [
            "/.well-known/openid-configuration",
            "/metrics",
            "/metrics/slis",
            "/openapi/v2",
            "/openapi/v3",
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
