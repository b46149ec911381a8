//! Validation of a webhook's client configuration.
//!
//! Upstream: `k8s.io/apiserver/pkg/util/webhook/validation.go`.

use serde_json::Value;

use super::names::{dns_label, dns_subdomain};
use crate::status::FieldError;
use crate::value::{get, int, text};

/// Validates `clientConfig`, which may have a `url` and a `service`.
pub fn webhook_client(config: &Value, place: &str, errors: &mut Vec<FieldError>) {
    if config.get("url").is_some() {
        url(text(config, "url"), &format!("{place}.url"), errors);
    }
    if let Some(service) = get(config, "service") {
        self::service(service, &format!("{place}.service"), errors);
    }
}

/// Requires an `https` URL with a host, and without user, query and fragment.
///
/// Upstream: `ValidateWebhookURL`.
fn url(url: &str, place: &str, errors: &mut Vec<FieldError>) {
    let form = "; desired format: https://host[/path]";
    let mut wrong = |why: String| errors.push(FieldError::invalid(place, url, why));
    let Some((scheme, rest)) = url.split_once("://") else {
        wrong(format!("'https' is the only allowed URL scheme{form}"));
        return wrong(format!("host must be specified{form}"));
    };
    if scheme != "https" {
        wrong(format!("'https' is the only allowed URL scheme{form}"));
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() {
        wrong(format!("host must be specified{form}"));
    }
    if host.contains('@') {
        wrong("user information is not permitted in the URL".to_owned());
    }
    if rest.contains('#') {
        wrong("fragments are not permitted in the URL".to_owned());
    }
    if rest.contains('?') {
        wrong("query parameters are not permitted in the URL".to_owned());
    }
}

/// Requires the name and namespace of a webhook's Service, and a valid path and port.
///
/// Upstream: `ValidateWebhookService`.
fn service(service: &Value, place: &str, errors: &mut Vec<FieldError>) {
    for name in ["name", "namespace"] {
        if text(service, name).is_empty() {
            let why = format!("service {name} is required");
            errors.push(FieldError::required(format!("{place}.{name}"), why));
        }
    }
    if let Some(port) = int(service, "port").filter(|port| !(1..=65535).contains(port)) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{place}.port"), port, why));
    }
    let path = text(service, "path");
    if path.is_empty() || path == "/" {
        return;
    }
    let field = format!("{place}.path");
    if !path.starts_with('/') {
        errors.push(FieldError::invalid(field.as_str(), path, "must start with a '/'"));
    }
    for (i, step) in path.trim_start_matches('/').trim_end_matches('/').split('/').enumerate() {
        if step.is_empty() {
            let why = format!("segment[{i}] may not be empty");
            errors.push(FieldError::invalid(field.as_str(), path, why));
        } else if !dns_subdomain(step).is_empty() && !dns_label(step).is_empty() {
            let why = format!("segment[{i}]: {}", dns_subdomain(step).join(","));
            errors.push(FieldError::invalid(field.as_str(), path, why));
        }
    }
}
