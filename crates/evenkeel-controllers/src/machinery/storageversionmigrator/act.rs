//! Writes the objects of a resource again.
//!
//! A shell of its own: it lists the objects page by page and writes each by itself, one after the other, until one fails. A
//! planner's steps would hold all pages, and decide from the first one again after each of maybe 100,000 writes.

use super::{
    Migration, name,
    plan::{self, Found, News, Progress},
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

/// How many objects are read at a time.
const PAGE: u32 = 500;

/// Cache of the migrator.
pub(super) struct Migrator {
    pub(super) migrations: Cache<Migration>,
}

impl Migrator {
    /// Writes every object that is older again, as it is: the server stores it in today's version.
    pub(super) async fn migrate(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let noted = |one: &Arc<Migration>| plan::is_open(one) && !plan::version(one).is_empty();
        let Some(migration) = self.migrations.get("", &key.name).filter(noted) else {
            return Ok(Outcome::Settled);
        };
        let Some(found) = self.found(key, context, &migration).await? else {
            return Ok(Outcome::Settled);
        };
        let Ok(until) = plan::version(&migration).parse::<u64>() else {
            let words = "the version that was noted is no number".to_owned();
            self.tell(key, context, &migration, News::Failed(None, words)).await?;
            return Ok(Outcome::Settled);
        };
        let client = &context.env.client;
        let (all, objects) = objects(client, &found.kind, until).await?;
        for (done, object) in objects.iter().enumerate() {
            let Err(error) = rewrite(client, &found.kind, object).await else { continue };
            let progress = Progress { left: objects.len() - done, all };
            let words = error.to_string();
            if passes(&error) {
                // The migration is retried in any case, so a failed status update is ignored.
                let _ =
                    self.tell(key, context, &migration, News::Interrupted(progress, words)).await;
                return Err(error.into());
            }
            self.tell(key, context, &migration, News::Failed(Some(progress), words)).await?;
            return Ok(Outcome::Settled);
        }
        let progress = Progress { left: 0, all };
        self.tell(key, context, &migration, News::Done(progress)).await?;
        Ok(Outcome::Settled)
    }

    /// The resource as the server has it; a migration of one that it does not have fails once the resource is not new any
    /// more.
    async fn found(
        &self,
        key: &Key,
        context: &Context,
        migration: &Arc<Migration>,
    ) -> Result<Option<Resource>, Error> {
        let Some(wanted) = plan::resource(migration) else { return Ok(None) };
        let all = context.env.client.api_resources().await?;
        match plan::find(&all, wanted, migration, context.env.clock.now()) {
            Found::Is(found) => Ok(Some(found)),
            Found::NotYet(why) => Err(Error::message(why)),
            Found::Never(why) => {
                self.tell(key, context, migration, News::Impossible(why)).await?;
                Ok(None)
            }
        }
    }

    async fn tell(
        &self,
        key: &Key,
        context: &Context,
        migration: &Arc<Migration>,
        news: News,
    ) -> Result<(), Error> {
        let Some(changed) = plan::with(migration, news, context.env.clock.now()) else {
            return Ok(());
        };
        let (client, kind) = (&context.env.client, self.migrations.kind());
        let body = wire::json(&changed);
        let made = client.update::<Metadata>(kind, "", name(migration), "status", body).await?;
        context.wrote(key, kind, &made.meta.resource_version);
        Ok(())
    }
}

/// How many objects there are, and those that are not newer than `until`.
async fn objects(
    client: &Client,
    kind: &Kind,
    until: u64,
) -> Result<(usize, Vec<Metadata>), Error> {
    let mut options = ListOptions { limit: PAGE, ..ListOptions::default() };
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

/// One that has changed meanwhile was stored anew by that, and one that is gone needs nothing.
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

/// Whether the server may do it later.
fn passes(error: &ApiError) -> bool {
    matches!(error.code(), 0 | 429 | 500 | 503 | 504)
}
