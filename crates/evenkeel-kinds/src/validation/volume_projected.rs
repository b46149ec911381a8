//! Validation of the sources of projected volumes.

use super::volume::{downward, local_path, mode, mode_and_items};
use super::{certificates, labels, names};
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list, object, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Types of keys that a pod certificate may have.
const KEY_TYPES: [&str; 6] =
    ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];

/// An hour in seconds: the minimum lifetime of a pod certificate.
const HOUR: i64 = 3600;

/// Returns whether Kubernetes itself defines a signer.
///
/// Upstream: `IsKubernetesSignerName`.
fn is_built_in_signer(name: &str) -> bool {
    let host = name.split('/').next().unwrap_or_default();
    host == "kubernetes.io" || host.ends_with(".kubernetes.io")
}

/// Requires a domain in the key of each annotation for the signer.
///
/// Upstream: `ValidateUserAnnotations`.
fn user_annotations(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in object(source, "userAnnotations").into_iter().flatten() {
        size += key.len() + value.as_str().unwrap_or_default().len();
        let key = key.to_lowercase();
        let messages = names::qualified_name(&key);
        if key.is_empty() {
            errors.required(path, "");
        } else if !messages.is_empty() {
            errors.invalid_for_each(path, &key, &messages);
        } else if !key.contains('/') {
            let detail = "must be a domain-prefixed key (such as \"acme.io/foo\")";
            errors.invalid(path, key.as_str(), detail);
        }
    }
    if size > MAX_ANNOTATIONS {
        errors.too_long(path, MAX_ANNOTATIONS);
    }
}

/// Maximum size of all annotations together, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Paths of the files of all sources except tokens. They must be unique.
struct Paths<'v, 'p> {
    seen: BTreeSet<&'v str>,
    /// Path of the field `projected`. Errors about duplicates have this path.
    volume: &'p Path<'p>,
}

impl<'v> Paths<'v, '_> {
    /// Adds a path. If the path is a duplicate, the error quotes `value`.
    fn add(&mut self, file: &'v str, value: &str, errors: &mut Errors) {
        if !self.seen.insert(file) {
            errors.invalid(self.volume, value, "conflicting duplicate paths");
        }
    }
}

/// Validates the sources of a projected volume.
///
/// Upstream: `validateProjectionSources`.
pub(super) fn projected(projected: &Value, path: &Path<'_>, errors: &mut Errors) {
    mode(projected, "defaultMode", path, errors);
    let mut paths = Paths { seen: BTreeSet::new(), volume: path };
    let sources = path.field("sources");
    for (index, source) in list(projected, "sources").iter().enumerate() {
        let path = sources.index(index);
        let mut type_count = 0;
        for kind in ["secret", "configMap"] {
            let Some(source) = get(source, kind) else { continue };
            type_count += 1;
            let name = text(source, "name");
            if name.is_empty() {
                errors.required(&path.field(kind).field("name"), "");
            }
            mode_and_items(source, &path.field(kind), errors);
            for item in list(source, "items").iter().filter(|item| !text(item, "path").is_empty()) {
                paths.add(text(item, "path"), name, errors);
            }
        }
        if let Some(source) = get(source, "downwardAPI") {
            type_count += 1;
            downward(source, &path.field("downwardAPI"), errors);
            for file in list(source, "items").iter().map(|item| text(item, "path")) {
                if !file.is_empty() {
                    paths.add(file, file, errors);
                }
            }
        }
        if let Some(source) = get(source, "serviceAccountToken") {
            type_count += 1;
            token(source, &path.field("serviceAccountToken"), paths.volume, errors);
        }
        if let Some(source) = get(source, "clusterTrustBundle") {
            type_count += 1;
            trust_bundle(source, &path.field("clusterTrustBundle"), &mut paths, errors);
        }
        if let Some(source) = get(source, "podCertificate") {
            type_count += 1;
            pod_certificate(source, &path.field("podCertificate"), &mut paths, errors);
        }
        if type_count > 1 {
            errors.forbidden(&path, "may not specify more than 1 volume type per source");
        }
    }
}

/// Validates a service account token. As upstream's, errors about its `path` have a path below `volume`.
fn token(source: &Value, path: &Path<'_>, volume: &Path<'_>, errors: &mut Errors) {
    if let Some(seconds) = int(source, "expirationSeconds") {
        let path = path.field("expirationSeconds");
        if seconds < 600 {
            errors.invalid(&path, seconds, "may not specify a duration less than 10 minutes");
        } else if seconds > 1 << 32 {
            errors.invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds");
        }
    }
    match text(source, "path") {
        "" => errors.required(&volume.field("path"), ""),
        file => local_path(file, &volume.field("path"), errors),
    }
}

