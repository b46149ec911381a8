//! Checks of TokenRequests: a node may request tokens that are bound to its pods, for the audiences that these pods
//! use.

use serde_json::Value;

use super::write::{Refusal, Write};
use crate::admission::attributes::Operation;
use crate::api::Api;
use crate::auth::Attributes;
use crate::loopback;
use evenkeel_apimachinery::status::quote;
use evenkeel_apimachinery::value::{get, list, text};

/// Checks a node's request for a service account token.
///
/// Upstream: `admitServiceAccount`.
pub(super) fn admit(write: &Write<'_>) -> Result<(), Refusal> {
    if write.operation != Operation::Create {
        return Ok(());
    }
    let bound = |field: &str| text(write.object, &format!("spec.boundObjectRef.{field}"));
    let (name, uid) = (bound("name"), bound("uid"));
    if (bound("apiVersion"), bound("kind")) != ("v1", "Pod") || name.is_empty() {
        return Err("node requested token not bound to a pod".into());
    }
    if uid.is_empty() {
        return Err("node requested token with a pod binding without a uid".into());
    }
    let pod = write.pod(name)?;
    if text(&pod, "metadata.uid") != uid {
        return Err(format!("the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated").into());
    }
    if text(&pod, "spec.nodeName") != write.node {
        return Err("node requested token bound to a pod scheduled on a different node".into());
    }
    check_audience(write, &pod)
}

/// Checks that the pod uses the requested audience, or that a role permits the node to request it.
///
/// Upstream: `validateNodeServiceAccountAudience`.
fn check_audience(write: &Write<'_>, pod: &Value) -> Result<(), Refusal> {
    let audience = match list(write.object, "spec.audiences") {
        [] => "",
        [audience] => audience.as_str().unwrap_or_default(),
        _ => return Err("node may only request 0 or 1 audiences".into()),
    };
    if uses_audience(write.cx.api, pod, audience) {
        return Ok(());
    }
    let cx = write.cx;
    let attributes = Attributes {
        verb: "request-serviceaccounts-token-audience",
        resource: audience,
        namespace: cx.namespace,
        name: cx.name,
        ..Attributes::default()
    };
    if cx.allows(&attributes) {
        return Ok(());
    }
    let (audience, user) = (quote(audience), &cx.user.name);
    Err(format!("audience {audience} not found in pod spec volume, {user} is not authorized to request tokens for this audience").into())
}

/// Returns whether a volume of the pod uses the audience: a projected token, or a token for a CSI driver.
///
/// Upstream: `podReferencesAudience`.
fn uses_audience(api: &Api, pod: &Value, audience: &str) -> bool {
    list(pod, "spec.volumes").iter().any(|volume| {
        let projected = list(volume, "projected.sources").iter();
        let mut tokens = projected.filter_map(|source| get(source, "serviceAccountToken"));
        if tokens.any(|token| text(token, "audience") == audience) {
            return true;
        }
        let Some(name) = driver_name(api, pod, volume) else { return false };
        let driver = loopback::get(api, "storage.k8s.io/v1", "csidrivers", "", &name);
        let Ok(Some(driver)) = driver else { return false };
        let mut requests = list(&driver, "spec.tokenRequests").iter();
        requests.any(|request| text(request, "audience") == audience)
    })
}

/// Returns the name of a volume's CSI driver. Either the pod names the driver inline, or the PersistentVolume that is
/// bound to the volume's claim does.
fn driver_name(api: &Api, pod: &Value, volume: &Value) -> Option<String> {
    let claim_name = if get(volume, "ephemeral.volumeClaimTemplate").is_some() {
        format!("{}-{}", text(pod, "metadata.name"), text(volume, "name"))
    } else if get(volume, "persistentVolumeClaim").is_some() {
        text(volume, "persistentVolumeClaim.claimName").to_owned()
    } else {
        return Some(text(volume, "csi.driver").to_owned()).filter(|name| !name.is_empty());
    };
    let namespace = text(pod, "metadata.namespace");
    let claim =
        loopback::get(api, "v1", "persistentvolumeclaims", namespace, &claim_name).ok()??;
    let volume_name = text(&claim, "spec.volumeName");
    let bound = loopback::get(api, "v1", "persistentvolumes", "", volume_name).ok()??;
    Some(text(&bound, "spec.csi.driver").to_owned()).filter(|name| !name.is_empty())
}
