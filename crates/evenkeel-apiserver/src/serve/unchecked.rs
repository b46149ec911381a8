//! Objects put into the store past every check, as a server of another version may have left them: for tests of clients.

use super::Server;

use crate::{
    resource,
    selector::selection_attributes,
    store::{Encoded, Expect, WriteError},
};
use serde_json::Value;

/// Why an object was not stored.
#[derive(Debug, thiserror::Error)]
pub enum UncheckedError {
    /// There is no such resource.
    #[error("no resource {resource} in {api_version}")]
    Resource {
        /// As asked for.
        api_version: String,
        /// As asked for.
        resource: String,
    },
    /// The store does not take it.
    #[error("not stored: {0}")]
    Store(String),
}

impl From<WriteError> for UncheckedError {
    fn from(error: WriteError) -> Self {
        Self::Store(error.to_string())
    }
}

impl Server {
    /// Stores `object` (whole, with uid and times) under the name in its metadata, in the place of what is there.
    ///
    /// # Errors
    /// When there is no such resource, or the store cannot write.
    pub async fn put_unchecked(
        &self,
        api_version: &str,
        resource: &str,
        object: &Value,
    ) -> Result<(), UncheckedError> {
        let Some(found) = self.api.table.get(api_version, resource) else {
            let (api_version, resource) = (api_version.to_owned(), resource.to_owned());
            return Err(UncheckedError::Resource { api_version, resource });
        };
        // Objects get their defaults, as they do when a server reads its store.
        let mut object = object.clone();
        found.strategy.default(&mut object);
        let object = &object;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = resource::key(&found, text("namespace"), text("name"));
        let present = self.api.store.latest(&found.resource_prefix, &key);
        let expect = present.map_or(Expect::Absent, |entry| Expect::At(entry.revision));
        let selection = selection_attributes(&found, object);
        self.api
            .store
            .put(&found.resource_prefix, &key, expect, Encoded::new(object, selection))
            .await?;
        Ok(())
    }
}
