//! Controller of API Priority and Fairness: applies FlowSchemas and PriorityLevelConfigurations, writes the condition
//! `Dangling`, restores the bootstrap configuration, and adjusts limits to demand.
//!
//! | upstream | where |
//! |---|---|
//! | `configController.syncOne` | `sync` |
//! | `updateBorrowing` | `run` |
//! | `bootstrapConfigurationEnsurer` | `ensure`, `revise_if_needed` |

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_tasks::watch;
use serde_json::{Value, json};

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
const ADJUSTMENTS_PER_ENSURE: u32 = 6;
/// Field manager of the condition.
const CONFIG_CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
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

/// Runs the controller until the server shuts down. `changes` signal writes to FlowSchemas and to
/// PriorityLevelConfigurations.
pub(crate) async fn run(api: Weak<Api>, mut changes: [watch::Receiver<u64>; 2]) {
    let Some(strong_api) = api.upgrade() else { return };
    let (wake, clock) = (strong_api.flows.wake(), strong_api.clock.clone());
    drop(strong_api);
    let mut next_adjustment = clock.instant() + BORROWING_ADJUSTMENT_PERIOD;
    let mut n_adjustments: u32 = 0;
    if let Some(api) = api.upgrade() {
        sync(&api).await;
        ensure_logged(&api).await;
    }
    let mut next_release = None;
    loop {
        let [schemas, levels] = &mut changes;
        let next_timer =
            next_release.map_or(next_adjustment, |release| next_adjustment.min(release));
        let changed = tokio::select! {
            changed = schemas.changed() => changed.is_ok(),
            changed = levels.changed() => changed.is_ok(),
            () = wake.notified() => false,
            () = tokio::time::sleep_until(next_timer) => false,
        };
        let Some(api) = api.upgrade() else { return };
        if changed {
            changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
            sync(&api).await;
        }
        if clock.instant() >= next_adjustment {
            api.flows.update_borrowing();
            next_adjustment = clock.instant() + BORROWING_ADJUSTMENT_PERIOD;
            n_adjustments += 1;
            if n_adjustments.is_multiple_of(ADJUSTMENTS_PER_ENSURE) {
                ensure_logged(&api).await;
            }
        }
        next_release = api.flows.release_due();
    }
}

