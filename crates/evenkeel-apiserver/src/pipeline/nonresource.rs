//! Paths that are no resources: health, version, metrics, discovery, OpenAPI.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::answer;
use super::query::Query;
use crate::api::Api;
use crate::serve::Body;
use crate::status::StatusError;
use crate::{discovery, openapi};

/// Checks by name, in upstream's order; those that stand for parts that this server does not have apart are true as soon as it serves.
const CHECKS: &[&str] = &[
    "ping",
    "log",
    "etcd",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// Serves them.
pub(super) fn serve(
    api: &Arc<Api>,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    query: &Query,
) -> Result<Response<Body>, StatusError> {
    let path = if path.len() > 1 { path.strip_suffix('/').unwrap_or(path) } else { path };
    let get = matches!(*method, Method::GET | Method::HEAD);
    for root in ["/healthz", "/livez", "/readyz"] {
        if let Some(rest) = path.strip_prefix(root)
            && (rest.is_empty() || rest.starts_with('/'))
        {
            if !get {
                return Err(StatusError::method_not_allowed());
            }
            return Ok(health(root, rest.trim_start_matches('/'), query));
        }
    }
    let response = match path {
        "/version" if get => json(&version()),
        "/metrics" if get => {
            let text = HeaderValue::from_static(
                "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
            );
            answer(StatusCode::OK, text, Body::whole(api.metrics.render(api).into()))
        }
        "/" if get => json(&index(api)),
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

fn json(value: &serde_json::Value) -> Response<Body> {
    let text = serde_json::to_vec_pretty(value).unwrap_or_default();
    answer(StatusCode::OK, HeaderValue::from_static("application/json"), Body::whole(text.into()))
}

fn text(code: StatusCode, text: String) -> Response<Body> {
    let mut response = answer(
        code,
        HeaderValue::from_static("text/plain; charset=utf-8"),
        Body::whole(text.into()),
    );
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

fn health(root: &str, check: &str, query: &Query) -> Response<Body> {
    let root = root.trim_start_matches('/');
    if !check.is_empty() {
        return if CHECKS.contains(&check) || check == "shutdown" && root == "readyz" {
            text(StatusCode::OK, "ok".to_owned())
        } else {
            not_found()
        };
    }
    if !query.has("verbose") {
        return text(StatusCode::OK, "ok".to_owned());
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut out = String::new();
    let last = (root == "readyz").then_some("shutdown");
    for check in CHECKS.iter().copied().chain(last) {
        if excluded.contains(&check) {
            out.push_str(&format!("[+]{check} excluded: ok\n"));
        } else {
            out.push_str(&format!("[+]{check} ok\n"));
        }
    }
    out.push_str(&format!("{root} check passed\n"));
    text(StatusCode::OK, out)
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

/// What `/` lists.
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
        ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
            .map(Into::into),
    );
    for root in ["healthz", "livez", "readyz"] {
        paths.extend(CHECKS.iter().map(|check| format!("/{root}/{check}")));
    }
    paths.sort();
    paths.dedup();
    serde_json::json!({ "paths": paths })
}
