//! Cloud node lifecycle controller: deletes nodes whose instance no longer exists, and taints nodes whose
//! instance is shut down.
//!
//! Upstream: `k8s.io/cloud-provider/controllers/nodelifecycle`. Upstream checks all nodes every few seconds.
//! Here a node is checked when it stops being ready, and then periodically until it is ready again.

mod metrics;
mod plan;
#[cfg(test)]
mod tests;

use crate::{
    CloudContext, CloudError, CloudProvider, Descriptor, Instances, StartError, context::Started,
};
use evenkeel_api::views::Node;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::{Context, Error, Outcome},
    plan::Key,
};
use metrics::Metrics;
use plan::InstanceState;
use std::{sync::Arc, time::Duration};

/// Descriptor of the cloud node lifecycle controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "cloud-node-lifecycle-controller",
    aliases: &["cloud-node-lifecycle"],
    queue: "cloud_node_lifecycle_controller",
    client: "node-controller",
    component: "cloud-node-lifecycle-controller",
    is_supported: |provider| provider.instances().is_some(),
    start,
};

fn start(context: &CloudContext) -> Result<Started, StartError> {
    if context.provider.instances().is_none() {
        tracing::warn!(
            "failed to start cloud node lifecycle controller: cloud provider does not support instances"
        );
        return Ok(Started::No);
    }
    let nodes = context.env.caches.of::<Node>();
    let shared = Arc::new(InstanceMonitor {
        provider: Arc::clone(&context.provider),
        nodes: nodes.clone(),
        metrics: Metrics::new(&context.registry),
        period: context.options.node_monitor_period,
    });
    let controller = context
        .watching(&DESCRIPTOR, &nodes, |event, enqueue| {
            let needs_sync = match event {
                CacheEvent::Added { .. } => true,
                CacheEvent::Updated { old, new } => plan::needs_sync(old, new),
                CacheEvent::Deleted(_) => false,
            };
            if needs_sync {
                enqueue.add(Key::of(&event.object().meta));
            }
        })
        .workers(context.options.lifecycle_workers)
        .reconcile(move |request, context| {
            let monitor = Arc::clone(&shared);
            async move { monitor.reconcile(&request.key, &context).await }
        });
    context.run(controller);
    Ok(Started::Yes)
}

struct InstanceMonitor {
    provider: Arc<dyn CloudProvider>,
    nodes: Cache<Node>,
    metrics: Metrics,
    /// `--node-monitor-period`: interval at which a node that is not ready is checked.
    period: Duration,
}

impl InstanceMonitor {
    async fn reconcile(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(node) = self.nodes.get("", &key.name) else { return Ok(Outcome::Settled) };
        let Some(instances) = self.provider.instances() else { return Ok(Outcome::Settled) };
        if !plan::needs_instance_check(&node) {
            context.act(key, &plan::plan_ready(&node)).await?;
            return Ok(Outcome::Settled);
        }
        let started = context.env.clock.instant();
        // After an error, the node is checked again after the same period, as in upstream's loop. An outage of
        // the cloud causes no backoff.
        match self.instance_state(instances, &node).await {
            Ok(instance_state) => {
                context.act(key, &plan::plan_not_ready(&node, instance_state)).await?;
            }
            Err(error) => {
                tracing::error!(node = %key, error = error.text(), "Cannot get the state of the node's instance");
            }
        }
        self.metrics.seconds.observe(started.elapsed().as_secs_f64());
        Ok(Outcome::again(self.period))
    }

    /// Returns the state of the node's instance.
    async fn instance_state(
        &self,
        instances: &dyn Instances,
        node: &Node,
    ) -> Result<InstanceState, CloudError> {
        let exists = instances.exists(node).await;
        self.metrics.record_call("instance_exists", exists.as_ref().map(|exists| *exists));
        if !exists? {
            return Ok(InstanceState::Gone);
        }
        let shut_down = instances.shut_down(node).await;
        self.metrics.record_call("instance_shutdown", shut_down.as_ref().map(|_| true));
        Ok(if shut_down? { InstanceState::ShutDown } else { InstanceState::Running })
    }
}
