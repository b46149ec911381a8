//! Environment that the controllers of a program share.

use super::Metrics;
use crate::{cache::Caches, client::Client, clock::Clock, introspect::Introspection};
use prometheus::Registry;

/// Client, caches, clock and metrics of the controllers of a program.
#[derive(Clone)]
pub struct Env {
    /// Client of the API server; each controller sends its own user agent.
    pub client: Client,
    /// Caches that the controllers read, one per kind.
    pub caches: Caches,
    /// Clock of the program, which simulations replace.
    pub clock: Clock,
    /// Metrics of queues and controllers.
    pub metrics: Metrics,
    /// Reports of what controllers observe, would do and wait for.
    pub introspection: Introspection,
}

impl Env {
    /// Brings the parts together and registers the metrics of queues and controllers; once per registry.
    pub fn new(client: Client, caches: Caches, clock: Clock, registry: &Registry) -> Self {
        let introspection = Introspection::new(caches.clone(), clock.clone());
        Self { client, caches, clock, metrics: Metrics::register(registry), introspection }
    }
}
