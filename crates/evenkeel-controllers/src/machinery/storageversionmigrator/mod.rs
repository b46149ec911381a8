//! Storage version migrator: rewrites objects in the current storage version. At any time, at most one migration of a
//! resource runs.
//!
//! It has three parts, as in upstream. The first starts the oldest migration of a resource, and updates the status of
//! its CustomResourceDefinition. The second records the resource version up to which objects are migrated. The third
//! rewrites the objects. Upstream: `pkg/controller/storageversionmigrator` (KEP-4192).

mod act;
mod custom;
mod plan;
mod steps;

use crate::{
    needs::Resource,
    newer_kinds::StorageVersionMigration,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use act::Migrator;
use evenkeel_api::{Kind, View as _, time::Timestamp};
use evenkeel_runtime::{
    cache::{Cache, Full},
    controller::Builder,
    introspect::Description,
    plan::{Key, Outcomes, Plan, Planner},
};
use std::sync::Arc;
use steps::ResourceMigrations;

/// A migration with all fields, because the controller updates the whole object.
type Migration = Full<StorageVersionMigration>;

/// Maximum number of concurrent migrations. No flag changes it.
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
    ..Descriptor::DEFAULTS
};

/// Queue name in metrics of the first two parts. They have the same name in upstream.
const HELPER_QUEUE: &str = "resource-version-controller";

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let migrations = context.env.caches.of::<Migration>();
    let client = context.client(&DESCRIPTOR);
    let with_client =
        |builder: Builder| builder.client(client.clone()).component(DESCRIPTOR.client);
    // The keys of this part are resources, not objects (see `Runner`), so they have no kind.
    let no_kind = Kind::new("", "", "", "", false);
    let runner = Builder::of_keys(&context.env, "migration-runner-controller", no_kind).watches(
        &migrations,
        |event, enqueue| {
            if let Some(resource) = plan::resource(event.object()) {
                enqueue.add(Key::new(&resource.group, &resource.resource));
            }
        },
    );
    let runner = with_client(runner.queue(HELPER_QUEUE));
    context.run(runner.planned(Runner { migrations: migrations.clone() }));
    let versions = Builder::new(&context.env, "resource-version-controller", &migrations);
    let versions = with_client(versions.queue(HELPER_QUEUE));
    context.run(versions.planned(Versions { migrations: migrations.clone() }));
    let explained_migrations = migrations.clone();
    let migrating =
        context.builder(&DESCRIPTOR, &migrations).workers(WORKERS).explains(move |key, _| {
            let migration = explained_migrations.get("", &key.name)?;
            Some((plan::describe(&migration), Vec::new()))
        });
    let migrator = Arc::new(Migrator { migrations });
    context.run(migrating.reconcile(move |request, context| {
        let migrator = Arc::clone(&migrator);
        async move { migrator.migrate(&request.key, &context).await }
    }));
    Ok(Started::Yes)
}

/// Planner that starts migrations. The name of a key is a resource, and the namespace is the group of the resource.
struct Runner {
    migrations: Cache<Migration>,
}

impl Planner for Runner {
    type Observed = ResourceMigrations;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<ResourceMigrations> {
        let mut migrations = self.migrations.list();
        migrations.retain(|migration| {
            plan::resource(migration).is_some_and(|resource| {
                resource.group == *key.namespace && resource.resource == *key.name
            })
        });
        Some(ResourceMigrations {
            definition: format!("{}.{}", key.name, key.namespace),
            migrations,
        })
    }

    fn plan(&self, observed: &ResourceMigrations, (): &(), now: Timestamp) -> (Plan, ()) {
        (self.first_step(observed, &(), now), ())
    }

    fn next(
        &self,
        observed: &ResourceMigrations,
        (): &(),
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Plan> {
        steps::start_next(observed, outcomes, now)
    }
}

/// Planner that records the resource versions of migrations.
struct Versions {
    migrations: Cache<Migration>,
}

impl Planner for Versions {
    type Observed = Arc<Migration>;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Arc<Migration>> {
        self.migrations.get("", &key.name)
    }

    fn plan(&self, migration: &Arc<Migration>, (): &(), now: Timestamp) -> (Plan, ()) {
        (self.first_step(migration, &(), now), ())
    }

    fn next(
        &self,
        migration: &Arc<Migration>,
        (): &(),
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Plan> {
        steps::record_version(migration, outcomes, now)
    }

    fn describe(&self, migration: &Arc<Migration>, _: Timestamp) -> Description {
        plan::describe(migration)
    }
}

/// Returns a migration's name.
fn name(migration: &Migration) -> &str {
    &migration.meta().name
}
