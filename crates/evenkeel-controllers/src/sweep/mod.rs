//! Periodic deletion of the expired objects of a kind, for several controllers.

mod plan;

use crate::wiring::descriptor::{ControllerContext, Descriptor};
use evenkeel_api::{View, time::Timestamp};
use evenkeel_runtime::{
    cache::Cache,
    controller::Periodic,
    plan::{Key, PassHandler, Plan, Planned, Planner},
};
use plan::ExpirationReason;
use std::{sync::Arc, time::Duration};

/// Planner that periodically deletes the expired objects of a kind.
pub(crate) struct Sweep<V> {
    objects: Cache<V>,
    expiration_reason: ExpirationReason<V>,
}

impl<V: View> Sweep<V> {
    /// Starts the controller, which runs once in each period.
    pub(crate) fn start(
        context: &ControllerContext,
        descriptor: &Descriptor,
        period: Duration,
        expiration_reason: ExpirationReason<V>,
    ) {
        let objects = context.env.caches.of::<V>();
        let passes = Periodic::new(&context.env, descriptor.name)
            .reads(&objects)
            .client(context.client(descriptor));
        let planner = Self { objects, expiration_reason };
        passes.planned(&context.tasks, period, planner, LogExpired(expiration_reason));
    }
}

impl<V: View> Planner for Sweep<V> {
    type Observed = Vec<Arc<V>>;
    type Memory = ();

    fn observe(&self, _: &Key, (): &()) -> Option<Vec<Arc<V>>> {
        Some(self.objects.list())
    }

    fn plan(&self, objects: &Vec<Arc<V>>, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(objects, self.expiration_reason, now), ())
    }
}

/// Logs each deleted object with the reason.
struct LogExpired<V>(ExpirationReason<V>);

impl<V: View> PassHandler<Sweep<V>> for LogExpired<V> {
    fn on_planned(&self, objects: &Vec<Arc<V>>, planned: Planned<'_, ()>) {
        for object in objects {
            let Self(expiration_reason) = self;
            if let Some(why) = expiration_reason(object, planned.at) {
                let meta = object.meta();
                let kind = V::kind().kind;
                let namespace = &*meta.namespace;
                let name = &*meta.name;
                tracing::info!(%kind, namespace, name, why, "Deleting the expired object");
            }
        }
    }
}
