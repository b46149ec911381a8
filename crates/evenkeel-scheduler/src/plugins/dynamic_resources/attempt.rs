//! One attempt for a pod with claims: its data about all nodes, and its allocation on each node. The functions have no
//! side effects, because the caller passes the results by node as [`FilterResults`].
//!
//! Upstream: `stateData`.

use evenkeel_api::{
    time::Timestamp,
    views::{Node, Pod, ResourceClaim},
};
use evenkeel_component_helpers::scheduling::corev1::nodeaffinity;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{
    allocate::{self, Failure},
    assumed::{AssumedClaims, ExtendedClaimInCreation},
    claims::{self, Readiness},
    evaluations::Evaluate,
    extended::{ExtendedResourceClaim, ExtendedResourceRequest, NeedsDevices},
    in_use::InUse,
    inventory::Inventory,
    requests::{self, ClaimRequests, Classes, claim_name},
    result::{self, Allocation},
    selectors::Compile,
};
use crate::framework::{Status, StatusResult};

/// Data of the attempt about all nodes.
pub(super) struct Attempt {
    claims: Vec<Arc<ResourceClaim>>,
    /// Requests of the claims without an allocation, or the reason why they can never be allocated.
    claim_requests: Result<Vec<Arc<ClaimRequests>>, String>,
    extended_resources: Extended,
    inventory: Arc<Inventory>,
    in_use: Arc<InUse>,
}

/// Extended resources that devices may provide.
#[derive(Default)]
pub(super) enum Extended {
    /// The pod requests no such resources.
    #[default]
    None,
    /// The pod requests these resources.
    Requested(ExtendedResourceRequest),
    /// An earlier attempt created this claim. It must be deleted first.
    Stale(Arc<ResourceClaim>),
}

/// Results of one attempt by node.
#[derive(Default)]
pub(super) struct FilterResults {
    by_node: HashMap<Box<str>, NodeAllocation>,
    /// Indexes of claims whose existing allocation makes some node infeasible.
    unavailable: BTreeSet<usize>,
    /// Claims to create for extended resources, by the resources that devices must provide on a node.
    variants: HashMap<NeedsDevices, Arc<Variant>>,
}

/// Allocations that Filter computed for one node.
struct NodeAllocation {
    /// Allocations of the claims without an allocation, in their order, then the allocation of `extended_claim`.
    allocations: Vec<Allocation>,
    /// The claim to create for extended resources.
    extended_claim: Option<Arc<ExtendedResourceClaim>>,
}

/// Arguments of [`Attempt::filter`] besides the node.
pub(super) struct FilterContext<'a> {
    /// Timeout for device binding conditions.
    pub(super) binding_timeout: Duration,
    pub(super) now: Timestamp,
    /// Returns whether the search has timed out.
    pub(super) is_timed_out: &'a dyn Fn() -> bool,
    /// Compiles a CEL selector.
    pub(super) compile: &'a Compile<'a>,
    /// Evaluates a selector for a device.
    pub(super) evaluate: &'a Evaluate<'a>,
}

/// A claim to create for extended resources on some nodes. On other nodes, devices must provide other resources.
struct Variant {
    extended_claim: Arc<ExtendedResourceClaim>,
    /// Requests of the claims without an allocation and of `extended_claim`, or the reason why they can never be
    /// allocated.
    claim_requests: Result<Vec<Arc<ClaimRequests>>, String>,
}

/// Rejects the pod before any node is evaluated if a claim is already being allocated, or if a request or its class is
/// invalid.
pub(super) fn check_claims(
    claims: &[Arc<ResourceClaim>],
    class: &Classes<'_>,
    is_pending: &dyn Fn(&str) -> bool,
) -> Result<(), Status> {
    for claim in claims.iter().filter(|claim| claim.status.allocation.is_none()) {
        if is_pending(&claim.meta.uid) {
            let message = format!(
                "resource claim {} is in the process of being allocated",
                claim_name(claim)
            );
            return Err(Status::unresolvable(message));
        }
        for request in &claim.spec.devices.requests {
            match request.exactly.as_deref() {
                Some(exactly) => check_class(&request.name, &exactly.device_class_name, class)?,
                None if request.first_available.is_empty() => {
                    let claim = claim_name(claim);
                    let name = &request.name;
                    return Err(Status::unresolvable(format!(
                        "resource claim {claim}, request {name}: unknown request type"
                    )));
                }
                None => {}
            }
            for subrequest in &request.first_available {
                let name = format!("{}/{}", request.name, subrequest.name);
                check_class(&name, &subrequest.device_class_name, class)?;
            }
        }
    }
    Ok(())
}

