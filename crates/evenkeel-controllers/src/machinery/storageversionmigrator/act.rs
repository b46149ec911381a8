//! Storage migration: rewrites all objects of a resource, so that they are stored in the storage version.
//!
//! The controller lists the objects page by page, and updates them one by one until an update fails. It is no
//! planner: a planner would hold all pages, and decide anew from the first object after each of perhaps
//! 100,000 writes.

use super::{
    Migration, name,
    plan::{self, Found, Progress, StatusChange},
};
use crate::wire;
use evenkeel_api::{Kind, View as _};
use evenkeel_runtime::{
    cache::Cache,
    client::{ApiError, Client, ListOptions, Metadata},
    controller::{Context, Error, Outcome},
    discovery::Resource,
    plan::{Key, PatchForm},
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
    /// Rewrites each object that is older than the migration, without changes. The API server then stores it in the
    /// storage version.
    pub(super) async fn migrate(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let is_ready = |one: &Arc<Migration>| plan::is_open(one) && !plan::version(one).is_empty();
        let Some(migration) = self.migrations.get("", &key.name).filter(is_ready) else {
            return Ok(Outcome::Settled);
        };
        let Some(found) = self.found(key, context, &migration).await? else {
            return Ok(Outcome::Settled);
        };
        let Ok(until) = plan::version(&migration).parse::<u64>() else {
            let message = "the version that was noted is no number".to_owned();
            self.update_status(key, context, &migration, StatusChange::Failed(None, message))
                .await?;
            return Ok(Outcome::Settled);
        };
        let client = &context.env.client;
        let (all, objects) = objects(client, &found.kind, until).await?;
        for (done, object) in objects.iter().enumerate() {
            let Err(error) = rewrite(client, &found.kind, object).await else { continue };
            let progress = Progress { remaining: objects.len() - done, all };
            let message = error.to_string();
            if is_temporary(&error) {
                // The migration is retried in any case, so a failed status update is ignored.
                let _ = self
                    .update_status(
                        key,
                        context,
                        &migration,
                        StatusChange::Interrupted(progress, message),
                    )
                    .await;
                return Err(error.into());
            }
            self.update_status(
                key,
                context,
                &migration,
                StatusChange::Failed(Some(progress), message),
            )
            .await?;
            return Ok(Outcome::Settled);
        }
        let progress = Progress { remaining: 0, all };
        self.update_status(key, context, &migration, StatusChange::Succeeded(progress)).await?;
        Ok(Outcome::Settled)
    }

    /// Returns the discovered resource; `None` if the migration has none. If the resource is still unknown after the
    /// grace period for new resources, records that the migration failed.
    async fn found(
        &self,
        key: &Key,
        context: &Context,
        migration: &Arc<Migration>,
    ) -> Result<Option<Resource>, Error> {
        let Some(wanted) = plan::resource(migration) else { return Ok(None) };
        let all = context.env.client.api_resources().await?;
        match plan::find(&all, wanted, migration, context.env.clock.now()) {
            Found::Served(found) => Ok(Some(found)),
            Found::NotYet(why) => Err(Error::message(why)),
            Found::NotServed(why) => {
                self.update_status(key, context, migration, StatusChange::Unsupported(why)).await?;
                Ok(None)
            }
        }
    }

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
        let (client, kind) = (&context.env.client, self.migrations.kind());
        let body = wire::json(&changed);
        let updated = client.update::<Metadata>(kind, "", name(migration), "status", body).await?;
        context.wrote(key, kind, &updated.meta.resource_version);
        Ok(())
    }
}

/// Returns the number of objects, and those that are not newer than `until`.
async fn objects(
    client: &Client,
    kind: &Kind,
    until: u64,
) -> Result<(usize, Vec<Metadata>), Error> {
    let mut options = ListOptions { limit: PAGE_SIZE, ..ListOptions::default() };
    let (mut all, mut old) = (0, Vec::new());
    loop {
        let page = client.list_metadata(kind, "", &options).await?;
        all += page.items.len();
        old.extend(page.items.into_iter().filter(|object| object.meta().version() <= until));
        if page.continue_.is_empty() {
            return Ok((all, old));
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
    let (namespace, name, form) = (&*meta.namespace, &*meta.name, PatchForm::Merge);
    let body = body.to_string().into();
    match client.patch::<Metadata>(kind, namespace, name, "", form, body).await {
        Err(error) if !error.is_conflict() && !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Whether the error is temporary, so that a retry may succeed.
fn is_temporary(error: &ApiError) -> bool {
    matches!(error.code(), 0 | 429 | 500 | 503 | 504)
}
