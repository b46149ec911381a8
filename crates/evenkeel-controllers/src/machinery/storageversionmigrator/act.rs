//! Storage migration: rewrites all objects of a resource, so that they are stored in the storage version.
//!
//! The controller lists the objects page by page, and updates them one by one until an update fails. It does not use a
//! planner, which would hold all pages, and decide again from the first object after each of perhaps 100,000 writes.

use super::{
    Migration, name,
    plan::{self, Progress, ResourceLookup, StatusChange},
};
use crate::wire;
use evenkeel_api::{Kind, View as _};
use evenkeel_runtime::{
    cache::Cache,
    client::{ApiError, Client, ListOptions, Metadata},
    controller::{Context, Error, Outcome},
    discovery::Resource,
    plan::{Key, PatchType},
};
use serde_json::json;
use std::sync::Arc;

/// Number of objects in a page of a list.
const PAGE_SIZE: u32 = 500;

/// Cache of the migrator.
pub(super) struct Migrator {
    pub(super) migrations: Cache<Migration>,
}

impl Migrator {
    /// Rewrites, without changes, each object that is not newer than the migration's resource version. The API server
    /// then stores it in the storage version.
    pub(super) async fn migrate(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let has_version = |migration: &Arc<Migration>| {
            plan::is_in_progress(migration) && !plan::version(migration).is_empty()
        };
        let Some(migration) = self.migrations.get("", &key.name).filter(has_version) else {
            return Ok(Outcome::Settled);
        };
        let Some(resource) = self.discover_resource(key, context, &migration).await? else {
            return Ok(Outcome::Settled);
        };
        let Ok(max_version) = plan::version(&migration).parse::<u64>() else {
            let error = "the recorded resource version is not a number".to_owned();
            let change = StatusChange::Failed { progress: None, error };
            self.update_status(key, context, &migration, change).await?;
            return Ok(Outcome::Settled);
        };
        let client = &context.env.client;
        let Objects { total, to_migrate } =
            list_objects(client, &resource.kind, max_version).await?;
        for (n_migrated, object) in to_migrate.iter().enumerate() {
            let Err(error) = rewrite(client, &resource.kind, object).await else { continue };
            let progress = Progress { remaining: to_migrate.len() - n_migrated, total };
            let message = error.to_string();
            if is_temporary(&error) {
                // The migration is retried in any case, so a failed status update is ignored.
                let change = StatusChange::Interrupted { progress, error: message };
                let _ = self.update_status(key, context, &migration, change).await;
                return Err(error.into());
            }
            let change = StatusChange::Failed { progress: Some(progress), error: message };
            self.update_status(key, context, &migration, change).await?;
            return Ok(Outcome::Settled);
        }
        let progress = Progress { remaining: 0, total };
        self.update_status(key, context, &migration, StatusChange::Succeeded(progress)).await?;
        Ok(Outcome::Settled)
    }

    /// Discovers the migration's resource. `None` if there is nothing to migrate. If the server still lacks the
    /// resource after the grace period for new resources, records that the migration failed.
    async fn discover_resource(
        &self,
        key: &Key,
        context: &Context,
        migration: &Arc<Migration>,
    ) -> Result<Option<Resource>, Error> {
        let Some(group_resource) = plan::resource(migration) else { return Ok(None) };
        let resources = context.env.client.api_resources().await?;
        let now = context.env.clock.now();
        match plan::find_resource(&resources, group_resource, migration, now) {
            ResourceLookup::Served(resource) => Ok(Some(resource)),
            ResourceLookup::NotYet(why) => Err(Error::message(why)),
            ResourceLookup::NotServed(why) => {
                self.update_status(key, context, migration, StatusChange::Unsupported(why)).await?;
                Ok(None)
            }
        }
    }

    /// Writes a change of the migration's status, if it changes anything.
    async fn update_status(
        &self,
        key: &Key,
        context: &Context,
        migration: &Arc<Migration>,
        change: StatusChange,
    ) -> Result<(), Error> {
        let Some(changed) = plan::with_change(migration, change, context.env.clock.now()) else {
            return Ok(());
        };
        let client = &context.env.client;
        let kind = self.migrations.kind();
        let body = wire::json(&changed);
        let updated = client.update::<Metadata>(kind, "", name(migration), "status", body).await?;
        context.wrote(key, kind, &updated.meta);
        Ok(())
    }
}

/// Objects of the migration's resource.
struct Objects {
    /// Number of all objects.
    total: usize,
    to_migrate: Vec<Metadata>,
}

/// Lists the objects of the resource. Objects whose resource version is at most `max_version` must be migrated.
async fn list_objects(client: &Client, kind: &Kind, max_version: u64) -> Result<Objects, Error> {
    let mut options = ListOptions { limit: PAGE_SIZE, ..ListOptions::default() };
    let mut objects = Objects { total: 0, to_migrate: Vec::new() };
    loop {
        let page = client.list_metadata(kind, "", &options).await?;
        objects.total += page.items.len();
        let old = page.items.into_iter().filter(|object| object.meta().version() <= max_version);
        objects.to_migrate.extend(old);
        if page.continue_.is_empty() {
            return Ok(objects);
        }
        options.continue_ = page.continue_.to_string();
    }
}

/// Rewrites an object. A conflict or NotFound counts as success: another write stored it, or it was deleted.
async fn rewrite(client: &Client, kind: &Kind, object: &Metadata) -> Result<(), ApiError> {
    let meta = object.meta();
    let body = json!({
        "apiVersion": kind.api_version(), "kind": &*kind.kind,
        "metadata": {"resourceVersion": &*meta.resource_version},
    });
    let namespace = &*meta.namespace;
    let name = &*meta.name;
    let form = PatchType::Merge;
    let body = body.to_string().into();
    match client.patch::<Metadata>(kind, namespace, name, "", form, body).await {
        Err(error) if !error.is_conflict() && !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Returns whether a retry may succeed. The code is 0 without a response.
fn is_temporary(error: &ApiError) -> bool {
    matches!(error.code(), 0 | 429 | 500 | 503 | 504)
}
