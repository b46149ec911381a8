//! Live reads and writes of the garbage collector: the I/O around [`super::plan`].

use super::{
    Failed, GarbageCollector,
    graph::{Coordinates, FOREGROUND, ORPHAN, Uid},
    plan::{OwnerClass, Step, plan},
};
use bytes::Bytes;
use evenkeel_api::{Kind, Meta, OwnerReference, Text, views::Metadata};
use evenkeel_runtime::{
    client::{ApiError, DeleteOptions},
    plan::{PatchForm, Propagation},
    queue::Priority,
};
use futures::future::join_all;
use serde_json::{Value, json};

/// Maximum number of dependents that are patched concurrently when their owner is orphaned.
const MAX_CONCURRENT: usize = 16;

/// Maximum number of retries of a finalizer's removal after write conflicts. Upstream: `removeFinalizer`, which makes
/// the 4 attempts of `DefaultBackoff`.
const MAX_CONFLICTS: usize = 3;

/// An object as a live read returned it.
struct Live<'a> {
    kind: &'a Kind,
    meta: &'a Meta,
}

impl GarbageCollector {
    /// Reads an object and its owners live, decides, and writes. Upstream: `attemptToDeleteItem`.
    pub(super) async fn attempt_to_delete_item(&self, uid: &Uid) -> Result<(), Failed> {
        let coordinates = {
            let graph = self.graph();
            match graph.node(uid) {
                Some(node) if !graph.needs_no_attempt(node) => node.coordinates.clone(),
                _ => return Ok(()),
            }
        };
        let kind = self.kind(&coordinates)?;
        let Some(item) = self.read(&kind, &coordinates.namespace, &coordinates.name, uid).await?
        else {
            let work = self.graph_mut().virtual_deleted(uid, &coordinates);
            self.enqueue(work);
            return Ok(());
        };
        let live = Live { kind: &kind, meta: &item.meta };
        let Some(owners) = self.classify_references(&live).await? else { return Ok(()) };
        let step = plan(&self.graph(), uid, live.meta, &owners);
        self.execute(&live, step).await?;
        if self.graph().node(uid).is_some_and(|node| node.is_virtual) {
            Err(Failed::Unobserved)
        } else {
            Ok(())
        }
    }

    /// Removes the owner reference to `uid` from all dependents, then the finalizer `orphan` from the object. If a
    /// patch fails, the other patches are still tried, and the finalizer stays. Upstream: `attemptToOrphan`,
    /// `orphanDependents`.
    pub(super) async fn orphan_dependents(&self, uid: &Uid) -> Result<(), Failed> {
        let (coordinates, dependents): (_, Vec<(Uid, Coordinates)>) = {
            let graph = self.graph();
            let Some(node) = graph.node(uid) else { return Ok(()) };
            (
                node.coordinates.clone(),
                graph
                    .dependents(uid)
                    .map(|(uid, node)| (uid.clone(), node.coordinates.clone()))
                    .collect(),
            )
        };
        let mut result = Ok(());
        for batch in dependents.chunks(MAX_CONCURRENT) {
            let removals = batch.iter().map(|(dependent, coordinates)| {
                self.remove_owner_reference(dependent, coordinates, uid)
            });
            result = join_all(removals).await.into_iter().fold(result, Result::and);
        }
        result?;
        let kind = self.kind(&coordinates)?;
        if let Some(item) = self.read(&kind, &coordinates.namespace, &coordinates.name, uid).await?
        {
            self.remove_finalizer(&Live { kind: &kind, meta: &item.meta }, ORPHAN).await?;
        }
        Ok(())
    }

    /// Removes the reference to `owner` from a dependent. Upstream: `orphanDependents`.
    async fn remove_owner_reference(
        &self,
        dependent: &Uid,
        coordinates: &Coordinates,
        owner: &Uid,
    ) -> Result<(), Failed> {
        let kind = self.kind(coordinates)?;
        let item = self.read(&kind, &coordinates.namespace, &coordinates.name, dependent).await?;
        if let Some(item) = item {
            let live = Live { kind: &kind, meta: &item.meta };
            self.remove_owner_references(&live, std::slice::from_ref(owner)).await?;
        }
        Ok(())
    }