/// Rejects the pod if the class of a request does not exist.
fn check_class(request: &str, name: &str, class: &Classes<'_>) -> StatusResult {
    if name.is_empty() {
        return Err(Status::error(format!("request {request}: unsupported request type")));
    }
    if class(name).is_none() {
        return Err(Status::unresolvable(format!(
            "request {request}: device class {name} does not exist"
        )));
    }
    Ok(())
}

impl Attempt {
    pub(super) fn new(
        claims: Vec<Arc<ResourceClaim>>,
        class: &Classes<'_>,
        compile: &Compile<'_>,
        inventory: Arc<Inventory>,
        in_use: Arc<InUse>,
        extended_resources: Extended,
    ) -> Self {
        let unallocated = claims.iter().filter(|claim| claim.status.allocation.is_none());
        let claim_requests =
            unallocated.map(|claim| requests::claim_requests(claim, class, compile).map(Arc::new));
        let claim_requests = claim_requests.collect();
        Self { claims, claim_requests, extended_resources, inventory, in_use }
    }

    /// Returns whether the node can provide the pod's claims.
    pub(super) fn filter(
        &self,
        node: &Node,
        results: &mut FilterResults,
        context: &FilterContext<'_>,
    ) -> StatusResult {
        let FilterContext { binding_timeout, now, .. } = *context;
        let variant = self.variant(node, results, context.compile)?;
        if variant.is_none() && self.claims.is_empty() {
            return Ok(());
        }
        let claims = self.claims.iter().enumerate();
        let unavailable: Vec<usize> = claims
            .filter(|(_, claim)| !is_available(claim, node, binding_timeout, now))
            .map(|(index, _)| index)
            .collect();
        let claim_requests =
            variant.as_ref().map_or(&self.claim_requests, |variant| &variant.claim_requests);
        let allocations = self.allocate(node, claim_requests, context)?;
        if !unavailable.is_empty() {
            results.unavailable.extend(unavailable);
            return Err(Status::unresolvable("resourceclaim not available on the node"));
        }
        let extended_claim = variant.map(|variant| Arc::clone(&variant.extended_claim));
        results
            .by_node
            .insert((&*node.meta.name).into(), NodeAllocation { allocations, extended_claim });
        Ok(())
    }

    /// Returns the claim to create for extended resources on the node, or `None` if the node provides them all itself.
    fn variant(
        &self,
        node: &Node,
        results: &mut FilterResults,
        compile: &Compile<'_>,
    ) -> Result<Option<Arc<Variant>>, Status> {
        let extended_request = match &self.extended_resources {
            Extended::None => return Ok(None),
            Extended::Stale(_) => {
                return Err(Status::unresolvable("cannot schedule extended resource claim"));
            }
            Extended::Requested(extended_request) => extended_request,
        };
        let needs_devices = extended_request.needs_devices_on(node)?;
        if !needs_devices.contains(&true) {
            return Ok(None);
        }
        if let Some(variant) = results.variants.get(&needs_devices) {
            return Ok(Some(Arc::clone(variant)));
        }
        let extended_claim = Arc::new(extended_request.build_claim(&needs_devices));
        let extended_claim_requests = requests::claim_requests(
            &extended_claim.claim,
            &|name: &str| extended_request.class(name),
            compile,
        );
        let claim_requests = self.claim_requests.clone().and_then(|mut claim_requests| {
            claim_requests.push(Arc::new(extended_claim_requests?));
            Ok(claim_requests)
        });
        let variant = Arc::new(Variant { extended_claim, claim_requests });
        results.variants.insert(needs_devices, Arc::clone(&variant));
        Ok(Some(variant))
    }

