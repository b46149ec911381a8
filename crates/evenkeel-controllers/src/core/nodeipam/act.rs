//! Writes the allocated CIDRs to nodes.

use super::{
    metrics::Metrics,
    plan::{
        allocator::{Allocator, Verdict},
        config::Config,
        set::Problem,
    },
};
use crate::wire;
use evenkeel_api::{View, cidr::Cidr, views::Node};
use evenkeel_runtime::{
    cache::Cache,
    client::{ApiError, ListOptions, Metadata},
    controller::{Context, Error, Outcome},
    plan::{Note, PatchForm},
};
use serde_json::json;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::OnceCell;

/// Attempts of a write. Upstream: `cidrUpdateRetries`.
const TRIES: usize = 3;

/// Allocator and its clients.
pub(super) struct Allocations {
    nodes: Cache<Node>,
    allocator: Mutex<Allocator>,
    metrics: Metrics,
    /// Set once the CIDRs of all existing nodes are recorded.
    primed: OnceCell<()>,
}

impl Allocations {
    pub(super) fn new(
        nodes: Cache<Node>,
        config: &Config,
        metrics: Metrics,
    ) -> Result<Self, Problem> {
        let allocator = Mutex::new(Allocator::new(config)?);
        Ok(Self { nodes, allocator, metrics, primed: OnceCell::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn look_at(&self, name: &str, context: &Context) -> Result<Outcome, Error> {
        self.primed.get_or_try_init(|| self.prime(context)).await?;
        let node = self.nodes.get("", name);
        let verdict = self.look(name, node.as_deref());
        match (verdict, node) {
            (Verdict::Give(ranges, _), Some(node)) => self.give(&node, &ranges, context).await,
            (Verdict::Exhausted(range), Some(node)) => {
                tell(context, &node, "CIDRNotAvailable");
                Err(Error::message(format!("there is nothing left to give of {range}")))
            }
            (Verdict::Foreign(problem), _) => Err(Error::terminal(problem)),
            _ => Ok(Outcome::Settled),
        }
    }

    /// Records the CIDRs of all nodes by a live list: the cache may lack allocations by a former leader.
    async fn prime(&self, context: &Context) -> Result<(), ApiError> {
        let nodes = context.env.client.list::<Node>("", &ListOptions::default()).await?;
        for node in nodes.items.iter().filter(|node| !node.spec.pod_cidrs.is_empty()) {
            if let Verdict::Foreign(problem) = self.look(&node.meta.name, Some(node)) {
                tracing::warn!(
                    node = &*node.meta.name,
                    problem,
                    "Node has a podCIDR that does not belong to the cluster CIDR"
                );
            }
        }
        Ok(())
    }

    fn look(&self, name: &str, node: Option<&Node>) -> Verdict {
        let mut allocator = self.lock();
        let verdict = allocator.look(name, node);
        allocator.sets.iter().for_each(|set| self.metrics.show(set));
        if let Verdict::Give(_, Some(tries)) = &verdict {
            for (set, tries) in allocator.sets.iter().zip(tries) {
                self.metrics.tried(set, *tries);
            }
        }
        verdict
    }

    async fn give(
        &self,
        node: &Node,
        ranges: &[Cidr],
        context: &Context,
    ) -> Result<Outcome, Error> {
        let all: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        let spec = json!({"podCIDR": all.first(), "podCIDRs": all});
        let body = json!({"metadata": {"uid": &*node.meta.uid}, "spec": spec}).to_string();
        let (kind, form, name) = (Node::kind(), PatchForm::Strategic, &*node.meta.name);
        let mut tries = 1;
        loop {
            let body = body.clone().into();
            match context.env.client.patch::<Metadata>(&kind, "", name, "", form, body).await {
                Ok(_) => return Ok(Outcome::Settled),
                Err(_) if tries < TRIES => tries += 1,
                Err(error) => {
                    tell(context, node, "CIDRAssignmentFailed");
                    // Without a response the write may have succeeded, so the allocation is kept.
                    if is_refusal(&error) {
                        let mut allocator = self.lock();
                        allocator.release(name);
                        allocator.sets.iter().for_each(|set| self.metrics.show(set));
                    }
                    return Err(error.into());
                }
            }
        }
    }
}

/// Whether the API server refused the write.
fn is_refusal(error: &ApiError) -> bool {
    (400..500).contains(&error.code())
}

fn tell(context: &Context, node: &Node, status: &'static str) {
    let message = format!("Node {} status is now: {status}", node.meta.name);
    context.events.record(&Note::normal(wire::target(node), status, message));
}
