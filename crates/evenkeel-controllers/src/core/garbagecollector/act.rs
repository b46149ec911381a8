//! Looks at one object with live reads, and carries out what is decided about it.

use super::{
    Failed, GarbageCollector,
    graph::{FOREGROUND, ORPHAN, Place, Uid},
    plan::{OwnerState, Step, plan},
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

/// How many dependents are freed side by side.
const AT_A_TIME: usize = 16;

/// How often a finalizer is tried to be taken off against other writers.
const CONFLICTS: usize = 5;

/// An object that a live read has shown.
struct Live<'a> {
    kind: &'a Kind,
    meta: &'a Meta,
}

impl GarbageCollector {
    /// Looks at an object, and does what has to be done.
    pub(super) async fn visit(&self, uid: &Uid) -> Result<(), Failed> {
        let place = {
            let graph = self.graph();
            match graph.node(uid) {
                Some(node) if !graph.at_rest(node) => node.place.clone(),
                _ => return Ok(()),
            }
        };
        let kind = self.kind(&place)?;
        let Some(item) = self.read(&kind, &place.namespace, &place.name, uid).await? else {
            let work = self.graph().not_found(uid, &place);
            self.enqueue(work);
            return Ok(());
        };
        let live = Live { kind: &kind, meta: &item.meta };
        let Some(owners) = self.owners(&live).await? else { return Ok(()) };
        let step = plan(&self.graph(), uid, live.meta, &owners);
        self.carry_out(&live, step).await?;
        if self.graph().node(uid).is_some_and(|node| node.is_virtual) {
            Err(Failed::Unobserved)
        } else {
            Ok(())
        }
    }

    /// Takes the object off its dependents' owners, then its finalizer off. A dependent that cannot be freed keeps the
    /// finalizer where it is, and the others are freed all the same.
    pub(super) async fn orphan(&self, uid: &Uid) -> Result<(), Failed> {
        let (place, dependents): (_, Vec<(Uid, Place)>) = {
            let graph = self.graph();
            let Some(node) = graph.node(uid) else { return Ok(()) };
            (
                node.place.clone(),
                graph
                    .dependents(uid)
                    .map(|(uid, node)| (uid.clone(), node.place.clone()))
                    .collect(),
            )
        };
        let mut all_freed = Ok(());
        for some in dependents.chunks(AT_A_TIME) {
            let freed = some.iter().map(|(dependent, place)| self.free(dependent, place, uid));
            all_freed = join_all(freed).await.into_iter().fold(all_freed, Result::and);
        }
        all_freed?;
        let kind = self.kind(&place)?;
        if let Some(item) = self.read(&kind, &place.namespace, &place.name, uid).await? {
            self.remove_finalizer(&Live { kind: &kind, meta: &item.meta }, ORPHAN).await?;
        }
        Ok(())
    }

    /// Takes `owner` off the owners of a dependent.
    async fn free(&self, dependent: &Uid, place: &Place, owner: &Uid) -> Result<(), Failed> {
        let kind = self.kind(place)?;
        let item = self.read(&kind, &place.namespace, &place.name, dependent).await?;
        if let Some(item) = item {
            let live = Live { kind: &kind, meta: &item.meta };
            self.remove_owners(&live, std::slice::from_ref(owner)).await?;
        }
        Ok(())
    }

    fn kind(&self, place: &Place) -> Result<Kind, Failed> {
        let discovered = self.discovered();
        let resource = discovered.of_kind(&place.api_version, &place.kind);
        resource.map(|resource| resource.kind.clone()).ok_or_else(|| Failed::UnknownKind {
            api_version: place.api_version.clone(),
            kind: place.kind.clone(),
        })
    }

    /// The object as it is now; `None` when there is none of this uid.
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

    /// What became of each owner; `None` when one is where it cannot be, so that nothing can be decided.
    async fn owners(
        &self,
        live: &Live<'_>,
    ) -> Result<Option<Vec<(OwnerReference, OwnerState)>>, Failed> {
        let mut owners = Vec::with_capacity(live.meta.owners.len());
        for owner in &live.meta.owners {
            let place = Place::named_by(owner, &live.meta.namespace);
            let kind = self.kind(&place)?;
            if kind.namespaced && live.meta.namespace.is_empty() {
                tracing::warn!(
                    name = &*live.meta.name,
                    owner = &*owner.name,
                    "A cluster-scoped object names an owner in a namespace"
                );
                return Ok(None);
            }
            let place = Place {
                namespace: if kind.namespaced { place.namespace } else { "".into() },
                ..place
            };
            let known_absent = self.graph().absent.contains(&owner.uid, &place);
            let state = if known_absent {
                OwnerState::Absent
            } else {
                let found = self.read(&kind, &place.namespace, &owner.name, &owner.uid).await?;
                OwnerState::of(found.as_ref().map(|item| &item.meta), &owner.uid)
            };
            if state == OwnerState::Absent {
                self.graph().absent.insert(&owner.uid, &place);
            }
            owners.push((owner.clone(), state));
        }
        Ok(Some(owners))
    }

    async fn carry_out(&self, live: &Live<'_>, step: Step) -> Result<(), Failed> {
        match step {
            Step::Leave => {}
            Step::Visit(uids) => {
                for uid in uids {
                    self.0.delete.add(uid, Priority::NORMAL);
                }
            }
            Step::FinishForeground => self.remove_finalizer(live, FOREGROUND).await?,
            Step::RemoveOwners(gone) => self.remove_owners(live, &gone).await?,
            Step::Delete { propagation, unblock } => {
                if unblock {
                    self.unblock(live).await?;
                }
                self.delete(live, propagation, unblock).await?;
            }
        }
        Ok(())
    }

    /// Deletes just this version of the object; if only something else than its owners changed meanwhile, the new one.
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
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) if error.code() == 409 && !any_version => {
                let now = self.read(kind, &meta.namespace, &meta.name, &meta.uid).await?;
                if now.is_none_or(|now| now.meta.owners != meta.owners) {
                    return Err(error);
                }
                options.resource_version.clear();
                ignore_absent(
                    self.0.client.delete(kind, &meta.namespace, &meta.name, &options).await,
                )
            }
            other => other.map(drop),
        }
    }

    async fn remove_owners(&self, live: &Live<'_>, gone: &[Text]) -> Result<(), ApiError> {
        let entries: Vec<Value> =
            gone.iter().map(|uid| json!({"$patch": "delete", "uid": &**uid})).collect();
        let kept = live
            .meta
            .owners
            .iter()
            .filter(|owner| !gone.contains(&owner.uid))
            .map(reference)
            .collect();
        self.patch_owners(live, entries, kept).await
    }

    /// Lets the object's owners go without it, so that a circle of waits ends.
    async fn unblock(&self, live: &Live<'_>) -> Result<(), ApiError> {
        let blocking = || live.meta.owners.iter().filter(|owner| owner.block_owner_deletion);
        if blocking().next().is_none() {
            return Ok(());
        }
        let entries = blocking()
            .map(|owner| json!({"uid": &*owner.uid, "blockOwnerDeletion": false}))
            .collect();
        let free = |owner: &OwnerReference| {
            reference(&OwnerReference { block_owner_deletion: false, ..owner.clone() })
        };
        self.patch_owners(live, entries, live.meta.owners.iter().map(free).collect()).await
    }

    /// Changes owners by a strategic merge patch of single entries; where the server has none for the kind (custom
    /// resources), by a merge patch of the whole list, against the version that was read.
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
                Err(error) if error.is_conflict() && attempt < CONFLICTS => {
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

fn ignore_absent<T>(result: Result<T, ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// An owner reference as it is written.
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
