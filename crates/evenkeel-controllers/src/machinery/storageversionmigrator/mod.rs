//! Has objects written again in the version in which the server stores them now: one migration of a resource at a time.
//!
//! Three parts work together, as upstream's do: one lets the oldest migration of a resource run (and tells its custom
//! resource), one notes up to which version there is something to do, one does it. Upstream: KEP-4192,
//! `pkg/controller/storageversionmigrator`.

mod act;
mod custom;
mod plan;

use crate::{
    needs::Resource,
    wiring::descriptor::{ControllerContext, Descriptor, StartError},
};
use act::Migrator;
use evenkeel_api::{Kind, View as _};
use evenkeel_runtime::{
    cache::Full,
    controller::{Builder, Context, Error, Outcome, Request},
    plan::Key,
};
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use std::sync::Arc;

/// A migration, whole: it is written back so.
type Migration = Full<StorageVersionMigration>;

/// How many migrations are under way at a time; no flag changes it.
const WORKERS: usize = 5;

/// Descriptor of the storage version migrator.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "storage-version-migrator-controller",
    aliases: &["svm"],
    queue: "storage-version-migrator-controller",
    client: "storage-version-migrator-controller",
    gates: &["StorageVersionMigrator"],
    resources: &[Resource {
        group: "storagemigration.k8s.io",
        version: "v1",
        plural: "storageversionmigrations",
    }],
    start,
    ..Descriptor::ORDINARY
};

/// Queue of upstream's two helpers.
const HELPERS: &str = "resource-version-controller";

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let migrations = context.env.caches.of::<Migration>();
    let migrator = Arc::new(Migrator { migrations: migrations.clone() });
    let client = context.client(&DESCRIPTOR);
    let shared = |builder: Builder| builder.client(client.clone()).component(DESCRIPTOR.client);
    // A key of the first part is a resource: its group in the namespace's place.
    let none = Kind::new("", "", "", "", false);
    let runner = Builder::of_keys(&context.env, "migration-runner-controller", none).watches(
        &migrations,
        |event, enqueue| {
            let resource = &event.object().spec.as_ref().map(|spec| spec.resource.clone());
            if let Some(resource) = resource {
                enqueue.add(Key::new(&resource.group, &resource.resource));
            }
        },
    );
    run(
        context,
        shared(runner.queue(HELPERS)),
        &migrator,
        |migrator, request, context| async move { migrator.run_next(&request.key, &context).await },
    );
    let versions = Builder::new(&context.env, "resource-version-controller", &migrations);
    run(
        context,
        shared(versions.queue(HELPERS)),
        &migrator,
        |migrator, request, context| async move { migrator.note_version(&request.key, &context).await },
    );
    let migrating = context.builder(&DESCRIPTOR, &migrations).workers(WORKERS);
    run(context, migrating, &migrator, |migrator, request, context| async move {
        migrator.migrate(&request.key, &context).await
    });
    Ok(())
}

fn run<F, Fut>(context: &ControllerContext, builder: Builder, migrator: &Arc<Migrator>, part: F)
where
    F: Fn(Arc<Migrator>, Request, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, Error>> + Send + 'static,
{
    let (migrator, explained) = (Arc::clone(migrator), Arc::clone(migrator));
    let builder = builder.explains(move |key, _| {
        let migration = explained.migrations.get("", &key.name)?;
        Some((plan::describe(&migration), Vec::new()))
    });
    context.run(
        builder.reconcile(move |request, context| part(Arc::clone(&migrator), request, context)),
    );
}

/// A migration's name.
fn name(migration: &Migration) -> &str {
    &migration.meta().name
}
