//! Periodic pass over all objects of a kind that deletes expired ones.

use crate::wiring::descriptor::{ControllerContext, Descriptor};
use evenkeel_api::{View, time::Timestamp};
use evenkeel_runtime::{
    cache::Cache,
    client::{Client, DeleteOptions},
    clock::Clock,
    controller::Periodic,
};
use std::{sync::Arc, time::Duration};

/// A pass over the objects of a kind.
pub(super) struct Sweep<V> {
    pub(super) objects: Cache<V>,
    pub(super) client: Client,
    pub(super) clock: Clock,
    /// Returns why an object is deleted, if it is.
    pub(super) due: fn(&V, Timestamp) -> Option<&'static str>,
}

impl<V: View> Sweep<V> {
    /// Runs a pass in each period.
    pub(super) fn start(self, context: &ControllerContext, of: &Descriptor, period: Duration) {
        let passes = Periodic::new(&context.env, of.name).reads(&self.objects);
        let this = Arc::new(self);
        passes.every(&context.tasks, period, move || {
            let this = Arc::clone(&this);
            async move { this.pass().await }
        });
    }

    async fn pass(&self) {
        let now = self.clock.now();
        for object in self.objects.list() {
            if let Some(why) = (self.due)(&object, now) {
                self.delete(&object, why).await;
            }
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
