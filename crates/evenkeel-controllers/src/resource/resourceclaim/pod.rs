//! Steps for a pod's claims. The claims that the status names and the cache lacks are read live. Missing claims are
//! created one by one, and recorded in the pod's status. Once the status has all claims, allocated ones are reserved.
//! Upstream: `syncPod`.

use super::{
    Claim, Template,
    plan::{self, ClaimName, DisabledFeature, FeatureGates},
};
use crate::{newer_kinds::ResourceClaim, wire};
use evenkeel_api::{
    View as _,
    views::{Pod, PodResourceClaim},
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{
        Create, EventRecord, Failure, LiveRead, OnError, Outcome, Outcomes, Patch, PatchType, Plan,
        PlanError, Update,
    },
};
use std::{collections::BTreeMap, sync::Arc};

/// Field manager of `resourceClaimStatuses`.
const FIELD_MANAGER: &str = "ResourceClaimController";

/// Error in finding or creating a pod's claim.
#[derive(Debug, thiserror::Error)]
enum ClaimError {
    #[error("checking for claim before creating it: none of the supported fields are set")]
    Unknown,
    #[error("resource claim template {0:?}: resourceclaimtemplate.resource.k8s.io {0:?} not found")]
    NoTemplate(String),
    #[error(transparent)]
    DisabledFeature(#[from] DisabledFeature),
    #[error("create ResourceClaim : {0}")]
    Create(Failure),
    #[error("checking claim existence: {0}")]
    Read(Failure),
}

/// A pod, and its claims in the caches.
pub(super) struct Observed {
    pub(super) pod: Arc<Pod>,
    /// Claims and templates that the entries of `spec.resourceClaims` name, in the same order.
    pub(super) named: Vec<NamedObjects>,
    /// Claims that the pod owns.
    pub(super) owned: Vec<Arc<Claim>>,
    pub(super) gates: FeatureGates,
}

/// Claim and template of an entry of `spec.resourceClaims`. Each is `None` if its cache lacks the object.
#[derive(Default)]
pub(super) struct NamedObjects {
    pub(super) claim: Option<Arc<Claim>>,
    pub(super) template: Option<Arc<Template>>,
}

impl Observed {
    /// Returns the pod's claims, each with the objects that it names.
    fn claims(&self) -> impl Iterator<Item = (&PodResourceClaim, &NamedObjects)> {
        self.pod.spec.resource_claims.iter().zip(&self.named)
    }

    /// Returns whether the pod needs claims. A finished or terminating pod does not: its claims are being deleted.
    fn needs_claims(&self) -> bool {
        !self.pod.meta.deleting() && !plan::is_done(&self.pod)
    }

    /// Returns whether to read a claim live: the claim is from a template and the status names it, but the cache lacks
    /// it.
    fn needs_live_read(&self, claim: &PodResourceClaim, named: &NamedObjects) -> bool {
        plan::is_from_template(claim)
            && named.claim.is_none()
            && matches!(plan::claim_name(&self.pod, claim), ClaimName::Is(_))
    }
}

/// Reads live the claims that the cache lacks. If the cache has all claims, takes the next step immediately.
pub(super) fn plan(observed: &Observed) -> Plan {
    if !observed.needs_claims() {
        return Plan::nothing();
    }
    let pod = &*observed.pod;
    let to_read = observed.claims().filter(|(claim, named)| observed.needs_live_read(claim, named));
    let reads: Vec<_> = to_read
        .filter_map(|(claim, _)| match plan::claim_name(pod, claim) {
            ClaimName::Is(name) => {
                let read = LiveRead::get::<Claim>(&Claim::kind(), &pod.meta.namespace, name);
                Some(LiveRead { on_error: OnError::Ignore, ..read }.into())
            }
            _ => None,
        })
        .collect();
    if reads.is_empty() {
        return next(observed, &Outcomes::default()).unwrap_or_default();
    }
    Plan::of(reads)
}

/// Creates the next missing claim. If none is missing, updates the pod's status, or reserves its claims.
pub(super) fn next(observed: &Observed, outcomes: &Outcomes) -> Option<Plan> {
    if !observed.needs_claims() {
        return None;
    }
    let mut replay = Replay::of(observed, outcomes);
    let mut unrecorded = BTreeMap::new();
    for (claim, named) in observed.claims() {
        let live_read = replay.live_read_of(observed, claim, named);
        let claim_name = match look_up_claim(observed, claim, named, live_read) {
            Ok(ClaimLookup::NothingToDo) => continue,
            Ok(ClaimLookup::Unrecorded(name)) => name,
            Ok(ClaimLookup::Missing(new)) => match replay.writes.next() {
                None => return Some(Plan::one(create(observed, &new))),
                Some(Outcome { created: Some(name), .. }) => name.to_string(),
                Some(Outcome { error: Some(error), .. }) => {
                    return replay.fail(observed, claim, &ClaimError::Create(error.clone()));
                }
                Some(_) => return None,
            },
            Err(error) => return replay.fail(observed, claim, &error),
        };
        unrecorded.insert(claim.name.to_string(), claim_name);
    }
    if replay.writes.next().is_some() {
        return None;
    }
    // Created claims are not reserved now, but in a later reconciliation that observes them.
    Some(if unrecorded.is_empty() {
        reserve(observed)
    } else {
        update_status(observed, &unrecorded)
    })
}

/// The outcomes so far, which the decision consumes again at each step: first the outcomes of the reads in the first
/// step, then the outcomes of the writes.
struct Replay<'a> {
    reads: std::slice::Iter<'a, Outcome>,
    writes: std::slice::Iter<'a, Outcome>,
}