    fn kind(&self, coordinates: &Coordinates) -> Result<Kind, Failed> {
        let discovered = self.discovered();
        let resource = discovered.of_kind(&coordinates.api_version, &coordinates.kind);
        resource.map(|resource| resource.kind.clone()).ok_or_else(|| Failed::UnknownKind {
            api_version: coordinates.api_version.clone(),
            kind: coordinates.kind.clone(),
        })
    }

    /// Reads an object live; `None` if no object of this uid exists at these coordinates.
    async fn read(
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
    /// owner: nothing can be decided about such an object. Upstream: `classifyReferences`.
    async fn classify_references(
        &self,
        live: &Live<'_>,
    ) -> Result<Option<Vec<(OwnerReference, OwnerClass)>>, Failed> {
        let mut owners = Vec::with_capacity(live.meta.owners.len());
        for owner in &live.meta.owners {
            let coordinates = Coordinates::of_owner(owner, &live.meta.namespace);
            let kind = self.kind(&coordinates)?;
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
                let found =
                    self.read(&kind, &coordinates.namespace, &owner.name, &owner.uid).await?;
                OwnerClass::classify(found.as_ref().map(|item| &item.meta), &owner.uid)
            };
            if class == OwnerClass::Dangling {
                self.graph_mut().absent_owner_cache.insert(&owner.uid, &coordinates);
            }
            owners.push((owner.clone(), class));
        }
        Ok(Some(owners))
    }

    async fn execute(&self, live: &Live<'_>, step: Step) -> Result<(), Failed> {
        match step {
            Step::Nothing => {}
            Step::AttemptToDelete(uids) => {
                for uid in uids {
                    self.0.attempt_to_delete.add(uid, Priority::NORMAL);
                }
            }
            Step::RemoveForegroundFinalizer => self.remove_finalizer(live, FOREGROUND).await?,
            Step::RemoveOwnerReferences(deleted) => {
                self.remove_owner_references(live, &deleted).await?;
            }
            Step::Delete { propagation, unblock_owner_references } => {
                if unblock_owner_references {
                    self.unblock_owner_references(live).await?;
                }
                self.delete(live, propagation, unblock_owner_references).await?;
            }
        }
        Ok(())
    }

    /// Deletes the object with its resource version as precondition, unless `any_version`. After a conflict, repeats
    /// the request without that precondition if the owner references did not change. Upstream: `deleteObject`.
    async fn delete(
        &self,
        live: &Live<'_>,
        propagation: Propagation,
        any_version: bool,
    ) -> Result<(), ApiError> {
        let Live { kind, meta } = live;
        let mut options = DeleteOptions {
            uid: meta.uid.to_string(),
            resource_version: if any_version {
                String::new()
            } else {
                meta.resource_version.to_string()
            },
            propagation: Some(propagation),
            ..DeleteOptions::default()
        };
        match self.0.client.delete(kind, &meta.namespace, &meta.name, &options).await {
            Err(error) if error.code() == 409 && !any_version => {
                let now = self.0.client.get_metadata(kind, &meta.namespace, &meta.name).await;
                match after_conflict(now.as_ref(), meta) {
                    AfterConflict::Gone => Ok(()),
                    AfterConflict::Fail => Err(error),
                    AfterConflict::DeleteAnyVersion => {
                        options.resource_version.clear();
                        ignore_absent(
                            self.0.client.delete(kind, &meta.namespace, &meta.name, &options).await,
                        )
                    }
                }
            }
            other => ignore_absent(other),
        }
    }

    async fn remove_owner_references(
        &self,
        live: &Live<'_>,
        deleted: &[Text],
    ) -> Result<(), ApiError> {
        let entries: Vec<Value> =
            deleted.iter().map(|uid| json!({"$patch": "delete", "uid": &**uid})).collect();
        let kept = live
            .meta
            .owners
            .iter()
            .filter(|owner| !deleted.contains(&owner.uid))
            .map(reference)
            .collect();
        self.patch_owners(live, entries, kept).await
    }

