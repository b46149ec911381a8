//! ResourceQuota: nothing is made beyond what its namespace may use.
//!
//! What is used stands in each quota's status, which is compared and swapped before the object is written: of two writes
//! that would each take the last that is left, one sees what the other took.

use super::{decoded, namespaced};
use crate::api::{Api, Context, key};
use crate::kinds::value::object_mut;
use crate::patch::{self, Writer};
use crate::status::StatusError;
use crate::store::{Encoded, Entry, Expect, Facets, WriteError};
use evenkeel_api::Text;
use evenkeel_api::quota::charge::{Request, charge};
use evenkeel_api::quota::{Classes, Item, Sort, Tracked, Usage, is_claim_of, is_terminating};
use evenkeel_api::views::{
    DeviceClass, PersistentVolumeClaim, Pod, ResourceClaim, ResourceQuota, Service,
};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

/// How often a charge is tried again when others write to the same quotas.
const TRIES: usize = 16;

/// What a write was charged; nothing where no quota looks at it.
#[derive(Default)]
#[must_use = "a write that does not happen gives back what it was charged"]
pub(crate) struct Charge(Vec<Taken>);

/// What was taken from one quota.
struct Taken {
    namespace: Box<str>,
    quota: Text,
    uid: Text,
    amounts: Usage,
}

