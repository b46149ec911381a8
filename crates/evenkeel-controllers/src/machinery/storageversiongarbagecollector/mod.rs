//! Storage version garbage collector: removes the entries of API servers that no longer exist from StorageVersions, and deletes
//! a StorageVersion without entries.
//!
//! It has two queues, as in upstream. Keys of the first are deleted identity leases of API servers. Keys of the second
//! are StorageVersions with an entry whose lease is not in the cache. Upstream: `pkg/controller/storageversiongc`.

mod plan;

use crate::{
    needs::Resource,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{View as _, time::Timestamp, views::Lease};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Full},
    controller::Builder,
    introspect::Description,
    plan::{Key, Outcomes, Plan, Planner},
};
use k8s_openapi::api::apiserverinternal::v1alpha1;
use plan::Observed;
use std::sync::Arc;

/// A StorageVersion with all fields, because the controller updates the whole object.
type StorageVersion = Full<v1alpha1::StorageVersion>;

/// Descriptor of the storage version garbage collector.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "storageversion-garbage-collector-controller",
    aliases: &["storage-version-gc"],
    queue: "storage_version_garbage_collector_storageversions",
    client: "storage-version-garbage-collector",
    gates: &["APIServerIdentity", "StorageVersionAPI"],
    resources: &[Resource {
        group: "internal.apiserver.k8s.io",
        version: "v1alpha1",
        plural: "storageversions",
    }],
    start,
    ..Descriptor::DEFAULTS
};

/// Queue name of deleted leases in metrics.
const LEASE_QUEUE: &str = "storage_version_garbage_collector_leases";

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let versions = context.env.caches.of::<StorageVersion>();
    let leases = context.env.caches.of::<Lease>();
    let deleted_leases =
        Builder::of_keys(&context.env, "storageversion-lease-controller", Lease::kind())
            .queue(LEASE_QUEUE)
            .client(context.client(&DESCRIPTOR))
            .component(DESCRIPTOR.client)
            .watches(&leases, |event, enqueue| {
                if let CacheEvent::Deleted(lease) = event
                    && plan::is_identity_lease(&lease.meta)
                {
                    enqueue.add(Key::of(&lease.meta));
                }
            })
            .reads(&versions);
    context.run(deleted_leases.planned(DeletedLeases));
    let cached_leases = leases.clone();
    let builder = context
        .builder_watching(&DESCRIPTOR, &versions, move |event, enqueue| {
            let is_deleted = matches!(event, CacheEvent::Deleted(_));
            if !is_deleted && !unknown_servers(event.object(), &cached_leases).is_empty() {
                enqueue.add(Key::of(event.object().meta()));
            }
        })
        .reads(&leases);
    context.run(builder.planned(StorageVersions { versions, leases }));
    Ok(Started::Yes)
}

/// Returns the API servers of a StorageVersion without an identity lease in the cache. Upstream: `enqueueStorageVersion`.
fn unknown_servers(version: &StorageVersion, leases: &Cache<Lease>) -> Vec<String> {
    let is_known = |id: &str| {
        let lease = leases.get(plan::LEASE_NAMESPACE, id);
        lease.is_some_and(|lease| plan::is_identity_lease(&lease.meta))
    };
    plan::servers(version).filter(|id| !is_known(id)).map(str::to_owned).collect()
}

/// Removes the StorageVersion entries of an API server whose identity lease was deleted.
struct DeletedLeases;

impl Planner for DeletedLeases {
    type Observed = Arc<str>;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Arc<str>> {
        Some(Arc::clone(&key.name))
    }

    fn plan(&self, lease: &Arc<str>, (): &(), now: Timestamp) -> (Plan, ()) {
        (self.first_step(lease, &(), now), ())
    }

    fn next(&self, lease: &Arc<str>, (): &(), outcomes: &Outcomes, now: Timestamp) -> Option<Plan> {
        plan::remove_server(lease, outcomes, now)
    }
}

/// Removes the entries of a StorageVersion whose API servers have no identity lease.
struct StorageVersions {
    versions: Cache<StorageVersion>,
    leases: Cache<Lease>,
}

impl Planner for StorageVersions {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let version = self.versions.get("", &key.name)?;
        let unknown_servers = unknown_servers(&version, &self.leases);
        Some(Observed { name: Arc::clone(&key.name), unknown_servers })
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (self.first_step(observed, &(), now), ())
    }

    fn next(
        &self,
        observed: &Observed,
        (): &(),
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Plan> {
        plan::remove_unknown_servers(observed, outcomes, now)
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        plan::describe(observed)
    }
}
