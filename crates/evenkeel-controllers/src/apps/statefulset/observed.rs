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
    /// The update revision, which holds the set's current template.
    pub(crate) update: Update,
    /// Claims of the set's pods, by name.
    pub(crate) volumes: HashMap<Text, Arc<PersistentVolumeClaim>>,
    /// Feature gates that change decisions.
    pub(crate) features: Features,
}

/// The update revision. Upstream: `getStatefulSetRevisions`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Update {
    /// It exists and is the newest.
    Present(Arc<ControllerRevision>),
    /// It exists with an old number and gets the next one: a rollback.
    Renumbered(Arc<ControllerRevision>, i64),
    /// It does not exist and is created.
    Created(revisions::Draft, i64),
    /// The set is being deleted and creates no revision; this is the last one's name.
    Gone(Text),
}

impl Update {
    /// Returns the revision's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Present(revision) | Self::Renumbered(revision, _) => &revision.meta.name,
            Self::Created(draft, _) => &draft.name,
            Self::Gone(name) => name,
        }
    }
}

impl Observed {
    /// Classifies the cached pods and revisions that the set controls or that are orphans. `revision` and `volume`
    /// find revisions and claims of the namespace by name.
    pub(crate) fn new(
        set: Arc<StatefulSet>,
        pods: impl IntoIterator<Item = Arc<Pod>>,
        candidates: impl IntoIterator<Item = Arc<ControllerRevision>>,
        revision: impl Fn(&str) -> Option<Arc<ControllerRevision>>,
        volume: impl Fn(&str) -> Option<Arc<PersistentVolumeClaim>>,
        features: Features,
    ) -> Self {
        let selector = &set.spec.selector;
        let pods = Claims::new(&set.meta, pods, |pod: &Pod| {
            selector.matches(&pod.meta.labels) && identity::is_member(&set, pod)
        });
        // Ignore owned revisions that the selector does not match; they stay owned.
        let candidates =
            candidates.into_iter().filter(|revision| selector.matches(&revision.meta.labels));
        let revisions = Claims::new(&set.meta, candidates, |_: &ControllerRevision| true);
        let mut history = revisions.owned.clone();
        revisions::sort(&mut history);
        let update = update(&set, &history, revision);
        let volumes = volumes(&set, &pods.owned, volume);
        Self { set, pods, revisions, history, update, volumes, features }
    }

    /// Returns the current revision, the one before the update, if it exists.
    pub(crate) fn current(&self) -> Option<&Arc<ControllerRevision>> {
        self.history.iter().find(|revision| revision.meta.name == self.set.status.current_revision)
    }

    /// Returns the current revision's name, or else the update revision's.
    pub(crate) fn current_name(&self) -> &str {
        self.current().map_or(self.update.name(), |revision| &revision.meta.name)
    }

    /// Whether `podManagementPolicy` is `OrderedReady`.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(&*self.set.spec.pod_management_policy, "" | ORDERED_READY)
    }
}

/// Finds the update revision. The newest revision stays if it restores an equivalent template, so that new API
/// defaults create no revision. While the spec is unchanged, the revision that the status names stays. Otherwise the
/// plan renumbers an older equivalent revision or creates a new one. Upstream: `getStatefulSetRevisions`.
fn update(
    set: &StatefulSet,
    history: &[Arc<ControllerRevision>],
    named: impl Fn(&str) -> Option<Arc<ControllerRevision>>,
) -> Update {
    let template = &set.spec.template;
    let next = history.last().map_or(1, |newest| newest.revision.saturating_add(1));
    let equal = history.iter().rfind(|revision| revision.data.matches_template(template));
    let is_newest = |equal| history.last().is_some_and(|newest| Arc::ptr_eq(newest, equal));
    let from_status = || {
        let is_current = set.status.observed_generation == set.meta.generation;
        history.iter().find(|r| is_current && r.meta.name == set.status.update_revision)
    };
    match equal {
        Some(equal) if is_newest(equal) => Update::Present(equal.clone()),
        _ if set.meta.deleting() => Update::Gone(set.status.update_revision.clone()),
        _ => match (from_status(), equal) {
            (Some(from_status), _) => Update::Present(from_status.clone()),
            (None, Some(equal)) => Update::Renumbered(equal.clone(), next),
            (None, None) => {
                let collisions = set.status.collision_count.unwrap_or(0);
                let draft = revisions::Draft::new(&set.meta.name, template, collisions, named);
                match draft.present {
                    Some(present) => Update::Present(present),
                    None => Update::Created(draft, next),
                }
            }
        },
    }
}

/// Returns the claims of all existing and desired pods.
fn volumes(
    set: &StatefulSet,
    pods: &[Arc<Pod>],
    find: impl Fn(&str) -> Option<Arc<PersistentVolumeClaim>>,
) -> HashMap<Text, Arc<PersistentVolumeClaim>> {
    let templates = &set.spec.volume_claim_templates;
    if templates.is_empty() {
        return HashMap::new();
    }
    let desired =
        (0..identity::replicas(set)).map(|n| identity::ordinals_start(set).saturating_add(n));
    let condemned = pods
        .iter()
        .filter_map(|pod| identity::ordinal(pod))
        .filter(|ordinal| identity::position(set, *ordinal).is_none());
    let names = desired.chain(condemned).flat_map(|ordinal| {
        templates.iter().map(move |claim| identity::claim_name(set, &claim.name, ordinal))
    });
    names.filter_map(|name| find(&name).map(|claim| (name.into(), claim))).collect()
}
