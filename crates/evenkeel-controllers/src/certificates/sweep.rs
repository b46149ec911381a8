//! Periodic pass over all objects of a kind that deletes expired ones.

use evenkeel_api::{View, time::Timestamp};
use evenkeel_runtime::{
    cache::Cache,
    client::{Client, DeleteOptions},
    clock::Clock,
};
use std::{sync::Arc, time::Duration};

/// A pass and its period.
pub(super) struct Sweep<V> {
    pub(super) objects: Cache<V>,
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) period: Duration,
    /// Returns why an object is deleted, if it is.
    pub(super) due: fn(&V, Timestamp) -> Option<&'static str>,
}

impl<V: View> Sweep<V> {
    /// Runs passes until the future is dropped.
    pub(super) async fn run(self) {
        self.objects.synced().await;
        loop {
            let now = self.clock.now();
            for object in self.objects.list() {
                if let Some(why) = (self.due)(&object, now) {
                    self.delete(&object, why).await;
                }
            }
            self.clock.sleep(self.period).await;
        }
    }

    async fn delete(&self, object: &Arc<V>, why: &'static str) {
        let (meta, kind) = (object.meta(), self.objects.kind());
        let (namespace, name) = (&*meta.namespace, &*meta.name);
        tracing::info!(kind = %kind.kind, namespace, name, why, "Deleting the expired object");
        let options = DeleteOptions { uid: meta.uid.to_string(), ..DeleteOptions::default() };
        match self.client.delete(kind, namespace, name, &options).await {
            Err(error) if !error.is_not_found() && !error.is_other_uid() => {
                // The next pass tries again.
                tracing::warn!(kind = %kind.kind, namespace, name, %error, "Failed to delete the expired object");
            }
            _ => {}
        }
    }
}
