//! Admission plug-in ResourceQuota: refuses writes that exceed a quota of their namespace.
//!
//! The status of a quota records its usage. One transaction writes both the object and the new status, on condition
//! that the quota still has the revision that was read. If two concurrent writes fit the quota only one at a time, the
//! transaction of the second fails, and its quota is evaluated again with the usage of the first.

use super::objects::{decoded, namespaced, viewed};
use super::plugins::Plugin;
use crate::api::{Api, Context};
use crate::resource::ResourcePrefix;
use crate::selector::selection_attributes;
use crate::store::{Encoded, Entry, Expect, Transaction};
use evenkeel_api::views::{
    DeviceClass, PersistentVolumeClaim, Pod, ResourceClaim, ResourceQuota, Service,
};
use evenkeel_apimachinery::patch::{self, Writer};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::object_mut;
use evenkeel_component_helpers::quota::charge::{Request, charge};
use evenkeel_component_helpers::quota::{
    Classes, Evaluator, EvaluatorKind, Item, Usage, is_claim_of, is_terminating,
};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

/// Resource prefix of quotas.
const RESOURCE_PREFIX: &str = "/resourcequotas";

/// Status updates of quotas, which are committed together with an object; empty if no quota counts the object.
#[derive(Debug, Default)]
#[must_use = "an object is committed together with the updates of its quotas"]
pub(crate) struct QuotaUpdates(Vec<QuotaUpdate>);

/// Status update of one quota.
#[derive(Debug)]
struct QuotaUpdate {
    /// Stored quota that the usage was computed from.
    read: Arc<Entry>,
    /// Quota with the new status.
    object: Encoded,
}

impl QuotaUpdates {
    /// Adds the status updates to the transaction that writes the object.
    pub(crate) fn add_to(self, transaction: &mut Transaction) {
        let resource_prefix = ResourcePrefix::from(RESOURCE_PREFIX);
        for QuotaUpdate { read, object } in self.0 {
            transaction.put(&resource_prefix, &read.key, Expect::At(read.revision), object);
        }
    }
}

