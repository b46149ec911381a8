//! Decides which entries of StorageVersions are removed, and computes the status without them.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | an entry belongs to an API server with an identity lease in `kube-system` | `is_identity_lease` |
//! | entries of a server are removed when its lease is deleted | `remove_server` |
//! | entries of unknown servers are removed when they are found | `remove_unknown_servers` |
//! | a StorageVersion without entries is deleted | `keep_entries` |
//! | `commonEncodingVersion` is set if all servers encode in one version | `status_of` |
//! | the condition `AllEncodingVersionsEqual` reports whether it is set | `set_condition` |

use super::StorageVersion;
use crate::wire;
use evenkeel_api::{Meta, View as _, time::Timestamp, views::Lease};
use evenkeel_runtime::{
    client::{ListOptions, Metadata},
    introspect::Description,
    plan::{Action, Delete, Failure, LiveRead, OnError, Outcome, Outcomes, Plan, Steps, Update},
};
use k8s_openapi::{
    api::apiserverinternal::v1alpha1::{
        ServerStorageVersion, StorageVersionCondition as Condition, StorageVersionStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use std::sync::Arc;

/// Namespace of identity leases.
pub(super) const LEASE_NAMESPACE: &str = "kube-system";
/// Label of an identity lease with its component. Upstream: `IdentityLeaseComponentLabelKey`.
const COMPONENT_LABEL: &str = "apiserver.kubernetes.io/identity";
/// Value of the label for API servers. Upstream: `KubeAPIServer`.
const API_SERVER: &str = "kube-apiserver";
/// Condition of a StorageVersion. Upstream: `AllEncodingVersionsEqual`.
const ALL_EQUAL: &str = "AllEncodingVersionsEqual";

/// A StorageVersion, and its API servers without an identity lease in the cache.
pub(super) struct Observed {
    pub(super) name: Arc<str>,
    pub(super) unknown_servers: Vec<String>,
}

/// Returns whether a lease identifies an API server.
pub(super) fn is_identity_lease(meta: &Meta) -> bool {
    *meta.namespace == *LEASE_NAMESPACE && meta.labels.get(COMPONENT_LABEL) == Some(API_SERVER)
}

/// Returns the identities of the API servers with an entry.
pub(super) fn servers(version: &StorageVersion) -> impl Iterator<Item = &str> {
    entries(version).iter().map(|entry| &*entry.api_server_id)
}

/// Explains which entries are about to be removed.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    description.fact("serversWithoutLease", observed.unknown_servers.join(", "));
    description
}

/// Removes the entries of the server of a deleted lease from all StorageVersions. Does nothing if the lease exists again.
/// Upstream: `processDeletedLease`.
pub(super) fn remove_server(lease: &str, outcomes: &Outcomes, now: Timestamp) -> Option<Plan> {
    Steps::next(outcomes, |steps| {
        let read = steps.one(read_lease(lease))?;
        if !read.error.as_ref().is_some_and(Failure::is_not_found) {
            return Ok(Plan::nothing());
        }
        let kind = StorageVersion::kind();
        let list = LiveRead::list::<StorageVersion>(&kind, "", &ListOptions::default());
        let list = steps.one(LiveRead { on_error: OnError::Abort, ..list })?;
        let Some(reply) = &list.reply else { return Ok(Plan::nothing()) };
        let list = reply.list::<StorageVersion>();
        let versions = list.map_err(|error| Plan::failure(error.message))?.items;
        let changed = versions
            .iter()
            .filter_map(|version| keep_entries(version, |entry| entry.api_server_id != lease, now));
        Ok(Plan::of(changed.collect()))
    })
}

/// Removes the entries without an identity lease from a StorageVersion. Upstream: `syncStorageVersion`, which also removes
/// an entry if the read of its lease fails for another reason. Here, the pass fails, and the key is retried.
pub(super) fn remove_unknown_servers(
    observed: &Observed,
    outcomes: &Outcomes,
    now: Timestamp,
) -> Option<Plan> {
    Steps::next(outcomes, |steps| {
        let kind = StorageVersion::kind();
        let read = LiveRead::get::<StorageVersion>(&kind, "", &observed.name);
        let read = steps.one(LiveRead { on_error: OnError::Abort, ..read })?;
        let Some(reply) = &read.reply else { return Ok(Plan::nothing()) };
        let version = reply.object::<StorageVersion>();
        let version = version.map_err(|error| Plan::failure(error.message))?;
        let mut ids: Vec<&str> = servers(&version).filter(|id| is_path_segment(id)).collect();
        ids.sort_unstable();
        ids.dedup();
        let reads = ids.iter().map(|id| Action::from(read_lease(id)));
        let leases = steps.all(Plan::of(reads.collect()))?;
        let mut known = Vec::new();
        for (id, lease) in ids.iter().zip(leases) {
            if has_identity_lease(lease)? {
                known.push(*id);
            }
        }
        let change = keep_entries(&version, |entry| known.contains(&&*entry.api_server_id), now);
        Ok(Plan::of(change.into_iter().collect()))
    })
}

/// Returns the read of an identity lease.
fn read_lease(name: &str) -> LiveRead {
    let read = LiveRead::get::<Metadata>(&Lease::kind(), LEASE_NAMESPACE, name);
    LiveRead { on_error: OnError::Abort, ..read }
}

/// Returns whether a live lease exists and identifies an API server.
fn has_identity_lease(read: &Outcome) -> Result<bool, Plan> {
    let Some(reply) = &read.reply else { return Ok(false) };
    let lease = reply.object::<Metadata>().map_err(|error| Plan::failure(error.message))?;
    Ok(is_identity_lease(lease.meta()))
}

/// Returns whether an identity can be the name of a lease in a path. No lease has another name. Upstream:
/// `IsValidPathSegmentName`.
fn is_path_segment(id: &str) -> bool {
    !matches!(id, "" | "." | "..") && !id.contains(['/', '%'])
}

/// Returns the update to a status with only some of the entries, or the deletion if none is left. Returns `None` if all
/// entries are kept. Upstream: `updateOrDeleteStorageVersion`.
fn keep_entries(
    version: &StorageVersion,
    is_kept: impl Fn(&ServerStorageVersion) -> bool,
    now: Timestamp,
) -> Option<Action> {
    let all = entries(version);
    let kept: Vec<_> = all.iter().filter(|entry| is_kept(entry)).cloned().collect();
    if kept.len() == all.len() {
        return None;
    }
    let target = wire::target(version);
    if kept.is_empty() {
        return Some(Delete::new(target).into());
    }
    let mut changed = wire::copy_for_update(&**version);
    let old = changed.status.take().unwrap_or_default();
    changed.status = Some(status_of(old, kept, changed.metadata.generation, now));
    Some(Update::status(target, wire::json(&changed)).into())
}

/// Returns the status with these entries. Upstream: `SetCommonEncodingVersion`.
fn status_of(
    old: StorageVersionStatus,
    entries: Vec<ServerStorageVersion>,
    generation: Option<i64>,
    now: Timestamp,
) -> StorageVersionStatus {
    let first = entries.first().map(|entry| entry.encoding_version.clone());
    let common = first.filter(|first| entries.iter().all(|entry| entry.encoding_version == *first));
    let is_another_version = matches!(
        (&old.common_encoding_version, &common),
        (Some(old), Some(new)) if old != new
    );
    let (status, reason, message) = if common.is_some() {
        ("True", "CommonEncodingVersionSet", "Common encoding version set")
    } else {
        ("False", "CommonEncodingVersionUnset", "Common encoding version unset")
    };
    let mut conditions = old.conditions.unwrap_or_default();
    let condition = Condition {
        type_: ALL_EQUAL.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: Some(Time(now)),
    };
    set_condition(&mut conditions, condition, is_another_version);
    StorageVersionStatus {
        common_encoding_version: common,
        conditions: Some(conditions),
        storage_versions: Some(entries),
    }
}

/// Sets a condition. Its transition time changes with its status, or if `is_transition`. Upstream: `setStatusCondition`.
fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition, is_transition: bool) {
    match conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
        None => conditions.push(new),
        Some(old) => {
            if old.status == new.status && !is_transition {
                new.last_transition_time = old.last_transition_time.take();
            }
            *old = new;
        }
    }
}

/// Returns the entries of a StorageVersion, one for each API server.
fn entries(version: &StorageVersion) -> &[ServerStorageVersion] {
    let status = version.status.as_ref();
    status.and_then(|status| status.storage_versions.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
