//! Admission plug-in ServiceAccount: sets the service account of each pod, and mounts a token of it unless the pod or
//! the service account opts out.

use crate::api::Context;
use crate::auth::{MIRROR_ANNOTATION, refers_to_any};
use crate::draws::{Origin, Use};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{self, get, list, set, text};
use rand::Rng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

/// Path in containers at which the token is mounted.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Characters of generated names. As in upstream, vowels and characters that resemble each other are excluded.
const NAME_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Completes a new pod from its service account. Refuses the pod if the account does not exist, or does not allow
/// Secrets that the pod uses.
pub(super) fn admit(cx: &Context<'_>, pod: &mut Value) -> Result<(), StatusError> {
    if value::object(pod, "metadata.annotations")
        .is_some_and(|annotations| annotations.contains_key(MIRROR_ANNOTATION))
    {
        return check_mirror(pod)
            .map_err(|why| StatusError::forbidden(&cx.resource.name, cx.name, why));
    }
    if text(pod, "spec.serviceAccountName").is_empty() {
        set(pod, "spec.serviceAccountName", "default");
        set(pod, "spec.serviceAccount", "default");
    }
    let name = text(pod, "spec.serviceAccountName").to_owned();
    let account = match cx.api.table.get("v1", "serviceaccounts") {
        Some(resource) => cx.api.read(&resource, cx.namespace, &name)?,
        None => None,
    };
    let Some(account) = account else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
            cx.namespace
        );
        return Err(StatusError::forbidden(&cx.resource.name, cx.name, why));
    };
    if enforces_mountable_secrets(&account) {
        check_secrets(&account, pod)
            .map_err(|why| StatusError::forbidden(&cx.resource.name, cx.name, why))?;
    }
    if mounts_token(&account, pod) {
        mount_token(cx, pod);
    }
    let pull_secrets = list(&account, "imagePullSecrets");
    if list(pod, "spec.imagePullSecrets").is_empty() && !pull_secrets.is_empty() {
        set(pod, "spec.imagePullSecrets", pull_secrets.to_vec());
    }
    Ok(())
}

/// Refuses a pod whose ephemeral containers use Secrets that the pod's service account does not allow.
///
/// Upstream: `limitEphemeralContainerSecretReferences`.
pub(super) fn check_ephemeral(cx: &Context<'_>, pod: &Value) -> Result<(), StatusError> {
    // Without this resource, no service account limits the pod. `admit` requires an account for each new pod.
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
    check_environment(&account, pod, "ephemeralContainers", "ephemeral container")
        .map_err(|why| StatusError::forbidden(&cx.resource.name, cx.name, why))
}

