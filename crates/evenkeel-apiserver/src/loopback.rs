//! Reads and writes of stored objects by the server itself, without admission and validation.
//!
//! Upstream: `LoopbackClientConfig`.

use crate::api::Api;
use crate::auth::{LAST_USED, UsedSecret};
use crate::resource::ResourceType;
use crate::resource::key;
use crate::selector::selection_attributes;
use crate::store::{Encoded, Entry, Expect, Transaction, WriteError};
use evenkeel_apimachinery::patch::{self, Writer};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value;
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum number of attempts of a write that conflicts with other writes.
const MAX_WRITE_ATTEMPTS: usize = 16;

/// Returns all stored objects of a resource in `namespace`, or in all namespaces if `namespace` is empty.
pub(crate) fn list(api: &Api, api_version: &str, resource: &str, namespace: &str) -> Vec<Value> {
    let Some(resource) = api.table.get(api_version, resource) else { return Vec::new() };
    let entries = api.store.within(&resource.resource_prefix, namespace);
    entries.iter().filter_map(|entry| entry.decode().ok()).collect()
}

/// Returns the EndpointSlices of a Service.
pub(crate) fn endpoint_slices(api: &Api, namespace: &str, service: &str) -> Vec<Value> {
    let entries = endpoint_slice_entries(api, namespace, service);
    entries.iter().filter_map(|entry| entry.decode().ok()).collect()
}

/// Returns the stored entries of a Service's EndpointSlices.
pub(crate) fn endpoint_slice_entries(api: &Api, namespace: &str, service: &str) -> Vec<Arc<Entry>> {
    let is_of_service =
        |entry: &Arc<Entry>| entry.selection.label("kubernetes.io/service-name") == Some(service);
    let mut entries = api.store.within("discovery.k8s.io/endpointslices", namespace);
    entries.retain(is_of_service);
    entries
}

