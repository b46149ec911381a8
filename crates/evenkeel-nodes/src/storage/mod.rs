//! Simulated storage: provisions, resizes, deletes and attaches volumes without storing data. It replaces the external
//! provisioner, resizer and attacher of a CSI driver.

mod plan;
#[cfg(test)]
mod tests;

use evenkeel_api::{
    Kind, View,
    views::{CsiDriver, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment},
};
use evenkeel_component_helpers::storage::volume;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Caches, Index},
    client::{ApiError, Client, DeleteOptions, Metadata},
    clock::Clock,
    events::EventRecorder,
    plan::{Key, PatchType},
    queue::{Priority, Queue},
    tasks::Tasks,
};
use plan::Write;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Name of the CSI driver and of the provisioner.
pub const DRIVER: &str = "csi.sim.evenkeel.dev";

/// Number of workers; they share one queue of claims, volumes and attachments.
const WORKERS: usize = 4;

/// Options of the simulated storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageOptions {
    /// Name of the default StorageClass to create; empty for none.
    pub class: String,
    /// Whether the driver requires volumes to be attached (`attachRequired`).
    pub attach: bool,
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self { class: "standard".to_owned(), attach: false }
    }
}

/// Key in the queue: the kind and key of the object to sync.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum QueueKey {
    Claim(Key),
    Volume(Key),
    Attachment(Key),
}

/// Controller of the simulated storage.
pub(crate) struct Storage {
    client: Client,
    clock: Clock,
    recorder: EventRecorder,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
    attachments: Cache<VolumeAttachment>,
    /// Claims by the name of their StorageClass.
    claims_by_class: Index<PersistentVolumeClaim>,
    queue: Queue<QueueKey>,
}

impl Storage {
    /// Starts the controller, which also creates the StorageClass and the CSIDriver.
    pub(crate) fn start(
        client: &Client,
        caches: &Caches,
        clock: &Clock,
        options: StorageOptions,
        tasks: &Tasks,
    ) {
        let recorder = EventRecorder::new(client.clone(), DRIVER, clock.clone());
        recorder.start(tasks);
        let claims = caches.of::<PersistentVolumeClaim>();
        let storage = Arc::new(Self {
            client: client.clone(),
            clock: clock.clone(),
            recorder,
            volumes: caches.of(),
            classes: caches.of(),
            attachments: caches.of(),
            claims_by_class: claims.index("class", |claim, key| key(volume::class_of_claim(claim))),
            claims,
            queue: Queue::unnamed(clock),
        });
        storage.subscribe();
        let setup_storage = Arc::clone(&storage);
        let created = CancellationToken::new();
        tasks.spawn_restarting_until("storage setup", &created.clone(), move || {
            let (storage, options, created) =
                (Arc::clone(&setup_storage), options.clone(), created.clone());
            async move {
                storage.create_objects(&options).await;
                created.cancel();
            }
        });
        for _ in 0..WORKERS {
            let storage = Arc::clone(&storage);
            tasks.spawn_restarting_until_cancelled("storage workers", move || {
                let storage = Arc::clone(&storage);
                async move { storage.work().await }
            });
        }
    }

    /// Enqueues objects when they change, and the claims of a StorageClass when the class changes.
    fn subscribe(self: &Arc<Self>) {
        let add = |queue: &Queue<QueueKey>, queue_key, initial| {
            queue.add(queue_key, if initial { Priority::LOW } else { Priority::NORMAL });
        };
        let queue = self.queue.clone();
        self.claims.subscribe(move |event| {
            if let Some((key, initial)) = existing_key(event) {
                add(&queue, QueueKey::Claim(key), initial);
            }
        });
        let queue = self.queue.clone();
        self.volumes.subscribe(move |event| {
            if let Some((key, initial)) = existing_key(event) {
                add(&queue, QueueKey::Volume(key), initial);
            }
        });
        let queue = self.queue.clone();
        self.attachments.subscribe(move |event| {
            if let Some((key, initial)) = existing_key(event) {
                add(&queue, QueueKey::Attachment(key), initial);
            }
        });
        let (queue, claims) = (self.queue.clone(), self.claims_by_class.clone());
        self.classes.subscribe(move |event| {
            for claim in claims.get(&event.object().meta.name) {
                add(&queue, QueueKey::Claim(Key::of(&claim.meta)), false);
            }
        });
    }

