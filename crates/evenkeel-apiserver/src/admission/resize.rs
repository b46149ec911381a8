//! Admission plug-in `PersistentVolumeClaimResize`: a claim may only be expanded if it is bound and its StorageClass
//! allows volume expansion.
//!
//! Upstream: `plugin/pkg/admission/storage/persistentvolume/resize`.

use crate::api::Context;
use crate::loopback;
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{get, text};
use serde_json::Value;

/// Refuses an expansion of a claim that is not bound, or whose StorageClass does not allow volume expansion.
pub(super) fn check(
    cx: &Context<'_>,
    claim: &Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    let is_claim = &*cx.resource.name.resource == "persistentvolumeclaims";
    let Some(old) = old.filter(|_| is_claim && cx.subresource.is_empty()) else { return Ok(()) };
    let size = |claim: &Value| get(claim, "spec.resources.requests.storage").and_then(Amount::of);
    if size(claim) <= size(old) {
        return Ok(());
    }
    let refuse = |why: &str| Err(StatusError::forbidden(&cx.resource.name, cx.name, why));
    if text(old, "status.phase") != "Bound" {
        return refuse("Only bound persistent volume claims can be expanded");
    }
    let class = match text(claim, "spec.storageClassName") {
        "" => None,
        name => loopback::get(cx.api, "storage.k8s.io/v1", "storageclasses", "", name)?,
    };
    let allows_expansion = class.is_some_and(|class| {
        get(&class, "allowVolumeExpansion").and_then(Value::as_bool).unwrap_or(false)
    });
    if allows_expansion {
        return Ok(());
    }
    refuse(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}
