//! Service controller: load balancers of services.
//!
//! Upstream: `k8s.io/cloud-provider/controllers/service`. Upstream handles update events. This controller compares
//! the present state with the last state that this process applied. Changes of nodes and of the service can
//! therefore share one queue.

mod changes;
mod hosts;
mod metrics;
mod plan;
#[cfg(test)]
mod tests;

use crate::{
    CloudContext, CloudError, CloudProvider, Descriptor, LoadBalancer, StartError, context::Started,
};
use evenkeel_api::views::{Node, Service};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::{Context, Error, Outcome},
    plan::{Failure, Key, Plan},
    queue::{Backoff, Priority},
};
use hosts::Hosts;
use metrics::Metrics;
use plan::{Decision, LastApplied};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Descriptor of the service controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "service-lb-controller",
    aliases: &["service"],
    queue: "service",
    client: "service-controller",
    component: "service-controller",
    is_supported: |provider| provider.load_balancer().is_some(),
    start,
};

/// Backoff of failed calls to the cloud: 5 s to 300 s.
const BACKOFF: Backoff = Backoff {
    base_delay: Duration::from_secs(5),
    max_delay: Duration::from_secs(300),
    bucket: None,
};

/// Key of the queue of changes of nodes.
const ALL_NODES: &str = "nodes";

fn start(context: &CloudContext) -> Result<Started, StartError> {
    if context.provider.load_balancer().is_none() {
        tracing::error!(
            "Failed to start service controller: the cloud provider does not support external load balancers"
        );
        return Ok(Started::No);
    }
    let caches = &context.env.caches;
    let (services, nodes) = (caches.of::<Service>(), caches.of::<Node>());
    let shared = Arc::new(Services {
        provider: Arc::clone(&context.provider),
        cluster: context.options.cluster.clone(),
        services: services.clone(),
        nodes: nodes.clone(),
        last_applied: Mutex::default(),
        metrics: Metrics::new(&context.registry),
    });
    let state = Arc::clone(&shared);
    let controller = context
        .watching(&DESCRIPTOR, &services, |event, enqueue| {
            let needs_sync = match event {
                CacheEvent::Added { object, .. } => plan::needs_sync(None, object),
                CacheEvent::Updated { old, new } => plan::needs_sync(Some(old), new),
                CacheEvent::Deleted(_) => true,
            };
            if needs_sync {
                enqueue.add(Key::of(&event.object().meta));
            }
        })
        .backoff(BACKOFF)
        .workers(context.options.service_workers)
        .reads(&nodes)
        .reconcile(move |request, context| {
            let services = Arc::clone(&state);
            async move { services.reconcile(&request.key, &context).await }
        });
    let queue = controller.queue();
    let node_controller = context
        .of_keys(&Descriptor { name: "service-lb-controller-nodes", queue: "node", ..DESCRIPTOR })
        .watches(&nodes, |event, enqueue| {
            let needs_sync = match event {
                CacheEvent::Added { .. } | CacheEvent::Deleted(_) => true,
                CacheEvent::Updated { old, new } => hosts::should_sync_updated_node(old, new),
            };
            // One key for all nodes: a pass compares the hosts of all services with all nodes, however many changed.
            if needs_sync {
                enqueue.add(Key::new("", ALL_NODES));
            }
        })
        .reconcile(move |_, context| {
            for key in shared.services_with_other_hosts(context.env.clock.instant()) {
                queue.add(key, Priority::NORMAL);
            }
            async { Ok(Outcome::Settled) }
        });
    context.run(node_controller);
    context.run(controller);
    Ok(Started::Yes)
}

/// Shared state of the workers, with the last applied state of each service.
struct Services {
    provider: Arc<dyn CloudProvider>,
    cluster: String,
    services: Cache<Service>,
    nodes: Cache<Node>,
    last_applied: Mutex<HashMap<Key, LastApplied>>,
    metrics: Metrics,
}

