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
use evenkeel_runtime::plan::{Action, Create, Delete, OnError, PatchType, Rewrite, Target};
use serde::Serialize;
use serde_json::value::RawValue;
use std::{collections::HashSet, sync::Arc};

/// Maximum length of the name's prefix before the hash, in bytes. Upstream: `ControllerRevisionName`.
const MAX_PREFIX_LENGTH: usize = 223;

/// Sorts by revision number, then by creation time and name. Upstream: `SortControllerRevisions`.
pub(crate) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    let number_and_age =
        |revision: &ControllerRevision| (revision.revision, revision.meta.creation);
    revisions.sort_by(|a, b| {
        let by_number = number_and_age(a).cmp(&number_and_age(b));
        by_number.then_with(|| a.meta.name.cmp(&b.meta.name))
    });
}

/// The revision of a template that no revision of the owner has yet.
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
    /// A revision with this name and data that exists already, with or without an owner.
    pub(crate) existing: Option<Arc<ControllerRevision>>,
}

impl Draft {
    /// Chooses the name. Computes the hash as upstream's StatefulSet controller does, so that both implementations
    /// find each other's revisions. If a revision of the same name has other data, increments the collision count,
    /// which changes the hash. Upstream: `CreateControllerRevision`.
    pub(crate) fn new(
        owner_name: &str,
        template: &Template,
        mut collisions: i32,
        get_revision: impl Fn(&str) -> Option<Arc<ControllerRevision>>,
    ) -> Self {
        let data = template.patch_json();
        let prefix = &owner_name[..owner_name.floor_char_boundary(MAX_PREFIX_LENGTH)];
        loop {
            let sum = fnv32(format!("{data}{collisions}").as_bytes());
            let hash = safe_encode_string(&sum.to_string());
            let name = format!("{prefix}-{hash}");
            let existing = get_revision(&name);
            if existing.as_ref().is_none_or(|revision| revision.data.matches_template(template)) {
                return Self { name, hash, collisions, data, existing };
            }
            collisions = collisions.saturating_add(1);
        }
    }

    /// Returns the action that creates the revision, with the template's labels and the hash in the label `hash_label`.
    pub(crate) fn create(
        self,
        owner: &Target,
        owner_meta: &Meta,
        template_labels: &StrMap,
        hash_label: &str,
        number: i64,
    ) -> Create {
        let kind = ControllerRevision::kind();
        let labels = template_labels.with(hash_label, &self.hash);
        let owners = [wire::controller_reference(owner)];
        let body = wire::json(&RevisionBody {
            api_version: &kind.api_version(),
            kind: &kind.kind,
            metadata: NewMetadata {
                name: &self.name,
                generate_name: "",
                namespace: &owner_meta.namespace,
                labels: &labels,
                annotations: &owner_meta.annotations,
                owner_references: &owners,
            },
            // Write the data verbatim: its hash is part of the name.
            data: RawValue::from_string(self.data).unwrap_or_default(),
            revision: number,
        });
        Create { on_error: OnError::Abort, ..Create::new(kind, &owner_meta.namespace, body) }
    }
}

/// Serialized form of a ControllerRevision.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RevisionBody<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: NewMetadata<'a>,
    data: Box<RawValue>,
    revision: i64,
}

/// Returns the write of a revision with these changes, a merge patch. If it fails, the reconciliation ends.
pub(crate) fn rewrite(revision: &ControllerRevision, changes: &serde_json::Value) -> Rewrite {
    let version = &revision.meta.resource_version;
    Rewrite {
        on_error: OnError::Abort,
        ..Rewrite::new(wire::target(revision), version, PatchType::Merge, changes.to_string())
    }
}

/// Returns the number of unused revisions to keep, by `revisionHistoryLimit`: default 10, unlimited if negative.
pub(crate) fn history_limit(revision_history_limit: Option<i32>) -> usize {
    usize::try_from(revision_history_limit.unwrap_or(10)).unwrap_or(usize::MAX)
}

/// Returns the deletions of the first `count` revisions.
pub(crate) fn deletions<'a>(
    unused: impl Iterator<Item = &'a Arc<ControllerRevision>>,
    count: usize,
) -> impl Iterator<Item = Action> {
    unused.take(count).map(|revision| Delete::new(wire::target(&**revision)).into())
}

/// Returns the revision names or hashes in the pods' labels.
pub(crate) fn in_use(pods: &[Arc<Pod>]) -> HashSet<&str> {
    pods.iter().map(|pod| revision_of(pod)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, label, meta};

    #[test]
    fn revisions_sort_by_number_age_and_name() {
        let revision = |name: &str, number: i64, seconds: i64| {
            let meta = Meta { creation: Some(at(seconds)), ..meta(name) };
            Arc::new(ControllerRevision { meta, revision: number, ..ControllerRevision::default() })
        };
        let mut revisions = vec![
            revision("d", 2, 0),
            revision("c", 1, 5),
            revision("b", 1, 1),
            revision("a", 1, 5),
            revision("e", 1, 9),
        ];
        sort(&mut revisions);
        let names: Vec<_> = revisions.iter().map(|revision| &*revision.meta.name).collect();
        assert_eq!(names, ["b", "a", "c", "e", "d"]);
    }

    #[test]
    fn revisions_in_use_are_those_of_the_pods() {
        let with_label = |value: &str| {
            let mut pod = Pod::default();
            pod.meta.labels = label(crate::pods::REVISION_LABEL, value);
            Arc::new(pod)
        };
        let pods = ["a", "b", "a"].map(with_label);
        assert_eq!(in_use(&pods), HashSet::from(["a", "b"]));
    }
}
