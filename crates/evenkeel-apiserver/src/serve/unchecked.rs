//! Writes to the store without admission or validation: objects of another server, or those that another version of the
//! server might have stored.

use super::Server;

use crate::{
    custom::crd_controller,
    resource::{self, ResourceType},
    selector::selection_attributes,
    store::{Encoded, Expect, Transaction, WriteError},
};
use futures::future::BoxFuture;
use serde_json::Value;
use std::{collections::HashSet, sync::Arc};

/// Maximum number of loaded objects in one transaction.
const LOADED_AT_ONCE: usize = 500;

/// Error of an unchecked write.
#[derive(Debug, thiserror::Error)]
pub enum UncheckedError {
    /// The server has no such resource.
    #[error("no resource {resource} in {api_version}")]
    Resource {
        /// The requested `apiVersion`, such as `apps/v1`.
        api_version: String,
        /// The requested plural name, such as `deployments`.
        resource: String,
    },
    /// The store refused the write.
    #[error("not stored: {0}")]
    Store(String),
}

impl From<WriteError> for UncheckedError {
    fn from(error: WriteError) -> Self {
        Self::Store(error.to_string())
    }
}

impl Server {
    /// Stores `object` (with UID and times) under the name in its metadata. Replaces an existing object.
    ///
    /// # Errors
    /// Fails if the resource does not exist, or the store cannot write.
    pub async fn put_unchecked(
        &self,
        api_version: &str,
        resource: &str,
        object: &Value,
    ) -> Result<(), UncheckedError> {
        let Some(resource_type) = self.api.table.get(api_version, resource) else {
            let (api_version, resource) = (api_version.to_owned(), resource.to_owned());
            return Err(UncheckedError::Resource { api_version, resource });
        };
        // Objects get their defaults, as they do when the server reads its store.
        let mut object = object.clone();
        resource_type.strategy.default(&mut object);
        let object = &object;
        let mut transaction = Transaction::default();
        self.stage(&mut transaction, &resource_type, &key_of(&resource_type, object), object);
        self.api.store.commit(transaction).await?;
        Ok(())
    }

    /// Adds the write of an object, over an existing one, to a transaction.
    fn stage(
        &self,
        transaction: &mut Transaction,
        resource: &ResourceType,
        key: &str,
        object: &Value,
    ) {
        let prefix = &resource.resource_prefix;
        let existing = self.api.store.latest(prefix, key);
        let expect = existing.map_or(Expect::Absent, |entry| Expect::At(entry.revision));
        let selection = selection_attributes(resource, object);
        transaction.put(prefix, key, expect, Encoded::new(object, selection));
    }

    /// Stores the objects of another cluster as they are, with their UIDs, times, owners and statuses. Replaces existing
    /// objects. Returns the objects whose `apiVersion` and `kind` the server does not have.
    ///
    /// CustomResourceDefinitions among the objects are served immediately if their status has the condition `Established`.
    ///
    /// # Errors
    /// Fails if the store cannot write.
    pub fn load(&self, objects: Vec<Value>) -> BoxFuture<'_, Result<Vec<Value>, UncheckedError>> {
        let is_definition = |object: &Value| object["kind"] == "CustomResourceDefinition";
        let (definitions, others): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_definition);
        Box::pin(async move {
            let mut unknown = self.store_all(definitions).await?;
            crd_controller::load(&self.api);
            unknown.extend(self.store_all(others).await?);
            Ok(unknown)
        })
    }

    /// Stores these objects, and returns the objects of unknown types.
    async fn store_all(&self, objects: Vec<Value>) -> Result<Vec<Value>, UncheckedError> {
        let rows = self.api.table.rows();
        let mut unknown = Vec::new();
        let mut transaction = Transaction::default();
        let mut keys = HashSet::new();
        for object in objects {
            let text = |field: &str| object[field].as_str().unwrap_or_default();
            let Some(requested) = rows.of_kind(text("apiVersion"), text("kind")).next().cloned()
            else {
                unknown.push(object);
                continue;
            };
            let stored = self.api.table.stored_version(&requested);
            let object = self.in_stored_version(&requested, &stored, object);
            let key = key_of(&stored, &object);
            let prefix = &stored.resource_prefix;
            if transaction.len() >= LOADED_AT_ONCE || keys.contains(&(prefix.clone(), key.clone()))
            {
                self.api.store.commit(std::mem::take(&mut transaction)).await?;
                keys.clear();
            }
            self.stage(&mut transaction, &stored, &key, &object);
            keys.insert((prefix.clone(), key));
        }
        if transaction.len() > 0 {
            self.api.store.commit(transaction).await?;
        }
        Ok(unknown)
    }

    /// Returns an object in its storage version, with the kind's defaults and with a UID.
    fn in_stored_version(
        &self,
        requested: &Arc<ResourceType>,
        stored: &Arc<ResourceType>,
        mut object: Value,
    ) -> Value {
        if requested.converts() {
            stored.strategy.convert_in(&stored.gvk, &mut object);
        }
        stored.strategy.default(&mut object);
        let is_empty = |value: &Value| value.as_str().is_none_or(str::is_empty);
        if stored.namespaced && is_empty(&object["metadata"]["namespace"]) {
            object["metadata"]["namespace"] = "default".into();
        }
        if is_empty(&object["metadata"]["uid"]) {
            object["metadata"]["uid"] = self.api.uid().into();
        }
        object
    }
}

/// Returns the key of an object in the store.
fn key_of(resource: &ResourceType, object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    resource::key(resource, text("namespace"), text("name"))
}