    /// Allocates devices of the node for the claims that have no allocation.
    fn allocate(
        &self,
        node: &Node,
        claim_requests: &Result<Vec<Arc<ClaimRequests>>, String>,
        context: &FilterContext<'_>,
    ) -> Result<Vec<Allocation>, Status> {
        let claim_requests =
            claim_requests.as_ref().map_err(|message| Status::error(message.clone()))?;
        if claim_requests.is_empty() {
            return Ok(Vec::new());
        }
        let name = &node.meta.name;
        let FilterContext { evaluate, is_timed_out, .. } = *context;
        let inventory = &self.inventory;
        let in_use = &self.in_use;
        let allocated =
            allocate::allocate(inventory, in_use, node, claim_requests, evaluate, is_timed_out)
                .map_err(|failure| match failure {
                    Failure::NoSolution => Status::unresolvable("cannot allocate all claims"),
                    Failure::InvalidPool => {
                        Status::unresolvable("invalid resource pools were encountered")
                    }
                    Failure::Fatal(message) => Status::error(message),
                    Failure::TimedOut => {
                        Status::error(format!("node {name}: timed out trying to allocate devices"))
                    }
                })?;
        claim_requests
            .iter()
            .zip(&allocated)
            .map(|(claim_requests, devices)| result::allocation(name, claim_requests, devices))
            .collect::<Result<_, _>>()
            .map_err(Status::error)
    }

    /// Scores the node by the rank of the subrequests that its allocations satisfy.
    pub(super) fn score(&self, node: &str, results: &FilterResults) -> i64 {
        let Some(node_allocation) = results.by_node.get(node) else { return 0 };
        let mut new_allocations = node_allocation.allocations.iter();
        let ranks = self.claims.iter().map(|claim| match claim.status.allocation.as_deref() {
            Some(allocation) => {
                let is_selected = |name: &str| {
                    allocation.devices.results.iter().any(|device| *device.request == *name)
                };
                result::rank(claim, is_selected)
            }
            None => new_allocations.next().map_or(0, |allocation| allocation.rank),
        });
        ranks.sum()
    }

    /// Returns the claims to assume for the node, or `None` if the filter did not find the node feasible.
    pub(super) fn assumed_claims(
        &self,
        node: &str,
        results: &FilterResults,
    ) -> Option<AssumedClaims> {
        let Some(node_allocation) = results.by_node.get(node) else {
            // Without claims, the node provides all extended resources itself.
            return self.claims.is_empty().then(AssumedClaims::default);
        };
        let mut new_allocations = node_allocation.allocations.iter().cloned();
        let claims = self.claims.iter().map(|claim| {
            let allocation = match claim.status.allocation {
                Some(_) => None,
                None => Some(new_allocations.next()?),
            };
            Some((Arc::clone(claim), allocation))
        });
        let claims = claims.collect::<Option<_>>()?;
        let extended_claim = match &node_allocation.extended_claim {
            Some(extended_claim) => {
                let extended_claim = Arc::clone(extended_claim);
                Some(ExtendedClaimInCreation {
                    planned: extended_claim,
                    allocation: new_allocations.next()?,
                    written: None,
                })
            }
            None => None,
        };
        Some(AssumedClaims { claims, extended_claim })
    }

    /// Returns the claim of an earlier attempt that must be deleted before this pod can be scheduled.
    pub(super) fn stale_claim(&self) -> Option<&Arc<ResourceClaim>> {
        match &self.extended_resources {
            Extended::Stale(claim) => Some(claim),
            Extended::None | Extended::Requested(_) => None,
        }
    }

    /// Returns a claim whose allocation makes a node infeasible and that no other pod uses.
    pub(super) fn unavailable_claim(
        &self,
        pod: &Pod,
        results: &FilterResults,
    ) -> Option<Arc<ResourceClaim>> {
        let claims = results.unavailable.iter().filter_map(|index| self.claims.get(*index));
        claims
            .filter(|claim| match &*claim.status.reserved_for {
                [] => true,
                [consumer] => consumer.uid == pod.meta.uid,
                _ => false,
            })
            .map(Arc::clone)
            .next()
    }
}

/// Returns whether the node can access the devices of the claim's allocation, and these are ready or may still become
/// ready.
fn is_available(claim: &ResourceClaim, node: &Node, timeout: Duration, now: Timestamp) -> bool {
    let Some(allocation) = claim.status.allocation.as_deref() else { return true };
    let is_accessible = allocation.node_selector.as_deref().is_none_or(|selector| {
        selector.node_selector_terms.iter().any(|term| nodeaffinity::matches(term, node))
    });
    is_accessible
        && match claims::readiness(claim) {
            Readiness::Ready => true,
            Readiness::Failed(_) => false,
            Readiness::Waits => !claims::is_overdue(claim, timeout, now),
        }
}
