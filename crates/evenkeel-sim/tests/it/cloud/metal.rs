//! A cloud that outlives its controllers, and fails on request.

use async_trait::async_trait;
use evenkeel_api::views::{LoadBalancerIngress, LoadBalancerStatus, Node, NodeAddress, Service};
use evenkeel_cloud::{
    CloudError, CloudProvider, InstanceMetadata, Instances, LoadBalancer, Route, Routes,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// State of the cloud.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Load balancers by the uid of their service: their address, and the names of their nodes.
    pub(crate) balancers: BTreeMap<String, (String, Vec<String>)>,
    pub(crate) routes: Vec<Route>,
    /// Machines by name, and whether they are shut down.
    pub(crate) machines: BTreeMap<String, bool>,
    /// Number of calls that change something.
    pub(crate) calls: u64,
    /// Numbers of the calls that fail.
    pub(crate) fails_at: BTreeSet<u64>,
    /// Whether these calls return a retry delay instead of an error.
    pub(crate) asks_for_patience: bool,
}

/// The cloud; clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Metal(Arc<Mutex<State>>);

impl Metal {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets the cloud to only the machines of the nodes, with failures at these calls.
    pub(crate) fn reset(&self, fails_at: impl IntoIterator<Item = u64>) {
        let machines = (0..3).map(|n| (format!("node-{n}"), false)).collect();
        let fails_at = fails_at.into_iter().collect();
        *self.state() = State { fails_at, machines, ..State::default() };
    }

    /// Counts a call. Returns the state to change, unless the call fails. A failed call may have been executed in part.
    fn change(&self) -> Result<MutexGuard<'_, State>, CloudError> {
        let mut state = self.state();
        state.calls += 1;
        if !state.fails_at.contains(&state.calls) {
            return Ok(state);
        }
        Err(if state.asks_for_patience {
            CloudError::retry_after("not yet", Duration::from_secs(7))
        } else {
            CloudError::failed("the cloud has a bad day")
        })
    }
}

impl CloudProvider for Metal {
    fn name(&self) -> &str {
        "metal"
    }

    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        Some(self)
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        Some(self)
    }
}

fn status(address: &str) -> LoadBalancerStatus {
    let ingress = LoadBalancerIngress { ip: address.into(), ..LoadBalancerIngress::default() };
    LoadBalancerStatus { ingress: Box::new([ingress]) }
}

fn names(nodes: &[Arc<Node>]) -> Vec<String> {
    nodes.iter().map(|node| node.meta.name.to_string()).collect()
}

#[async_trait]
impl LoadBalancer for Metal {
    async fn get(
        &self,
        _: &str,
        service: &Service,
    ) -> Result<Option<LoadBalancerStatus>, CloudError> {
        let state = self.state();
        Ok(state.balancers.get(&*service.meta.uid).map(|(address, _)| status(address)))
    }

    async fn ensure(
        &self,
        _: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, CloudError> {
        let mut state = self.change()?;
        let free = (1..)
            .map(|n| format!("198.18.0.{n}"))
            .find(|ip| state.balancers.values().all(|(taken, _)| taken != ip));
        let balancer = state
            .balancers
            .entry(service.meta.uid.to_string())
            .or_insert_with(|| (free.unwrap_or_default(), Vec::new()));
        balancer.1 = names(nodes);
        Ok(status(&balancer.0))
    }

    async fn update(
        &self,
        _: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<(), CloudError> {
        let mut state = self.change()?;
        if let Some(balancer) = state.balancers.get_mut(&*service.meta.uid) {
            balancer.1 = names(nodes);
        }
        Ok(())
    }

    async fn ensure_deleted(&self, _: &str, service: &Service) -> Result<(), CloudError> {
        self.change()?.balancers.remove(&*service.meta.uid);
        Ok(())
    }
}

#[async_trait]
impl Instances for Metal {
    async fn exists(&self, node: &Node) -> Result<bool, CloudError> {
        Ok(self.change()?.machines.contains_key(&*node.meta.name))
    }

    async fn shut_down(&self, node: &Node) -> Result<bool, CloudError> {
        Ok(self.change()?.machines.get(&*node.meta.name).copied().unwrap_or_default())
    }

    async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, CloudError> {
        let state = self.change()?;
        // For the simulated nodes, the cloud only reports that they exist.
        let known = &*node.meta.name == "metal" && state.machines.contains_key("metal");
        Ok(known.then(|| InstanceMetadata {
            provider_id: format!("metal://{}", node.meta.name),
            zone: "cellar".into(),
            addresses: vec![NodeAddress { type_: "InternalIP".into(), address: "10.9.0.1".into() }],
            ..InstanceMetadata::default()
        }))
    }
}

#[async_trait]
impl Routes for Metal {
    async fn list(&self, _: &str) -> Result<Vec<Route>, CloudError> {
        Ok(self.change()?.routes.clone())
    }

    async fn create(&self, _: &str, hint: &str, route: &Route) -> Result<(), CloudError> {
        let name = format!("{hint} {}", route.destination);
        self.change()?.routes.push(Route { name, ..route.clone() });
        Ok(())
    }

    async fn delete(&self, _: &str, route: &Route) -> Result<(), CloudError> {
        self.change()?.routes.retain(|present| present != route);
        Ok(())
    }
}
