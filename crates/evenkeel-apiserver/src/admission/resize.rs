//! PersistentVolumeClaimResize: a claim may ask for more where its class says that volumes can grow.

use crate::api::Context;
use crate::loopback;
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{at, text};
use serde_json::Value;

pub(super) fn check(
    cx: &Context<'_>,
    claim: &Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    let of_claims = &*cx.resource.name.resource == "persistentvolumeclaims";
    let Some(old) = old.filter(|_| of_claims && cx.subresource.is_empty()) else { return Ok(()) };
    let size = |claim: &Value| at(claim, "spec.resources.requests.storage").and_then(Amount::of);
    if size(claim) <= size(old) {
        return Ok(());
    }
    let refuse = |why: &str| Err(StatusError::forbidden(&cx.resource.name, cx.name, why));
    if text(old, "status.phase") != "Bound" {
        return refuse("Only bound persistent volume claims can be expanded");
    }
    let class = text(claim, "spec.storageClassName");
    let class = match class {
        "" => None,
        name => loopback::one(cx.api, "storage.k8s.io/v1", "storageclasses", "", name)?,
    };
    let grows = class.is_some_and(|class| {
        at(&class, "allowVolumeExpansion").and_then(Value::as_bool).unwrap_or(false)
    });
    if grows {
        return Ok(());
    }
    refuse(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}
