//! Live reads and writes of the garbage collector. [`super::plan`] decides between them, without I/O.

use super::{
    GarbageCollector, ProcessError,
    graph::{Coordinates, FOREGROUND, ORPHAN, Uid},
    plan::{Decision, OwnerClass, plan},
};
use bytes::Bytes;
use evenkeel_api::{Kind, Meta, OwnerReference, Text, views::Metadata};
use evenkeel_runtime::{
    client::{ApiError, DeleteOptions},
    plan::{PatchType, Propagation},
    queue::Priority,
};
use futures::future::join_all;
use serde_json::{Value, json};

/// Maximum number of dependents that are patched concurrently when their owner is orphaned.
const MAX_CONCURRENT_PATCHES: usize = 16;

/// Maximum number of retries of a finalizer's removal after write conflicts. Upstream's `removeFinalizer` makes the 4
/// attempts of `DefaultBackoff`.
const MAX_CONFLICT_RETRIES: usize = 3;

/// An object as a live read returned it.
struct LiveObject<'a> {
    kind: &'a Kind,
    meta: &'a Meta,
}

impl GarbageCollector {
    /// Reads an object and its owners live, decides, and writes. Upstream: `attemptToDeleteItem`.
    pub(super) async fn attempt_to_delete_item(&self, uid: &Uid) -> Result<(), ProcessError> {
        let coordinates = {
            let graph = self.graph();
            match graph.node(uid) {
                Some(node) if graph.needs_attempt(node) => node.coordinates.clone(),
                _ => return Ok(()),
            }
        };
        let kind = self.kind_of(&coordinates)?;
        let Some(item) =
            self.get_object(&kind, &coordinates.namespace, &coordinates.name, uid).await?
        else {
            let work = self.graph_mut().process_virtual_delete(uid, &coordinates);
            self.enqueue(work);
            return Ok(());
        };
        let live = LiveObject { kind: &kind, meta: &item.meta };
        let Some(owners) = self.classify_references(&live).await? else { return Ok(()) };
        let decision = plan(&self.graph(), uid, live.meta, &owners);
        self.execute(&live, decision).await?;
        if self.graph().node(uid).is_some_and(|node| node.is_virtual) {
            Err(ProcessError::Unobserved)
        } else {
            Ok(())
        }
    }

    /// Removes the owner reference to `uid` from all dependents, then the finalizer `orphan` from the object. If a
    /// patch fails, the other patches are still tried, and the finalizer stays. Upstream: `attemptToOrphan`,
    /// `orphanDependents`.
    pub(super) async fn orphan_dependents(&self, uid: &Uid) -> Result<(), ProcessError> {
        let (coordinates, dependents) = {
            let graph = self.graph();
            let Some(node) = graph.node(uid) else { return Ok(()) };
            let dependents: Vec<(Uid, Coordinates)> = graph
                .dependents(uid)
                .map(|(uid, node)| (uid.clone(), node.coordinates.clone()))
                .collect();
            (node.coordinates.clone(), dependents)
        };
        let mut result = Ok(());
        for batch in dependents.chunks(MAX_CONCURRENT_PATCHES) {
            let removals = batch.iter().map(|(dependent, coordinates)| {
                self.remove_owner_reference(dependent, coordinates, uid)
            });
            // Keeps the first error.
            result = join_all(removals).await.into_iter().fold(result, Result::and);
        }
        result?;
        let kind = self.kind_of(&coordinates)?;
        let item = self.get_object(&kind, &coordinates.namespace, &coordinates.name, uid).await?;
        if let Some(item) = item {
            self.remove_finalizer(&LiveObject { kind: &kind, meta: &item.meta }, ORPHAN).await?;
        }
        Ok(())
    }