impl<'a> Replay<'a> {
    fn of(observed: &Observed, outcomes: &'a Outcomes) -> Self {
        let to_read =
            observed.claims().filter(|(claim, named)| observed.needs_live_read(claim, named));
        let (reads, writes) = outcomes.0.split_at(to_read.count().min(outcomes.0.len()));
        Self { reads: reads.iter(), writes: writes.iter() }
    }

    /// Returns the outcome of the claim's live read, if it needed one.
    fn live_read_of(
        &mut self,
        observed: &Observed,
        claim: &PodResourceClaim,
        named: &NamedObjects,
    ) -> Option<&'a Outcome> {
        if observed.needs_live_read(claim, named) { self.reads.next() } else { None }
    }

    /// Returns the plan that ends a reconciliation with this error, or `None` if it was already carried out.
    fn fail(
        &mut self,
        observed: &Observed,
        claim: &PodResourceClaim,
        error: &ClaimError,
    ) -> Option<Plan> {
        match self.writes.next() {
            None => Some(fail_with_event(observed, claim, error)),
            Some(_) => None,
        }
    }
}

/// Result of the search for a pod's claim.
enum ClaimLookup {
    /// The claim exists and the status names it, the user creates the claim, or the pod needs none.
    NothingToDo,
    /// The claim of this name exists, but the pod's status does not name it.
    Unrecorded(String),
    /// This claim must be created.
    Missing(Box<ResourceClaim>),
}

/// Looks up a claim of the pod. Upstream: `handleClaim`.
fn look_up_claim(
    observed: &Observed,
    claim: &PodResourceClaim,
    named: &NamedObjects,
    live_read: Option<&Outcome>,
) -> Result<ClaimLookup, ClaimError> {
    let pod = &*observed.pod;
    match plan::claim_name(pod, claim) {
        ClaimName::NotNeeded => return Ok(ClaimLookup::NothingToDo),
        ClaimName::Unknown => return Err(ClaimError::Unknown),
        ClaimName::Is(_) if exists(pod, claim, named, live_read)? => {
            return Ok(ClaimLookup::NothingToDo);
        }
        // The user creates this claim.
        ClaimName::Is(_) if !plan::is_from_template(claim) => return Ok(ClaimLookup::NothingToDo),
        ClaimName::Is(_) | ClaimName::NotYet => {}
    }
    // A claim may exist whose name is not in the pod's status. Upstream: `findPodResourceClaim`.
    let is_for_entry = |owned: &&Arc<Claim>| plan::is_for_entry(owned, &claim.name);
    if let Some(owned) = observed.owned.iter().find(is_for_entry) {
        return Ok(ClaimLookup::Unrecorded(owned.meta().name.to_string()));
    }
    let name = &*claim.resource_claim_template_name;
    let template =
        named.template.as_ref().ok_or_else(|| ClaimError::NoTemplate(name.to_owned()))?;
    plan::check_features(template, observed.gates)?;
    Ok(ClaimLookup::Missing(Box::new(plan::new_claim(pod, &claim.name, template))))
}

