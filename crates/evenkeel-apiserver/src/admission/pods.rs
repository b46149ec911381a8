//! Plug-ins that complete new pods: DefaultTolerationSeconds and Priority, which also checks PriorityClasses.

use crate::api::Context;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{copy, flag, get, int, list, set, text};
use serde::Deserialize;
use serde_json::{Value, json};

const SECONDS: i64 = 300;

fn tolerates(toleration: &Value, key: &str, effect: &str) -> bool {
    let (own_key, own_effect) = (text(toleration, "key"), text(toleration, "effect"));
    (own_key == key || own_key.is_empty()) && (own_effect == effect || own_effect.is_empty())
}

/// Adds tolerations that keep a pod for 300 s on a node that is not ready or unreachable.
pub(super) fn default_tolerations(pod: &mut Value) -> Result<(), StatusError> {
    let mut tolerations = list(pod, "spec.tolerations").to_vec();
    let before = tolerations.len();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !tolerations[..before].iter().any(|toleration| tolerates(toleration, key, "NoExecute")) {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}),
            );
        }
    }
    if tolerations.len() > before {
        set(pod, "spec.tolerations", tolerations);
    }
    Ok(())
}

/// Sets the priority and the preemption policy of the pod's PriorityClass.
pub(super) fn priority(cx: &Context<'_>, pod: &mut Value) -> Result<(), StatusError> {
    let name = text(pod, "spec.priorityClassName").to_owned();
    let class = if name.is_empty() { default_class(cx) } else { Some(named_class(cx, &name)?) };
    let (value, policy) = match &class {
        Some(class) => {
            let policy = text(class, "preemptionPolicy");
            (
                int(class, "value").unwrap_or_default(),
                if policy.is_empty() { "PreemptLowerPriority" } else { policy },
            )
        }
        None => (0, "PreemptLowerPriority"),
    };
    if let Some(given) = int(pod, "spec.priority").filter(|given| *given != value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return Err(StatusError::forbidden(&cx.resource.name, cx.name, why));
    }
    let given = text(pod, "spec.preemptionPolicy").to_owned();
    if !given.is_empty() && given != policy {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(StatusError::forbidden(&cx.resource.name, cx.name, why));
    }
    if let Some(class) = class.as_ref().filter(|_| name.is_empty()) {
        set(pod, "spec.priorityClassName", text(class, "metadata.name"));
    }
    set(pod, "spec.priority", value);
    if get(pod, "spec.preemptionPolicy").is_none() {
        set(pod, "spec.preemptionPolicy", policy);
    }
    Ok(())
}

/// Copies the priority and the preemption policy from the old pod if an update omits them.
///
/// Upstream: `Plugin.admitPod` of `priority`.
pub(super) fn preserve_priority(pod: &mut Value, old: &Value) -> Result<(), StatusError> {
    for field in ["spec.priority", "spec.preemptionPolicy"] {
        if get(pod, field).is_none() {
            copy(pod, old, field);
        }
    }
    Ok(())
}

/// Refuses a second PriorityClass that is the global default.
///
/// Upstream: `validatePriorityClass`.
pub(super) fn check_default_class(
    cx: &Context<'_>,
    class: &Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    if !flag(class, "globalDefault") {
        return Ok(());
    }
    let Some(default) = default_class(cx) else { return Ok(()) };
    let name = text(&default, "metadata.name");
    if old.is_some() && name == text(class, "metadata.name") {
        return Ok(());
    }
    let why =
        format!("PriorityClass {name} is already marked as default. Only one default can exist");
    Err(StatusError::forbidden(&cx.resource.name, cx.name, why))
}

fn named_class(cx: &Context<'_>, name: &str) -> Result<Value, StatusError> {
    let found = match cx.api.table.get("scheduling.k8s.io/v1", "priorityclasses") {
        Some(resource) => cx.api.read(&resource, "", name)?,
        None => None,
    };
    found.ok_or_else(|| {
        let why = format!("no PriorityClass with name {name} was found");
        StatusError::forbidden(&cx.resource.name, cx.name, why)
    })
}

/// The fields of a PriorityClass that decide the default.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Class {
    #[serde(default)]
    global_default: bool,
    #[serde(default)]
    value: i64,
}

/// Returns the class for pods that name none: the global default with the lowest value.
fn default_class(cx: &Context<'_>) -> Option<Value> {
    let resource = cx.api.table.get("scheduling.k8s.io/v1", "priorityclasses")?;
    // Every new pod runs this code, so only default classes are decoded in full.
    let entries = cx.api.store.all(&resource.resource_prefix);
    let marked = entries.iter().filter_map(|entry| {
        let class: Class = serde_json::from_slice(entry.json()).ok()?;
        class.global_default.then_some((class.value, entry))
    });
    marked.min_by_key(|(value, _)| *value)?.1.decode().ok()
}
