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
use evenkeel_component_helpers::apps::daemonset::target_node;
use std::{collections::BTreeMap, sync::Arc};

/// A DaemonSet, its pods by node, and its revisions.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The DaemonSet to reconcile.
    pub(crate) set: Arc<DaemonSet>,
    /// Pods that the DaemonSet owns, adopts or releases.
    pub(crate) pods: Claims<Pod>,
    /// ControllerRevisions that the DaemonSet owns, adopts or releases.
    pub(crate) revisions: Claims<ControllerRevision>,
    /// Revisions of the current and of old templates.
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
    /// The number of the current revision.
    pub(crate) number: i64,
    /// Further revisions of the current template. Upstream: `dedupCurHistories`.
    pub(crate) duplicates: Vec<Arc<ControllerRevision>>,
    /// Revisions of other templates, oldest first.
    pub(crate) old: Vec<Arc<ControllerRevision>>,
}

impl History {
    fn new(
        set: &DaemonSet,
        revisions: &[Arc<ControllerRevision>],
        named: impl Fn(&str) -> Option<Arc<ControllerRevision>>,
    ) -> Self {
        let mut all = revisions.to_vec();
        revisions::sort(&mut all);
        let template = &set.spec.template;
        let (mut same, old): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|revision| revision.data.matches_template(template));
        let number = old.last().map_or(1, |newest| newest.revision.saturating_add(1));
        // Of several revisions of the template, keep the newest.
        let current = same.pop();
        let draft = current.is_none().then(|| {
            let collisions = set.status.collision_count.unwrap_or(0);
            revisions::Draft::new(&set.meta.name, template, collisions, named)
        });
        Self { current, draft, number, duplicates: same, old }
    }

    /// Returns the revision label's value for pods of the current template.
    pub(crate) fn hash(&self) -> &str {
        match (&self.current, &self.draft) {
            (Some(current), _) => hash(current),
            (None, Some(draft)) => draft.present.as_deref().map_or(&draft.hash, hash),
            (None, None) => "",
        }
    }
}

/// Returns the revision label's value for pods of this revision: its hash label, else its name.
pub(crate) fn hash(revision: &ControllerRevision) -> &str {
    revision.meta.labels.get(REVISION_LABEL).unwrap_or(&revision.meta.name)
}

impl Observed {
    /// Classifies the cached pods and revisions that the set controls or that are orphans. `named` finds any
    /// revision of the namespace by its name.
    pub(crate) fn new(
        set: Arc<DaemonSet>,
        pods: impl IntoIterator<Item = Arc<Pod>>,
        revisions: impl IntoIterator<Item = Arc<ControllerRevision>>,
        nodes: impl IntoIterator<Item = Arc<Node>>,
        named: impl Fn(&str) -> Option<Arc<ControllerRevision>>,
    ) -> Self {
        let selector = &set.spec.selector;
        let pods = Claims::by_labels(&set.meta, pods, |labels| selector.matches(labels));
        let revisions = Claims::by_labels(&set.meta, revisions, |labels| selector.matches(labels));
        // The plan ignores such a DaemonSet, so it needs no revision.
        let history = if set.meta.deleting() || selector.requirements().is_empty() {
            History::default()
        } else {
            History::new(&set, &revisions.owned, named)
        };
        let nodes = nodes.into_iter().map(|node| (node.meta.name.clone(), node)).collect();
        let pod_template = PodTemplate::new(&set);
        Self { set, pods, revisions, history, nodes, pod_template }
    }

    /// Returns the pods by node, scheduled or intended. On one node scheduled pods come first, then older ones.
    /// Omits terminal pods that are being deleted. Upstream: `getNodesToDaemonPods`.
    pub(crate) fn by_node(&self) -> BTreeMap<&str, Vec<&Arc<Pod>>> {
        let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
        for pod in &self.pods.owned {
            if pods::is_terminal(pod) && pod.meta.deleting() {
                continue;
            }
            if let Some(node) = target_node(pod) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        for pods in by_node.values_mut() {
            pods.sort_by(|a, b| {
                let key = |pod: &Pod| (pod.spec.node_name.is_empty(), pod.meta.creation);
                key(a).cmp(&key(b)).then_with(|| a.meta.name.cmp(&b.meta.name))
            });
        }
        by_node
    }
}