/// Error of a sync, with a prefix for its message.
enum SyncError {
    /// A call to the cloud provider failed.
    Cloud(&'static str, CloudError),
    /// A write to the API server failed.
    Api(&'static str, Failure),
}

impl SyncError {
    fn text(&self) -> String {
        match self {
            Self::Cloud(prefix, error) => format!("{prefix}{}", error.text()),
            Self::Api(prefix, failure) => format!("{prefix}{failure}"),
        }
    }
}

impl Services {
    fn last_applied(&self) -> MutexGuard<'_, HashMap<Key, LastApplied>> {
        self.last_applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the services whose load balancers need other nodes.
    fn services_with_other_hosts(&self, now: Instant) -> Vec<Key> {
        if self.last_applied().is_empty() {
            self.metrics.start_node_sync(&[], now);
            return Vec::new();
        }
        let hosts = Hosts::of(&hosts::eligible(self.nodes.list()));
        let last_applied = self.last_applied();
        let differs =
            |(key, last): (&Key, &LastApplied)| (last.hosts != hosts).then(|| key.clone());
        let keys: Vec<Key> = last_applied.iter().filter_map(differs).collect();
        self.metrics.start_node_sync(&keys, now);
        keys
    }

    async fn reconcile(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(balancer) = self.provider.load_balancer() else { return Ok(Outcome::Settled) };
        let nodes = hosts::eligible(self.nodes.list());
        let hosts = Hosts::of(&nodes);
        let sync = ServiceSync { controller: self, balancer, key, context, hosts, nodes: &nodes };
        let service = self.services.get(&key.namespace, &key.name);
        let result = sync.run(service).await;
        self.metrics.record_end_of_sync(key);
        match result {
            Ok(()) => Ok(Outcome::Settled),
            Err(SyncError::Cloud(_, CloudError::RetryAfter { message, after })) => {
                tracing::debug!(service = %key, reason = message, "the cloud provider requested a retry");
                Ok(Outcome::again(after))
            }
            Err(error) => Err(Error::message(error.text())),
        }
    }
}

struct ServiceSync<'a> {
    controller: &'a Services,
    balancer: &'a dyn LoadBalancer,
    key: &'a Key,
    context: &'a Context,
    nodes: &'a [Arc<Node>],
    hosts: Hosts,
}

impl ServiceSync<'_> {
    async fn run(&self, service: Option<Arc<Service>>) -> Result<(), SyncError> {
        loop {
            let last = self.controller.last_applied().get(self.key).cloned();
            let decision = plan::decide(service.as_deref(), last.as_ref(), &self.hosts);
            // Service to which the decision applies: a release applies to the last one.
            let subject = match (&decision, last, &service) {
                (Decision::Release, Some(last), _) => last.service,
                (_, _, Some(service)) => Arc::clone(service),
                (_, _, None) => {
                    self.controller.last_applied().remove(self.key);
                    return Ok(());
                }
            };
            if let Err(error) = self.execute(&decision, &subject).await {
                self.record_events(&plan::failure_event(&subject, &decision, &error.text())).await;
                return Err(error);
            }
            // After a release, decide again: another service of the same name may exist.
            if decision != Decision::Release {
                return Ok(());
            }
        }
    }

    async fn execute(&self, decision: &Decision, service: &Arc<Service>) -> Result<(), SyncError> {
        match decision {
            Decision::Nothing => Ok(()),
            Decision::Release => self.release(service).await,
            Decision::CleanUp => self.clean_up(service).await,
            Decision::Ensure => self.ensure(service).await,
            Decision::Hosts => self.update_hosts(service).await,
        }
    }

    /// Deletes the load balancer of a deleted or replaced service.
    async fn release(&self, service: &Service) -> Result<(), SyncError> {
        self.record_events(&plan::before_cleanup(service)).await;
        let deleted = self.balancer.ensure_deleted(&self.controller.cluster, service).await;
        deleted.map_err(|error| SyncError::Cloud("", error))?;
        self.record_events(&plan::released_event(service)).await;
        self.controller.last_applied().remove(self.key);
        Ok(())
    }

