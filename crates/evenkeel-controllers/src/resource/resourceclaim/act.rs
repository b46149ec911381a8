//! Reads and writes of ResourceClaims, and of pods' statuses.

use super::{
    Claim, Template,
    gone::Gone,
    metrics::Metrics,
    plan::{self, Name, SwitchedOff},
    release::{self, Need},
};
use crate::wire;
use evenkeel_api::{
    View as _,
    views::{Pod, PodResourceClaim},
};
use evenkeel_runtime::{
    cache::{Cache, Index},
    client::{ApiError, Client, DeleteOptions, Metadata},
    controller::{Context, Error, Outcome},
    introspect::Description,
    plan::{Key, Note, PatchForm},
};
use k8s_openapi::api::resource::v1::ResourceClaimConsumerReference;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Field manager of `resourceClaimStatuses`.
const MANAGER: &str = "ResourceClaimController";

/// Why a pod's claim was not created.
#[derive(Debug, thiserror::Error)]
enum NotMade {
    #[error("checking for claim before creating it: none of the supported fields are set")]
    Unknown,
    #[error("resource claim template {0:?}: resourceclaimtemplate.resource.k8s.io {0:?} not found")]
    NoTemplate(String),
    #[error(transparent)]
    SwitchedOff(#[from] SwitchedOff),
    #[error("create ResourceClaim : {0}")]
    Create(#[source] ApiError),
    #[error("checking claim existence: {0}")]
    Look(#[source] ApiError),
}

/// Caches of the ResourceClaim controller.
pub(super) struct Claims {
    pub(super) pods: Cache<Pod>,
    pub(super) claims: Cache<Claim>,
    pub(super) templates: Cache<Template>,
    /// Claims by the uid of the owning pod. Upstream: `claimPodOwnerIndex`.
    pub(super) made_for: Index<Claim>,
    pub(super) gone: Mutex<Gone>,
    pub(super) metrics: Metrics,
    pub(super) admin_access: bool,
    pub(super) prioritized: bool,
}

impl Claims {
    pub(super) fn gone(&self) -> MutexGuard<'_, Gone> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the claims of a pod, updates its status, and reserves allocated claims of a scheduled pod. Upstream:
    /// `syncPod`.
    pub(super) async fn pod(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        // A terminated pod needs no claims; those created for it are being deleted.
        let needs = |pod: &Arc<Pod>| !pod.meta.deleting() && !plan::is_done(pod);
        let Some(pod) = self.pods.get(&key.namespace, &key.name).filter(needs) else {
            return Ok(Outcome::Settled);
        };
        let mut made = BTreeMap::new();
        for claim in &pod.spec.resource_claims {
            match self.make(key, &pod, claim, context).await {
                Ok(None) => {}
                Ok(Some(name)) => drop(made.insert(claim.name.to_string(), name)),
                Err(error) => {
                    let message = format!("PodResourceClaim {}: {error}", claim.name);
                    let about = wire::target(&*pod);
                    context.events.record(&Note::warning(
                        about,
                        "FailedResourceClaimCreation",
                        &message,
                    ));
                    return Err(Error::message(format!("pod {key}, {message}")));
                }
            }
        }
        if !made.is_empty() {
            let body = plan::statuses(&pod, &made).to_string().into();
            let (kind, form) = (self.pods.kind(), PatchForm::Apply(MANAGER));
            let client = &context.env.client;
            let patched = client
                .patch::<Metadata>(kind, &key.namespace, &key.name, "status", form, body)
                .await?;
            context.wrote(key, kind, &patched.meta.resource_version);
            // The next steps need to observe the created claims.
            return Ok(Outcome::Settled);
        }
        self.reserve(key, &pod, context).await
    }

    /// Returns the name of a claim that the pod's status lacks, and creates it if needed. Upstream: `handleClaim`.
    async fn make(
        &self,
        key: &Key,
        pod: &Pod,
        claim: &PodResourceClaim,
        context: &Context,
    ) -> Result<Option<String>, NotMade> {
        let client = &context.env.client;
        match plan::name(pod, claim) {
            Name::NotNeeded => return Ok(None),
            Name::Unknown => return Err(NotMade::Unknown),
            Name::Is(name) if self.exists(client, pod, claim, name).await? => return Ok(None),
            Name::Is(_) if !plan::is_made(claim) => return Ok(None),
            Name::Is(_) | Name::NotYet => {}
        }
        // A claim may exist whose name is not in the pod's status. Upstream: `findPodResourceClaim`.
        let owned = self.made_for.get(&pod.meta.uid);
        if let Some(found) = owned.iter().find(|one| plan::is_made_as(one, &claim.name)) {
            return Ok(Some(found.meta().name.to_string()));
        }
        let name = &*claim.resource_claim_template_name;
        let template = self.templates.get(&pod.meta.namespace, name);
        let template = template.ok_or_else(|| NotMade::NoTemplate(name.to_owned()))?;
        plan::allowed(&template, self.admin_access, self.prioritized)?;
        let new = plan::made(pod, &claim.name, &template);
        let kind = self.claims.kind();
        let answer = client.create::<Metadata>(kind, &pod.meta.namespace, wire::json(&new)).await;
        self.metrics.made(&new, answer.is_ok());
        let made = answer.map_err(NotMade::Create)?;
        context.wrote(key, kind, &made.meta.resource_version);
        Ok(Some(made.meta.name.to_string()))
    }

    /// Whether the claim exists and belongs to the pod; reads it live if the cache lacks it.
    async fn exists(
        &self,
        client: &Client,
        pod: &Pod,
        claim: &PodResourceClaim,
        name: &str,
    ) -> Result<bool, NotMade> {
        let is_right = |found: &Claim| !plan::is_made(claim) || plan::is_for(found, pod);
        if let Some(found) = self.claims.get(&pod.meta.namespace, name) {
            return Ok(is_right(&found));
        }
        if !plan::is_made(claim) {
            // The user creates this claim.
            return Ok(false);
        }
        match client.get::<Claim>(&pod.meta.namespace, name).await {
            Ok(found) => Ok(is_right(&found)),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(NotMade::Look(error)),
        }
    }

    async fn reserve(&self, key: &Key, pod: &Pod, context: &Context) -> Result<Outcome, Error> {
        if pod.spec.node_name.is_empty() {
            // The scheduler creates this claim.
            return Ok(Outcome::Settled);
        }
        for claim in &pod.spec.resource_claims {
            let Name::Is(name) = plan::name(pod, claim) else { continue };
            let Some(found) = self.claims.get(&key.namespace, name) else {
                return Ok(Outcome::Settled);
            };
            if plan::is_made(claim) && !plan::is_for(&found, pod) {
                let (namespace, pod) = (&key.namespace, &key.name);
                let text = format!(
                    "ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod} (Pod is not owner)"
                );
                return Err(Error::message(text));
            }
            if plan::lacks_reservation(&found, pod) {
                let body = wire::json(&plan::reserved(&found, pod));
                let (client, kind) = (&context.env.client, self.claims.kind());
                let made =
                    client.update::<Metadata>(kind, &key.namespace, name, "status", body).await?;
                context.wrote(key, kind, &made.meta.resource_version);
            }
        }
        Ok(Outcome::Settled)
    }

    /// Removes reservations of finished pods, and deletes an unused claim. Upstream: `syncClaim`.
    pub(super) async fn claim(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(claim) = self.claims.get(&key.namespace, &key.name) else {
            return Ok(Outcome::Settled);
        };
        let (client, kind) = (&context.env.client, self.claims.kind());
        let mut remaining = Vec::new();
        for consumer in consumers(&claim) {
            if self.keeps(client, &key.namespace, consumer).await? {
                remaining.push(consumer.clone());
            }
        }
        let release = release::release(&claim, &remaining);
        let mut last = None;
        if let Some(changed) = &release.status {
            let body = wire::json(changed);
            let made =
                client.update::<Claim>(kind, &key.namespace, &key.name, "status", body).await?;
            context.wrote(key, kind, &made.meta().resource_version);
            last = Some(made.into_inner());
        }
        if release.unprotect {
            let changed = last.unwrap_or_else(|| release::written(&claim));
            let body = wire::json(&release::unprotected(changed));
            match client.update::<Metadata>(kind, &key.namespace, &key.name, "", body).await {
                Ok(made) => context.wrote(key, kind, &made.meta.resource_version),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let owner = plan::owning_pod(&claim);
        let owner = owner.and_then(|owner| self.pods.get(&key.namespace, &owner.name));
        if remaining.is_empty() && release::is_useless(&claim, owner.as_deref()) {
            let uid = claim.meta().uid.to_string();
            let options = DeleteOptions { uid, ..DeleteOptions::default() };
            match client.delete(kind, &key.namespace, &key.name, &options).await {
                Err(error) if !error.is_not_found() && !error.is_other_uid() => {
                    return Err(error.into());
                }
                _ => context.deleted(key, &wire::target(&*claim)),
            }
        }
        Ok(Outcome::Settled)
    }

    async fn keeps(
        &self,
        client: &Client,
        namespace: &str,
        consumer: &ResourceClaimConsumerReference,
    ) -> Result<bool, Error> {
        let pod = self.pods.get(namespace, &consumer.name);
        let gone = self.gone().has(&consumer.uid);
        match release::need(consumer, gone, pod.as_deref()) {
            Need::Keep => Ok(true),
            Need::Drop => Ok(false),
            Need::Ask => {
                let live = client.get_metadata(self.pods.kind(), namespace, &consumer.name).await;
                match live {
                    Ok(pod) => Ok(*pod.meta.uid == *consumer.uid),
                    Err(error) if error.is_not_found() => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Describes a pod's claims for `evenkeel explain`.
    pub(super) fn describe_pod(&self, key: &Key) -> Option<(Description, Vec<String>)> {
        let pod = self.pods.get(&key.namespace, &key.name)?;
        let mut description = Description::new();
        for claim in &pod.spec.resource_claims {
            description.fact(&claim.name, format!("{:?}", plan::name(&pod, claim)));
        }
        Some((description, Vec::new()))
    }

    /// Describes a claim for `evenkeel explain`.
    pub(super) fn describe_claim(&self, key: &Key) -> Option<(Description, Vec<String>)> {
        let claim: Arc<Claim> = self.claims.get(&key.namespace, &key.name)?;
        let mut description = Description::new();
        let names: Vec<&str> = consumers(&claim).iter().map(|one| &*one.name).collect();
        description.fact("reserved for", names.join(", "));
        Some((description, Vec::new()))
    }
}

fn consumers(claim: &Claim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
}
