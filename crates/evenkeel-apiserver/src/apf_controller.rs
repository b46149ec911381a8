//! Controller of API Priority and Fairness: applies FlowSchemas and PriorityLevelConfigurations, writes the condition
//! `Dangling`, restores the bootstrap configuration, and adjusts limits to demand.
//!
//! | upstream | where |
//! |---|---|
//! | `configController.syncOne` | `sync` |
//! | `updateBorrowing` | `run` |
//! | `bootstrapConfigurationEnsurer` | `ensure`, `revise` |

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::api::Api;
use crate::audit::RequestAudit;
use crate::bootstrap;
use crate::flow;
use crate::loopback;
use crate::request::Warnings;
use crate::resource::ResourceType;
use crate::store::{Encoded, Expect, Transaction, WriteError};
use crate::verbs::delete::{Admission, Deletion, delete};
use crate::verbs::delete_options::DeleteOptions;
use evenkeel_apimachinery::decode::FieldValidation;
use evenkeel_apimachinery::patch::{self, Writer};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::{get, int, same_meaning, set, text};

const GROUP: &str = "flowcontrol.apiserver.k8s.io/v1";
const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";
/// Resource prefixes of the configuration objects.
pub(crate) const RESOURCE_PREFIXES: [&str; 2] = [
    "flowcontrol.apiserver.k8s.io/flowschemas",
    "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations",
];
/// Interval at which concurrency limits are adjusted.
const BORROWING_ADJUSTMENT_PERIOD: Duration = Duration::from_secs(10);
/// Number of adjustments between two checks of the bootstrap configuration (one minute).
const ENSURE_EVERY: u32 = 6;
/// Field manager of the condition.
const CONFIG_CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
/// Field manager of the bootstrap configuration.
const CONFIG_PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
/// Annotation that says whether the server updates the object's spec.
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// Objects that the server always restores, regardless of their annotation.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

/// Applies the stored configuration to request handling.
pub(crate) fn load(api: &Api) {
    let [schemas, levels] =
        [SCHEMAS, LEVELS].map(|resource| loopback::list(api, GROUP, resource, ""));
    api.flows.configure(&schemas, &levels);
}

/// Runs the controller until the server shuts down. `changes` signal writes to the configuration objects. The first
/// pass syncs all of them.
pub(crate) async fn run(api: Weak<Api>, mut changes: [watch::Receiver<u64>; 2]) {
    let Some((wake, clock)) = api.upgrade().map(|api| (api.flows.wake(), api.clock.clone())) else {
        return;
    };
    let mut adjustment = clock.instant() + BORROWING_ADJUSTMENT_PERIOD;
    let mut adjustments = 0;
    if let Some(api) = api.upgrade() {
        sync(&api).await;
        ensure_logged(&api).await;
    }
    let mut release = None;
    loop {
        let [schemas, levels] = &mut changes;
        let next = release.map_or(adjustment, |release| adjustment.min(release));
        let changed = tokio::select! {
            changed = schemas.changed() => changed.is_ok(),
            changed = levels.changed() => changed.is_ok(),
            () = wake.notified() => false,
            () = tokio::time::sleep_until(next) => false,
        };
        let Some(api) = api.upgrade() else { return };
        if changed {
            changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
            sync(&api).await;
        }
        if clock.instant() >= adjustment {
            api.flows.update_borrowing();
            adjustment = clock.instant() + BORROWING_ADJUSTMENT_PERIOD;
            adjustments += 1;
            if adjustments % ENSURE_EVERY == 0 {
                ensure_logged(&api).await;
            }
        }
        release = api.flows.release_due();
    }
}

/// Applies the stored configuration, and writes the conditions of FlowSchemas.
async fn sync(api: &Arc<Api>) {
    load(api);
    let now = seconds(api.clock.now());
    let levels = loopback::list(api, GROUP, LEVELS, "");
    for schema in loopback::list(api, GROUP, SCHEMAS, "") {
        let Some(condition) = flow::dangling(&schema, &levels, &now) else { continue };
        if let Err(error) = apply_condition(api, &schema, &condition).await {
            let name = text(&schema, "metadata.name");
            tracing::error!(name, %error, "failed to set a status.condition for FlowSchema");
        }
    }
}

async fn ensure_logged(api: &Arc<Api>) {
    if let Err(error) = ensure(api).await {
        tracing::error!(%error, "APF bootstrap ensurer ran into error, will retry later");
    }
}