/// Returns whether an annotation limits the pods of the service account to the Secrets that the account lists.
///
/// Upstream: `enforceMountableSecrets`.
fn enforces_mountable_secrets(account: &Value) -> bool {
    value::object(account, "metadata.annotations")
        .and_then(|annotations| annotations.get("kubernetes.io/enforce-mountable-secrets"))
        .and_then(Value::as_str)
        .is_some_and(|text| matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// Returns whether the service account lists the Secret.
fn is_mountable(account: &Value, secret_name: &str) -> bool {
    list(account, "secrets").iter().any(|listed| text(listed, "name") == secret_name)
}

/// Refuses a pod that uses Secrets that its service account does not list.
///
/// Upstream: `limitSecretReferences`.
fn check_secrets(account: &Value, pod: &Value) -> Result<(), String> {
    let name = text(account, "metadata.name");
    for volume in list(pod, "spec.volumes") {
        let Some(source) = get(volume, "secret") else { continue };
        let secret_name = text(source, "secretName");
        if !is_mountable(account, secret_name) {
            return Err(format!(
                "volume with secret.secretName=\"{secret_name}\" is not allowed because service account {name} does not reference that secret"
            ));
        }
    }
    check_environment(account, pod, "initContainers", "init container")?;
    check_environment(account, pod, "containers", "container")?;
    let is_pull_secret = |secret_name: &str| {
        list(account, "imagePullSecrets").iter().any(|listed| text(listed, "name") == secret_name)
    };
    for (i, reference) in list(pod, "spec.imagePullSecrets").iter().enumerate() {
        let secret_name = text(reference, "name");
        if !is_pull_secret(secret_name) {
            return Err(format!(
                "imagePullSecrets[{i}].name=\"{secret_name}\" is not allowed because service account {name} does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

/// Refuses containers whose environment uses a Secret that the service account does not list. `containers` is the field
/// of the pod's spec, and `kind` names such a container in errors.
fn check_environment(
    account: &Value,
    pod: &Value,
    containers: &str,
    kind: &str,
) -> Result<(), String> {
    let refusal = |container: &Value, from: &str, secret_name: &str| {
        format!(
            "{kind} {} with {from} referencing secret.secretName=\"{secret_name}\" is not allowed because service account {} does not reference that secret",
            text(container, "name"),
            text(account, "metadata.name")
        )
    };
    for container in list(pod, &format!("spec.{containers}")) {
        for variable in list(container, "env") {
            let Some(reference) = get(variable, "valueFrom.secretKeyRef") else { continue };
            let secret_name = text(reference, "name");
            if !is_mountable(account, secret_name) {
                let from = format!("envVar {}", text(variable, "name"));
                return Err(refusal(container, &from, secret_name));
            }
        }
        for source in list(container, "envFrom") {
            let Some(reference) = get(source, "secretRef") else { continue };
            let secret_name = text(reference, "name");
            if !is_mountable(account, secret_name) {
                return Err(refusal(container, "envFrom", secret_name));
            }
        }
    }
    Ok(())
}

/// Refuses a mirror pod that refers to Secrets, projected tokens or service accounts, because a mirror pod has no
/// service account that could allow them.
///
/// Upstream: `serviceaccount.Plugin.Validate`.
fn check_mirror(pod: &Value) -> Result<(), &'static str> {
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

/// Returns whether the pod gets a token. The setting of the pod overrides the one of the service account.
fn mounts_token(account: &Value, pod: &Value) -> bool {
    let setting = |value: Option<&Value>| value.and_then(Value::as_bool);
    setting(get(pod, "spec.automountServiceAccountToken"))
        .or_else(|| setting(get(account, "automountServiceAccountToken")))
        .unwrap_or(true)
}

/// Adds a volume with the token, and mounts it in every container that mounts nothing at [`MOUNT_PATH`]. Reuses the
/// pod's volume for tokens if it has one.
fn mount_token(cx: &Context<'_>, pod: &mut Value) {
    let existing = list(pod, "spec.volumes")
        .iter()
        .map(|volume| text(volume, "name"))
        .find(|name| name.starts_with("kube-api-access-"))
        .map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| {
        let character = |rng: &mut StdRng| {
            char::from(NAME_CHARACTERS[rng.random_range(0..NAME_CHARACTERS.len())])
        };
        let origin = Origin::of(&cx.resource.name, cx.namespace, pod);
        let draw = |rng: &mut StdRng| (0..5).map(|_| character(rng)).collect::<String>();
        let suffix = cx.api.random_of(Use::TokenVolume, origin, draw);
        format!("kube-api-access-{suffix}")
    });
    let mut has_added_mounts = false;
    for containers in ["spec.initContainers.*", "spec.containers.*"] {
        value::each(pod, containers, &mut |container| {
            let mut mounts = list(container, "volumeMounts").to_vec();
            if mounts.iter().any(|mount| text(mount, "mountPath") == MOUNT_PATH) {
                return;
            }
            has_added_mounts = true;
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            set(container, "volumeMounts", mounts);
        });
    }
    let needs_volume = has_added_mounts && existing.is_none();
    if !needs_volume {
        return;
    }
    let mut volumes = list(pod, "spec.volumes").to_vec();
    // The default mode is 0644 in octal. The expiration is upstream's: an hour and 7 s.
    volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}}));
    set(pod, "spec.volumes", volumes);
}