/// Charges the namespace's quotas for a write, or refuses it. A dry run is not charged.
pub(super) fn admit(
    cx: &Context<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<Charge, StatusError> {
    if !cx.resource.namespaced || cx.namespace.is_empty() {
        return Ok(Charge::default());
    }
    let Some(tracked) = Tracked::new(cx.resource.group(), cx.resource.plural()) else {
        return Ok(Charge::default());
    };
    if !concerns(cx, tracked.sort(), old) {
        return Ok(Charge::default());
    }
    for _ in 0..TRIES {
        let quotas: Vec<(Arc<Entry>, ResourceQuota)> = namespaced(cx, "/resourcequotas")?;
        if quotas.is_empty() {
            return Ok(Charge::default());
        }
        match attempt(cx, &tracked, new, old, quotas)? {
            Some(charge) => return Ok(charge),
            None => continue,
        }
    }
    let why = "its quotas are being written to by too many others";
    Err(StatusError::conflict(&cx.resource.name, cx.name, why))
}

/// Whether a write can change what such an object counts.
fn concerns(cx: &Context<'_>, sort: Sort, old: Option<&Value>) -> bool {
    match (sort, cx.subresource) {
        // Of a pod that is there, only its deadline can change (and what it may use, by `resize`).
        (Sort::Pods, "" | "resize") | (Sort::Services | Sort::DeviceClaims, "") => true,
        (Sort::VolumeClaims, "" | "status") => true,
        (Sort::Plain, "") => old.is_none(),
        _ => false,
    }
}

/// Charges all quotas as they were read; `None` when one has changed since.
fn attempt(
    cx: &Context<'_>,
    tracked: &Tracked,
    new: &Value,
    old: Option<&Value>,
    quotas: Vec<(Arc<Entry>, ResourceQuota)>,
) -> Result<Option<Charge>, StatusError> {
    let (entries, quotas): (Vec<_>, Vec<_>) = quotas.into_iter().unzip();
    let Some(used) = after(cx, tracked, new, old, &quotas)? else {
        return Ok(Some(Charge::default()));
    };
    let mut charge = Charge::default();
    if cx.dry_run {
        return Ok(Some(charge));
    }
    for ((entry, quota), used) in entries.iter().zip(&quotas).zip(used) {
        let Some(used) = used else { continue };
        if !write_used(cx.api, entry, &used, cx.now)? {
            charge.give_back(cx.api, cx.now);
            return Ok(None);
        }
        let mut amounts = used.beyond(&Usage::from(&quota.status.used));
        amounts.retain(|_, amount| !amount.is_zero());
        charge.0.push(Taken {
            namespace: cx.namespace.into(),
            quota: quota.meta.name.clone(),
            uid: quota.meta.uid.clone(),
            amounts,
        });
    }
    Ok(Some(charge))
}

/// What the quotas have used after the write; `None` where it does not concern them after all.
fn after(
    cx: &Context<'_>,
    tracked: &Tracked,
    new: &Value,
    old: Option<&Value>,
    quotas: &[ResourceQuota],
) -> Result<Option<Vec<Option<Usage>>>, StatusError> {
    let none = Classes::default();
    let decide = |new: Item<'_>, old: Option<Item<'_>>, classes: &Classes| {
        let told = cx.subresource == "status";
        let request = Request { tracked, new, old, told, classes, now: cx.now };
        charge(quotas, &request)
            .map(Some)
            .map_err(|refusal| StatusError::forbidden(&cx.resource.name, cx.name, refusal))
    };
    match tracked.sort() {
        Sort::Pods => {
            let (new, old): (Pod, Option<Pod>) = both(new, old)?;
            let same_deadline =
                old.as_ref().is_some_and(|old| is_terminating(old) == is_terminating(&new));
            if same_deadline && cx.subresource.is_empty() {
                return Ok(None);
            }
            decide(Item::Pod(&new), old.as_ref().map(Item::Pod), &none)
        }
        Sort::Services => {
            let (new, old): (Service, Option<Service>) = both(new, old)?;
            decide(Item::Service(&new), old.as_ref().map(Item::Service), &none)
        }
        Sort::VolumeClaims => {
            let (new, old): (PersistentVolumeClaim, Option<PersistentVolumeClaim>) =
                both(new, old)?;
            decide(Item::VolumeClaim(&new), old.as_ref().map(Item::VolumeClaim), &none)
        }
        Sort::DeviceClaims => {
            let (new, old): (ResourceClaim, Option<ResourceClaim>) = both(new, old)?;
            let pod = pod_of(cx, &new)?;
            let item = |claim| Item::DeviceClaim(claim, pod.as_ref());
            decide(item(&new), old.as_ref().map(item), &classes(cx)?)
        }
        Sort::Plain => decide(Item::Plain, old.map(|_| Item::Plain), &none),
    }
}

fn both<V: evenkeel_api::View>(
    new: &Value,
    old: Option<&Value>,
) -> Result<(V, Option<V>), StatusError> {
    Ok((decoded(new)?, old.map(decoded).transpose()?))
}

fn classes(cx: &Context<'_>) -> Result<Classes, StatusError> {
    let all = cx.api.store.all("resource.k8s.io/deviceclasses");
    let classes: Vec<DeviceClass> =
        all.iter().map(|entry| super::viewed(entry)).collect::<Result<_, _>>()?;
    Ok(classes.iter().collect())
}

/// The pod whose extended resources a claim is made for.
fn pod_of(cx: &Context<'_>, claim: &ResourceClaim) -> Result<Option<Pod>, StatusError> {
    let Some(owner) = claim.meta.controller().filter(|owner| &*owner.kind == "Pod") else {
        return Ok(None);
    };
    let key = format!("{}/{}", cx.namespace, owner.name);
    let Some(entry) = cx.api.store.peek("/pods", &key) else { return Ok(None) };
    let pod: Pod = super::viewed(&entry)?;
    let claims: Vec<(Arc<Entry>, ResourceClaim)> =
        namespaced(cx, "resource.k8s.io/resourceclaims")?;
    Ok(is_claim_of(claim, &pod, claims.iter().map(|(_, claim)| claim)).then_some(pod))
}

/// Writes what is used into a quota; false when it has changed since it was read.
fn write_used(
    api: &Arc<Api>,
    entry: &Entry,
    used: &Usage,
    now: Timestamp,
) -> Result<bool, StatusError> {
    let Some(resource) = api.table.get("v1", "resourcequotas") else { return Ok(true) };
    let old = entry.decode().map_err(StatusError::internal)?;
    let mut new = old.clone();
    if let Some(figures) = object_mut(&mut new, "status.used") {
        for (name, amount) in used.iter() {
            figures.insert(name.to_owned(), Value::from(amount.to_string()));
        }
    }
    let writer = Writer { manager: "kube-apiserver", subresource: "status", now };
    patch::track(resource.schema(&resource.gvk).as_ref(), Some(&old), &mut new, &writer);
    let facets = Facets::new(&new, |put| resource.hooks.field_values(&new, put));
    let encoded = Encoded::new(&new, facets);
    let expect = Expect::At(entry.revision);
    // Nobody needs to wait for the disk here: the object that is charged for comes after it, and its writer waits.
    match api.store.put_lazily(&resource.shelf, &entry.key, expect, encoded) {
        Ok(_) => Ok(true),
        Err(WriteError::Mismatch) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl Charge {
    /// The write did not happen. What cannot be given back is found when quotas are counted again.
    pub(crate) fn give_back(&mut self, api: &Arc<Api>, now: Timestamp) {
        for taken in self.0.drain(..) {
            taken.give_back(api, now);
        }
    }
}

impl Taken {
    fn give_back(&self, api: &Arc<Api>, now: Timestamp) {
        let Some(resource) = api.table.get("v1", "resourcequotas") else { return };
        let key = key(&resource, &self.namespace, &self.quota);
        for _ in 0..TRIES {
            let Some(entry) = api.store.peek(&resource.shelf, &key) else { return };
            let Ok(quota) = super::viewed::<ResourceQuota>(&entry) else { return };
            if quota.meta.uid != self.uid {
                return;
            }
            let used = Usage::from(&quota.status.used).beyond(&self.amounts);
            if write_used(api, &entry, &used, now).unwrap_or(true) {
                return;
            }
        }
    }
}