    /// Deletes the load balancer and removes the finalizer of a service that no longer needs a load balancer.
    async fn clean_up(&self, service: &Service) -> Result<(), SyncError> {
        let existing =
            self.balancer.get(&self.controller.cluster, service).await.map_err(|error| {
                SyncError::Cloud("failed to check if load balancer exists before cleanup: ", error)
            })?;
        if existing.is_some() {
            self.record_events(&plan::before_cleanup(service)).await;
            match self.balancer.ensure_deleted(&self.controller.cluster, service).await {
                Ok(()) | Err(CloudError::ImplementedElsewhere) => {}
                Err(error) => {
                    return Err(SyncError::Cloud("failed to delete load balancer: ", error));
                }
            }
        }
        self.act(
            &plan::after_cleanup(service),
            "failed to remove load balancer cleanup finalizer: ",
        )
        .await?;
        self.controller.last_applied().remove(self.key);
        Ok(())
    }

    /// Creates or updates the load balancer, and writes its status.
    async fn ensure(&self, service: &Arc<Service>) -> Result<(), SyncError> {
        self.set_last_applied(service, false);
        let before = plan::before_ensure(service, self.hosts.len());
        self.act(&before, "failed to add load balancer cleanup finalizer: ").await?;
        match self.balancer.ensure(&self.controller.cluster, service, self.nodes).await {
            Ok(status) => {
                let after = plan::after_ensure(service, &status);
                self.act(&after, "failed to update load balancer status: ").await?;
            }
            Err(CloudError::ImplementedElsewhere) => {}
            Err(error) => return Err(SyncError::Cloud("failed to ensure load balancer: ", error)),
        }
        self.set_last_applied(service, true);
        Ok(())
    }

    /// Updates the nodes of the load balancer. If the cloud rejects the update, ensures the load balancer instead, as upstream
    /// does.
    async fn update_hosts(&self, service: &Arc<Service>) -> Result<(), SyncError> {
        let metrics = &self.controller.metrics;
        metrics.syncs.inc();
        let started = self.context.env.clock.instant();
        let updated = self.balancer.update(&self.controller.cluster, service, self.nodes).await;
        metrics.update_seconds.observe(started.elapsed().as_secs_f64());
        let error = match updated {
            Ok(()) => {
                self.record_events(&plan::updated_hosts_event(service, &self.hosts)).await;
                self.set_last_applied(service, true);
                return Ok(());
            }
            Err(CloudError::ImplementedElsewhere) => {
                self.set_last_applied(service, true);
                return Ok(());
            }
            Err(error) => error,
        };
        match self.balancer.get(&self.controller.cluster, service).await {
            Ok(None) => {
                self.set_last_applied(service, true);
                return Ok(());
            }
            Ok(Some(_)) => {}
            Err(error) => {
                tracing::error!(service = %self.key, error = error.text(), "failed to check if load balancer exists");
            }
        }
        metrics.sync_errors.inc();
        self.record_events(&plan::refused_hosts_event(service, &self.hosts, &error.text())).await;
        self.ensure(service).await
    }

    /// Stores the state that this sync applies, before (`ensured` is false) or after the cloud has applied it.
    fn set_last_applied(&self, service: &Arc<Service>, ensured: bool) {
        let last = LastApplied { service: Arc::clone(service), ensured, hosts: self.hosts.clone() };
        self.controller.last_applied().insert(self.key.clone(), last);
    }

    /// Executes a plan.
    async fn act(&self, plan: &Plan, error_prefix: &'static str) -> Result<(), SyncError> {
        match self.context.act(self.key, plan).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(SyncError::Api(error_prefix, failure)),
        }
    }

    /// Executes a plan that contains only events.
    async fn record_events(&self, plan: &Plan) {
        // Recording an event cannot fail, because it is written later.
        let _ = self.context.act(self.key, plan).await;
    }
}
