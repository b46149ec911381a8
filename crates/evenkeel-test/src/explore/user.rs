//! User of the API in a scenario.

use crate::simulation::{Requests, Settling};
use evenkeel_runtime::clock::Clock;
use kube::{Api, Resource, core::NamespaceResourceScope};
use std::time::Duration;

/// User of the API in a scenario of [`explore`](super::explore()). No fault hits its requests.
#[derive(Clone)]
pub struct User {
    pub(super) client: kube::Client,
    pub(super) requests: Requests,
    pub(super) settling: Settling,
    pub(super) quiet: Duration,
    pub(super) clock: Clock,
}

impl User {
    /// Returns the user's client, with the namespace `default`.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Returns the objects of a kind in the namespace `default`.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client())
    }

    /// Returns the user's requests by path, which panic when the server refuses them.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Returns the virtual clock of the run.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Waits until the operator and the cluster have settled: they have written nothing for
    /// [`Exploration::quiet`](super::Exploration::quiet), and have recovered from the fault if it has occurred.
    ///
    /// # Panics
    /// Panics if that takes more than two hours.
    pub async fn settle(&self) {
        self.settling.settle(self.quiet).await;
    }
}
