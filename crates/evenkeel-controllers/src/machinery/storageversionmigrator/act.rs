//! Carries migrations out.

use super::{
    Migration,
    custom::{self, MANAGER, Stage},
    name,
    plan::{self, News, Progress},
};
use crate::wire;
use bytes::Bytes;
use evenkeel_api::{Kind, View as _};
use evenkeel_runtime::{
    cache::Cache,
    client::{ApiError, Client, ListOptions, Metadata},
    controller::{Context, Error, Outcome},
    discovery::Resource,
    plan::{Key, PatchForm},
};
use http::{Request, header::ACCEPT};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::GroupResource;
use serde_json::{Value, json};
use std::sync::Arc;

/// What a resource must allow.
const VERBS: [&str; 3] = ["update", "patch", "list"];
/// No namespace has this name: a list of it is short, and tells the version.
const NOWHERE: &str = "@fake:svm_ns!";
/// How many objects are read at a time.
const PAGE: u32 = 500;
/// How often a definition that changes meanwhile is read again.
const TRIES: usize = 5;

/// The controller's eyes.
pub(super) struct Migrator {
    pub(super) migrations: Cache<Migration>,
}

impl Migrator {
    /// Ends what has ended of a resource's migrations, and lets the next one begin.
    pub(super) async fn run_next(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let all = self.migrations.list().into_iter().filter(|migration| {
            resource(migration)
                .is_some_and(|one| one.group == *key.namespace && one.resource == *key.name)
        });
        let turn = plan::turn(all.collect());
        for ended in &turn.ended {
            let well = plan::has_succeeded(ended);
            self.tell_definition(key, context, Stage::Ended { well }).await?;
            self.tell(key, context, ended, News::Over).await?;
        }
        if let Some(next) = &turn.next {
            self.tell_definition(key, context, Stage::Begun(name(next))).await?;
            self.tell(key, context, next, News::Begun).await?;
        }
        Ok(Outcome::Settled)
    }

    /// Notes up to which version objects are to be written again.
    pub(super) async fn note_version(
        &self,
        key: &Key,
        context: &Context,
    ) -> Result<Outcome, Error> {
        let Some(migration) = self.open(key).filter(|one| plan::version(one).is_empty()) else {
            return Ok(Outcome::Settled);
        };
        let Some(found) = self.found(key, context, &migration).await? else {
            return Ok(Outcome::Settled);
        };
        let client = &context.env.client;
        if !VERBS.iter().all(|verb| found.supports_verb(verb)) {
            let Kind { group, version, plural, .. } = &found.kind;
            let words = format!(
                "resource \"{group}/{version}, Resource={plural}\" does not support discovery operations: [{}]",
                VERBS.join(" ")
            );
            self.tell(key, context, &migration, News::Impossible(words)).await?;
            return Ok(Outcome::Settled);
        }
        let namespace = if found.kind.namespaced { NOWHERE } else { "" };
        let options = ListOptions { limit: 1, ..ListOptions::default() };
        let list = client.list_metadata(&found.kind, namespace, &options).await?;
        let version = list.resource_version.to_string();
        self.tell(key, context, &migration, News::Version(version)).await?;
        Ok(Outcome::Settled)
    }

    /// Writes every object that is older again, as it is: the server stores it in today's version.
    pub(super) async fn migrate(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(migration) = self.open(key).filter(|one| !plan::version(one).is_empty()) else {
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
                // It is tried again in any case; that it could not be told is no other failure.
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

    /// The migration, if it is its turn and it has not ended.
    fn open(&self, key: &Key) -> Option<Arc<Migration>> {
        let migration = self.migrations.get("", &key.name)?;
        (plan::is_running(&migration) && !plan::has_ended(&migration)).then_some(migration)
    }

    /// The resource as the server has it; a migration of one that it does not have fails once that is no wonder any more.
    async fn found(
        &self,
        key: &Key,
        context: &Context,
        migration: &Arc<Migration>,
    ) -> Result<Option<Resource>, Error> {
        let Some(wanted) = resource(migration) else { return Ok(None) };
        let found = context.env.client.api_resources().await?;
        let is_it = |one: &&Resource| {
            *one.kind.group == *wanted.group && *one.kind.plural == *wanted.resource
        };
        if let Some(found) = found.preferred().find(is_it) {
            return Ok(Some(found.clone()));
        }
        if plan::is_new(migration, context.env.clock.now()) {
            let text = "resource does not exist in our rest mapper, requeuing to attempt again";
            return Err(Error::message(text));
        }
        let words = "resource does not exist in discovery".to_owned();
        self.tell(key, context, migration, News::Impossible(words)).await?;
        Ok(None)
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

    /// Tells the resource's definition, if it is a custom one.
    async fn tell_definition(
        &self,
        key: &Key,
        context: &Context,
        stage: Stage<'_>,
    ) -> Result<(), Error> {
        let client = &context.env.client;
        let of = definitions();
        let definition = format!("{}.{}", key.name, key.namespace);
        let mut tries = 0;
        loop {
            let Some(live) = live(client, &of, &definition).await? else { return Ok(()) };
            let body = custom::status(&live, stage, context.env.clock.now()).to_string();
            let form = PatchForm::Apply(MANAGER);
            let answer =
                client.patch::<Metadata>(&of, "", &definition, "status", form, body.into()).await;
            tries += 1;
            match answer {
                Ok(_) => return Ok(()),
                Err(error) if error.is_conflict() && tries < TRIES => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn resource(migration: &Migration) -> Option<&GroupResource> {
    migration.spec.as_ref().map(|spec| &spec.resource)
}

fn definitions() -> Kind {
    let (kind, plural) = ("CustomResourceDefinition", "customresourcedefinitions");
    Kind::new("apiextensions.k8s.io", "v1", kind, plural, false)
}

async fn live(client: &Client, kind: &Kind, name: &str) -> Result<Option<Value>, Error> {
    let path = format!("{}/{name}", kind.path(""));
    let request = Request::get(path).header(ACCEPT, "application/json").body(Bytes::new())?;
    match client.raw(request).await {
        Ok(answer) => Ok(Some(evenkeel_api::json::from_slice(answer.body())?)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
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
