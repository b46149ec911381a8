//! What there is to know of a controller before it runs: its names, and how it is started.
//!
//! A new controller is a folder, and a line in [`descriptors`].

use crate::{apps, core, options::Options};
use evenkeel_api::View;
use evenkeel_runtime::{
    cache::Cache,
    client::Client,
    controller::{Builder, Controller, Env},
    tasks::Tasks,
};
use prometheus::Registry;
use std::sync::Arc;

/// One controller.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    /// Its name, as in `--controllers`.
    pub name: &'static str,
    /// Older names that are still understood.
    pub aliases: &'static [&'static str],
    /// Its queue's name in metrics; empty for one without a queue.
    pub queue: &'static str,
    /// The service account whose rights it uses, which is also the last part of its user agent.
    pub client: &'static str,
    /// Whether it runs when nobody says so.
    pub on_by_default: bool,
    /// Starts it.
    pub start: Start,
}

/// Starts a controller: declares the caches that it reads, subscribes to them, and spawns its workers into the context's
/// tasks. It returns at once; workers wait for their caches themselves.
pub type Start = fn(&ControllerContext) -> Result<(), StartError>;

/// Why a controller cannot start.
#[derive(Debug, thiserror::Error)]
#[error("controller {controller} cannot start: {reason}")]
pub struct StartError {
    /// The controller's name.
    pub controller: &'static str,
    /// What is in the way.
    pub reason: String,
}

/// Makes the client of a controller from the controller's [`Descriptor::client`], with the credentials that it writes with.
/// The controller appends its name to the user agent itself.
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// What controllers are started with.
#[derive(Clone)]
pub struct ControllerContext {
    /// Shared caches and their client, the time, metrics of queues and controllers.
    pub env: Env,
    /// Clients to write with, one for each controller.
    pub clients: Clients,
    /// Where controllers run.
    pub tasks: Tasks,
    /// Where metrics of single controllers go.
    pub registry: Registry,
    /// What was asked for on the command line.
    pub options: Arc<Options>,
}

impl ControllerContext {
    /// A builder for the controller that `descriptor` describes: queue, client and event source under its names.
    pub fn builder<V: View>(&self, descriptor: &Descriptor, root: &Cache<V>) -> Builder {
        Builder::new(&self.env, descriptor.name, root)
            .queue(descriptor.queue)
            .client((self.clients)(descriptor.client))
            .component(descriptor.client)
    }

    /// Runs a controller until the context's tasks are told to stop.
    pub fn run(&self, controller: Controller) {
        let name = controller.name().to_owned();
        let stop = self.tasks.token();
        self.tasks.spawn(name, controller.run(stop));
    }
}

/// All controllers, in the order of their names.
pub fn descriptors() -> Vec<Descriptor> {
    vec![
        apps::deployment::DESCRIPTOR,
        core::garbage_collector::DESCRIPTOR,
        core::namespace::DESCRIPTOR,
        core::node_lifecycle::DESCRIPTOR,
        apps::replicaset::DESCRIPTOR,
        apps::replicationcontroller::DESCRIPTOR,
        core::root_ca::DESCRIPTOR,
        core::service_account::DESCRIPTOR,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_unique() {
        let names: Vec<_> = descriptors().iter().map(|d| d.name).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(names, sorted);
    }
}
