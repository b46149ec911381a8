//! What a decision about a set looks at.

use super::{identity, plan::ORDERED_READY, strategy::Features};
use crate::{apps::revisions, claim::Claims};
use evenkeel_api::{
    Text,
    views::{ControllerRevision, PersistentVolumeClaim, Pod, StatefulSet},
};
use std::{collections::HashMap, sync::Arc};

/// A set, its pods, their claims, and its history.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The set.
    pub(crate) set: Arc<StatefulSet>,
    /// Pods, and whose they are; also those that have ended or are on their way out.
    pub(crate) pods: Claims<Pod>,
    /// Revisions, and whose they are.
    pub(crate) revisions: Claims<ControllerRevision>,
    /// Those that are the set's, oldest first.
    pub(crate) history: Vec<Arc<ControllerRevision>>,
    /// The revision that the set's template is.
    pub(crate) update: Update,
    /// Claims of the set's pods, by name.
    pub(crate) volumes: HashMap<Text, Arc<PersistentVolumeClaim>>,
    /// Feature gates.
    pub(crate) features: Features,
}

/// How the revision comes about that the set's template is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Update {
    /// It is there.
    Present(Arc<ControllerRevision>),
    /// It is there and becomes the newest: a rollback.
    Renumbered(Arc<ControllerRevision>, i64),
    /// It is made.
    Made(revisions::Draft, i64),
    /// The set goes and gets none; this is the name of the last.
    Gone(Text),
}

impl Update {
    /// The revision's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Present(revision) | Self::Renumbered(revision, _) => &revision.meta.name,
            Self::Made(draft, _) => &draft.name,
            Self::Gone(name) => name,
        }
    }
}

impl Seen {
    /// Sorts what caches hold: pods and revisions that the set controls or nobody does, in any order, and what is found by
    /// name.
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
        // What the set has and does not select stays the set's, and is not looked at.
        let candidates =
            candidates.into_iter().filter(|revision| selector.matches(&revision.meta.labels));
        let revisions = Claims::new(&set.meta, candidates, |_: &ControllerRevision| true);
        let mut history = revisions.owned.clone();
        revisions::sort(&mut history);
        let update = update(&set, &history, revision);
        let volumes = volumes(&set, &pods.owned, volume);
        Self { set, pods, revisions, history, update, volumes, features }
    }

    /// The revision that pods had before the update, where it is still there.
    pub(crate) fn current(&self) -> Option<&Arc<ControllerRevision>> {
        self.history.iter().find(|revision| revision.meta.name == self.set.status.current_revision)
    }

    /// Its name, or that of the update where it is gone.
    pub(crate) fn current_name(&self) -> &str {
        self.current().map_or(self.update.name(), |revision| &revision.meta.name)
    }

    /// Whether pods wait for one another.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(&*self.set.spec.pod_management_policy, "" | ORDERED_READY)
    }
}

/// The newest revision if it restores the set's template (by meaning: a release that adds defaults makes no new revision
/// of the same template); else, as long as the spec stays as it was, the one that was chosen for it; else an older one that
/// does, or a new one.
fn update(
    set: &StatefulSet,
    history: &[Arc<ControllerRevision>],
    named: impl Fn(&str) -> Option<Arc<ControllerRevision>>,
) -> Update {
    let template = &set.spec.template;
    let next = history.last().map_or(1, |newest| newest.revision.saturating_add(1));
    let equal = history.iter().rfind(|revision| revision.data.is(template));
    let is_newest = |equal| history.last().is_some_and(|newest| Arc::ptr_eq(newest, equal));
    let chosen = || {
        let observed = set.status.observed_generation == set.meta.generation;
        history.iter().find(|r| observed && r.meta.name == set.status.update_revision)
    };
    match equal {
        Some(equal) if is_newest(equal) => Update::Present(equal.clone()),
        _ if set.meta.deleting() => Update::Gone(set.status.update_revision.clone()),
        _ => match (chosen(), equal) {
            (Some(chosen), _) => Update::Present(chosen.clone()),
            (None, Some(equal)) => Update::Renumbered(equal.clone(), next),
            (None, None) => {
                let collisions = set.status.collision_count.unwrap_or(0);
                let draft = revisions::Draft::new(&set.meta.name, template, collisions, named);
                match draft.present {
                    Some(present) => Update::Present(present),
                    None => Update::Made(draft, next),
                }
            }
        },
    }
}

/// Claims of all pods that are there or should be.
fn volumes(
    set: &StatefulSet,
    pods: &[Arc<Pod>],
    find: impl Fn(&str) -> Option<Arc<PersistentVolumeClaim>>,
) -> HashMap<Text, Arc<PersistentVolumeClaim>> {
    let templates = &set.spec.volume_claim_templates;
    if templates.is_empty() {
        return HashMap::new();
    }
    let wanted =
        (0..identity::replicas(set)).map(|n| identity::ordinals_start(set).saturating_add(n));
    let condemned = pods
        .iter()
        .filter_map(|pod| identity::ordinal(pod))
        .filter(|ordinal| identity::place(set, *ordinal).is_none());
    let names = wanted.chain(condemned).flat_map(|ordinal| {
        templates.iter().map(move |claim| identity::claim_name(set, &claim.name, ordinal))
    });
    names.filter_map(|name| find(&name).map(|claim| (name.into(), claim))).collect()
}