/// Applies the stored configuration, and writes the conditions of FlowSchemas.
async fn sync(api: &Arc<Api>) {
    load(api);
    let now = seconds(api.clock.now());
    let levels = loopback::list(api, GROUP, LEVELS, "");
    for schema in loopback::list(api, GROUP, SCHEMAS, "") {
        let Some(condition) = flow::dangling_condition(&schema, &levels, &now) else { continue };
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
        let Some(resource_type) = api.table.get(GROUP, resource) else { continue };
        let bootstrap_objects = bootstrap::objects(&resource_type)?;
        let stored = loopback::list(api, GROUP, resource, "");
        let mut missing = Transaction::default();
        for wanted in &bootstrap_objects {
            let name = text(wanted, "metadata.name");
            match stored.iter().find(|object| text(object, "metadata.name") == name) {
                None => {
                    let now = seconds(api.clock.now());
                    loopback::create_if_absent(
                        api,
                        &resource_type,
                        wanted.clone(),
                        &now,
                        &mut missing,
                    );
                }
                Some(object) => {
                    if let Some(revised) = revise_if_needed(object, wanted) {
                        write(api, resource, object, revised).await?;
                    }
                }
            }
        }
        api.store.commit(missing).await?;
        let is_bootstrap_object = |name: &str| {
            bootstrap_objects.iter().any(|object| text(object, "metadata.name") == name)
        };
        for object in stored.iter().filter(|object| auto_update_annotation(object) == Some(true)) {
            let name = text(object, "metadata.name");
            if !is_bootstrap_object(name) {
                let user = User::authenticated("system:apiserver", ["system:masters"]);
                let options = DeleteOptions::default();
                let (warnings, audit) = (Warnings::default(), RequestAudit::default());
                let admission = Admission::new(&resource_type, name, &warnings, &audit, &options)?;
                let deletion = Deletion {
                    api,
                    stored: &resource_type,
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

/// Returns a stored bootstrap object with its spec and annotation restored, or `None` if it needs no change. `wanted`
/// is this version's bootstrap object.
///
/// Without the annotation, the server updates the spec if no user has modified it since the creation.
///
/// Upstream: `ReviseIfNeeded`.
fn revise_if_needed(object: &Value, wanted: &Value) -> Option<Value> {
    let is_unmodified = int(object, "metadata.generation") == Some(1);
    let auto_update = MANDATORY.contains(&text(object, "metadata.name"))
        || auto_update_annotation(object).unwrap_or(is_unmodified);
    let spec = get(wanted, "spec").unwrap_or(&Value::Null);
    let needs_update =
        auto_update && !same_meaning(get(object, "spec").unwrap_or(&Value::Null), spec);
    if !needs_update && auto_update_annotation(object) == Some(auto_update) {
        return None;
    }
    let mut revised = object.clone();
    if needs_update {
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
        annotations[AUTO_UPDATE] = Value::from(auto_update.to_string());
    }
    Some(revised)
}

/// Returns the value of the auto-update annotation, or `None` if it is absent or invalid.
fn auto_update_annotation(object: &Value) -> Option<bool> {
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
    let Some(resource_type) = api.table.get(GROUP, SCHEMAS) else { return Ok(()) };
    let body = json!({
        "apiVersion": GROUP, "kind": resource_type.gvk.kind, "metadata": {"name": schema["metadata"]["name"]},
        "status": {"conditions": [condition]},
    });
    let writer = Writer { manager: CONFIG_CONSUMER, subresource: "status", now: api.clock.now() };
    let (kinds, validation) = (resource_type.schema(&resource_type.gvk), FieldValidation::Ignore);
    let body = body.to_string();
    let applied = patch::apply(
        &resource_type.gvk,
        kinds.as_ref(),
        Some(schema),
        body.as_bytes(),
        &writer,
        true,
        validation,
    )?;
    put(api, &resource_type, schema, &applied.object).await
}

/// Writes a revised bootstrap object.
async fn write(
    api: &Arc<Api>,
    resource: &str,
    old: &Value,
    mut new: Value,
) -> Result<(), StatusError> {
    let Some(resource_type) = api.table.get(GROUP, resource) else { return Ok(()) };
    let writer =
        Writer { manager: bootstrap::CONFIG_PRODUCER, subresource: "", now: api.clock.now() };
    patch::update_managed_fields(
        resource_type.schema(&resource_type.gvk).as_ref(),
        Some(old),
        &mut new,
        &writer,
    );
    put(api, &resource_type, old, &new).await
}

/// Stores a changed object. If another writer has changed the object first, keeps that change, which triggers the next
/// sync.
async fn put(
    api: &Arc<Api>,
    resource_type: &ResourceType,
    old: &Value,
    new: &Value,
) -> Result<(), StatusError> {
    let name = text(old, "metadata.name");
    let Some(entry) = api.store.get(&resource_type.resource_prefix, name) else { return Ok(()) };
    if entry.revision.to_string() != text(old, "metadata.resourceVersion") {
        return Ok(());
    }
    let selection = crate::selector::selection_attributes(resource_type, new);
    let encoded = Encoded::new(new, selection);
    match api
        .store
        .put(&resource_type.resource_prefix, name, Expect::At(entry.revision), encoded)
        .await
    {
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
            let revised = revise_if_needed(&object, &wanted);
            let found =
                revised.as_ref().and_then(|revised| int(revised, "spec.matchingPrecedence"));
            assert_eq!(found, precedence, "{object}");
            if let Some(revised) = revised {
                assert_eq!(revised["metadata"]["annotations"][AUTO_UPDATE], annotation);
            }
        }
    }
}