    /// Removes the reference to `owner` from a dependent. Upstream: `orphanDependents`.
    async fn remove_owner_reference(
        &self,
        dependent: &Uid,
        coordinates: &Coordinates,
        owner: &Uid,
    ) -> Result<(), ProcessError> {
        let kind = self.kind_of(coordinates)?;
        let item =
            self.get_object(&kind, &coordinates.namespace, &coordinates.name, dependent).await?;
        if let Some(item) = item {
            let live = LiveObject { kind: &kind, meta: &item.meta };
            self.remove_owner_references(&live, std::slice::from_ref(owner)).await?;
        }
        Ok(())
    }

    /// Returns the kind of the object at these coordinates, by discovery.
    fn kind_of(&self, coordinates: &Coordinates) -> Result<Kind, ProcessError> {
        let discovered = self.discovered();
        let resource = discovered.of_kind(&coordinates.api_version, &coordinates.kind);
        resource.map(|resource| resource.kind.clone()).ok_or_else(|| ProcessError::UnknownKind {
            api_version: coordinates.api_version.clone(),
            kind: coordinates.kind.clone(),
        })
    }

    /// Reads an object live. Returns `None` if no object with this name has this uid. Upstream: `getObject`.
    async fn get_object(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<Option<Metadata>, ApiError> {
        let namespace = if kind.namespaced { namespace } else { "" };
        match self.0.client.get_metadata(kind, namespace, name).await {
            Ok(item) => Ok(Some(item).filter(|item| *item.meta.uid == *uid)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Classifies the owners of an object by live reads. Returns `None` if a cluster-scoped object names a namespaced
    /// owner, because such an object must not be collected. Upstream: `classifyReferences`.
    async fn classify_references(
        &self,
        live: &LiveObject<'_>,
    ) -> Result<Option<Vec<(OwnerReference, OwnerClass)>>, ProcessError> {
        let mut owners = Vec::with_capacity(live.meta.owners.len());
        for owner in &live.meta.owners {
            let coordinates = Coordinates::of_owner(owner, &live.meta.namespace);
            let kind = self.kind_of(&coordinates)?;
            if kind.namespaced && live.meta.namespace.is_empty() {
                tracing::warn!(
                    name = &*live.meta.name,
                    owner = &*owner.name,
                    "Cluster-scoped object has a namespaced owner; not collecting it"
                );
                return Ok(None);
            }
            let coordinates = Coordinates {
                namespace: if kind.namespaced { coordinates.namespace } else { "".into() },
                ..coordinates
            };
            let known_absent = self.graph().absent_owner_cache.contains(&owner.uid, &coordinates);
            let class = if known_absent {
                OwnerClass::Dangling
            } else {
                let item =
                    self.get_object(&kind, &coordinates.namespace, &owner.name, &owner.uid).await?;
                OwnerClass::classify(item.as_ref().map(|item| &item.meta))
            };
            if class == OwnerClass::Dangling {
                self.graph_mut().absent_owner_cache.insert(&owner.uid, &coordinates);
            }
            owners.push((owner.clone(), class));
        }
        Ok(Some(owners))
    }

    /// Carries out a decision about the object.
    async fn execute(&self, live: &LiveObject<'_>, decision: Decision) -> Result<(), ProcessError> {
        match decision {
            Decision::Nothing => {}
            Decision::AttemptToDelete(uids) => {
                for uid in uids {
                    self.0.attempt_to_delete.add(uid, Priority::NORMAL);
                }
            }
            Decision::RemoveForegroundFinalizer => self.remove_finalizer(live, FOREGROUND).await?,
            Decision::RemoveOwnerReferences(deleted) => {
                self.remove_owner_references(live, &deleted).await?;
            }
            Decision::Delete { propagation, unblock_owner_references } => {
                let mut resource_version = live.meta.resource_version.to_string();
                if unblock_owner_references {
                    self.unblock_owner_references(live).await?;
                    // The patch has changed the resource version.
                    resource_version.clear();
                }
                self.delete(live, propagation, resource_version).await?;
            }
        }
        Ok(())
    }

    /// Deletes the object if it still has this resource version. An empty version means any version. After a conflict, repeats
    /// the request for any version if the owner references did not change. Upstream: `deleteObject`.
    async fn delete(
        &self,
        live: &LiveObject<'_>,
        propagation: Propagation,
        resource_version: String,
    ) -> Result<(), ApiError> {
        let LiveObject { kind, meta } = live;
        let mut options = DeleteOptions {
            uid: meta.uid.to_string(),
            resource_version,
            propagation: Some(propagation),
            ..DeleteOptions::default()
        };
        match self.0.client.delete(kind, &meta.namespace, &meta.name, &options).await {
            Err(error) if error.code() == 409 && !options.resource_version.is_empty() => {
                let latest = self.0.client.get_metadata(kind, &meta.namespace, &meta.name).await;
                match after_conflict(latest.as_ref(), meta) {
                    AfterConflict::Gone => Ok(()),
                    AfterConflict::Fail => Err(error),
                    AfterConflict::DeleteAnyVersion => {
                        options.resource_version.clear();
                        ignore_not_found(
                            self.0.client.delete(kind, &meta.namespace, &meta.name, &options).await,
                        )
                    }
                }
            }
            other => ignore_not_found(other),
        }
    }

    /// Removes the references to the owners with these uids.
    async fn remove_owner_references(
        &self,
        live: &LiveObject<'_>,
        deleted: &[Text],
    ) -> Result<(), ApiError> {
        let entries: Vec<Value> =
            deleted.iter().map(|uid| json!({"$patch": "delete", "uid": &**uid})).collect();
        let kept = live
            .meta
            .owners
            .iter()
            .filter(|owner| !deleted.contains(&owner.uid))
            .map(owner_reference_json)
            .collect();
        self.patch_owners(live, entries, kept).await
    }

    /// Sets `blockOwnerDeletion` to false in all references of the object, to break a cycle of foreground deletions.
    async fn unblock_owner_references(&self, live: &LiveObject<'_>) -> Result<(), ApiError> {
        let blocking = || live.meta.owners.iter().filter(|owner| owner.block_owner_deletion);
        if blocking().next().is_none() {
            return Ok(());
        }
        let entries = blocking()
            .map(|owner| json!({"uid": &*owner.uid, "blockOwnerDeletion": false}))
            .collect();
        let unblocked = |owner: &OwnerReference| {
            owner_reference_json(&OwnerReference { block_owner_deletion: false, ..owner.clone() })
        };
        let complete_list = live.meta.owners.iter().map(unblocked).collect();
        self.patch_owners(live, entries, complete_list).await
    }

    /// Patches owner references with a strategic merge patch of `entries`. If the server does not support such patches
    /// for the kind (custom resources), sends `complete_list` as a merge patch with the resource version. Upstream:
    /// `patch`.
    async fn patch_owners(
        &self,
        live: &LiveObject<'_>,
        entries: Vec<Value>,
        complete_list: Vec<Value>,
    ) -> Result<(), ApiError> {
        let strategic = json!({"metadata": {"uid": &*live.meta.uid, "ownerReferences": entries}});
        match self.patch(live, PatchType::Strategic, &strategic).await {
            // UnsupportedMediaType: the kind has no strategic merge patch.
            Err(error) if error.code() == 415 => {
                let owners = if complete_list.is_empty() {
                    Value::Null
                } else {
                    Value::Array(complete_list)
                };
                let version = &*live.meta.resource_version;
                let merge =
                    json!({"metadata": {"resourceVersion": version, "ownerReferences": owners}});
                self.patch(live, PatchType::Merge, &merge).await
            }
            other => other,
        }
    }

    /// Removes a finalizer from the object. After a conflict, reads the object again and retries.
    async fn remove_finalizer(
        &self,
        live: &LiveObject<'_>,
        finalizer: &str,
    ) -> Result<(), ApiError> {
        let mut meta = live.meta.clone();
        for attempt in 0.. {
            let remaining: Vec<&str> = meta
                .finalizers
                .iter()
                .map(|name| &**name)
                .filter(|name| *name != finalizer)
                .collect();
            if remaining.len() == meta.finalizers.len() {
                break;
            }
            let body = json!({"metadata": {"resourceVersion": &*meta.resource_version, "finalizers": remaining}});
            let latest_object = LiveObject { kind: live.kind, meta: &meta };
            match self.patch(&latest_object, PatchType::Merge, &body).await {
                Err(error) if error.is_conflict() && attempt < MAX_CONFLICT_RETRIES => {
                    let latest =
                        self.get_object(live.kind, &meta.namespace, &meta.name, &meta.uid).await?;
                    let Some(latest) = latest else { break };
                    meta = latest.meta;
                }
                other => return other,
            }
        }
        Ok(())
    }

    /// Patches the object. An object that no longer exists counts as patched.
    async fn patch(
        &self,
        live: &LiveObject<'_>,
        form: PatchType,
        body: &Value,
    ) -> Result<(), ApiError> {
        let LiveObject { kind, meta } = live;
        let body = Bytes::from(body.to_string());
        ignore_not_found(
            self.0
                .client
                .patch::<Metadata>(kind, &meta.namespace, &meta.name, "", form, body)
                .await,
        )
    }
}

/// Next step of a deletion after a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterConflict {
    /// The object no longer exists, so the deletion has succeeded.
    Gone,
    /// Only fields other than the owner references changed. The deletion repeats without a resource version.
    DeleteAnyVersion,
    /// The owners may have changed, or another object has the name. The object returns to its queue.
    Fail,
}

/// Decides how to continue after a conflict of a deletion. `meta` is from before the deletion, and `latest` is a live
/// read after the conflict. Upstream: `deleteObject`.
fn after_conflict(latest: Result<&Metadata, &ApiError>, meta: &Meta) -> AfterConflict {
    match latest {
        Err(error) if error.is_not_found() => AfterConflict::Gone,
        Ok(latest)
            if latest.meta.uid == meta.uid
                && latest.meta.resource_version != meta.resource_version
                && latest.meta.owners == meta.owners =>
        {
            AfterConflict::DeleteAnyVersion
        }
        _ => AfterConflict::Fail,
    }
}

/// Turns a NotFound error into a success.
fn ignore_not_found<T>(result: Result<T, ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// Encodes an owner reference without its false fields.
fn owner_reference_json(owner: &OwnerReference) -> Value {
    let mut json = json!({
        "apiVersion": &*owner.api_version, "kind": &*owner.kind, "name": &*owner.name, "uid": &*owner.uid,
    });
    if owner.controller {
        json["controller"] = json!(true);
    }
    if owner.block_owner_deletion {
        json["blockOwnerDeletion"] = json!(true);
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::client::Status;

    fn object(uid: &str, version: &str, owners: &[&str]) -> Metadata {
        let owner = |uid: &&str| OwnerReference { uid: (*uid).into(), ..OwnerReference::default() };
        Metadata {
            meta: Meta {
                uid: uid.into(),
                resource_version: version.into(),
                owners: owners.iter().map(owner).collect(),
                ..Meta::default()
            },
        }
    }

    #[test]
    fn after_a_conflict_only_the_same_object_with_the_same_owners_is_deleted() {
        let deleted = object("u", "1", &["o"]).meta;
        for (live, wanted) in [
            (object("u", "2", &["o"]), AfterConflict::DeleteAnyVersion),
            (object("u", "2", &["o", "p"]), AfterConflict::Fail),
            (object("u", "1", &["o"]), AfterConflict::Fail),
            (object("another", "2", &["o"]), AfterConflict::Fail),
        ] {
            assert_eq!(after_conflict(Ok(&live), &deleted), wanted, "{live:?}");
        }
        for (code, wanted) in [(404, AfterConflict::Gone), (500, AfterConflict::Fail)] {
            let error = ApiError::Status(Box::new(Status { code, ..Status::default() }));
            assert_eq!(after_conflict(Err(&error), &deleted), wanted, "{code}");
        }
    }
}
