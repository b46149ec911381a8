//! Persistent volume controller: binds claims to volumes, requests provisioning for claims without a volume, and
//! reclaims the volumes of deleted claims.
//!
//! Upstream: `pkg/controller/volume/persistentvolume`.

mod claims;
mod host_path;
mod metrics;
mod options;
mod plan;
mod volumes;

pub use options::{Options, Recycling};

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::views::{PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};
use evenkeel_component_helpers::storage;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    plan::{Key, Local},
};
use futures::future::BoxFuture;
use metrics::Metrics;
use std::{io, sync::Arc};

/// Descriptor of the persistent volume controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "persistentvolume-binder-controller",
    aliases: &["persistentvolume-binder"],
    queue: "claims",
    client: "persistent-volume-binder",
    start,
    ..Descriptor::DEFAULTS
};

/// Reporting component of the controller's events.
const REPORTING_COMPONENT: &str = "persistentvolume-controller";

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let binder = Arc::new(Binder::new(context));
    binder.metrics.register_counts(&context.registry, &binder);
    claims::start(context, &binder);
    volumes::start(context, &binder);
    Ok(Started::Yes)
}

/// Creates or removes the folder of a hostPath volume, as a local action requests.
fn run_folder_action(local: &Local) -> BoxFuture<'static, Result<(), String>> {
    let work = local.work;
    let path = local.subject.clone();
    Box::pin(async move {
        let result = match work {
            host_path::MAKE_FOLDER => tokio::fs::create_dir_all(path).await,
            host_path::REMOVE_FOLDER => {
                tokio::fs::remove_dir_all(path).await.or_else(ignore_not_found)
            }
            other => Err(io::Error::other(format!("unknown local action: {other}"))),
        };
        result.map_err(|error| error.to_string())
    })
}

/// Turns the error that a folder does not exist into a success.
fn ignore_not_found(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Caches and indexes that the controllers of claims and of volumes share.
struct Binder {
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
    pods: Cache<Pod>,
    /// Volumes without a `claimRef`, by class.
    unclaimed_volumes: Index<PersistentVolume>,
    /// Volumes with a `claimRef`, by the `namespace/name` of the claim.
    volumes_by_claim: Index<PersistentVolume>,
    /// Claims without the annotation `bind-completed`, by class.
    unbound_claims: Index<PersistentVolumeClaim>,
    /// Claims by `spec.volumeName`, bound or not.
    claims_by_volume: Index<PersistentVolumeClaim>,
    /// Pods by the `namespace/name` of the claims that they use.
    pods_by_claim: Index<Pod>,
    options: Options,
    metrics: Metrics,
}

impl Binder {
    fn new(context: &ControllerContext) -> Self {
        let caches = &context.env.caches;
        let claims = caches.of::<PersistentVolumeClaim>();
        let volumes = caches.of::<PersistentVolume>();
        let classes = caches.of::<StorageClass>();
        let pods = caches.of::<Pod>();
        Self {
            unclaimed_volumes: volumes.index("unclaimed volumes", |volume, key| {
                if volume.spec.claim_ref.is_none() {
                    key(storage::volume::class_of_volume(volume));
                }
            }),
            volumes_by_claim: volumes.index("volumes by claim", |volume, key| {
                if let Some(claim) = volume.spec.claim_ref.as_deref() {
                    key(&storage::claims::key(&claim.namespace, &claim.name));
                }
            }),
            unbound_claims: claims.index("unbound claims", |claim, key| {
                if !claim.meta.annotations.contains(storage::volume::BIND_COMPLETED) {
                    key(storage::volume::class_of_claim(claim));
                }
            }),
            claims_by_volume: claims.index("volume", |claim, key| {
                if !claim.spec.volume_name.is_empty() {
                    key(&claim.spec.volume_name);
                }
            }),
            pods_by_claim: pods.index("claim", storage::claims::keys_of_pod),
            metrics: Metrics::new(&context.registry),
            options: context.options.binder.clone(),
            claims,
            volumes,
            classes,
            pods,
        }
    }

    /// Returns the claims to enqueue for a volume event: the claims in its old and new `claimRef`, the claims whose
    /// `volumeName` is the volume, and the unbound claims that may be bound to it. If a volume reappears without a
    /// `claimRef`, the claim in phase Lost still names the volume in `volumeName`.
    fn claims_to_enqueue(&self, event: &CacheEvent<PersistentVolume>) -> Vec<Key> {
        let volume = event.object();
        let old = if let CacheEvent::Updated { old, .. } = event { Some(old) } else { None };
        let versions = [Some(volume), old].into_iter().flatten();
        let mut keys: Vec<Key> = versions
            .filter_map(|volume| volume.spec.claim_ref.as_deref())
            .map(|claim| Key::new(&claim.namespace, &claim.name))
            .collect();
        let claims_naming_volume = self.claims_by_volume.get(&volume.meta.name);
        keys.extend(claims_naming_volume.iter().map(|claim| Key::of(&claim.meta)));
        let is_available = |volume: &PersistentVolume| {
            volume.spec.claim_ref.is_none() && &*volume.status.phase == "Available"
        };
        let became_available = is_available(volume) && !old.is_some_and(|old| is_available(old));
        let is_new = matches!(event, CacheEvent::Added { .. });
        if is_new || became_available {
            let unbound = self.unbound_claims.get(storage::volume::class_of_volume(volume));
            keys.extend(unbound.iter().map(|claim| Key::of(&claim.meta)));
        }
        // The versions of the volume and the claim usually name each other, so their keys are adjacent. The work queue
        // merges other duplicates.
        keys.dedup();
        keys
    }

    /// Returns the volumes to enqueue for a claim event: the volumes in its old and new `volumeName`, and the volumes
    /// whose `claimRef` is the claim. Upstream enqueues the latter only in its periodic `resync`.
    fn volumes_to_enqueue(&self, event: &CacheEvent<PersistentVolumeClaim>) -> Vec<Key> {
        let claim = event.object();
        let old = if let CacheEvent::Updated { old, .. } = event { Some(old) } else { None };
        let is_irrelevant_update = old.is_some_and(|old| {
            old.meta.uid == claim.meta.uid && old.spec.volume_name == claim.spec.volume_name
        });
        if is_irrelevant_update {
            return Vec::new();
        }
        let versions = [Some(claim), old].into_iter().flatten();
        let names = versions.map(|claim| &claim.spec.volume_name).filter(|name| !name.is_empty());
        let mut keys: Vec<Key> = names.map(|name| Key::new("", name)).collect();
        let claim_key = storage::claims::key(&claim.meta.namespace, &claim.meta.name);
        let volumes_with_claim_ref = self.volumes_by_claim.get(&claim_key);
        keys.extend(volumes_with_claim_ref.iter().map(|volume| Key::of(&volume.meta)));
        keys
    }

    /// Returns the claims to enqueue for a class event: the claims of the class, and the claims that set no class.
    fn claims_to_enqueue_for_class(&self, class: &StorageClass) -> Vec<Key> {
        let of_class = self.unbound_claims.get(&class.meta.name);
        // The index cannot distinguish claims that set no class from those that set the empty class.
        let of_no_class = self.unbound_claims.get("");
        let set_no_class = of_no_class.iter().filter(|claim| !storage::volume::names_class(claim));
        of_class.iter().chain(set_no_class).map(|claim| Key::of(&claim.meta)).collect()
    }
}
