//! Keeps as many pods as a ReplicationController asks for, by the plan of ReplicaSets.
//!
//! Upstream: `pkg/controller/replication`.

use super::replicaset;
use crate::{
    descriptor::{ControllerContext, Descriptor, StartError},
    options::Workers,
};
use evenkeel_api::views::ReplicationController;

/// How many ReplicationControllers are worked on at the same time; `--concurrent-rc-syncs`.
pub type Options = Workers<5>;

/// The flag that says so.
pub(crate) const WORKERS: &str = "concurrent-rc-syncs";

/// The controller of ReplicationControllers.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "replicationcontroller-controller",
    aliases: &["replicationcontroller"],
    queue: "replicationmanager",
    client: "replication-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let controllers = context.env.caches.of::<ReplicationController>();
    let workers = context.options.replicationcontroller.concurrent_syncs;
    let builder = context.builder(&DESCRIPTOR, &controllers).workers(workers);
    replicaset::run_unmeasured(context, builder, controllers);
    Ok(())
}
