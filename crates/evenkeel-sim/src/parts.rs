//! The parts of the control plane, each started as its program starts it.

use crate::{Options, Part, wire::Wire};
use evenkeel_controllers::{
    core::root_ca,
    descriptor::{Clients, ControllerContext, descriptors},
    options::Options as ControllersOptions,
};
use evenkeel_runtime::{
    cache::Caches, client::Client, clock::Clock, controller::Env, tasks::Tasks,
};
use evenkeel_scheduler::SchedulerOptions;
use prometheus::Registry;
use std::sync::Arc;

/// One life of a part: what dies with it.
pub(crate) struct Life {
    pub(crate) wire: Wire,
    pub(crate) tasks: Tasks,
    pub(crate) caches: Caches,
}

impl Life {
    /// Starts a part with nothing but what it reads from the server.
    pub(crate) fn start(part: Part, wire: Wire, clock: &Clock, options: &Options) -> Self {
        let registry = Registry::new();
        let agent = match part {
            Part::Controllers => "kube-controller-manager",
            Part::Scheduler => "kube-scheduler",
            Part::Nodes => "kubelet",
            Part::User => "user",
            Part::Observer => "observer",
        };
        let client = Client::builder(wire.kube(), clock.clone()).user_agent(agent).build();
        let caches = Caches::new(client.clone(), clock.clone(), &registry);
        let life = Self { wire, tasks: Tasks::new(), caches };
        match part {
            Part::Controllers => life.controllers(client, clock, registry),
            Part::Scheduler => life.scheduler(client, clock, registry, options.seed),
            Part::Nodes => life.nodes(client, clock, options),
            Part::User | Part::Observer => {}
        }
        life.caches.start(&life.tasks);
        life
    }

    fn controllers(&self, client: Client, clock: &Clock, registry: Registry) {
        let env = Env::new(client.clone(), self.caches.clone(), clock.clone(), &registry);
        let options = ControllersOptions {
            root_ca: root_ca::Options { ca: Some("simulated".into()) },
            ..ControllersOptions::default()
        };
        let clients: Clients = Arc::new(move |_| client.clone());
        let context = ControllerContext::new(env, clients, self.tasks.clone(), registry, options);
        for descriptor in descriptors() {
            if let Err(error) = context.start(&descriptor) {
                panic!("{error}");
            }
        }
    }

    fn scheduler(&self, client: Client, clock: &Clock, registry: Registry, seed: u64) {
        let options = SchedulerOptions { seed, ..SchedulerOptions::default() };
        let (caches, clock, stop) = (self.caches.clone(), clock.clone(), self.tasks.token());
        let run = evenkeel_scheduler::run(client, caches, clock, registry, options, stop);
        self.tasks.spawn("scheduler", run);
    }

    fn nodes(&self, client: Client, clock: &Clock, options: &Options) {
        let (caches, clock, stop) = (self.caches.clone(), clock.clone(), self.tasks.token());
        let run = evenkeel_nodes::run(client, caches, clock, options.nodes.clone(), stop);
        self.tasks.spawn("nodes", run);
    }
}