    /// Sets `blockOwnerDeletion` to false in all references of the object, which breaks a cycle of foreground
    /// deletions.
    async fn unblock_owner_references(&self, live: &Live<'_>) -> Result<(), ApiError> {
        let blocking = || live.meta.owners.iter().filter(|owner| owner.block_owner_deletion);
        if blocking().next().is_none() {
            return Ok(());
        }
        let entries = blocking()
            .map(|owner| json!({"uid": &*owner.uid, "blockOwnerDeletion": false}))
            .collect();
        let unblocked = |owner: &OwnerReference| {
            reference(&OwnerReference { block_owner_deletion: false, ..owner.clone() })
        };
        self.patch_owners(live, entries, live.meta.owners.iter().map(unblocked).collect()).await
    }

    /// Patches owner references with the strategic merge patch `entries`. If the server does not support such patches
    /// for the kind (custom resources), sends a merge patch with the list `whole` and a resource version. Upstream:
    /// `patch`.
    async fn patch_owners(
        &self,
        live: &Live<'_>,
        entries: Vec<Value>,
        whole: Vec<Value>,
    ) -> Result<(), ApiError> {
        let strategic = json!({"metadata": {"uid": &*live.meta.uid, "ownerReferences": entries}});
        match self.patch(live, PatchForm::Strategic, &strategic).await {
            Err(error) if error.code() == 415 => {
                let owners = if whole.is_empty() { Value::Null } else { Value::Array(whole) };
                let version = &*live.meta.resource_version;
                let merge =
                    json!({"metadata": {"resourceVersion": version, "ownerReferences": owners}});
                self.patch(live, PatchForm::Merge, &merge).await
            }
            other => other,
        }
    }

    async fn remove_finalizer(&self, live: &Live<'_>, finalizer: &str) -> Result<(), ApiError> {
        let mut meta = live.meta.clone();
        for attempt in 0.. {
            let left: Vec<&str> = meta
                .finalizers
                .iter()
                .map(|name| &**name)
                .filter(|name| *name != finalizer)
                .collect();
            if left.len() == meta.finalizers.len() {
                break;
            }
            let body = json!({"metadata": {"resourceVersion": &*meta.resource_version, "finalizers": left}});
            match self.patch(&Live { kind: live.kind, meta: &meta }, PatchForm::Merge, &body).await
            {
                Err(error) if error.is_conflict() && attempt < MAX_CONFLICTS => {
                    let Some(now) =
                        self.read(live.kind, &meta.namespace, &meta.name, &meta.uid).await?
                    else {
                        break;
                    };
                    meta = now.meta;
                }
                other => return other,
            }
        }
        Ok(())
    }

    async fn patch(&self, live: &Live<'_>, form: PatchForm, body: &Value) -> Result<(), ApiError> {
        let Live { kind, meta } = live;
        let body = Bytes::from(body.to_string());
        ignore_absent(
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
    /// The object no longer exists: the deletion succeeded.
    Gone,
    /// Only fields other than the owner references changed. The deletion repeats without a resource version.
    DeleteAnyVersion,
    /// The owners may have changed, or another object has the name. The object returns to its queue.
    Fail,
}

/// Decides on a live read after a conflict of the deletion of `meta`. Upstream: `deleteObject`.
fn after_conflict(live: Result<&Metadata, &ApiError>, meta: &Meta) -> AfterConflict {
    match live {
        Err(error) if error.is_not_found() => AfterConflict::Gone,
        Ok(live)
            if live.meta.uid == meta.uid
                && live.meta.resource_version != meta.resource_version
                && live.meta.owners == meta.owners =>
        {
            AfterConflict::DeleteAnyVersion
        }
        _ => AfterConflict::Fail,
    }
}

fn ignore_absent<T>(result: Result<T, ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// Returns an owner reference as JSON.
fn reference(owner: &OwnerReference) -> Value {
    let mut written = json!({
        "apiVersion": &*owner.api_version, "kind": &*owner.kind, "name": &*owner.name, "uid": &*owner.uid,
    });
    if owner.controller {
        written["controller"] = json!(true);
    }
    if owner.block_owner_deletion {
        written["blockOwnerDeletion"] = json!(true);
    }
    written
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
