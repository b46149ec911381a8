//! Observed state of a DaemonSet.

use super::pod_template::PodTemplate;
use crate::{
    apps::revisions,
    claim::Claims,
    pods::{self, REVISION_LABEL},
};
use evenkeel_api::{
    Text,
    views::{ControllerRevision, DaemonSet, Node, Pod},
};
use evenkeel_component_helpers::{
    apps::daemonset::target_node, scheduling::corev1::TolerationOperators,
};
use std::{collections::BTreeMap, sync::Arc};

/// A DaemonSet, its pods and revisions, and all nodes.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The DaemonSet to reconcile.
    pub(crate) set: Arc<DaemonSet>,
    /// Pods that the DaemonSet owns, adopts or releases.
    pub(crate) pods: Claims<Pod>,
    /// ControllerRevisions that the DaemonSet owns, adopts or releases.
    pub(crate) revisions: Claims<ControllerRevision>,
    /// The revisions that stay or become owned, by template.
    pub(crate) history: History,
    /// All nodes, by name.
    pub(crate) nodes: BTreeMap<Text, Arc<Node>>,
    /// The pod template with the DaemonSet's tolerations.
    pub(crate) pod_template: PodTemplate,
}

/// Revisions of the current and of old templates. Upstream: `constructHistory`.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The revision of the current template.
    pub(crate) current: Option<Arc<ControllerRevision>>,
    /// The revision to create, if the current template has none.
    pub(crate) draft: Option<revisions::Draft>,
    /// Least number of the current template's revision: one above all old revisions.
    pub(crate) next_number: i64,
    /// Further revisions of the current template. Upstream: `dedupCurHistories`.
    pub(crate) duplicates: Vec<Arc<ControllerRevision>>,
    /// Revisions of other templates, oldest first.
    pub(crate) old: Vec<Arc<ControllerRevision>>,
}

impl History {
    fn new(
        set: &DaemonSet,
        revisions: &[Arc<ControllerRevision>],
        get_revision: impl Fn(&str) -> Option<Arc<ControllerRevision>>,
    ) -> Self {
        let mut sorted = revisions.to_vec();
        revisions::sort(&mut sorted);
        let template = &set.spec.template;
        let (mut matching, old): (Vec<_>, Vec<_>) =
            sorted.into_iter().partition(|revision| revision.data.matches_template(template));
        let next_number = old.last().map_or(1, |newest| newest.revision.saturating_add(1));
        // Of several revisions of the template, keep the newest.
        let current = matching.pop();
        let draft = current.is_none().then(|| {
            let collisions = set.status.collision_count.unwrap_or(0);
            revisions::Draft::new(&set.meta.name, template, collisions, get_revision)
        });
        Self { current, draft, next_number, duplicates: matching, old }
    }

    /// Returns the revision label's value for pods of the current template.
    pub(crate) fn current_hash(&self) -> &str {
        match (&self.current, &self.draft) {
            (Some(current), _) => revision_hash(current),
            (None, Some(draft)) => draft.existing.as_deref().map_or(&draft.hash, revision_hash),
            (None, None) => "",
        }
    }
}

/// Returns the revision label's value for pods of this revision: its hash label, or its name without one.
pub(crate) fn revision_hash(revision: &ControllerRevision) -> &str {
    revision.meta.labels.get(REVISION_LABEL).unwrap_or(&revision.meta.name)
}

impl Observed {
    /// Classifies the cached pods and revisions that the set controls or that are orphans. `get_revision` finds any
    /// revision of the namespace by its name.
    pub(crate) fn new(
        set: Arc<DaemonSet>,
        pods: impl IntoIterator<Item = Arc<Pod>>,
        revisions: impl IntoIterator<Item = Arc<ControllerRevision>>,
        nodes: impl IntoIterator<Item = Arc<Node>>,
        get_revision: impl Fn(&str) -> Option<Arc<ControllerRevision>>,
    ) -> Self {
        let selector = &set.spec.selector;
        let pods = Claims::by_labels(&set.meta, pods, |labels| selector.matches(labels));
        let revisions = Claims::by_labels(&set.meta, revisions, |labels| selector.matches(labels));
        // The plan ignores a DaemonSet that is being deleted or has no valid selector.
        let history = if set.meta.deleting() || selector.requirements().is_empty() {
            History::default()
        } else {
            History::new(&set, &revisions.owned, get_revision)
        };
        let nodes = nodes.into_iter().map(|node| (node.meta.name.clone(), node)).collect();
        let pod_template = PodTemplate::new(&set);
        Self { set, pods, revisions, history, nodes, pod_template }
    }

    /// Sets the operators of tolerations that match taints.
    pub(crate) fn matching(self, operators: TolerationOperators) -> Self {
        Self { pod_template: self.pod_template.matching(operators), ..self }
    }

    /// Returns the owned pods by node. A pending pod belongs to the node in its affinity. Sorts the pods of a node:
    /// scheduled ones before pending ones, then by age. Omits terminal pods that are being deleted. Upstream:
    /// `getNodesToDaemonPods`.
    pub(crate) fn pods_by_node(&self) -> BTreeMap<&str, Vec<&Arc<Pod>>> {
        let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
        for pod in &self.pods.owned {
            if pods::is_terminal(pod) && pod.meta.deleting() {
                continue;
            }
            if let Some(node) = target_node(pod) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        let rank = |pod: &Pod| (pod.spec.node_name.is_empty(), pod.meta.creation);
        for pods in by_node.values_mut() {
            pods.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.meta.name.cmp(&b.meta.name)));
        }
        by_node
    }
}
