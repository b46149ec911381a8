//! Names of drivers, pools, attributes and devices.

use super::super::names;
use evenkeel_apimachinery::validation::{Errors, Path};

/// Maximum length of a driver's name in bytes.
const MAX_DRIVER_NAME: usize = 63;
/// Maximum length of a pool's name in bytes.
const MAX_POOL_NAME: usize = 253;
/// Maximum length of the domain in an attribute's name, in bytes.
const MAX_DOMAIN: usize = 63;
/// Maximum length of an attribute's name without its domain, in bytes.
const MAX_IDENTIFIER: usize = 32;

/// Text of the error about an attribute's name without a domain.
const NOT_QUALIFIED: &str =
    "a fully qualified name must be a domain and a name separated by a slash";

/// Validates the name of a driver.
///
/// Upstream: `ValidateCSIDriverName`.
pub(super) fn driver(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_DRIVER_NAME {
        errors.too_long(path, MAX_DRIVER_NAME);
    }
    errors.invalid_for_each(path, name, &names::dns_subdomain(&name.to_lowercase()));
}

/// Validates the name of a driver in a field with declarative rules.
pub(in crate::validation) fn declared_driver(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    errors.invalid_for_each(path, name, &names::dns_subdomain_caseless(name));
    if name.chars().count() > MAX_DRIVER_NAME {
        errors.too_long_characters(path, MAX_DRIVER_NAME);
    }
}

/// Validates the name of a pool: subdomains separated by slashes.
///
/// Upstream: `validatePoolName`.
pub(super) fn pool(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_POOL_NAME {
        errors.too_long(path, MAX_POOL_NAME);
    }
    for part in name.split('/') {
        errors.invalid_for_each(path, part, &names::dns_subdomain(part));
    }
}

/// Validates the name of a pool in a field with declarative rules.
///
/// Upstream: `ResourcePoolName`.
pub(super) fn declared_pool(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_POOL_NAME {
        errors.too_long(path, MAX_POOL_NAME);
    }
    for (index, part) in name.split('/').enumerate() {
        if part.is_empty() {
            errors.invalid(path, name, &format!("segment {index}: must not be empty"));
            continue;
        }
        for message in names::dns_subdomain(part) {
            errors.invalid(path, part, &format!("segment {index}: {message}"));
        }
    }
}

/// Validates the name of an attribute or a capacity: an identifier, optionally with a domain. Like upstream,
/// accepts every name with more than one slash.
///
/// Upstream: `validateQualifiedName`.
pub(super) fn qualified(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [id] => identifier(id, path, errors),
        [domain, id] => {
            if domain.is_empty() {
                errors.invalid(path, "", "the domain must not be empty");
            } else {
                driver(domain, path, errors);
            }
            if id.is_empty() {
                errors.invalid(path, "", "the name must not be empty");
            } else {
                identifier(id, path, errors);
            }
        }
        _ => {}
    }
}

/// Validates the name of an attribute, which must have a domain. Like upstream, accepts every name with more than
/// one slash.
///
/// Upstream: `ResourceFullyQualifiedName`.
pub(super) fn declared_fully_qualified(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [id] => {
            identifier(id, path, errors);
            errors.invalid(path, name, NOT_QUALIFIED);
        }
        [prefix, id] => {
            if prefix.is_empty() {
                errors.invalid(path, "", "prefix must not be empty");
            } else {
                if prefix.len() > MAX_DOMAIN {
                    errors.too_long(path, MAX_DOMAIN);
                }
                for message in names::dns_subdomain(prefix) {
                    errors.invalid(path, prefix, &format!("prefix: {message}"));
                }
            }
            if id.is_empty() {
                errors.invalid(path, "", "name must not be empty");
            } else {
                identifier(id, path, errors);
            }
        }
        _ => {}
    }
}

/// Requires a C identifier of limited length.
///
/// Upstream: `validateCIdentifier`.
fn identifier(id: &str, path: &Path<'_>, errors: &mut Errors) {
    if id.len() > MAX_IDENTIFIER {
        errors.too_long(path, MAX_IDENTIFIER);
    }
    errors.invalid_for_each(path, id, &names::c_identifier(id));
}

/// Validates the name of a device, a request or a counter, which must be a DNS label.
///
/// Upstream: `ValidateDNS1123Label`.
pub(super) fn label(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_for_each(path, name, &names::dns_label(name));
}

/// Validates the key of a taint or a toleration, or the type of a condition.
///
/// Upstream: `ValidateLabelName`.
pub(super) fn label_key(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_for_each(path, name, &names::qualified_name(name));
}

/// Validates the value of a taint or a toleration.
///
/// Upstream: `validateLabelValue`.
pub(super) fn label_value(value: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_for_each(path, value, &names::label_value(value));
}

/// Validates a UUID with lower-case digits.
///
/// Upstream: `UUID`.
pub(super) fn declared_uuid(text: &str, path: &Path<'_>, errors: &mut Errors) {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_uuid = text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => is_digit(byte),
        });
    if !is_uuid {
        errors.invalid(path, text, "must be a lowercase UUID in 8-4-4-4-12 format");
    }
}