    /// Creates the StorageClass and the CSIDriver unless they exist. Retries errors after 100 ms, doubled up to 10 s.
    async fn create_objects(&self, options: &StorageOptions) {
        let mut objects = vec![(CsiDriver::kind(), plan::csi_driver(options.attach))];
        if !options.class.is_empty() {
            objects.push((StorageClass::kind(), plan::storage_class(&options.class)));
        }
        for (kind, object) in objects {
            let mut retry_delay = std::time::Duration::from_millis(100);
            loop {
                let created = self.client.create::<Metadata>(&kind, "", object.to_string().into());
                match created.await {
                    Err(error) if !error.is_already_exists() => {
                        tracing::debug!(kind = %kind.kind, %error, "Object of the storage not made");
                        self.clock.sleep(retry_delay).await;
                        retry_delay = (retry_delay * 2).min(std::time::Duration::from_secs(10));
                    }
                    _ => break,
                }
            }
        }
    }

    /// Syncs objects until the queue is shut down.
    async fn work(&self) {
        while let Some(queue_key) = self.queue.next().await {
            let work = async {
                match self.sync(&queue_key).await {
                    Ok(()) => self.queue.forget(&queue_key),
                    Err(error) => {
                        tracing::debug!(item = ?queue_key, %error, "Storage not changed");
                        self.queue.add_rate_limited(queue_key.clone());
                    }
                }
            };
            self.queue.process(&queue_key, work).await;
        }
    }

    /// Syncs one object; does nothing if it no longer exists.
    async fn sync(&self, queue_key: &QueueKey) -> Result<(), ApiError> {
        let writes = match queue_key {
            QueueKey::Claim(key) => {
                let Some(claim) = self.claims.get(&key.namespace, &key.name) else { return Ok(()) };
                let class = self.classes.get("", volume::class_of_claim(&claim));
                let volume = self.volumes.get("", &plan::volume_name(&claim));
                plan::sync_claim(&claim, class.as_deref(), volume.as_deref())
            }
            QueueKey::Volume(key) => {
                let volume = self.volumes.get("", &key.name);
                volume.map_or_else(Vec::new, |volume| plan::sync_volume(&volume))
            }
            QueueKey::Attachment(key) => {
                let attachment = self.attachments.get("", &key.name);
                attachment.map_or_else(Vec::new, |attachment| plan::sync_attachment(&attachment))
            }
        };
        for write in writes {
            self.execute(write).await?;
        }
        Ok(())
    }

    /// Sends one write, and records its events.
    async fn execute(&self, write: Write) -> Result<(), ApiError> {
        match write {
            Write::Create { kind, body, events } => {
                self.record_events(&events[..1]);
                match self.client.create::<Metadata>(&kind, "", body.to_string().into()).await {
                    // An earlier sync has created the volume, but the claim is not bound to it yet.
                    Err(error) if error.is_already_exists() => {}
                    created => {
                        created?;
                        self.record_events(&events[1..]);
                    }
                }
            }
            Write::Patch { target, subresource, body } => {
                let (kind, namespace, name) = (&target.kind, &target.namespace, &target.name);
                let body = body.to_string().into();
                let patched = self
                    .client
                    .patch::<Metadata>(kind, namespace, name, subresource, PatchType::Merge, body)
                    .await;
                ignore_not_found(patched.map(drop))?;
            }
            Write::Delete(target) => {
                let options =
                    DeleteOptions { uid: target.uid.to_string(), ..DeleteOptions::default() };
                let kind: &Kind = &target.kind;
                let deleted = self.client.delete(kind, "", &target.name, &options).await;
                ignore_not_found(deleted.map(drop))?;
            }
        }
        Ok(())
    }

    fn record_events(&self, events: &[evenkeel_runtime::plan::EventRecord]) {
        events.iter().for_each(|event| self.recorder.record(event));
    }
}

/// Returns success for the error that an object does not exist.
fn ignore_not_found(result: Result<(), ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        result => result,
    }
}

/// Returns the key of an event's object, and whether the event comes from the initial list; `None` for a deletion.
fn existing_key<V: View>(event: &CacheEvent<V>) -> Option<(Key, bool)> {
    match event {
        CacheEvent::Added { object, initial } => Some((Key::of(object.meta()), *initial)),
        CacheEvent::Updated { new, .. } => Some((Key::of(new.meta()), false)),
        CacheEvent::Deleted(_) => None,
    }
}
