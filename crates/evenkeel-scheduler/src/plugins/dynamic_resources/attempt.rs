//! One attempt to find a node for a pod with claims: what all nodes share, and what each would give.

use evenkeel_api::{
    placement,
    time::Timestamp,
    views::{Node, Pod, ResourceClaim},
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    allocate::{self, Failure},
    claims::{self, Readiness},
    in_use::InUse,
    inventory::Inventory,
    requests::{self, Classes, Wanted, claim_name},
    result::{self, Allocation},
    selectors::Selectors,
};
use crate::framework::{Filtered, Rejection};

/// What holds for all nodes.
#[derive(Clone)]
pub(super) struct Attempt(Arc<Shared>);

struct Shared {
    claims: Vec<Arc<ResourceClaim>>,
    /// Those that have no devices yet, or why they never will.
    wanted: Result<Vec<Wanted>, String>,
    inventory: Arc<Inventory>,
    in_use: Arc<InUse>,
    found: Mutex<Found>,
}

/// What was found out node by node.
#[derive(Default)]
struct Found {
    /// Devices for the claims without, in their order, by node.
    by_node: HashMap<Box<str>, Vec<Allocation>>,
    /// Claims whose devices are of no use on some node.
    unavailable: BTreeSet<usize>,
}

/// Whether devices can be looked for at all.
pub(super) fn check(
    claims: &[Arc<ResourceClaim>],
    class: &Classes<'_>,
    is_pending: &dyn Fn(&str) -> bool,
) -> Result<(), Rejection> {
    for claim in claims.iter().filter(|claim| claim.status.allocation.is_none()) {
        if is_pending(&claim.meta.uid) {
            let why = format!(
                "resource claim {} is in the process of being allocated",
                claim_name(claim)
            );
            return Err(Rejection::unresolvable(why));
        }
        for request in &claim.spec.devices.requests {
            match request.exactly.as_deref() {
                Some(exactly) => check_class(&request.name, &exactly.device_class_name, class)?,
                None if request.first_available.is_empty() => {
                    let (claim, name) = (claim_name(claim), &request.name);
                    return Err(Rejection::unresolvable(format!(
                        "resource claim {claim}, request {name}: unknown request type"
                    )));
                }
                None => {}
            }
            for choice in &request.first_available {
                let name = format!("{}/{}", request.name, choice.name);
                check_class(&name, &choice.device_class_name, class)?;
            }
        }
    }
    Ok(())
}

fn check_class(request: &str, name: &str, class: &Classes<'_>) -> Filtered {
    if name.is_empty() {
        return Err(Rejection::error(format!("request {request}: unsupported request type")));
    }
    if class(name).is_none() {
        return Err(Rejection::unresolvable(format!(
            "request {request}: device class {name} does not exist"
        )));
    }
    Ok(())
}

impl Attempt {
    pub(super) fn new(
        claims: Vec<Arc<ResourceClaim>>,
        class: &Classes<'_>,
        selectors: &Selectors,
        inventory: Arc<Inventory>,
        in_use: Arc<InUse>,
    ) -> Self {
        let without = claims.iter().filter(|claim| claim.status.allocation.is_none());
        let wanted = without.map(|claim| requests::wanted(claim, class, selectors)).collect();
        let found = Mutex::default();
        Self(Arc::new(Shared { claims, wanted, inventory, in_use, found }))
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.0.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the pod's claims can be had on the node.
    pub(super) fn filter(
        &self,
        node: &Node,
        patience: Duration,
        now: Timestamp,
        over: &dyn Fn() -> bool,
    ) -> Filtered {
        let unavailable: Vec<usize> = self
            .0
            .claims
            .iter()
            .enumerate()
            .filter(|(_, claim)| !is_available(claim, node, patience, now))
            .map(|(n, _)| n)
            .collect();
        let allocations = self.allocate(node, over)?;
        let mut found = self.found();
        if !unavailable.is_empty() {
            found.unavailable.extend(unavailable);
            return Err(Rejection::unresolvable("resourceclaim not available on the node"));
        }
        found.by_node.insert((&*node.meta.name).into(), allocations);
        Ok(())
    }

    fn allocate(&self, node: &Node, over: &dyn Fn() -> bool) -> Result<Vec<Allocation>, Rejection> {
        let wanted = self.0.wanted.as_ref().map_err(|why| Rejection::error(why.clone()))?;
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let name = &node.meta.name;
        let found = allocate::allocate(&self.0.inventory, &self.0.in_use, node, wanted, over)
            .map_err(|failure| match failure {
                Failure::None => Rejection::unresolvable("cannot allocate all claims"),
                Failure::Invalid => {
                    Rejection::unresolvable("invalid resource pools were encountered")
                }
                Failure::Fatal(why) => Rejection::error(why),
                Failure::TimedOut => {
                    Rejection::error(format!("node {name}: timed out trying to allocate devices"))
                }
            })?;
        let each = wanted.iter().zip(&found);
        each.map(|(wanted, allocated)| result::result(name, wanted, allocated))
            .collect::<Result<_, _>>()
            .map_err(Rejection::error)
    }

    /// How much of what the claims prefer the node gives.
    pub(super) fn score(&self, node: &str) -> i64 {
        let found = self.found();
        let Some(allocations) = found.by_node.get(node) else { return 0 };
        let mut new = allocations.iter();
        let ranks = self.0.claims.iter().map(|claim| match claim.status.allocation.as_deref() {
            Some(allocation) => {
                let taken = |name: &str| {
                    allocation.devices.results.iter().any(|device| *device.request == *name)
                };
                result::rank(claim, taken)
            }
            None => new.next().map_or(0, |allocation| allocation.rank),
        });
        ranks.sum()
    }

    /// The claims, each with the devices that it gets on the node, if it has none.
    pub(super) fn decided(
        &self,
        node: &str,
    ) -> Option<Vec<(Arc<ResourceClaim>, Option<Allocation>)>> {
        let found = self.found();
        let mut new = found.by_node.get(node)?.iter().cloned();
        let each = self.0.claims.iter().map(|claim| {
            let allocation = match claim.status.allocation {
                Some(_) => None,
                None => Some(new.next()?),
            };
            Some((Arc::clone(claim), allocation))
        });
        each.collect()
    }

    /// A claim whose devices keep the pod from a node, and which nobody else uses.
    pub(super) fn in_the_way(&self, pod: &Pod) -> Option<Arc<ResourceClaim>> {
        let found = self.found();
        let claims = found.unavailable.iter().filter_map(|n| self.0.claims.get(*n));
        claims
            .filter(|claim| match &*claim.status.reserved_for {
                [] => true,
                [one] => one.uid == pod.meta.uid,
                _ => false,
            })
            .map(Arc::clone)
            .next()
    }
}

/// Whether the devices that the claim has can be used from the node, and are or will be ready.
fn is_available(claim: &ResourceClaim, node: &Node, patience: Duration, now: Timestamp) -> bool {
    let Some(allocation) = claim.status.allocation.as_deref() else { return true };
    let reaches = allocation.node_selector.as_deref().is_none_or(|selector| {
        selector.node_selector_terms.iter().any(|term| placement::matches(term, node))
    });
    reaches
        && match claims::readiness(claim) {
            Readiness::Ready => true,
            Readiness::Failed(_) => false,
            Readiness::Waits => !claims::is_overdue(claim, patience, now),
        }
}
