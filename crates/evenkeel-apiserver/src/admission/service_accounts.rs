//! ServiceAccount: sets each pod's service account, and mounts its token unless the pod or the account opts out.

use crate::api::Context;
use crate::auth::{MIRRORS, refers_to_any};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{self, get, list, set, text};
use rand::Rng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Letters of generated names: no vowels, and none that resemble each other.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub(super) fn admit(cx: &Context<'_>, pod: &mut Value) -> Result<(), StatusError> {
    if value::object(pod, "metadata.annotations")
        .is_some_and(|annotations| annotations.contains_key(MIRRORS))
    {
        return mirror(pod).map_err(|why| StatusError::forbidden(&cx.resource.name, cx.name, why));
    }
    if text(pod, "spec.serviceAccountName").is_empty() {
        set(pod, "spec.serviceAccountName", "default");
        set(pod, "spec.serviceAccount", "default");
    }
    let name = text(pod, "spec.serviceAccountName").to_owned();
    let found = match cx.api.table.get("v1", "serviceaccounts") {
        Some(resource) => cx.api.read(&resource, cx.namespace, &name)?,
        None => None,
    };
    let Some(account) = found else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
            cx.namespace
        );
        return Err(StatusError::forbidden(&cx.resource.name, cx.name, why));
    };
    if enforces_mountable_secrets(&account) {
        limit_secrets(&account, pod)
            .map_err(|why| StatusError::forbidden(&cx.resource.name, cx.name, why))?;
    }
    if mounts_token(&account, pod) {
        mount_token(cx, pod);
    }
    if list(pod, "spec.imagePullSecrets").is_empty()
        && let Some(secrets) =
            get(&account, "imagePullSecrets").filter(|secrets| !value::is_blank(secrets))
    {
        set(pod, "spec.imagePullSecrets", secrets.clone());
    }
    Ok(())
}

/// Rejects a pod whose ephemeral containers use secrets that the pod's account does not allow.
///
/// Upstream: `limitEphemeralContainerSecretReferences`.
pub(super) fn check_ephemeral(cx: &Context<'_>, pod: &Value) -> Result<(), StatusError> {
    let Some(resource) = cx.api.table.get("v1", "serviceaccounts") else { return Ok(()) };
    let name = text(pod, "spec.serviceAccountName");
    let Some(account) = cx.api.read(&resource, cx.namespace, name)? else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
            cx.namespace
        );
        return Err(StatusError::forbidden(&cx.resource.name, cx.name, why));
    };
    if !enforces_mountable_secrets(&account) {
        return Ok(());
    }
    limit_environment(&account, pod, "ephemeralContainers", "ephemeral container")
        .map_err(|why| StatusError::forbidden(&cx.resource.name, cx.name, why))
}

/// Upstream: `enforceMountableSecrets`.
fn enforces_mountable_secrets(account: &Value) -> bool {
    value::object(account, "metadata.annotations")
        .and_then(|annotations| annotations.get("kubernetes.io/enforce-mountable-secrets"))
        .and_then(Value::as_str)
        .is_some_and(|text| matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

fn is_mountable(account: &Value, secret: &str) -> bool {
    list(account, "secrets").iter().any(|listed| text(listed, "name") == secret)
}

/// Rejects a pod that uses secrets that its account does not allow.
///
/// Upstream: `limitSecretReferences`.
fn limit_secrets(account: &Value, pod: &Value) -> Result<(), String> {
    let name = text(account, "metadata.name");
    for volume in list(pod, "spec.volumes") {
        let Some(secret) = get(volume, "secret") else { continue };
        let secret = text(secret, "secretName");
        if !is_mountable(account, secret) {
            return Err(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {name} does not reference that secret"
            ));
        }
    }
    limit_environment(account, pod, "initContainers", "init container")?;
    limit_environment(account, pod, "containers", "container")?;
    for (i, secret) in list(pod, "spec.imagePullSecrets").iter().enumerate() {
        let secret = text(secret, "name");
        if !list(account, "imagePullSecrets").iter().any(|listed| text(listed, "name") == secret) {
            return Err(format!(
                "imagePullSecrets[{i}].name=\"{secret}\" is not allowed because service account {name} does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

/// Rejects containers whose environment uses a secret that the account does not allow.
fn limit_environment(
    account: &Value,
    pod: &Value,
    containers: &str,
    kind: &str,
) -> Result<(), String> {
    let refused = |container: &Value, from: &str, secret: &str| {
        format!(
            "{kind} {} with {from} referencing secret.secretName=\"{secret}\" is not allowed because service account {} does not reference that secret",
            text(container, "name"),
            text(account, "metadata.name")
        )
    };
    for container in list(pod, &format!("spec.{containers}")) {
        for variable in list(container, "env") {
            let Some(key) = get(variable, "valueFrom.secretKeyRef") else { continue };
            let secret = text(key, "name");
            if !is_mountable(account, secret) {
                let from = format!("envVar {}", text(variable, "name"));
                return Err(refused(container, &from, secret));
            }
        }
        for source in list(container, "envFrom") {
            let Some(secret) = get(source, "secretRef") else { continue };
            let secret = text(secret, "name");
            if !is_mountable(account, secret) {
                return Err(refused(container, "envFrom", secret));
            }
        }
    }
    Ok(())
}

/// Refuses a mirror pod that refers to Secrets, projected tokens or service accounts, because the plug-in does not
/// check it against an account.
///
/// Upstream: `serviceaccount.Plugin.Validate`.
fn mirror(pod: &Value) -> Result<(), &'static str> {
    if !text(pod, "spec.serviceAccountName").is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    if refers_to_any(pod, "secrets") {
        return Err("a mirror pod may not reference secrets");
    }
    let mut sources =
        list(pod, "spec.volumes").iter().flat_map(|volume| list(volume, "projected.sources"));
    if sources.any(|source| get(source, "serviceAccountToken").is_some()) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

fn mounts_token(account: &Value, pod: &Value) -> bool {
    let setting = |value: Option<&Value>| value.and_then(Value::as_bool);
    setting(get(pod, "spec.automountServiceAccountToken"))
        .or_else(|| setting(get(account, "automountServiceAccountToken")))
        .unwrap_or(true)
}

/// Adds the token's volume, and mounts it in every container that mounts nothing at that path.
fn mount_token(cx: &Context<'_>, pod: &mut Value) {
    let existing = list(pod, "spec.volumes")
        .iter()
        .map(|volume| text(volume, "name"))
        .find(|name| name.starts_with("kube-api-access-"))
        .map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| {
        let letter = |rng: &mut StdRng| char::from(LETTERS[rng.random_range(0..LETTERS.len())]);
        let suffix: String = cx.api.random(|rng| (0..5).map(|_| letter(rng)).collect());
        format!("kube-api-access-{suffix}")
    });
    let mut needed = false;
    for containers in ["spec.initContainers.*", "spec.containers.*"] {
        value::each(pod, containers, &mut |container| {
            let mut mounts = list(container, "volumeMounts").to_vec();
            if mounts.iter().any(|mount| text(mount, "mountPath") == MOUNT) {
                return;
            }
            needed = true;
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT}));
            set(container, "volumeMounts", mounts);
        });
    }
    if !needed || existing.is_some() {
        return;
    }
    let mut volumes = list(pod, "spec.volumes").to_vec();
    volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}}));
    set(pod, "spec.volumes", volumes);
}
