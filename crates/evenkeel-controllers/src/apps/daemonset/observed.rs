//! What a decision about a set looks at.

use super::pod_template::PodTemplate;
use crate::{
    apps::revisions,
    claim::Claims,
    pods::{self, REVISION_LABEL},
};
use evenkeel_api::{
    Text,
    daemons::target_node,
    views::{ControllerRevision, DaemonSet, Node, Pod},
};
use std::{collections::BTreeMap, sync::Arc};

/// A set, its pods on their nodes, and its history.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The set.
    pub(crate) set: Arc<DaemonSet>,
    /// Pods, and whose they are.
    pub(crate) pods: Claims<Pod>,
    /// Revisions, and whose they are.
    pub(crate) revisions: Claims<ControllerRevision>,
    /// What the set's template is and was.
    pub(crate) history: History,
    /// All nodes, by name.
    pub(crate) nodes: BTreeMap<Text, Arc<Node>>,
    /// What pods are made of.
    pub(crate) pod_template: PodTemplate,
}

/// What the set's template is and was.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The revision that the set's template is.
    pub(crate) current: Option<Arc<ControllerRevision>>,
    /// The one to be made where there is none.
    pub(crate) draft: Option<revisions::Draft>,
    /// The number that it should have.
    pub(crate) number: i64,
    /// Others of the same template, which somebody made besides.
    pub(crate) duplicates: Vec<Arc<ControllerRevision>>,
    /// Those of other templates, oldest first.
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
            all.into_iter().partition(|revision| revision.data.is(template));
        let number = old.last().map_or(1, |newest| newest.revision.saturating_add(1));
        // Of several the newest stays.
        let current = same.pop();
        let draft = current.is_none().then(|| {
            let collisions = set.status.collision_count.unwrap_or(0);
            revisions::Draft::new(&set.meta.name, template, collisions, named)
        });
        Self { current, draft, number, duplicates: same, old }
    }

    /// What pods of the set's template are labelled with.
    pub(crate) fn hash(&self) -> &str {
        match (&self.current, &self.draft) {
            (Some(current), _) => hash(current),
            (None, Some(draft)) => draft.present.as_deref().map_or(&draft.hash, hash),
            (None, None) => "",
        }
    }
}

/// What pods of this revision are labelled with: the name where somebody made it without a hash.
pub(crate) fn hash(revision: &ControllerRevision) -> &str {
    revision.meta.labels.get(REVISION_LABEL).unwrap_or(&revision.meta.name)
}

impl Observed {
    /// Sorts what caches hold: pods and revisions that the set controls or nobody does, in any order, and all nodes.
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
        // A set that is left alone gets no revision either.
        let history = if set.meta.deleting() || selector.requirements().is_empty() {
            History::default()
        } else {
            History::new(&set, &revisions.owned, named)
        };
        let nodes = nodes.into_iter().map(|node| (node.meta.name.clone(), node)).collect();
        let pod_template = PodTemplate::new(&set);
        Self { set, pods, revisions, history, nodes, pod_template }
    }

    /// Pods by the node that they are on or meant for; on one node the scheduled before others, then the older before the
    /// younger. Those that have ended and are on their way out are nobody's concern.
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