/// Computes the usage of the namespace's quotas after a write. Refuses a write that exceeds a quota. A dry run returns
/// no updates.
///
/// Upstream: `quotaEvaluator.checkRequest`.
pub(crate) fn evaluate(
    cx: &Context<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<QuotaUpdates, StatusError> {
    let is_enabled = cx.api.plugins.has(Plugin::ResourceQuota);
    if !is_enabled || !cx.resource.namespaced || cx.namespace.is_empty() {
        return Ok(QuotaUpdates::default());
    }
    let Some(evaluator) = Evaluator::new(cx.resource.group(), cx.resource.plural()) else {
        return Ok(QuotaUpdates::default());
    };
    if !may_change_usage(cx, evaluator.kind(), old) {
        return Ok(QuotaUpdates::default());
    }
    let quotas = cx.api.store.latest_within(RESOURCE_PREFIX, cx.namespace);
    let quotas: Vec<(Arc<Entry>, ResourceQuota)> = quotas
        .into_iter()
        .map(|entry| Ok((entry.clone(), viewed(&entry)?)))
        .collect::<Result<_, StatusError>>()?;
    if quotas.is_empty() {
        return Ok(QuotaUpdates::default());
    }
    let (entries, quotas): (Vec<_>, Vec<_>) = quotas.into_iter().unzip();
    let Some(used) = usage_after(cx, &evaluator, new, old, &quotas)? else {
        return Ok(QuotaUpdates::default());
    };
    let mut updates = QuotaUpdates::default();
    if cx.dry_run {
        return Ok(updates);
    }
    for (read, used) in entries.into_iter().zip(used) {
        let Some(used) = used else { continue };
        updates.0.extend(with_used(cx.api, read, &used, cx.now)?);
    }
    Ok(updates)
}

/// Returns whether a write can change the usage that the evaluator computes.
fn may_change_usage(cx: &Context<'_>, kind: EvaluatorKind, old: Option<&Value>) -> bool {
    match (kind, cx.subresource) {
        // An update of a pod can change the usage by a change of its deadline, or by a resize.
        (EvaluatorKind::Pods, "" | "resize")
        | (EvaluatorKind::Services | EvaluatorKind::DeviceClaims, "") => true,
        (EvaluatorKind::VolumeClaims, "" | "status") => true,
        (EvaluatorKind::Plain, "") => old.is_none(),
        _ => false,
    }
}

/// Returns the usage of each quota after the write. The item of a quota is `None` if its usage does not change. Returns
/// `None` if the write changes the usage of no quota.
fn usage_after(
    cx: &Context<'_>,
    evaluator: &Evaluator,
    new: &Value,
    old: Option<&Value>,
    quotas: &[ResourceQuota],
) -> Result<Option<Vec<Option<Usage>>>, StatusError> {
    let no_classes = Classes::default();
    let charge_quotas = |new: Item<'_>, old: Option<Item<'_>>, classes: &Classes| {
        let is_status_update = cx.subresource == "status";
        let request = Request { evaluator, new, old, is_status_update, classes, now: cx.now };
        charge(quotas, &request)
            .map(Some)
            .map_err(|refusal| StatusError::forbidden(&cx.resource.name, cx.name, refusal))
    };
    match evaluator.kind() {
        EvaluatorKind::Pods => {
            let (new, old): (Pod, Option<Pod>) = decode_both(new, old)?;
            // Scopes of quotas distinguish pods with a deadline (`Terminating`) from others.
            let keeps_scope =
                old.as_ref().is_some_and(|old| is_terminating(old) == is_terminating(&new));
            if keeps_scope && cx.subresource.is_empty() {
                return Ok(None);
            }
            charge_quotas(Item::Pod(&new), old.as_ref().map(Item::Pod), &no_classes)
        }
        EvaluatorKind::Services => {
            let (new, old): (Service, Option<Service>) = decode_both(new, old)?;
            charge_quotas(Item::Service(&new), old.as_ref().map(Item::Service), &no_classes)
        }
        EvaluatorKind::VolumeClaims => {
            let (new, old): (PersistentVolumeClaim, Option<PersistentVolumeClaim>) =
                decode_both(new, old)?;
            charge_quotas(Item::VolumeClaim(&new), old.as_ref().map(Item::VolumeClaim), &no_classes)
        }
        EvaluatorKind::DeviceClaims => {
            let (new, old): (ResourceClaim, Option<ResourceClaim>) = decode_both(new, old)?;
            let pod = extended_resources_pod(cx, &new)?;
            let item = |claim| Item::DeviceClaim(claim, pod.as_ref());
            charge_quotas(item(&new), old.as_ref().map(item), &device_classes(cx)?)
        }
        EvaluatorKind::Plain => charge_quotas(Item::Plain, old.map(|_| Item::Plain), &no_classes),
    }
}

/// Decodes the new and the old object.
fn decode_both<V: evenkeel_api::View>(
    new: &Value,
    old: Option<&Value>,
) -> Result<(V, Option<V>), StatusError> {
    Ok((decoded(new)?, old.map(decoded).transpose()?))
}

/// Returns the stored DeviceClasses.
fn device_classes(cx: &Context<'_>) -> Result<Classes, StatusError> {
    let entries = cx.api.store.all("resource.k8s.io/deviceclasses");
    let classes: Vec<DeviceClass> =
        entries.iter().map(|entry| viewed(entry)).collect::<Result<_, _>>()?;
    Ok(classes.iter().collect())
}

/// Returns the pod if the scheduler created the claim for the pod's extended resources; `None` for other claims.
fn extended_resources_pod(
    cx: &Context<'_>,
    claim: &ResourceClaim,
) -> Result<Option<Pod>, StatusError> {
    let Some(owner) = claim.meta.controller().filter(|owner| &*owner.kind == "Pod") else {
        return Ok(None);
    };
    let key = format!("{}/{}", cx.namespace, owner.name);
    let Some(entry) = cx.api.store.get("/pods", &key) else { return Ok(None) };
    let pod: Pod = viewed(&entry)?;
    let claims: Vec<(Arc<Entry>, ResourceClaim)> =
        namespaced(cx, "resource.k8s.io/resourceclaims")?;
    Ok(is_claim_of(claim, &pod, claims.iter().map(|(_, claim)| claim)).then_some(pod))
}

/// Returns the update that writes `used` to a quota's status. Returns `None` if the server does not serve quotas.
fn with_used(
    api: &Api,
    read: Arc<Entry>,
    used: &Usage,
    now: Timestamp,
) -> Result<Option<QuotaUpdate>, StatusError> {
    let Some(resource) = api.table.get("v1", "resourcequotas") else { return Ok(None) };
    let old = read.decode().map_err(StatusError::internal)?;
    let mut new = old.clone();
    if let Some(amounts) = object_mut(&mut new, "status.used") {
        for (name, amount) in used.iter() {
            amounts.insert(name.to_owned(), Value::from(amount.to_string()));
        }
    }
    let writer = Writer { manager: "kube-apiserver", subresource: "status", now };
    patch::update_managed_fields(
        resource.schema(&resource.gvk).as_ref(),
        Some(&old),
        &mut new,
        &writer,
    );
    let selection = selection_attributes(&resource, &new);
    Ok(Some(QuotaUpdate { object: Encoded::new(&new, selection), read }))
}
