//! Validation of apiregistration.k8s.io.

use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{flag, get, int, is_empty, text};
use serde_json::Value;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "APIService" {
        api_service(new, errors);
    }
}

/// Validates an APIService: the name must be `VERSION.GROUP`, and priorities must be in their ranges.
///
/// Upstream: `ValidateAPIService`.
fn api_service(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (group, version) = (text(new, "spec.group"), text(new, "spec.version"));
    let expected = format!("{version}.{group}");
    let name = text(new, "metadata.name");
    if name != expected {
        let meta = Path::new("metadata");
        errors.invalid(
            &meta.field("name"),
            name,
            &format!("must be `spec.version+\".\"+spec.group`: {expected:?}"),
        );
    }
    if group.is_empty() && version != "v1" {
        errors.required(
            &path.field("group"),
            "only v1 may have an empty group and it better be legacy kube",
        );
    }
    let minimum = int(new, "spec.groupPriorityMinimum").unwrap_or_default();
    if minimum <= 0 || minimum > 20000 {
        errors.invalid(
            &path.field("groupPriorityMinimum"),
            minimum,
            "must be positive and less than 20000",
        );
    }
    let priority = int(new, "spec.versionPriority").unwrap_or_default();
    if priority <= 0 || priority > 1000 {
        errors.invalid(
            &path.field("versionPriority"),
            priority,
            "must be positive and less than 1000",
        );
    }
    let skips_tls_verify = flag(new, "spec.insecureSkipTLSVerify");
    if skips_tls_verify && !is_empty(new, "spec.caBundle") {
        errors.invalid(
            &path.field("insecureSkipTLSVerify"),
            true,
            "may not be true if caBundle is present",
        );
    }
    let Some(service) = get(new, "spec.service") else {
        if skips_tls_verify {
            let detail = "may not be true for an apiservice without a service";
            errors.invalid(&path.field("insecureSkipTLSVerify"), true, detail);
        }
        return;
    };
    let path = path.field("service");
    for field in ["namespace", "name"] {
        if text(service, field).is_empty() {
            errors.required(&path.field(field), "");
        }
    }
}
