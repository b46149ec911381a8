//! Cloud node controller: initializes nodes with the cloud provider's metadata of their instances.
//!
//! Upstream: `k8s.io/cloud-provider/controllers/node`. A new node with the cloud taint gets its provider ID,
//! labels and addresses, and loses the taint. Its addresses are updated periodically.

mod addresses;
mod metrics;
mod plan;
#[cfg(test)]
mod tests;

use crate::{CloudContext, CloudProvider, Descriptor, Instances, StartError, context::Started};
use evenkeel_api::views::Node;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::{Context, Error, Outcome},
    plan::Key,
};
use metrics::Metrics;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Descriptor of the cloud node controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "cloud-node-controller",
    aliases: &["cloud-node"],
    queue: "Nodes",
    client: "node-controller",
    component: "cloud-node-controller",
    is_supported: |provider| provider.instances().is_some(),
    start,
};

fn start(context: &CloudContext) -> Result<Started, StartError> {
    if context.provider.instances().is_none() {
        tracing::warn!(
            "failed to start cloud node controller: cloud provider does not support instances"
        );
        return Ok(Started::No);
    }
    let nodes = context.env.caches.of::<Node>();
    let shared = Arc::new(Nodes {
        provider: Arc::clone(&context.provider),
        nodes: nodes.clone(),
        metrics: Metrics::new(&context.registry),
        period: context.options.node_status_period,
        next_updates: Mutex::default(),
    });
    let event_handler = Arc::clone(&shared);
    let controller = context
        .watching(&DESCRIPTOR, &nodes, move |event, enqueue| {
            let key = Key::of(&event.object().meta);
            let needs_sync = match event {
                CacheEvent::Added { .. } => true,
                CacheEvent::Updated { old, new } => plan::needs_sync(old, new),
                CacheEvent::Deleted(_) => {
                    event_handler.forget(&key);
                    false
                }
            };
            if needs_sync {
                enqueue.add(key);
            }
        })
        .workers(context.options.node_workers)
        .reconcile(move |request, context| {
            let nodes = Arc::clone(&shared);
            async move { nodes.reconcile(&request.key, &context).await }
        });
    context.run(controller);
    Ok(Started::Yes)
}

struct Nodes {
    provider: Arc<dyn CloudProvider>,
    nodes: Cache<Node>,
    metrics: Metrics,
    /// `--node-status-update-frequency`: interval of address updates.
    period: Duration,
    /// Time of each node's next address update.
    next_updates: Mutex<HashMap<Key, Instant>>,
}

impl Nodes {
    /// Forgets the schedule of a deleted node.
    fn forget(&self, key: &Key) {
        self.next_updates.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Returns the time until the next address update. If it is due, schedules the following update and returns `None`.
    fn time_to_update(&self, key: &Key, now: Instant) -> Option<Duration> {
        let mut next_updates = self.next_updates.lock().unwrap_or_else(PoisonError::into_inner);
        match next_updates.get(key) {
            Some(next_update) if *next_update > now => Some(*next_update - now),
            _ => {
                next_updates.insert(key.clone(), now + self.period);
                None
            }
        }
    }

    async fn reconcile(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(node) = self.nodes.get("", &key.name) else { return Ok(Outcome::Settled) };
        let Some(instances) = self.provider.instances() else { return Ok(Outcome::Settled) };
        if plan::has_cloud_taint(&node) {
            return self.initialize_node(key, &node, instances, context).await;
        }
        context.act(key, &plan::reconcile_labels(&node)).await?;
        if let Some(remaining) = self.time_to_update(key, context.env.clock.instant()) {
            return Ok(Outcome::again(remaining));
        }
        // A failure is only retried at the next period, as in upstream's loop over all nodes.
        match instances.metadata(&node).await {
            Ok(None) => {}
            Ok(Some(metadata)) => match plan::update_node_address(&node, &metadata) {
                Ok(plan) => drop(context.act(key, &plan).await?),
                Err(problem) => {
                    tracing::error!(node = %key, error = %problem, "Failed to update node addresses");
                }
            },
            Err(error) => {
                tracing::error!(node = %key, error = error.text(), "Error getting instance metadata for node addresses");
            }
        }
        Ok(Outcome::again(self.period))
    }

    async fn initialize_node(
        &self,
        key: &Key,
        node: &Node,
        instances: &dyn Instances,
        context: &Context,
    ) -> Result<Outcome, Error> {
        let metadata_result = instances.metadata(node).await;
        let metadata = metadata_result.map_err(|error| {
            Error::message(format!(
                "failed to get instance metadata for node {}: {}",
                key.name,
                error.text()
            ))
        })?;
        let Some(metadata) = metadata else {
            tracing::info!(node = %key, "Skip sync node because cloud provided nil metadata");
            return Ok(Outcome::Settled);
        };
        let started = context.env.clock.instant();
        context.act(key, &plan::initialize_node(node, &metadata)?).await?;
        // Schedules the next address update.
        self.time_to_update(key, started);
        if let Some(creation) = node.meta.creation {
            let age = context.env.clock.now().duration_since(creation).as_secs_f64();
            self.metrics.taint_removal.observe(age);
            self.metrics.first_sync.observe(age);
        }
        tracing::info!(node = %key, "Successfully initialized node with cloud provider");
        Ok(Outcome::again(self.period))
    }
}