/// Creates missing bootstrap objects and restores the specs that the server manages. Deletes bootstrap objects of older
/// server versions that this version no longer has.
///
/// Upstream: `ensure`.
async fn ensure(api: &Arc<Api>) -> Result<(), StatusError> {
    for resource in [LEVELS, SCHEMAS] {
        let Some(row) = api.table.get(GROUP, resource) else { continue };
        let own = bootstrap::objects(&row)?;
        let stored = loopback::list(api, GROUP, resource, "");
        let mut missing = Transaction::default();
        for wanted in &own {
            let name = text(wanted, "metadata.name");
            match stored.iter().find(|object| text(object, "metadata.name") == name) {
                None => {
                    let now = seconds(api.clock.now());
                    loopback::create_if_absent(api, &row, wanted.clone(), &now, &mut missing);
                }
                Some(object) => {
                    if let Some(revised) = revise(object, wanted) {
                        write(api, resource, object, revised).await?;
                    }
                }
            }
        }
        api.store.commit(missing).await?;
        let is_own = |name: &str| own.iter().any(|object| text(object, "metadata.name") == name);
        for object in stored.iter().filter(|object| annotation(object) == Some(true)) {
            let name = text(object, "metadata.name");
            if !is_own(name) {
                let user = User::authenticated("system:apiserver", ["system:masters"]);
                let options = DeleteOptions::default();
                let (warnings, audit) = (Warnings::default(), RequestAudit::default());
                let admission = Admission::new(&row, name, &warnings, &audit, &options)?;
                let deletion = Deletion {
                    api,
                    stored: &row,
                    user: &user,
                    options: &options,
                    admission: Some(admission),
                };
                match delete(&deletion, name).await {
                    Err(error) if error.code() != http::StatusCode::NOT_FOUND => return Err(error),
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// Returns the revised bootstrap object, or `None` if it needs no change.
///
/// Upstream: `ReviseIfNeeded`.
fn revise(object: &Value, wanted: &Value) -> Option<Value> {
    let untouched = int(object, "metadata.generation") == Some(1);
    let update = MANDATORY.contains(&text(object, "metadata.name"))
        || annotation(object).unwrap_or(untouched);
    let spec = get(wanted, "spec").unwrap_or(&Value::Null);
    let differs = update && !same_meaning(get(object, "spec").unwrap_or(&Value::Null), spec);
    if !differs && annotation(object) == Some(update) {
        return None;
    }
    let mut revised = object.clone();
    if differs {
        set(&mut revised, "spec", spec.clone());
        let generation = int(object, "metadata.generation").unwrap_or_default() + 1;
        set(&mut revised, "metadata.generation", generation);
    }
    if let Some(metadata) = revised.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations =
            metadata.entry("annotations").or_insert_with(|| Value::Object(Default::default()));
        if !annotations.is_object() {
            *annotations = Value::Object(Default::default());
        }
        annotations[AUTO_UPDATE] = Value::from(update.to_string());
    }
    Some(revised)
}

/// Returns the value of the auto-update annotation, or `None` if it is absent or invalid.
fn annotation(object: &Value) -> Option<bool> {
    let value = object.pointer("/metadata/annotations")?.get(AUTO_UPDATE)?.as_str()?;
    // Go's `ParseBool` accepts these values.
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Applies a condition to the status of a FlowSchema.
///
/// Upstream: `syncOne`.
async fn apply_condition(
    api: &Arc<Api>,
    schema: &Value,
    condition: &Value,
) -> Result<(), StatusError> {
    let Some(row) = api.table.get(GROUP, SCHEMAS) else { return Ok(()) };
    let body = json!({
        "apiVersion": GROUP, "kind": row.gvk.kind, "metadata": {"name": schema["metadata"]["name"]},
        "status": {"conditions": [condition]},
    });
    let writer = Writer { manager: CONFIG_CONSUMER, subresource: "status", now: api.clock.now() };
    let (kinds, validation) = (row.schema(&row.gvk), FieldValidation::Ignore);
    let body = body.to_string();
    let applied = patch::apply(
        &row.gvk,
        kinds.as_ref(),
        Some(schema),
        body.as_bytes(),
        &writer,
        true,
        validation,
    )?;
    put(api, &row, schema, &applied.object).await
}

/// Writes a revised bootstrap object.
async fn write(
    api: &Arc<Api>,
    resource: &str,
    old: &Value,
    mut new: Value,
) -> Result<(), StatusError> {
    let Some(row) = api.table.get(GROUP, resource) else { return Ok(()) };
    let writer = Writer { manager: CONFIG_PRODUCER, subresource: "", now: api.clock.now() };
    patch::update_managed_fields(row.schema(&row.gvk).as_ref(), Some(old), &mut new, &writer);
    put(api, &row, old, &new).await
}

/// Stores a changed object. If another writer changed the object first, its change stays and triggers the next sync.
async fn put(
    api: &Arc<Api>,
    row: &ResourceType,
    old: &Value,
    new: &Value,
) -> Result<(), StatusError> {
    let name = text(old, "metadata.name");
    let Some(entry) = api.store.get(&row.resource_prefix, name) else { return Ok(()) };
    if entry.revision.to_string() != text(old, "metadata.resourceVersion") {
        return Ok(());
    }
    let selection = crate::selector::selection_attributes(row, new);
    let encoded = Encoded::new(new, selection);
    match api.store.put(&row.resource_prefix, name, Expect::At(entry.revision), encoded).await {
        Ok(_) | Err(WriteError::Mismatch { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bootstrap_specs_are_restored_unless_an_administrator_manages_them() {
        let wanted = json!({"metadata": {"name": "x"}, "spec": {"matchingPrecedence": 1}});
        let object = |name: &str, generation: u64, annotation: Option<&str>, precedence: u64| {
            let mut object = json!({"metadata": {"name": name, "generation": generation},
                "spec": {"matchingPrecedence": precedence}});
            if let Some(value) = annotation {
                object["metadata"]["annotations"] = json!({AUTO_UPDATE: value});
            }
            object
        };
        // Stored object, and the revised object's precedence (`None` if it needs no change) and annotation.
        for (object, precedence, annotation) in [
            (object("x", 1, Some("true"), 1), None, "true"),
            (object("x", 3, Some("true"), 2), Some(1), "true"),
            (object("x", 3, Some("false"), 2), None, "false"),
            (object("x", 1, None, 2), Some(1), "true"),
            (object("x", 2, None, 2), Some(2), "false"),
            (object("exempt", 2, Some("false"), 2), Some(1), "true"),
        ] {
            let revised = revise(&object, &wanted);
            let found =
                revised.as_ref().and_then(|revised| int(revised, "spec.matchingPrecedence"));
            assert_eq!(found, precedence, "{object}");
            if let Some(revised) = revised {
                assert_eq!(revised["metadata"]["annotations"][AUTO_UPDATE], annotation);
            }
        }
    }
}
