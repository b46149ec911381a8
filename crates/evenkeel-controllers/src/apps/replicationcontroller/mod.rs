//! ReplicationController controller: runs the ReplicaSet controller's code for the older kind. Upstream:
//! `pkg/controller/replication`.

use super::replicaset;
use crate::{
    options::Workers,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::views::ReplicationController;

/// Number of ReplicationControllers that are reconciled concurrently. Flag `--concurrent-rc-syncs`. Default: 5.
pub type Options = Workers<5>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-rc-syncs";

/// The controller of ReplicationControllers.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "replicationcontroller-controller",
    aliases: &["replicationcontroller"],
    queue: "replicationmanager",
    client: "replication-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let controllers = context.env.caches.of::<ReplicationController>();
    let workers = context.options.replicationcontroller.concurrent_syncs;
    let builder = context.builder(&DESCRIPTOR, &controllers).workers(workers);
    replicaset::run_without_metric(context, builder, controllers);
    Ok(Started::Yes)
}
