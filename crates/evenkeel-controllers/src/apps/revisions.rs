//! ControllerRevisions: the current and earlier templates of a StatefulSet or a DaemonSet. Upstream:
//! `pkg/controller/history`.

use crate::{
    pods::revision_of,
    wire::{self, NewMetadata},
};
use evenkeel_api::{
    Meta, StrMap, View,
    hash::{fnv32, safe_encode_string},
    template::Template,
    views::{ControllerRevision, Pod},
};
use evenkeel_runtime::plan::{Action, Create, Delete, OnError, PatchForm, Rewrite, Target};
use serde::Serialize;
use serde_json::value::RawValue;
use std::{collections::HashSet, sync::Arc};

/// Maximum length of the name's prefix before the hash. Upstream: `ControllerRevisionName`.
const MAX_PREFIX: usize = 223;

/// Sorts by revision number, then by creation time and name. Upstream: `SortControllerRevisions`.
pub(crate) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|a, b| {
        let key = |r: &ControllerRevision| (r.revision, r.meta.creation);
        key(a).cmp(&key(b)).then_with(|| a.meta.name.cmp(&b.meta.name))
    });
}

/// A revision for a template, before it is created.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draft {
    /// Name: the owner's name and the hash.
    pub(crate) name: String,
    /// Hash of the data and the collision count.
    pub(crate) hash: String,
    /// Collision count to write to the owner's status.
    pub(crate) collisions: i32,
    /// The patch that restores the template, as JSON.
    pub(crate) data: String,
    /// An existing revision with this name and data, whoever owns it.
    pub(crate) present: Option<Arc<ControllerRevision>>,
}

impl Draft {
    /// Chooses the name. The hash is the one that upstream's StatefulSet controller computes, so that both
    /// implementations find each other's revisions. If a revision of the same name has other data, the collision
    /// count increases, which changes the hash. Upstream: `CreateControllerRevision`.
    pub(crate) fn new(
        owner: &str,
        template: &Template,
        mut collisions: i32,
        named: impl Fn(&str) -> Option<Arc<ControllerRevision>>,
    ) -> Self {
        let data = template.patch_json();
        let mut end = owner.len().min(MAX_PREFIX);
        while !owner.is_char_boundary(end) {
            end -= 1;
        }
        loop {
            let sum = fnv32(format!("{data}{collisions}").as_bytes());
            let hash = safe_encode_string(&sum.to_string());
            let name = format!("{}-{hash}", &owner[..end]);
            let present = named(&name);
            if present.as_ref().is_none_or(|present| present.data.matches_template(template)) {
                return Self { name, hash, collisions, data, present };
            }
            collisions = collisions.saturating_add(1);
        }
    }

    /// Returns the action that creates the revision, with the template's labels and the hash in the label `hash_label`.
    pub(crate) fn create(
        self,
        owner: &Target,
        meta: &Meta,
        labels: &StrMap,
        hash_label: &str,
        number: i64,
    ) -> Create {
        let kind = ControllerRevision::kind();
        let labels = labels.with(hash_label, &self.hash);
        let owners = [wire::controller_reference(owner)];
        let body = wire::json(&RevisionBody {
            api_version: &kind.api_version(),
            kind: &kind.kind,
            metadata: NewMetadata {
                name: &self.name,
                generate_name: "",
                namespace: &meta.namespace,
                labels: &labels,
                annotations: &meta.annotations,
                owner_references: &owners,
            },
            // Write the data verbatim: its hash is part of the name.
            data: RawValue::from_string(self.data).unwrap_or_default(),
            revision: number,
        });
        Create { on_error: OnError::Abort, ..Create::new(kind, &meta.namespace, body) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RevisionBody<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: NewMetadata<'a>,
    data: Box<RawValue>,
    revision: i64,
}

/// Returns a merge patch of a revision. Its failure ends the reconciliation.
pub(crate) fn change(revision: &ControllerRevision, body: &serde_json::Value) -> Rewrite {
    let version = &revision.meta.resource_version;
    Rewrite {
        on_error: OnError::Abort,
        ..Rewrite::new(wire::target(revision), version, PatchForm::Merge, body.to_string())
    }
}

/// Returns the number of unused revisions to keep, by `revisionHistoryLimit`: default 10, unlimited if negative.
pub(crate) fn history_limit(revision_history_limit: Option<i32>) -> usize {
    usize::try_from(revision_history_limit.unwrap_or(10)).unwrap_or(usize::MAX)
}

/// Returns the deletions of the first `count` revisions.
pub(crate) fn delete<'a>(
    unused: impl Iterator<Item = &'a Arc<ControllerRevision>>,
    count: usize,
) -> impl Iterator<Item = Action> {
    unused.take(count).map(|revision| Delete::new(wire::target(&**revision)).into())
}

/// Returns the revision names or hashes in the pods' labels.
pub(crate) fn in_use(pods: &[Arc<Pod>]) -> HashSet<&str> {
    pods.iter().map(|pod| revision_of(pod)).collect()
}
