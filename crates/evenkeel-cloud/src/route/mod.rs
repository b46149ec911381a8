//! Route controller: creates a route to each node's pod CIDRs in the cloud.
//!
//! Upstream: `k8s.io/cloud-provider/controllers/route`. Each reconciliation compares all routes with all nodes.
//! It runs every few seconds, or on changes of nodes if the feature gate enables that (KEP-5237).

mod plan;
#[cfg(test)]
mod tests;

use crate::{
    CloudContext, CloudError, CloudProvider, Descriptor, Route, Routes, StartError,
    context::Started,
};
use evenkeel_api::{cidr::Cidr, views::Node};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::{Context, Error, Outcome},
    metrics::counters,
    plan::Key,
    queue::Priority,
};
use futures::{StreamExt, future::BoxFuture, stream};
use plan::Creation;
use prometheus::IntCounterVec;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Descriptor of the route controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "node-route-controller",
    aliases: &["route"],
    queue: "Routes",
    client: "route-controller",
    component: "route_controller",
    is_supported: |provider| provider.routes().is_some(),
    start,
};

/// Maximum number of concurrent calls to the cloud provider.
const MAX_CONCURRENT_CALLS: usize = 200;
/// Minimum time between two reconciliations that node changes trigger.
const MIN_NODE_CHANGE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of periodic reconciliations if node changes trigger reconciliations too.
const RESYNC_PERIOD: Duration = Duration::from_secs(12 * 3600);

// Keys of the queue, and values of the label `trigger`.
const PERIODIC: &str = "periodic";
const NODE_CHANGE: &str = "node_change";

fn start(context: &CloudContext) -> Result<Started, StartError> {
    let options = &context.options;
    if !options.configure_routes {
        tracing::info!("Will not configure cloud provider routes, --configure-cloud-routes: false");
        return Ok(Started::No);
    }
    if context.provider.routes().is_none() {
        tracing::warn!(
            "--configure-cloud-routes is set, but cloud provider does not support routes. Will not configure cloud provider routes."
        );
        return Ok(Started::No);
    }
    let cluster_cidrs = parse_cluster_cidrs(&options.cluster_cidrs)
        .map_err(|reason| StartError { controller: DESCRIPTOR.name, reason })?;
    let nodes = context.env.caches.of::<Node>();
    let reacts_to_nodes = options.watch_routes;
    let shared = Arc::new(AllRoutes {
        provider: Arc::clone(&context.provider),
        cluster_name: options.cluster.clone(),
        cluster_cidrs,
        nodes: nodes.clone(),
        period: if reacts_to_nodes { RESYNC_PERIOD } else { options.route_period },
        last_node_change: Mutex::default(),
        syncs: counters(
            &context.registry,
            "route_controller_route_sync_total",
            "Looks at all routes, by what set them off and what came of them.",
            &["outcome", "trigger"],
        ),
    });
    let controller = context
        .of_keys(&DESCRIPTOR)
        .watches(&nodes, move |event, enqueue| {
            let needs_sync = match event {
                CacheEvent::Added { .. } | CacheEvent::Deleted(_) => true,
                CacheEvent::Updated { old, new } => plan::needs_sync(old, new),
            };
            if reacts_to_nodes && needs_sync {
                enqueue.add(Key::new("", NODE_CHANGE));
            }
        })
        .reconcile(move |request, context| {
            let routes = Arc::clone(&shared);
            async move { routes.reconcile(&request.key, &context).await }
        });
    // Enqueue a reconciliation even without nodes, because routes of deleted nodes may remain.
    controller.queue().add(Key::new("", PERIODIC), Priority::NORMAL);
    context.run(controller);
    Ok(Started::Yes)
}

/// Parses the cluster's CIDRs: one, or one of each IP family.
fn parse_cluster_cidrs(texts: &[String]) -> Result<Vec<Cidr>, String> {
    let ranges: Result<Vec<Cidr>, String> = texts
        .iter()
        .map(|text| {
            Cidr::parse(text).ok_or_else(|| format!("--cluster-cidr: {text:?} is not a CIDR"))
        })
        .collect();
    let ranges = ranges?;
    match &*ranges {
        [] => Err("--cluster-cidr must say where pods have their addresses from".to_owned()),
        [_] => Ok(ranges),
        [first, second] if first.first().is_ipv4() != second.first().is_ipv4() => Ok(ranges),
        more => Err(format!(
            "--cluster-cidr has {} ranges; it takes one, or one of each address family",
            more.len()
        )),
    }
}

