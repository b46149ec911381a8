//! Steps for a pod's claims. Read live the claims that the status names and the cache lacks, create missing claims
//! one by one, and name them in the pod's status. Once the status names all claims, reserve the allocated ones.
//! Upstream: `syncPod`.

use super::{
    Claim, Template,
    plan::{self, DisabledFeature, Name},
};
use crate::wire;
use evenkeel_api::{
    View as _,
    views::{Pod, PodResourceClaim},
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{
        Create, EventRecord, Failure, LiveRead, OnError, Outcome, Outcomes, Patch, PatchForm, Plan,
        PlanError, Update,
    },
};
use k8s_openapi::api::resource::v1::ResourceClaim;
use std::{collections::BTreeMap, sync::Arc};

/// Field manager of `resourceClaimStatuses`.
const MANAGER: &str = "ResourceClaimController";

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
    /// Claims and templates, in the order of `spec.resourceClaims`.
    pub(super) named: Vec<Named>,
    /// Claims that the pod owns.
    pub(super) owned: Vec<Arc<Claim>>,
    /// Whether the gate `DRAAdminAccess` is on.
    pub(super) admin_access: bool,
    /// Whether the gate `DRAPrioritizedList` is on.
    pub(super) prioritized: bool,
}

/// Claim or template that an entry of `spec.resourceClaims` names.
#[derive(Default)]
pub(super) struct Named {
    pub(super) claim: Option<Arc<Claim>>,
    pub(super) template: Option<Arc<Template>>,
}

impl Observed {
    fn claims(&self) -> impl Iterator<Item = (&PodResourceClaim, &Named)> {
        self.pod.spec.resource_claims.iter().zip(&self.named)
    }

    /// Whether the pod needs claims. A finished or terminating pod does not: the claims created for it are being
    /// deleted.
    fn needs_claims(&self) -> bool {
        !self.pod.meta.deleting() && !plan::is_done(&self.pod)
    }

    /// Whether to read a claim live: it is from a template, the status names it, but the cache lacks it.
    fn needs_live_read(&self, claim: &PodResourceClaim, named: &Named) -> bool {
        plan::is_from_template(claim)
            && named.claim.is_none()
            && matches!(plan::name(&self.pod, claim), Name::Is(_))
    }
}