/// Returns a stored object by its name.
pub(crate) fn get(
    api: &Api,
    api_version: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, StatusError> {
    match api.table.get(api_version, resource) {
        Some(resource) => api.read(&resource, namespace, name),
        None => Ok(None),
    }
}

/// Changes a stored object, and retries with its newest state after a conflict. Returns the changed object with its new
/// resource version.
pub(crate) async fn change(
    api: &Arc<Api>,
    resource: &ResourceType,
    namespace: &str,
    name: &str,
    dry_run: bool,
    edit: impl Fn(&mut Value) -> Result<(), StatusError>,
) -> Result<Value, StatusError> {
    let key = key(resource, namespace, name);
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let Some(entry) = api.store.latest(&resource.resource_prefix, &key) else {
            return Err(StatusError::not_found(&resource.name, name));
        };
        let mut object = entry.decode().map_err(StatusError::internal)?;
        edit(&mut object)?;
        if dry_run {
            return Ok(object);
        }
        let selection = selection_attributes(resource, &object);
        let encoded = Encoded::new(&object, selection);
        match api
            .store
            .put(&resource.resource_prefix, &key, Expect::At(entry.revision), encoded)
            .await
        {
            Ok(written) => {
                let version = written.revision.to_string();
                evenkeel_apimachinery::value::set(&mut object, "metadata.resourceVersion", version);
                return Ok(object);
            }
            Err(WriteError::Mismatch { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(StatusError::modified(&resource.name, name))
}

/// Changes a stored object like [`change`], with this server as the manager of the changed fields.
pub(crate) async fn change_managed(
    api: &Arc<Api>,
    resource: &ResourceType,
    namespace: &str,
    name: &str,
    subresource: &str,
    dry_run: bool,
    edit: impl Fn(&mut Value) -> Result<(), StatusError>,
) -> Result<Value, StatusError> {
    let schema = resource.schema(&resource.gvk);
    let edit = |object: &mut Value| {
        let old = object.clone();
        edit(object)?;
        let writer = Writer { manager: "kube-apiserver", subresource, now: api.clock.now() };
        patch::update_managed_fields(schema.as_ref(), Some(&old), object, &writer);
        Ok(())
    };
    change(api, resource, namespace, name, dry_run, edit).await
}

/// Records the day on which a Secret's token was used in a label of the Secret. The request continues even if the write
/// fails.
///
/// Upstream: `patchSecretWithLastUsedDate`.
pub(crate) async fn record_token_use(api: &Arc<Api>, used: &UsedSecret) {
    let Some(secrets) = api.table.get("v1", "secrets") else { return };
    let set_label = |secret: &mut Value| {
        secret["metadata"]["labels"][LAST_USED] = used.day.as_str().into();
        Ok(())
    };
    let (namespace, name) = (&used.namespace, &used.name);
    if let Err(error) = change_managed(api, &secrets, namespace, name, "", false, set_label).await {
        tracing::error!(namespace, name, %error, "the use of a service account token cannot be recorded");
    }
}

/// Commits the objects that `add` adds to a transaction because they are missing. Other servers may create the same
/// objects at the same time.
pub(crate) async fn commit_missing(
    api: &Api,
    add: impl Fn(&mut Transaction) -> Result<(), StatusError>,
) -> Result<(), StatusError> {
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let mut transaction = Transaction::default();
        add(&mut transaction)?;
        match api.store.commit(transaction).await {
            Err(WriteError::Mismatch { .. }) => {}
            result => return result.map(drop).map_err(StatusError::from),
        }
    }
    Err(StatusError::internal("other servers create the same objects repeatedly"))
}

/// Adds the creation of an object to a transaction, unless the object exists.
pub(crate) fn create_if_absent(
    api: &Api,
    resource: &ResourceType,
    object: Value,
    now: &str,
    transaction: &mut Transaction,
) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let key = key(resource, &text("namespace"), &text("name"));
    let prefix = &resource.resource_prefix;
    if api.store.latest(prefix, &key).is_none() && !transaction.writes(prefix, &key) {
        create(api, resource, object, now, transaction);
    }
}

/// Adds the creation of an object, with a new UID and the server as field manager, to a transaction.
pub(crate) fn create(
    api: &Api,
    resource: &ResourceType,
    object: Value,
    now: &str,
    transaction: &mut Transaction,
) {
    let writer = Writer { manager: "kube-apiserver", subresource: "", now: api.clock.now() };
    let (key, encoded) = encode(resource, object, &api.uid(), now, &writer);
    transaction.put(&resource.resource_prefix, &key, Expect::Absent, encoded);
}

/// Adds the field manager that applied the conditions of an object that upstream's servers make.
fn add_condition_manager(resource: &ResourceType, object: &mut Value, now: &str) {
    let manager = match resource.kind() {
        "FlowSchema" => "api-priority-and-fairness-config-consumer-v1",
        "ServiceCIDR" => "kubernetes-service-cidr-controller",
        _ => return,
    };
    let mut conditions = serde_json::Map::new();
    for condition in value::list(object, "status.conditions") {
        let fields = condition.as_object().into_iter().flatten();
        let owned = fields.filter(|(_, field)| *field != "").map(|(name, _)| format!("f:{name}"));
        let mut entry: serde_json::Map<String, Value> =
            owned.map(|name| (name, json!({}))).collect();
        entry.insert(".".to_owned(), json!({}));
        let key = json!({"type": condition["type"]});
        conditions.insert(format!("k:{key}"), Value::Object(entry));
    }
    let Some(entries) = object.pointer_mut("/metadata/managedFields") else { return };
    if let Some(entries) = entries.as_array_mut().filter(|_| !conditions.is_empty()) {
        let entry = json!({
            "manager": manager,
            "operation": "Apply",
            "apiVersion": &*resource.api_version,
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": {"f:conditions": conditions}},
            "subresource": "status",
        });
        // Entries of applies come before those of updates.
        entries.insert(0, entry);
    }
}

/// Encodes a new object with this UID, creation time and field manager. Returns its key and the encoded object.
pub(crate) fn encode(
    resource: &ResourceType,
    mut object: Value,
    uid: &str,
    now: &str,
    writer: &Writer<'_>,
) -> (String, Encoded) {
    object["apiVersion"] = Value::from(&*resource.api_version);
    object["kind"] = Value::from(resource.kind());
    // A create request gets these fields after its managed fields, so that no manager owns them. Remove them while the
    // managed fields are computed, so that they are the same here.
    let unowned: &[&str] = match resource.kind() {
        "Namespace" => &["spec"],
        "Service" => &["spec.clusterIPs", "spec.ipFamilies"],
        _ => &[],
    };
    let unowned: Vec<(&str, Value)> = unowned
        .iter()
        .filter_map(|path| Some((*path, value::remove(&mut object, path)?)))
        .collect();
    let schema = resource.schema(&resource.gvk);
    patch::update_managed_fields(schema.as_ref(), None, &mut object, writer);
    for (path, field) in unowned {
        value::set(&mut object, path, field);
    }
    add_condition_manager(resource, &mut object, now);
    object["metadata"]["uid"] = Value::from(uid);
    object["metadata"]["creationTimestamp"] = Value::from(now);
    let selection = selection_attributes(resource, &object);
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let key = key(resource, text("namespace"), text("name"));
    (key, Encoded::new(&object, selection))
}