/// State of the route controller. Each key of the queue is a trigger that reconciles all routes.
struct AllRoutes {
    provider: Arc<dyn CloudProvider>,
    /// Value of `--cluster-name`.
    cluster_name: String,
    cluster_cidrs: Vec<Cidr>,
    nodes: Cache<Node>,
    /// Interval of periodic reconciliations.
    period: Duration,
    /// Start of the last reconciliation that a node change triggered.
    last_node_change: Mutex<Option<Instant>>,
    /// Counter `route_controller_route_sync_total` of reconciliations.
    syncs: IntCounterVec,
}

/// Call to the cloud provider about one route, with its result.
type RouteCall<'a, T> = BoxFuture<'a, (&'a T, Result<(), CloudError>)>;

/// Result of a reconciliation of all routes.
struct ReconcileResult {
    /// Whether at least one route was created or deleted.
    changed: bool,
    /// Whether at least one call or write failed.
    failed: bool,
}

impl AllRoutes {
    async fn reconcile(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(routes) = self.provider.routes() else { return Ok(Outcome::Settled) };
        let trigger = &*key.name;
        if trigger == NODE_CHANGE
            && let Some(left) = self.remaining_wait(context.env.clock.instant())
        {
            return Ok(Outcome::again(left));
        }
        let result = self.reconcile_all(routes, key, context).await;
        let outcome = match &result {
            Err(_) => "error",
            Ok(result) if result.changed => "changed",
            Ok(_) => "noop",
        };
        self.syncs.with_label_values(&[outcome, trigger]).inc();
        let failed = match result {
            Ok(result) => result.failed,
            Err(error) => {
                tracing::error!(error = error.text(), "Couldn't reconcile node routes");
                true
            }
        };
        let delay = if failed { self.period.min(MIN_NODE_CHANGE_INTERVAL) } else { self.period };
        Ok(if failed || trigger == PERIODIC { Outcome::again(delay) } else { Outcome::Settled })
    }

    /// Returns how long a reconciliation that a node change triggered must still wait. If it may start, records the
    /// start and returns `None`.
    fn remaining_wait(&self, now: Instant) -> Option<Duration> {
        let mut last = self.last_node_change.lock().unwrap_or_else(PoisonError::into_inner);
        let left = last.and_then(|last| {
            MIN_NODE_CHANGE_INTERVAL.checked_sub(now.saturating_duration_since(last))
        });
        if left.is_none_or(|left| left.is_zero()) {
            *last = Some(now);
            return None;
        }
        left
    }

    async fn reconcile_all(
        &self,
        routes: &dyn Routes,
        key: &Key,
        context: &Context,
    ) -> Result<ReconcileResult, CloudError> {
        let listed = routes.list(&self.cluster_name).await?;
        let nodes = self.nodes.list();
        let changes = plan::plan(&nodes, &listed, &self.cluster_cidrs);
        let mut result = ReconcileResult { changed: false, failed: false };
        let deletions: Vec<_> =
            changes.delete.iter().map(|route| self.deletion(routes, route)).collect();
        let mut deletions = stream::iter(deletions).buffer_unordered(MAX_CONCURRENT_CALLS);
        while let Some((route, response)) = deletions.next().await {
            result.record(response.is_ok());
            if let Err(error) = response {
                tracing::error!(
                    route = route.name,
                    destination = route.destination,
                    error = error.text(),
                    "Could not delete route"
                );
            }
        }
        let creations: Vec<_> =
            changes.create.iter().map(|creation| self.creation(routes, creation)).collect();
        let mut creations = stream::iter(creations).buffer_unordered(MAX_CONCURRENT_CALLS);
        let mut nodes_without_route = BTreeSet::new();
        while let Some((creation, response)) = creations.next().await {
            result.record(response.is_ok());
            if let Err(error) = response {
                context.events.record(&plan::failed_route_event(creation, &error.text()));
                nodes_without_route.insert(creation.node.meta.name.clone());
            }
        }
        let conditions = plan::networking_conditions(
            &nodes,
            &listed,
            &nodes_without_route,
            context.env.clock.now(),
        );
        if let Err(failure) = context.act(key, &conditions).await {
            tracing::error!(error = %failure, "failed to update networking condition");
            result.failed = true;
        }
        Ok(result)
    }

    fn deletion<'a>(&'a self, routes: &'a dyn Routes, route: &'a Route) -> RouteCall<'a, Route> {
        Box::pin(async move { (route, routes.delete(&self.cluster_name, route).await) })
    }

    fn creation<'a>(
        &'a self,
        routes: &'a dyn Routes,
        creation: &'a Creation,
    ) -> RouteCall<'a, Creation> {
        Box::pin(async move {
            let hint = &creation.node.meta.uid;
            (creation, routes.create(&self.cluster_name, hint, &creation.route).await)
        })
    }
}

impl ReconcileResult {
    fn record(&mut self, succeeded: bool) {
        self.changed |= succeeded;
        self.failed |= !succeeded;
    }
}
