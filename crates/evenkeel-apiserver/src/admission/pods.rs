//! Admission plug-ins for pods: DefaultTolerationSeconds, and Priority, which also checks PriorityClasses.

use crate::api::Context;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{copy, flag, get, int, list, set, text};
use serde::Deserialize;
use serde_json::{Value, json};

/// `tolerationSeconds` of the default tolerations.
const DEFAULT_TOLERATION_SECONDS: i64 = 300;

/// Returns whether a toleration matches the taint key and the effect. An empty key or effect matches all.
fn tolerates(toleration: &Value, key: &str, effect: &str) -> bool {
    let (own_key, own_effect) = (text(toleration, "key"), text(toleration, "effect"));
    (own_key == key || own_key.is_empty()) && (own_effect == effect || own_effect.is_empty())
}

/// Adds default tolerations, which keep a pod on a node for [`DEFAULT_TOLERATION_SECONDS`] after the node became not
/// ready or unreachable.
pub(super) fn default_tolerations(pod: &mut Value) -> Result<(), StatusError> {
    let mut tolerations = list(pod, "spec.tolerations").to_vec();
    let own_count = tolerations.len();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !tolerations[..own_count]
            .iter()
            .any(|toleration| tolerates(toleration, key, "NoExecute"))
        {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": DEFAULT_TOLERATION_SECONDS}),
            );
        }
    }
    if tolerations.len() > own_count {
        set(pod, "spec.tolerations", tolerations);
    }
    Ok(())
}

/// Sets the priority and the preemption policy of the pod from its PriorityClass. Refuses a pod that sets other values.
pub(super) fn priority(cx: &Context<'_>, pod: &mut Value) -> Result<(), StatusError> {
    let name = text(pod, "spec.priorityClassName").to_owned();
    let class = if name.is_empty() { default_class(cx) } else { Some(named_class(cx, &name)?) };
    let value = class.as_ref().and_then(|class| int(class, "value")).unwrap_or_default();
    let policy = match class.as_ref().map_or("", |class| text(class, "preemptionPolicy")) {
        "" => "PreemptLowerPriority",
        policy => policy,
    };
    if let Some(requested) = int(pod, "spec.priority").filter(|priority| *priority != value) {
        let why = format!(
            "the integer value of priority ({requested}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return Err(StatusError::forbidden(&cx.resource.name, cx.name, why));
    }
    let requested = text(pod, "spec.preemptionPolicy").to_owned();
    if !requested.is_empty() && requested != policy {
        let why = format!(
            "the string value of PreemptionPolicy ({requested}) must not be provided in pod spec; priority admission \
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

/// Returns the PriorityClass with this name, or a 403 if it does not exist.
fn named_class(cx: &Context<'_>, name: &str) -> Result<Value, StatusError> {
    let class = match cx.api.table.get("scheduling.k8s.io/v1", "priorityclasses") {
        Some(resource) => cx.api.read(&resource, "", name)?,
        None => None,
    };
    class.ok_or_else(|| {
        let why = format!("no PriorityClass with name {name} was found");
        StatusError::forbidden(&cx.resource.name, cx.name, why)
    })
}

/// Fields of a PriorityClass that determine the default class.
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
    // This runs for every new pod, so only default classes are decoded in full.
    let entries = cx.api.store.all(&resource.resource_prefix);
    let defaults = entries.iter().filter_map(|entry| {
        let class: Class = serde_json::from_slice(entry.json()).ok()?;
        class.global_default.then_some((class.value, entry))
    });
    let (_, lowest) = defaults.min_by_key(|(value, _)| *value)?;
    lowest.decode().ok()
}
