//! Validation of the encryption configuration.
//!
//! Upstream: `ValidateEncryptionConfiguration`.

use std::collections::BTreeSet;

use evenkeel_apimachinery::group_version::GroupResource;
use evenkeel_apimachinery::status::FieldError;

use super::config::{
    ANY, EncryptionConfiguration, Key, KmsConfiguration, Provider, group_resource,
};

/// Lengths of AES keys in bytes.
const AES_KEY_SIZES: &[usize] = &[16, 24, 32];
/// Lengths of XSalsa20 keys in bytes.
const SECRETBOX_KEY_SIZES: &[usize] = &[32];
/// Resources that kube-apiserver stores without a REST API.
const NO_REST_API: [&str; 3] =
    ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

/// Returns all errors of the configuration.
pub(super) fn validate(config: &EncryptionConfiguration) -> Vec<FieldError> {
    let (mut errors, mut kms_names) = (Vec::new(), BTreeSet::new());
    if config.resources.is_empty() {
        errors.push(FieldError::required("resources", "at least one resources is required"));
    }
    for (index, rule) in config.resources.iter().enumerate() {
        let path = format!("resources[{index}].resources");
        if rule.resources.is_empty() {
            errors.push(FieldError::required(&*path, format!("at least one {path} is required")));
        }
        errors.extend(overlap_errors(&rule.resources, &path));
        for (index, name) in rule.resources.iter().enumerate() {
            if let Some(why) = resource_name_error(name) {
                errors.push(FieldError::invalid(format!("{path}[{index}]"), &**name, why));
            }
        }
        let path = format!("resources[{index}].providers");
        if rule.providers.is_empty() {
            errors.push(FieldError::required(&*path, format!("at least one {path} is required")));
        }
        for (index, provider) in rule.providers.iter().enumerate() {
            let path = format!("{path}[{index}]");
            errors.extend(provider_errors(provider, &path));
            if let Some(kms) = &provider.kms {
                errors.extend(kms_errors(kms, &format!("{path}.kms"), &kms_names));
                kms_names.insert(&kms.name);
            }
        }
    }
    errors
}

/// Returns the errors of resources in one rule that are equal or overlap.
///
/// Upstream: `validateResourceOverlap`.
fn overlap_errors(resources: &[String], path: &str) -> Vec<FieldError> {
    let parsed: Vec<GroupResource> = resources.iter().map(|name| group_resource(name)).collect();
    let covers_all = |name: &GroupResource| &*name.group == ANY && &*name.resource == ANY;
    let overlap = |a: &GroupResource, b: &GroupResource| {
        a != b
            && (covers_all(a)
                || covers_all(b)
                || a.group == b.group && (&*a.resource == ANY || &*b.resource == ANY))
    };
    let (mut has_duplicate, mut has_overlap) = (false, false);
    for (index, resource) in parsed.iter().enumerate() {
        for earlier in parsed.iter().take(index) {
            has_duplicate |= earlier == resource;
            has_overlap |= overlap(earlier, resource);
        }
    }
    let shown = || format!("[{}]", resources.join(" "));
    let mut errors = Vec::new();
    if has_duplicate {
        let why = "the same resource cannot be specified multiple times";
        errors.push(FieldError::invalid(path, shown(), why));
    }
    if has_overlap {
        let why = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked";
        errors.push(FieldError::invalid(path, shown(), why));
    }
    errors
}

/// Returns the reason why a resource name is not allowed; `None` if it is allowed.
///
/// Upstream: `validateResourceNames`.
fn resource_name_error(name: &str) -> Option<&'static str> {
    let GroupResource { group, resource } = group_resource(name);
    if name.chars().any(char::is_uppercase) {
        Some("resource name should not contain capital letters")
    } else if name == ANY {
        Some(
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
        )
    } else if NO_REST_API.contains(&name) {
        Some("resources which do not have REST API/s cannot be encrypted")
    } else if &*group == "events.k8s.io" {
        Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        )
    } else if &*group == "extensions" {
        Some("'extensions' group has been removed and cannot be used for encryption")
    } else if &*group == ANY && &*resource != ANY {
        Some("encrypting the same resource across groups is not supported")
    } else {
        None
    }
}

