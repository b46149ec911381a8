//! Node IPAM controller: allocates pod CIDRs to nodes, one for each IP family. Upstream: `pkg/controller/nodeipam`, the
//! range allocator.
//!
//! It runs with `--allocate-node-cidrs` only; upstream's cloud allocators belong to cloud controller managers.

mod act;
mod metrics;
mod options;
mod plan;

pub use options::Options;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError};
use act::Allocations;
use evenkeel_api::views::Node;
use evenkeel_runtime::controller::Context;
use plan::config::Config;
use std::sync::Arc;

/// Number of workers; no flag changes it. Upstream: `cidrUpdateWorkers`.
const WORKERS: usize = 30;

/// The controller of nodes' ranges.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "node-ipam-controller",
    aliases: &["nodeipam"],
    queue: "cidrallocator_node",
    client: "node-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let options = &context.options.nodeipam;
    if !options.enabled {
        return Ok(());
    }
    let refused = |reason| StartError { controller: DESCRIPTOR.name, reason };
    let config = Config::new(options).map_err(refused)?;
    let nodes = context.env.caches.of::<Node>();
    let metrics = metrics::Metrics::new(&context.registry);
    let allocations = Allocations::new(nodes.clone(), &config, metrics);
    let allocations = Arc::new(allocations.map_err(|problem| refused(problem.to_string()))?);
    let controller = context
        .builder(&DESCRIPTOR, &nodes)
        .event_source("cidrAllocator")
        .workers(WORKERS)
        .reconcile(move |request, context: Context| {
            let allocations = allocations.clone();
            async move { allocations.look_at(&request.key.name, &context).await }
        });
    context.run(controller);
    Ok(())
}