/// Returns whether the claim exists and belongs to the pod, according to the cache or to the outcome of the live read.
fn exists(
    pod: &Pod,
    claim: &PodResourceClaim,
    named: &NamedObjects,
    live_read: Option<&Outcome>,
) -> Result<bool, ClaimError> {
    let belongs_to_pod =
        |found: &Claim| !plan::is_from_template(claim) || plan::is_for_pod(found, pod);
    if let Some(found) = &named.claim {
        return Ok(belongs_to_pod(found));
    }
    let Some(live_read) = live_read else { return Ok(false) };
    match (&live_read.reply, &live_read.error) {
        (Some(reply), _) => {
            reply.object::<Claim>().map(|found| belongs_to_pod(&found)).map_err(ClaimError::Read)
        }
        (None, Some(error)) if !error.is_not_found() => Err(ClaimError::Read(error.clone())),
        (None, _) => Ok(false),
    }
}

/// Returns the action that creates the claim. The next step reports its failure in an event.
fn create(observed: &Observed, new: &ResourceClaim) -> Create {
    let body = wire::json(new);
    let create = Create::new(Claim::kind(), &observed.pod.meta.namespace, body);
    Create { on_error: OnError::Ignore, ..create }
}

/// Returns the failed plan that records an event about a claim that was not created.
fn fail_with_event(observed: &Observed, claim: &PodResourceClaim, error: &ClaimError) -> Plan {
    let meta = &observed.pod.meta;
    let message = format!("PodResourceClaim {}: {error}", claim.name);
    let error = format!("pod {}/{}, {message}", meta.namespace, meta.name);
    let target = wire::target(&*observed.pod);
    let event = EventRecord::warning(target, "FailedResourceClaimCreation", message);
    Plan { error: Some(PlanError::new(error)), ..Plan::one(event) }
}

/// Records claims in the pod's status, by the names of their entries.
fn update_status(observed: &Observed, claims: &BTreeMap<String, String>) -> Plan {
    let body = plan::claim_statuses(&observed.pod, claims).to_string();
    let patch = Patch::new(wire::target(&*observed.pod), PatchType::Apply(FIELD_MANAGER), body);
    Plan::one(Patch { subresource: "status", on_error: OnError::Abort, ..patch })
}

/// Reserves allocated claims for a scheduled pod. Upstream: `syncPod`.
fn reserve(observed: &Observed) -> Plan {
    let mut plan = Plan::nothing();
    let pod = &*observed.pod;
    if pod.spec.node_name.is_empty() {
        // The scheduler reserves the claims with its decision.
        return plan;
    }
    for (claim, named) in observed.claims() {
        let ClaimName::Is(name) = plan::claim_name(pod, claim) else { continue };
        let Some(cached) = &named.claim else { break };
        if plan::is_from_template(claim) && !plan::is_for_pod(cached, pod) {
            let namespace = &pod.meta.namespace;
            let pod = &pod.meta.name;
            plan.error = Some(PlanError::new(format!(
                "ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod} (Pod is not owner)"
            )));
            break;
        }
        if plan::lacks_reservation(cached, pod) {
            let body = wire::json(&plan::with_reservation(cached, pod));
            let update = Update::status(wire::target(&**cached), body);
            plan.push(Update { on_error: OnError::Abort, ..update });
        }
    }
    plan
}

/// A request to create a claim.
pub(super) struct Creation {
    pub(super) claim: ResourceClaim,
    pub(super) succeeded: bool,
}

/// Returns the requests of a reconciliation to create claims.
pub(super) fn creations(observed: &Observed, outcomes: &Outcomes) -> Vec<Creation> {
    if !observed.needs_claims() {
        return Vec::new();
    }
    let mut replay = Replay::of(observed, outcomes);
    let mut creations = Vec::new();
    for (claim, named) in observed.claims() {
        let live_read = replay.live_read_of(observed, claim, named);
        match look_up_claim(observed, claim, named, live_read) {
            Ok(ClaimLookup::Missing(new)) => {
                let Some(outcome) = replay.writes.next() else { break };
                let succeeded = outcome.error.is_none();
                creations.push(Creation { claim: *new, succeeded });
                if !succeeded {
                    // The next outcome belongs to the event.
                    break;
                }
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    creations
}

/// Describes the names of a pod's claims.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    for (claim, _) in observed.claims() {
        description.fact(&claim.name, format!("{:?}", plan::claim_name(&observed.pod, claim)));
    }
    description
}

#[cfg(test)]
mod tests;
