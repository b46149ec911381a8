//! What a set's pods look like, and on which nodes they may be.

use crate::pods::REVISION_LABEL;
use evenkeel_api::{
    Encoding, OwnerReference, View, daemons,
    placement::{required, tolerated},
    template::Template,
    views::{DaemonSet, Node, Pod, PodSpec},
};

/// The annotation by which DaemonSets of old counted their templates.
const GENERATION: &str = "deprecated.daemonset.template.generation";
/// The label by which pods of old said which template they are of.
const GENERATION_LABEL: &str = "pod-template-generation";

/// A set's template with what every pod of a DaemonSet has.
#[derive(Debug)]
pub(crate) struct PodTemplate {
    template: Template,
    spec: PodSpec,
}

/// What a node is to a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fit {
    /// A pod should be there.
    pub(crate) should_run: bool,
    /// A pod that is there may stay.
    pub(crate) should_continue_running: bool,
}

impl PodTemplate {
    /// The set's.
    pub(crate) fn new(set: &DaemonSet) -> Self {
        let template = set.spec.template.with_spec(daemons::bear);
        let pod = format!(r#"{{"spec":{}}}"#, template.spec);
        // A template that no pod can be made from is refused by the API server; here it asks for nothing.
        let spec = Pod::decode(pod.as_bytes(), Encoding::Json).unwrap_or_default().spec;
        let template = match generation(set) {
            Some(generation) => template.with_label(GENERATION_LABEL, &generation.to_string()),
            None => template,
        };
        Self { template, spec }
    }

    /// Whether the node is one that the template asks for, and bears.
    pub(crate) fn fit(&self, node: &Node) -> Fit {
        let named = self.spec.node_name.is_empty() || self.spec.node_name == node.meta.name;
        if !named || !required(&self.spec, node) {
            return Fit { should_run: false, should_continue_running: false };
        }
        let forbids = |effects: &[&str]| {
            let mut hard =
                node.spec.taints.iter().filter(|taint| effects.contains(&&*taint.effect));
            hard.any(|taint| !tolerated(&self.spec.tolerations, taint))
        };
        Fit {
            should_run: !forbids(&["NoSchedule", "NoExecute"]),
            should_continue_running: !forbids(&["NoExecute"]),
        }
    }

    /// Body of the pod on this node: only there can it be scheduled. What else the template asks of nodes the node has.
    pub(crate) fn pod_json(
        &self,
        set: &DaemonSet,
        node: &str,
        revision: &str,
        owner: &OwnerReference,
    ) -> String {
        let prefix = format!("{}-", set.meta.name);
        self.template
            .with_spec(|spec| daemons::only_on(spec, node))
            .with_label(REVISION_LABEL, revision)
            .pod_json(&prefix, &set.meta.namespace, owner)
    }
}

/// How often the template has changed, where the set still counts.
fn generation(set: &DaemonSet) -> Option<i64> {
    set.meta.annotations.get(GENERATION)?.parse().ok()
}

/// Whether the pod is of the set's template: by revision, or as pods of old said it.
pub(crate) fn is_updated(set: &DaemonSet, pod: &Pod, revision: &str) -> bool {
    let label = |key: &str| pod.meta.labels.get(key);
    let by_generation =
        || generation(set).is_some_and(|n| label(GENERATION_LABEL) == Some(&n.to_string()));
    (!revision.is_empty() && label(REVISION_LABEL) == Some(revision)) || by_generation()
}
