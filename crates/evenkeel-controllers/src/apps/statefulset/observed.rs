//! Observed state of a StatefulSet.

use super::{identity, plan::ORDERED_READY, strategy::Features};
use crate::{apps::revisions, claim::Claims};
use evenkeel_api::{
    Text,
    views::{ControllerRevision, PersistentVolumeClaim, Pod, StatefulSet},
};
use std::{collections::HashMap, sync::Arc};

/// A StatefulSet with its pods, claims and revisions.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The StatefulSet to reconcile.
    pub(crate) set: Arc<StatefulSet>,
    /// Pods that the StatefulSet owns, adopts or releases, terminal and terminating ones included.
    pub(crate) pods: Claims<Pod>,
    /// ControllerRevisions that the StatefulSet owns, adopts or releases.
    pub(crate) revisions: Claims<ControllerRevision>,
    /// The set's revisions, oldest first.
    pub(crate) history: Vec<Arc<ControllerRevision>>,
    /// The revision of the set's present template. Rolling updates replace the pods of other revisions.
    pub(crate) update_revision: UpdateRevision,
    /// Existing claims of the set's pods, by name.
    pub(crate) claims: HashMap<Text, Arc<PersistentVolumeClaim>>,
    /// Feature gates that change decisions.
    pub(crate) features: Features,
}

/// The revision of the set's present template. Upstream: `getStatefulSetRevisions`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum UpdateRevision {
    /// It exists, and its number stays.
    Present(Arc<ControllerRevision>),
    /// It exists with an old number and gets the next one: a rollback.
    Renumbered { revision: Arc<ControllerRevision>, number: i64 },
    /// It does not exist and is created.
    Created { draft: revisions::Draft, number: i64 },
    /// The set is being deleted and creates no revision. The status has this name.
    Gone(Text),
}

impl UpdateRevision {
    /// Returns the revision's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Present(revision) | Self::Renumbered { revision, .. } => &revision.meta.name,
            Self::Created { draft, .. } => &draft.name,
            Self::Gone(name) => name,
        }
    }
}

impl Observed {
    /// Classifies the cached pods and revisions that the set controls or that are orphans. `get_revision` and
    /// `get_claim` find revisions and claims of the namespace by name.
    pub(crate) fn new(
        set: Arc<StatefulSet>,
        pods: impl IntoIterator<Item = Arc<Pod>>,
        revisions: impl IntoIterator<Item = Arc<ControllerRevision>>,
        get_revision: impl Fn(&str) -> Option<Arc<ControllerRevision>>,
        get_claim: impl Fn(&str) -> Option<Arc<PersistentVolumeClaim>>,
        features: Features,
    ) -> Self {
        let selector = &set.spec.selector;
        let pods = Claims::new(&set.meta, pods, |pod: &Pod| {
            selector.matches(&pod.meta.labels) && identity::is_member(&set, pod)
        });
        // Ignore owned revisions that the selector does not match; they stay owned.
        let selected =
            revisions.into_iter().filter(|revision| selector.matches(&revision.meta.labels));
        let revisions = Claims::new(&set.meta, selected, |_: &ControllerRevision| true);
        let mut history = revisions.owned.clone();
        revisions::sort(&mut history);
        let update_revision = find_update_revision(&set, &history, get_revision);
        let claims = find_claims(&set, &pods.owned, get_claim);
        Self { set, pods, revisions, history, update_revision, claims, features }
    }

    /// Returns the revision to which the last complete rollout led, if it exists.
    pub(crate) fn current_revision(&self) -> Option<&Arc<ControllerRevision>> {
        self.history.iter().find(|revision| revision.meta.name == self.set.status.current_revision)
    }

    /// Returns the current revision's name, or else the update revision's.
    pub(crate) fn current_revision_name(&self) -> &str {
        self.current_revision().map_or(self.update_revision.name(), |revision| &revision.meta.name)
    }

    /// Returns whether `podManagementPolicy` is `OrderedReady`.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(&*self.set.spec.pod_management_policy, "" | ORDERED_READY)
    }
}

/// Finds the update revision. The newest revision stays if it restores an equivalent template, so that new API
/// defaults create no revision. While the spec is unchanged, the revision that the status names stays. Otherwise the
/// plan renumbers an older equivalent revision or creates a new one. Upstream: `getStatefulSetRevisions`.
fn find_update_revision(
    set: &StatefulSet,
    history: &[Arc<ControllerRevision>],
    get_revision: impl Fn(&str) -> Option<Arc<ControllerRevision>>,
) -> UpdateRevision {
    let template = &set.spec.template;
    if let Some(newest) = history.last()
        && newest.data.matches_template(template)
    {
        return UpdateRevision::Present(newest.clone());
    }
    if set.meta.deleting() {
        return UpdateRevision::Gone(set.status.update_revision.clone());
    }
    let is_spec_observed = set.status.observed_generation == set.meta.generation;
    if is_spec_observed
        && let Some(in_status) =
            history.iter().find(|revision| revision.meta.name == set.status.update_revision)
    {
        return UpdateRevision::Present(in_status.clone());
    }
    let number = history.last().map_or(1, |newest| newest.revision.saturating_add(1));
    if let Some(equal) = history.iter().rfind(|revision| revision.data.matches_template(template)) {
        return UpdateRevision::Renumbered { revision: equal.clone(), number };
    }
    let collisions = set.status.collision_count.unwrap_or(0);
    let draft = revisions::Draft::new(&set.meta.name, template, collisions, get_revision);
    match draft.existing {
        Some(existing) => UpdateRevision::Present(existing),
        None => UpdateRevision::Created { draft, number },
    }
}

/// Returns the claims of all existing and desired pods, by name.
fn find_claims(
    set: &StatefulSet,
    pods: &[Arc<Pod>],
    get_claim: impl Fn(&str) -> Option<Arc<PersistentVolumeClaim>>,
) -> HashMap<Text, Arc<PersistentVolumeClaim>> {
    let templates = &set.spec.volume_claim_templates;
    if templates.is_empty() {
        return HashMap::new();
    }
    let desired = (0..identity::replicas(set))
        .map(|index| identity::ordinals_start(set).saturating_add(index));
    let condemned = pods
        .iter()
        .filter_map(|pod| identity::ordinal(pod))
        .filter(|ordinal| identity::position(set, *ordinal).is_none());
    let names = desired.chain(condemned).flat_map(|ordinal| {
        templates.iter().map(move |claim| identity::claim_name(set, &claim.name, ordinal))
    });
    names.filter_map(|name| get_claim(&name).map(|claim| (name.into(), claim))).collect()
}