/// Reads live the claims that the cache lacks. If it has all, takes the next step at once.
pub(super) fn plan(observed: &Observed) -> Plan {
    if !observed.needs_claims() {
        return Plan::nothing();
    }
    let pod = &*observed.pod;
    let to_read = observed.claims().filter(|(claim, named)| observed.needs_live_read(claim, named));
    let reads: Vec<_> = to_read
        .filter_map(|(claim, _)| match plan::name(pod, claim) {
            Name::Is(name) => {
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
pub(super) fn next(observed: &Observed, done: &Outcomes) -> Option<Plan> {
    if !observed.needs_claims() {
        return None;
    }
    let mut done = Replay::of(observed, done);
    let mut made = BTreeMap::new();
    for (claim, named) in observed.claims() {
        let answer = observed.needs_live_read(claim, named).then(|| done.reads.next()).flatten();
        let found = match find(observed, claim, named, answer) {
            Ok(Found::NotNeeded) => continue,
            Ok(Found::Is(name)) => name,
            Ok(Found::Lacks(new)) => match done.writes.next() {
                None => return Some(Plan::one(create(observed, &new))),
                Some(Outcome { created: Some(name), .. }) => name.to_string(),
                Some(Outcome { error: Some(error), .. }) => {
                    let error = ClaimError::Create(error.clone());
                    return done.writes.next().is_none().then(|| refuse(observed, claim, &error));
                }
                Some(_) => return None,
            },
            Err(error) => {
                return done.writes.next().is_none().then(|| refuse(observed, claim, &error));
            }
        };
        made.insert(claim.name.to_string(), found);
    }
    if done.writes.next().is_some() {
        return None;
    }
    // Do not reserve created claims now: a later pass, which observes them, does.
    Some(if made.is_empty() { reserve(observed) } else { update_status(observed, &made) })
}

/// The outcomes so far: those of the first step's reads, then those of the writes.
struct Replay<'a> {
    reads: std::slice::Iter<'a, Outcome>,
    writes: std::slice::Iter<'a, Outcome>,
}

impl<'a> Replay<'a> {
    fn of(observed: &Observed, done: &'a Outcomes) -> Self {
        let to_read =
            observed.claims().filter(|(claim, named)| observed.needs_live_read(claim, named));
        let (reads, writes) = done.0.split_at(to_read.count().min(done.0.len()));
        Self { reads: reads.iter(), writes: writes.iter() }
    }
}

/// Name of a pod's claim, or the claim to create.
enum Found {
    /// Nothing changes: the claim exists under the name in the status, the user creates it, or the pod needs no
    /// claim.
    NotNeeded,
    /// The claim exists, but the pod's status does not name it.
    Is(String),
    /// The claim does not exist, and must be created.
    Lacks(Box<ResourceClaim>),
}

/// Finds a claim of the pod. Upstream: `handleClaim`.
fn find(
    observed: &Observed,
    claim: &PodResourceClaim,
    named: &Named,
    answer: Option<&Outcome>,
) -> Result<Found, ClaimError> {
    let pod = &*observed.pod;
    match plan::name(pod, claim) {
        Name::NotNeeded => return Ok(Found::NotNeeded),
        Name::Unknown => return Err(ClaimError::Unknown),
        Name::Is(_) if exists(pod, claim, named, answer)? => return Ok(Found::NotNeeded),
        // The user creates this claim.
        Name::Is(_) if !plan::is_from_template(claim) => return Ok(Found::NotNeeded),
        Name::Is(_) | Name::NotYet => {}
    }
    // A claim may exist whose name is not in the pod's status. Upstream: `findPodResourceClaim`.
    if let Some(found) = observed.owned.iter().find(|one| plan::has_name_in_pod(one, &claim.name)) {
        return Ok(Found::Is(found.meta().name.to_string()));
    }
    let name = &*claim.resource_claim_template_name;
    let template =
        named.template.as_ref().ok_or_else(|| ClaimError::NoTemplate(name.to_owned()))?;
    plan::allowed(template, observed.admin_access, observed.prioritized)?;
    Ok(Found::Lacks(Box::new(plan::new_claim(pod, &claim.name, template))))
}

/// Whether the claim exists and belongs to the pod, by the cache or by the outcome of the live read.
fn exists(
    pod: &Pod,
    claim: &PodResourceClaim,
    named: &Named,
    answer: Option<&Outcome>,
) -> Result<bool, ClaimError> {
    let belongs_to_pod = |found: &Claim| !plan::is_from_template(claim) || plan::is_for(found, pod);
    if let Some(found) = &named.claim {
        return Ok(belongs_to_pod(found));
    }
    let Some(answer) = answer else { return Ok(false) };
    match (&answer.reply, &answer.error) {
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

/// Returns the plan that records an event about a claim that was not created, and fails.
fn refuse(observed: &Observed, claim: &PodResourceClaim, error: &ClaimError) -> Plan {
    let meta = &observed.pod.meta;
    let message = format!("PodResourceClaim {}: {error}", claim.name);
    let failure = format!("pod {}/{}, {message}", meta.namespace, meta.name);
    let about = wire::target(&*observed.pod);
    let event = EventRecord::warning(about, "FailedResourceClaimCreation", message);
    Plan { error: Some(PlanError::new(failure)), ..Plan::one(event) }
}

fn update_status(observed: &Observed, made: &BTreeMap<String, String>) -> Plan {
    let body = plan::statuses(&observed.pod, made).to_string();
    let patch = Patch::new(wire::target(&*observed.pod), PatchForm::Apply(MANAGER), body);
    Plan::one(Patch { subresource: "status", on_error: OnError::Abort, ..patch })
}

/// Reserves allocated claims for a scheduled pod. Upstream: `syncPod`.
fn reserve(observed: &Observed) -> Plan {
    let (mut plan, pod) = (Plan::nothing(), &*observed.pod);
    if pod.spec.node_name.is_empty() {
        // The scheduler reserves the claims with its decision.
        return plan;
    }
    for (claim, named) in observed.claims() {
        let Name::Is(name) = plan::name(pod, claim) else { continue };
        let Some(found) = &named.claim else { break };
        if plan::is_from_template(claim) && !plan::is_for(found, pod) {
            let (namespace, pod) = (&pod.meta.namespace, &pod.meta.name);
            plan.error = Some(PlanError::new(format!(
                "ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod} (Pod is not owner)"
            )));
            break;
        }
        if plan::lacks_reservation(found, pod) {
            let body = wire::json(&plan::reserved(found, pod));
            let update = Update::status(wire::target(&**found), body);
            plan.push(Update { on_error: OnError::Abort, ..update });
        }
    }
    plan
}

/// Returns the claims that a pass tried to create, and whether that succeeded.
pub(super) fn creates(observed: &Observed, done: &Outcomes) -> Vec<(ResourceClaim, bool)> {
    if !observed.needs_claims() {
        return Vec::new();
    }
    let mut done = Replay::of(observed, done);
    let mut all = Vec::new();
    for (claim, named) in observed.claims() {
        let answer = observed.needs_live_read(claim, named).then(|| done.reads.next()).flatten();
        match find(observed, claim, named, answer) {
            Ok(Found::Lacks(new)) => {
                let Some(outcome) = done.writes.next() else { break };
                let succeeded = outcome.error.is_none();
                all.push((*new, succeeded));
                if !succeeded {
                    // The next outcome is that of the event.
                    break;
                }
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    all
}

/// Describes the names of a pod's claims.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    for (claim, _) in observed.claims() {
        description.fact(&claim.name, format!("{:?}", plan::name(&observed.pod, claim)));
    }
    description
}

#[cfg(test)]
mod tests;
