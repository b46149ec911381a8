//! What all controllers of a program share.

use super::Metrics;
use crate::{cache::Caches, client::Client, clock::Clock, introspect::Introspection};
use prometheus::Registry;

/// Client, caches, clock and metrics: what a controller is built on.
#[derive(Clone)]
pub struct Env {
    /// Where writes go; each controller sends its own user agent.
    pub client: Client,
    /// What controllers read.
    pub caches: Caches,
    /// Clock of the program, which simulations replace.
    pub clock: Clock,
    /// Metrics of queues and controllers.
    pub metrics: Metrics,
    /// What controllers see, would do and wait for.
    pub introspection: Introspection,
}

impl Env {
    /// Brings the parts together and registers the metrics of queues and controllers; once per registry.
    pub fn new(client: Client, caches: Caches, clock: Clock, registry: &Registry) -> Self {
        let introspection = Introspection::new(caches.clone(), clock.clone());
        Self { client, caches, clock, metrics: Metrics::register(registry), introspection }
    }
}
