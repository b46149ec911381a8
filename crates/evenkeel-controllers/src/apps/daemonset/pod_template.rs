//! Pods of a DaemonSet, and the nodes that they fit.

use crate::pods::REVISION_LABEL;
use evenkeel_api::{
    Encoding, OwnerReference, View,
    template::Template,
    views::{DaemonSet, Node, Pod, PodSpec},
};
use evenkeel_component_helpers::{
    apps::daemonset,
    scheduling::corev1::{TolerationOperators, nodeaffinity},
};

/// Annotation with the deprecated template generation. Upstream: `DeprecatedTemplateGeneration`.
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
/// Label of pods with the deprecated template generation. Upstream: `DaemonSetTemplateGenerationKey`.
const GENERATION_LABEL: &str = "pod-template-generation";

/// The pod template with the tolerations of DaemonSet pods. Upstream: `CreatePodTemplate`.
#[derive(Debug)]
pub(crate) struct PodTemplate {
    template: Template,
    spec: PodSpec,
    operators: TolerationOperators,
}

/// Result of matching a node with the pod template. Upstream: `NodeShouldRunDaemonPod`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fit {
    /// Whether the node should run a pod.
    pub(crate) should_run: bool,
    /// Whether an existing pod may continue to run there.
    pub(crate) should_continue_running: bool,
}

impl PodTemplate {
    /// Adds the tolerations of DaemonSet pods to the set's template.
    pub(crate) fn new(set: &DaemonSet) -> Self {
        let template = set.spec.template.with_spec(daemonset::add_tolerations);
        let pod = format!(r#"{{"spec":{}}}"#, template.spec);
        // The API server rejects an invalid template; here it fits every node.
        let spec = Pod::decode(pod.as_bytes(), Encoding::Json).unwrap_or_default().spec;
        let template = match template_generation(set) {
            Some(generation) => template.with_label(GENERATION_LABEL, &generation.to_string()),
            None => template,
        };
        Self { template, spec, operators: TolerationOperators::default() }
    }

    /// Sets the operators of tolerations that match taints.
    pub(crate) fn matching(self, operators: TolerationOperators) -> Self {
        Self { operators, ..self }
    }

    /// Compares the node with the template's node name, affinity and tolerations. Upstream: `NodeShouldRunDaemonPod`,
    /// `predicates`.
    pub(crate) fn fit(&self, node: &Node) -> Fit {
        let fits_node_name =
            self.spec.node_name.is_empty() || self.spec.node_name == node.meta.name;
        if !fits_node_name || !nodeaffinity::matches_required(&self.spec, node) {
            return Fit { should_run: false, should_continue_running: false };
        }
        let has_untolerated_taint = |effects: &[&str]| {
            let mut taints =
                node.spec.taints.iter().filter(|taint| effects.contains(&&*taint.effect));
            taints.any(|taint| !self.operators.is_tolerated(&self.spec.tolerations, taint))
        };
        Fit {
            should_run: !has_untolerated_taint(&["NoSchedule", "NoExecute"]),
            should_continue_running: !has_untolerated_taint(&["NoExecute"]),
        }
    }

    /// Returns the body of the pod for this node, with a node affinity to it. Upstream:
    /// `ReplaceDaemonSetPodNodeNameNodeAffinity`.
    pub(crate) fn pod_json(
        &self,
        set: &DaemonSet,
        node: &str,
        revision_hash: &str,
        owner: &OwnerReference,
    ) -> String {
        let prefix = format!("{}-", set.meta.name);
        self.template
            .with_spec(|spec| daemonset::restrict_to_node(spec, node))
            .with_label(REVISION_LABEL, revision_hash)
            .pod_json(&prefix, &set.meta.namespace, owner)
    }
}

/// Returns the deprecated template generation, if the set has one. Upstream: `GetTemplateGeneration`.
fn template_generation(set: &DaemonSet) -> Option<i64> {
    set.meta.annotations.get(GENERATION_ANNOTATION)?.parse().ok()
}

/// Returns whether the pod has the current template, by revision hash or template generation. Upstream: `IsPodUpdated`.
pub(crate) fn is_updated(set: &DaemonSet, pod: &Pod, current_hash: &str) -> bool {
    let labels = &pod.meta.labels;
    if !current_hash.is_empty() && labels.get(REVISION_LABEL) == Some(current_hash) {
        return true;
    }
    template_generation(set)
        .is_some_and(|generation| labels.get(GENERATION_LABEL) == Some(&generation.to_string()))
}
