//! Keeps as many pods as a ReplicationController asks for, by the plan of ReplicaSets.
//!
//! Upstream: `pkg/controller/replication`.

mod options;

pub use options::Options;

use super::replicaset;
use crate::descriptor::{ControllerContext, Descriptor, StartError};
use evenkeel_api::views::ReplicationController;

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
