//! Validation of a webhook's client configuration: a URL or a Service.
//!
//! Upstream: `k8s.io/apiserver/pkg/util/webhook/validation.go`.

use super::{dns_subdomain, get, int, text};
use evenkeel_apimachinery::validation::{Errors, Path};
use serde_json::Value;

const DESIRED_FORMAT: &str = "; desired format: https://host[/path]";

/// Validates `clientConfig` of the webhook at `path`.
pub(super) fn config(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("clientConfig");
    match (get(config, "url"), get(config, "service")) {
        (Some(url), None) => {
            self::url(url.as_str().unwrap_or_default(), &path.field("url"), errors);
        }
        (None, Some(service)) => self::service(service, &path.field("service"), errors),
        _ => errors.required(&path, "exactly one of url or service is required"),
    }
}

/// Requires an `https` URL with a host, and without user, fragment and query.
///
/// Upstream: `ValidateWebhookURL`.
fn url(text: &str, path: &Path<'_>, errors: &mut Errors) {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(why) => {
            let detail = format!("url must be a valid URL: parse {text:?}: {why}{DESIRED_FORMAT}");
            errors.required(path, &detail);
            return;
        }
    };
    if url.scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{DESIRED_FORMAT}");
        errors.invalid(path, url.scheme.as_str(), &detail);
    }
    if url.host.is_empty() {
        errors.invalid(path, "", &format!("host must be specified{DESIRED_FORMAT}"));
    }
    if let Some(user) = url.user {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        errors.invalid(path, url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        errors.invalid(path, url.query, "query parameters are not permitted in the URL");
    }
}

/// Parts of a URL that are validated.
#[derive(Debug, Default)]
struct Url<'a> {
    scheme: String,
    user: Option<&'a str>,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> Url<'a> {
    /// Splits a URL as Go's `url.Parse` does.
    fn parse(text: &'a str) -> Result<Self, String> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        if rest.bytes().any(|byte| byte.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let (scheme, rest) = scheme(rest)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self { scheme, query, fragment, ..Self::default() };
        if !rest.starts_with('/') {
            if url.scheme.is_empty() && rest.split('/').next().unwrap_or_default().contains(':') {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
            escapes(if url.scheme.is_empty() { rest } else { "" })?;
            escapes(fragment)?;
            return Ok(url);
        }
        let authority = match rest.strip_prefix("//") {
            Some(rest) if !(url.scheme.is_empty() && rest.starts_with('/')) => Some(rest),
            _ => None,
        };
        let mut path = rest;
        if let Some(rest) = authority {
            let end = rest.find('/').unwrap_or(rest.len());
            let (authority, after) = rest.split_at(end);
            path = after;
            let (user, host) = match authority.rsplit_once('@') {
                Some((user, host)) => (Some(user), host),
                None => (None, authority),
            };
            self::host(host)?;
            (url.user, url.host) = (user, host);
        }
        escapes(path)?;
        escapes(fragment)?;
        Ok(url)
    }
}

/// Splits off the scheme, which is empty if the URL has none.
fn scheme(text: &str) -> Result<(String, &str), String> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((text[..index].to_lowercase(), &text[index + 1..])),
            _ => break,
        }
    }
    Ok((String::new(), text))
}

/// Rejects a percent sign that two hexadecimal digits do not follow.
fn escapes(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    for at in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').map(|(at, _)| at) {
        let digits = bytes.get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            let shown = String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 3)]).into_owned();
            return Err(format!("invalid URL escape {shown:?}"));
        }
    }
    Ok(())
}

fn host(host: &str) -> Result<(), String> {
    let port = if host.starts_with('[') {
        match host.rfind(']') {
            Some(end) => &host[end + 1..],
            None => return Err("missing ']' in host".to_owned()),
        }
    } else {
        host.rfind(':').map_or("", |at| &host[at..])
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if (!port.is_empty() && !port.starts_with(':')) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("invalid port {port:?} after host"));
    }
    let allowed = "-_.~!$&'()*+,;=:[]<>\"%";
    match host.chars().find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && !allowed.contains(*c))
    {
        Some(c) => Err(format!("invalid character {:?} in host name", c.to_string())),
        None => escapes(host),
    }
}

/// Validates a reference to a Service. As in upstream, an error about the name is at `namespace`, and the reverse.
///
/// Upstream: `ValidateWebhookService`, whose callers swap the arguments name and namespace.
fn service(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, reported_field) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, field).is_empty() {
            errors.required(&path.field(reported_field), "");
        }
    }
    let port = int(service, "port").unwrap_or_default();
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.invalid(&path.field("port"), port, detail);
    }
    service_path(text(service, "path"), &path.field("path"), errors);
}

fn service_path(text: &str, path: &Path<'_>, errors: &mut Errors) {
    match text {
        "" | "/" => return,
        "//" => return errors.invalid(path, text, "segment[0] may not be empty"),
        _ if !text.starts_with('/') => errors.invalid(path, text, "must start with a '/'"),
        _ => {}
    }
    // Upstream drops the first byte even if it is not a slash.
    let mut rest = String::from_utf8_lossy(&text.as_bytes()[1..]).into_owned();
    if rest.ends_with('/') {
        rest.pop();
    }
    for (index, segment) in rest.split('/').enumerate() {
        if segment.is_empty() {
            errors.invalid(path, text, &format!("segment[{index}] may not be empty"));
            continue;
        }
        for message in dns_subdomain(segment) {
            errors.invalid(path, text, &format!("segment[{index}]: {message}"));
        }
    }
}
