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
use plan::{Decision, Last};
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
    start,
};

/// Backoff of failed calls to the cloud: 5 s to 300 s.
const BACKOFF: Backoff = Backoff {
    base_delay: Duration::from_secs(5),
    max_delay: Duration::from_secs(300),
    bucket: false,
};

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
        memory: Mutex::default(),
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
            if needs_sync {
                enqueue.add(Key::of(&event.object().meta));
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
    memory: Mutex<HashMap<Key, Last>>,
    metrics: Metrics,
}

/// Reason why a pass failed.
enum Problem {
    Cloud(&'static str, CloudError),
    Api(&'static str, Failure),
}

impl Problem {
    fn text(&self) -> String {
        match self {
            Self::Cloud(what, error) => format!("{what}{}", error.text()),
            Self::Api(what, failure) => format!("{what}{failure}"),
        }
    }
}

impl Services {
    fn memory(&self) -> MutexGuard<'_, HashMap<Key, Last>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the services whose load balancers need other nodes.
    fn services_with_other_hosts(&self, now: Instant) -> Vec<Key> {
        let hosts = Hosts::of(&hosts::eligible(self.nodes.list()));
        let memory = self.memory();
        let differ = |(key, last): (&Key, &Last)| (last.hosts != hosts).then(|| key.clone());
        let keys: Vec<Key> = memory.iter().filter_map(differ).collect();
        self.metrics.begin(&keys, now);
        keys
    }

    async fn reconcile(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(balancer) = self.provider.load_balancer() else { return Ok(Outcome::Settled) };
        let nodes = hosts::eligible(self.nodes.list());
        let pass =
            Pass { of: self, balancer, key, context, hosts: Hosts::of(&nodes), nodes: &nodes };
        let service = self.services.get(&key.namespace, &key.name);
        let result = pass.run(service).await;
        self.metrics.synced(key);
        match result {
            Ok(()) => Ok(Outcome::Settled),
            Err(Problem::Cloud(_, CloudError::RetryAfter { message, after })) => {
                tracing::debug!(service = %key, reason = message, "the cloud provider requested a retry");
                Ok(Outcome::again(after))
            }
            Err(problem) => Err(Error::message(problem.text())),
        }
    }
}

/// One pass over a service.
struct Pass<'a> {
    of: &'a Services,
    balancer: &'a dyn LoadBalancer,
    key: &'a Key,
    context: &'a Context,
    nodes: &'a [Arc<Node>],
    hosts: Hosts,
}

impl Pass<'_> {
    async fn run(&self, service: Option<Arc<Service>>) -> Result<(), Problem> {
        loop {
            let last = self.of.memory().get(self.key).cloned();
            let decision = plan::decide(service.as_deref(), last.as_ref(), &self.hosts);
            let subject = match (&decision, last, &service) {
                (Decision::Release, Some(last), _) => last.service,
                (_, _, Some(service)) => Arc::clone(service),
                (_, _, None) => {
                    self.of.memory().remove(self.key);
                    return Ok(());
                }
            };
            if let Err(problem) = self.carry_out(&decision, &subject).await {
                self.record_events(&plan::failed(&subject, &decision, &problem.text())).await;
                return Err(problem);
            }
            // After a release, decide again: another service of the same name may exist.
            if decision != Decision::Release {
                return Ok(());
            }
        }
    }

    async fn carry_out(&self, decision: &Decision, service: &Arc<Service>) -> Result<(), Problem> {
        match decision {
            Decision::Nothing => Ok(()),
            Decision::Release => self.release(service).await,
            Decision::CleanUp => self.clean_up(service).await,
            Decision::Ensure => self.ensure(service).await,
            Decision::Hosts => self.update_hosts(service).await,
        }
    }

    async fn release(&self, service: &Service) -> Result<(), Problem> {
        self.record_events(&plan::before_cleanup(service)).await;
        let deleted = self.balancer.ensure_deleted(&self.of.cluster, service).await;
        deleted.map_err(|error| Problem::Cloud("", error))?;
        self.record_events(&plan::released(service)).await;
        self.of.memory().remove(self.key);
        Ok(())
    }

    async fn clean_up(&self, service: &Service) -> Result<(), Problem> {
        let existing = self.balancer.get(&self.of.cluster, service).await.map_err(|error| {
            Problem::Cloud("failed to check if load balancer exists before cleanup: ", error)
        })?;
        if existing.is_some() {
            self.record_events(&plan::before_cleanup(service)).await;
            match self.balancer.ensure_deleted(&self.of.cluster, service).await {
                Ok(()) | Err(CloudError::ImplementedElsewhere) => {}
                Err(error) => {
                    return Err(Problem::Cloud("failed to delete load balancer: ", error));
                }
            }
        }
        self.act(
            &plan::after_cleanup(service),
            "failed to remove load balancer cleanup finalizer: ",
        )
        .await?;
        self.of.memory().remove(self.key);
        Ok(())
    }

    async fn ensure(&self, service: &Arc<Service>) -> Result<(), Problem> {
        self.remember(service, false);
        let before = plan::before_ensure(service, self.hosts.len());
        self.act(&before, "failed to add load balancer cleanup finalizer: ").await?;
        match self.balancer.ensure(&self.of.cluster, service, self.nodes).await {
            Ok(status) => {
                let after = plan::after_ensure(service, &status);
                self.act(&after, "failed to update load balancer status: ").await?;
            }
            Err(CloudError::ImplementedElsewhere) => {}
            Err(error) => return Err(Problem::Cloud("failed to ensure load balancer: ", error)),
        }
        self.remember(service, true);
        Ok(())
    }

    /// Updates the nodes of the load balancer. If the cloud refuses the update, ensures the load balancer
    /// instead, as upstream does.
    async fn update_hosts(&self, service: &Arc<Service>) -> Result<(), Problem> {
        let metrics = &self.of.metrics;
        metrics.syncs.inc();
        let started = self.context.env.clock.instant();
        let updated = self.balancer.update(&self.of.cluster, service, self.nodes).await;
        metrics.update_seconds.observe(started.elapsed().as_secs_f64());
        let error = match updated {
            Ok(()) => {
                self.record_events(&plan::after_hosts(service, &self.hosts)).await;
                self.remember(service, true);
                return Ok(());
            }
            Err(CloudError::ImplementedElsewhere) => {
                self.remember(service, true);
                return Ok(());
            }
            Err(error) => error,
        };
        match self.balancer.get(&self.of.cluster, service).await {
            Ok(None) => {
                self.remember(service, true);
                return Ok(());
            }
            Ok(Some(_)) => {}
            Err(error) => {
                tracing::error!(service = %self.key, error = error.text(), "failed to check if load balancer exists");
            }
        }
        metrics.sync_errors.inc();
        self.record_events(&plan::refused_hosts(service, &self.hosts, &error.text())).await;
        self.ensure(service).await
    }

    fn remember(&self, service: &Arc<Service>, ensured: bool) {
        let last = Last { service: Arc::clone(service), ensured, hosts: self.hosts.clone() };
        self.of.memory().insert(self.key.clone(), last);
    }

    async fn act(&self, plan: &Plan, what: &'static str) -> Result<(), Problem> {
        match self.context.act(self.key, plan).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(Problem::Api(what, failure)),
        }
    }

    /// Carries out a plan that contains only events.
    async fn record_events(&self, plan: &Plan) {
        // Recording an event cannot fail, because it is written later.
        let _ = self.context.act(self.key, plan).await;
    }
}
