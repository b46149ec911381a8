//! Writes to the store without admission or validation, for example of objects that another version of the server might
//! have stored. For tests of clients.

use super::Server;

use crate::{
    resource,
    selector::selection_attributes,
    store::{Encoded, Expect, WriteError},
};
use serde_json::Value;

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
    /// The resource does not exist, or the store cannot write.
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
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = resource::key(&resource_type, text("namespace"), text("name"));
        let existing = self.api.store.latest(&resource_type.resource_prefix, &key);
        let expect = existing.map_or(Expect::Absent, |entry| Expect::At(entry.revision));
        let selection = selection_attributes(&resource_type, object);
        self.api
            .store
            .put(&resource_type.resource_prefix, &key, expect, Encoded::new(object, selection))
            .await?;
        Ok(())
    }
}