/// Returns the errors of one provider in the list.
fn provider_errors(provider: &Provider, path: &str) -> Vec<FieldError> {
    let Provider { aesgcm, aescbc, secretbox, identity, kms } = provider;
    let is_set = [
        aesgcm.is_some(),
        aescbc.is_some(),
        secretbox.is_some(),
        identity.is_some(),
        kms.is_some(),
    ];
    let invalid = |why: &str| vec![FieldError::invalid(path, "{}", why)];
    match is_set.iter().filter(|is_set| **is_set).count() {
        0 => {
            return invalid(
                "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
            );
        }
        1 => {}
        _ => {
            return invalid(
                "more than one provider specified in a single element, should split into different list elements",
            );
        }
    }
    let Some((name, _, keys)) = provider.keys() else { return Vec::new() };
    let sizes = if name == "secretbox" { SECRETBOX_KEY_SIZES } else { AES_KEY_SIZES };
    let path = format!("{path}.{name}.keys");
    if keys.is_empty() {
        return vec![FieldError::required(path, "at least one keys is required")];
    }
    let errors = |(index, key): (usize, &Key)| key_errors(key, &format!("{path}[{index}]"), sizes);
    keys.iter().enumerate().flat_map(errors).collect()
}

/// Returns the errors of a KMS plugin. `names` are the names of earlier plugins.
///
/// Upstream: `validateKMSConfiguration`.
fn kms_errors(kms: &KmsConfiguration, path: &str, names: &BTreeSet<&String>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = &*kms.name;
    let invalid = |field: &str, value: &str, why: String| {
        FieldError::invalid(format!("{path}.{field}"), value, why)
    };
    if name.is_empty() {
        let why = "name is a mandatory field for a provider";
        errors.push(FieldError::required(format!("{path}.name"), why));
    }
    if name.contains(':') {
        let why = format!("invalid KMS provider name {name}, must not contain ':'");
        errors.push(invalid("name", name, why));
    }
    if names.contains(&kms.name) {
        let why = format!("duplicate KMS provider name {name}, names must be unique");
        errors.push(invalid("name", name, why));
    }
    match kms.timeout() {
        Ok(1..) => {}
        Ok(_) => {
            let timeout = kms.timeout.as_deref().unwrap_or_default();
            errors.push(invalid("timeout", timeout, "timeout should be a positive value".into()));
        }
        Err(why) => {
            errors.push(invalid("timeout", kms.timeout.as_deref().unwrap_or_default(), why));
        }
    }
    let endpoint = &*kms.endpoint;
    if endpoint.is_empty() {
        errors.push(invalid("endpoint", "", "endpoint is a mandatory field for a kms".into()));
    } else if kms.socket().is_none() {
        let scheme = endpoint.split_once(':').map_or("", |(scheme, _)| scheme);
        let why = format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported");
        errors.push(invalid("endpoint", endpoint, why));
    }
    match kms.api_version.as_deref().unwrap_or("v1") {
        "v2" => {
            if let Some(size) = kms.cachesize {
                let why = "cachesize is not supported in v2";
                errors.push(FieldError::invalid(format!("{path}.cachesize"), size, why));
            }
        }
        "v1" => {
            errors.push(invalid("apiVersion", "v1", "KMSv1 is not in this server: use v2".into()));
        }
        version => {
            let why =
                "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
            errors.push(invalid("apiVersion", version, why.into()));
        }
    }
    errors
}

/// Returns the errors of a key. They do not contain its secret.
///
/// Upstream: `validateKey`.
fn key_errors(key: &Key, path: &str, sizes: &[usize]) -> Vec<FieldError> {
    let required = |field: &str| {
        let why = format!("{field} is a mandatory field for a key");
        FieldError::required(format!("{path}.{field}"), why)
    };
    let mut errors = Vec::new();
    if key.name.is_empty() {
        errors.push(required("name"));
    }
    if key.secret.is_empty() {
        errors.push(required("secret"));
        return errors;
    }
    let refused = |why: String| FieldError::invalid(format!("{path}.secret"), "REDACTED", why);
    match key.decode() {
        None => errors.push(refused("secrets must be base64 encoded".to_owned())),
        Some(secret) if !sizes.contains(&secret.len()) => {
            let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            errors.push(refused(format!(
                "secret is not of the expected length, got {}, expected one of [{}]",
                secret.len(),
                sizes.join(" ")
            )));
        }
        Some(_) => {}
    }
    errors
}
