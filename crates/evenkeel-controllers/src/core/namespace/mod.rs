//! Namespace controller: deletes the content of terminating namespaces, then finalizes them. Upstream:
//! `pkg/controller/namespace`.

mod content;
mod delete;
mod describe;
mod plan;

use crate::{
    options::Periodic,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use delete::{SyncResult, sync_namespace};
use evenkeel_api::{time::Timestamp, views::Namespace};
use evenkeel_runtime::{
    cache::Cache,
    introspect::Description,
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planner, Steps},
    queue::{Backoff, Bucket},
};
use std::{sync::Arc, time::Duration};

/// Backoff of namespaces whose reconciliation failed. Its maximum is shorter than that of other controllers. Upstream:
/// `nsControllerRateLimiter`.
const BACKOFF: Backoff = Backoff {
    base_delay: Duration::from_millis(5),
    max_delay: Duration::from_mins(1),
    // The token bucket of upstream's default rate limiter also limits all namespaces together.
    bucket: Some(Bucket::DEFAULT),
};

/// Options of the controller: the number of namespaces that are reconciled concurrently, by default 10, and the sync
/// period. The sync period is the maximum delay before a terminating namespace is reconciled again. Zero disables the
/// maximum.
pub type Options = Periodic<10>;

/// Names of the flags with the number of workers and with the sync period.
pub(crate) const FLAGS: [&str; 2] = ["concurrent-namespace-syncs", "namespace-sync-period"];

/// The namespace controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "namespace-controller",
    aliases: &["namespace"],
    queue: "namespace",
    client: "namespace-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let namespaces = context.env.caches.of::<Namespace>();
    let Options { concurrent_syncs, sync_period } = context.options.namespace;
    let builder =
        context.builder(&DESCRIPTOR, &namespaces).workers(concurrent_syncs).backoff(BACKOFF);
    let planner = Namespaces { namespaces, sync_period };
    context.run(builder.planned_with(planner, ConditionWarnings { sync_period }));
    Ok(Started::Yes)
}

/// Decides the deletion of a terminating namespace's content, and the namespace's status.
struct Namespaces {
    namespaces: Cache<Namespace>,
    sync_period: Duration,
}

impl Planner for Namespaces {
    type Observed = Arc<Namespace>;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Arc<Namespace>> {
        self.namespaces.get("", &key.name)
    }

    fn plan(&self, namespace: &Arc<Namespace>, (): &(), now: Timestamp) -> (Plan, ()) {
        (self.first_step(namespace, &(), now), ())
    }

    fn next(
        &self,
        namespace: &Arc<Namespace>,
        (): &(),
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Plan> {
        let period = self.sync_period;
        Steps::next(outcomes, |steps| {
            sync_namespace(namespace, period, now, steps).map(|result| result.plan)
        })
    }

    fn describe(&self, namespace: &Arc<Namespace>, now: Timestamp) -> Description {
        describe::describe(namespace, now)
    }
}

/// Logs a warning if the write of a namespace's conditions failed.
struct ConditionWarnings {
    sync_period: Duration,
}

impl PassHandler<Namespaces> for ConditionWarnings {
    fn on_passed(&self, namespace: &Arc<Namespace>, pass: &Pass<'_>) {
        let steps = &mut Steps::of(pass.outcomes);
        let result = sync_namespace(namespace, self.sync_period, pass.planned_at, steps);
        if let Ok(SyncResult { unwritten_conditions: Some(error), .. }) = result {
            let namespace = &*namespace.meta.name;
            tracing::warn!(namespace, error, "Failed to write the conditions of the namespace");
        }
    }
}