/// Validates a ClusterTrustBundle source. It names either a bundle, or a signer and optionally labels.
fn trust_bundle<'v>(
    source: &'v Value,
    path: &Path<'_>,
    paths: &mut Paths<'v, '_>,
    errors: &mut Errors,
) {
    let optional = |field: &str| get(source, field).and_then(Value::as_str);
    match (optional("name"), optional("signerName")) {
        (Some(_), Some(_)) => {
            let value = quoted("*core.ClusterTrustBundleProjection", Some(source));
            errors.invalid(path, value, "only one of name and signerName may be used");
        }
        (Some(name), None) => {
            if name.is_empty() {
                errors.required(&path.field("name"), "must be a valid object name");
            }
            let messages = if name.contains(':') {
                vec![
                    "ClusterTrustBundle without signer name must not have \":\" in its name"
                        .to_owned(),
                ]
            } else {
                names::dns_subdomain(name)
            };
            for message in messages {
                let detail = format!("not a valid clustertrustbundlename: {message}");
                errors.invalid(&path.field("name"), name, &detail);
            }
            if let Some(selector) = get(source, "labelSelector") {
                let selector = quoted("*v1.LabelSelector", Some(selector));
                let detail = "labelSelector must be unset if name is specified";
                errors.invalid(&path.field("labelSelector"), selector, detail);
            }
        }
        (None, Some(signer)) => {
            if signer.is_empty() {
                errors.required(&path.field("signerName"), "must be a valid signer name");
            }
            certificates::signer_name(signer, &path.field("signerName"), errors);
            if let Some(selector) = get(source, "labelSelector") {
                labels::selector(selector, &path.field("labelSelector"), errors);
            }
        }
        (None, None) => errors.required(path, "either name or signerName must be specified"),
    }
    let file = text(source, "path");
    if file.is_empty() {
        errors.required(&path.field("path"), "");
    }
    local_path(file, &path.field("path"), errors);
    paths.add(file, file, errors);
}

/// Validates a pod certificate source, which needs at least one file.
fn pod_certificate<'v>(
    source: &'v Value,
    path: &Path<'_>,
    paths: &mut Paths<'v, '_>,
    errors: &mut Errors,
) {
    certificates::signer_name(text(source, "signerName"), &path.field("signerName"), errors);
    errors.one_of(&path.field("keyType"), text(source, "keyType"), &KEY_TYPES);
    user_annotations(source, &path.field("userAnnotations"), errors);
    errors.in_range(&path.field("user"), int(source, "user"), 0, i64::from(i32::MAX));
    if let Some(seconds) = int(source, "maxExpirationSeconds") {
        let is_built_in = is_built_in_signer(text(source, "signerName"));
        let most = if is_built_in { 24 * HOUR } else { 91 * 24 * HOUR };
        let path = path.field("maxExpirationSeconds");
        for (is_valid, bound) in
            [(seconds >= HOUR, format!(">= {HOUR}")), (seconds <= most, format!("<= {most}"))]
        {
            if !is_valid {
                let detail = format!("if provided, maxExpirationSeconds must be {bound}");
                errors.invalid(&path, seconds, &detail);
            }
        }
    }
    let mut has_file = false;
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let file = text(source, field);
        if !file.is_empty() {
            has_file = true;
            local_path(file, &path.field(field), errors);
            paths.add(file, file, errors);
        }
    }
    if !has_file {
        let detail =
            "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(path, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_source_has_one_type_and_unique_files() {
        let item = json!([{"key": "k", "path": "a"}]);
        let table: [(Value, &[&str]); 6] = [
            (json!([{"secret": {"name": "s"}}, {"configMap": {"name": "c", "items": item}}]), &[]),
            (
                json!([{"secret": {"name": "s"}, "configMap": {}}]),
                &[
                    "p.sources[0].configMap.name: Required value",
                    "p.sources[0]: Forbidden: may not specify more than 1 volume type per source",
                ],
            ),
            (
                json!([{"secret": {"name": "s", "items": item}}, {"configMap": {"name": "c", "items": item}}]),
                &["p: Invalid value: \"c\": conflicting duplicate paths"],
            ),
            (
                json!([{"serviceAccountToken": {"expirationSeconds": 1}}]),
                &[
                    "p.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
                    "p.path: Required value",
                ],
            ),
            (
                json!([{"clusterTrustBundle": {"path": "a"}}]),
                &[
                    "p.sources[0].clusterTrustBundle: Required value: either name or signerName must be specified",
                ],
            ),
            (
                json!([{"podCertificate": {"signerName": "a.example.com/b", "keyType": "ED25519"}}]),
                &[
                    "p.sources[0].podCertificate: Required value: specify at least one of credentialBundlePath, keyPath, and certificateChainPath",
                ],
            ),
        ];
        for (sources, want) in table {
            let mut errors = Errors::default();
            projected(&json!({"sources": sources}), &Path::new("p"), &mut errors);
            let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
            assert_eq!(found, want, "{sources}");
        }
    }
}
