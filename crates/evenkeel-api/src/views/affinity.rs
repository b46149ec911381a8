//! Affinity, tolerations and topology spread constraints of pods.

use crate::decode::message;
use crate::selector::Selector;
use crate::text::Text;

message! {
    /// Scheduling constraints of a pod: node affinity, pod affinity and anti-affinity.
    pub struct Affinity("k8s.io.api.core.v1.Affinity") {
        /// Nodes that the pod requires or prefers, by labels and fields.
        node_affinity: Option<Box<NodeAffinity>> = 1 "nodeAffinity",
        /// Pods near which this pod must or should run, in the same topology domain.
        pod_affinity: Option<Box<PodAffinity>> = 2 "podAffinity",
        /// Pods near which this pod must not or should not run, in the same topology domain.
        pod_anti_affinity: Option<Box<PodAntiAffinity>> = 3 "podAntiAffinity",
    }
}

message! {
    /// Required and preferred node affinity of a pod.
    pub struct NodeAffinity("k8s.io.api.core.v1.NodeAffinity") {
        /// Nodes that the pod can be scheduled to; all if absent.
        required_during_scheduling_ignored_during_execution: Option<Box<NodeSelector>> = 1 "requiredDuringSchedulingIgnoredDuringExecution",
        /// Preferred terms with weights.
        preferred_during_scheduling_ignored_during_execution: Box<[PreferredSchedulingTerm]> = 2 "preferredDuringSchedulingIgnoredDuringExecution",
    }
}

message! {
    /// Node selector: selects a node that matches any one of its terms.
    pub struct NodeSelector("k8s.io.api.core.v1.NodeSelector") {
        /// Terms; a node must match at least one. Without terms, no node matches.
        node_selector_terms: Box<[NodeSelectorTerm]> = 1 "nodeSelectorTerms",
    }
}

message! {
    /// Requirements on labels and fields of a node. All of them must match. An empty term matches no node.
    pub struct NodeSelectorTerm("k8s.io.api.core.v1.NodeSelectorTerm") {
        /// Requirements on node labels.
        match_expressions: Box<[NodeSelectorRequirement]> = 1 "matchExpressions",
        /// Requirements on node fields.
        match_fields: Box<[NodeSelectorRequirement]> = 2 "matchFields",
    }
}

message! {
    /// Requirement on one label or field of a node.
    pub struct NodeSelectorRequirement("k8s.io.api.core.v1.NodeSelectorRequirement") {
        /// Label key or field name.
        key: Text = 1 "key",
        /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
        operator: Text = 2 "operator",
        /// Values to compare with: one integer for `Gt` and `Lt`, none for `Exists` and `DoesNotExist`.
        values: Box<[Text]> = 3 "values",
    }
}

message! {
    /// Node selector term with its weight (1 to 100) in scoring.
    pub struct PreferredSchedulingTerm("k8s.io.api.core.v1.PreferredSchedulingTerm") {
        /// Weight, 1 to 100.
        weight: i32 = 1 "weight",
        /// Term to prefer.
        preference: NodeSelectorTerm = 2 "preference",
    }
}

message! {
    /// Affinity to topology domains where selected pods run.
    pub struct PodAffinity("k8s.io.api.core.v1.PodAffinity") {
        /// Terms that must all match at the pod's node.
        required_during_scheduling_ignored_during_execution: Box<[PodAffinityTerm]> = 1 "requiredDuringSchedulingIgnoredDuringExecution",
        /// Preferred terms with weights.
        preferred_during_scheduling_ignored_during_execution: Box<[WeightedPodAffinityTerm]> = 2 "preferredDuringSchedulingIgnoredDuringExecution",
    }
}

message! {
    /// Anti-affinity to topology domains where selected pods run.
    pub struct PodAntiAffinity("k8s.io.api.core.v1.PodAntiAffinity") {
        /// Terms that must not match at the pod's node.
        required_during_scheduling_ignored_during_execution: Box<[PodAffinityTerm]> = 1 "requiredDuringSchedulingIgnoredDuringExecution",
        /// Terms to avoid if possible, with weights.
        preferred_during_scheduling_ignored_during_execution: Box<[WeightedPodAffinityTerm]> = 2 "preferredDuringSchedulingIgnoredDuringExecution",
    }
}

message! {
    /// Pod affinity term with its weight (1 to 100) in scoring.
    pub struct WeightedPodAffinityTerm("k8s.io.api.core.v1.WeightedPodAffinityTerm") {
        /// Weight, 1 to 100.
        weight: i32 = 1 "weight",
        /// Term that adds the weight; for anti-affinity, the term that subtracts it.
        pod_affinity_term: PodAffinityTerm = 2 "podAffinityTerm",
    }
}

message! {
    /// Pods selected by labels and namespaces, with the topology key of the domains they run in.
    pub struct PodAffinityTerm("k8s.io.api.core.v1.PodAffinityTerm") {
        /// Selector of the pods; selects none if absent.
        label_selector: Selector = 1 "labelSelector",
        /// Namespaces of the pods; if neither `namespaces` nor `namespaceSelector` is set, the pod's own namespace.
        namespaces: Box<[Text]> = 2 "namespaces",
        /// Node label whose value identifies the topology domain.
        topology_key: Text = 3 "topologyKey",
        /// Selector of further namespaces of the pods; an empty one selects all.
        namespace_selector: Selector = 4 "namespaceSelector",
        /// `matchLabelKeys`: labels whose values must equal the pod's.
        match_label_keys: Box<[Text]> = 5 "matchLabelKeys",
        /// `mismatchLabelKeys`: labels whose values must differ from the pod's.
        mismatch_label_keys: Box<[Text]> = 6 "mismatchLabelKeys",
    }
}

message! {
    /// Toleration of matching taints, possibly for a limited time.
    pub struct Toleration("k8s.io.api.core.v1.Toleration") {
        /// Key of the taint; empty for all keys.
        key: Text = 1 "key",
        /// `Equal` (also when empty), `Exists`, `Lt` or `Gt`.
        operator: Text = 2 "operator",
        /// Value of the taint.
        value: Text = 3 "value",
        /// Effect of the taint; empty for all effects.
        effect: Text = 4 "effect",
        /// Seconds from a `NoExecute` taint to the eviction; if absent, the taint is tolerated forever.
        toleration_seconds: Option<i64> = 5 "tolerationSeconds",
    }
}

message! {
    /// Limit on the difference between topology domains in the number of matching pods.
    pub struct TopologySpreadConstraint("k8s.io.api.core.v1.TopologySpreadConstraint") {
        /// Maximum difference between the number of pods in a domain and the minimum over all domains; at least 1.
        max_skew: i32 = 1 "maxSkew",
        /// Node label whose value identifies the topology domain.
        topology_key: Text = 2 "topologyKey",
        /// `DoNotSchedule` or `ScheduleAnyway`.
        when_unsatisfiable: Text = 3 "whenUnsatisfiable",
        /// Selector of the pods to count. Neither an absent one nor `{}` counts existing pods, but `{}` matches the pod
        /// itself.
        label_selector: Selector = 4 "labelSelector",
        /// Number of domains below which the minimum counts as 0; 1 by default. Only with `DoNotSchedule`.
        min_domains: Option<i32> = 5 "minDomains",
        /// `Honor` (also when empty) or `Ignore`.
        node_affinity_policy: Text = 6 "nodeAffinityPolicy",
        /// `Honor` or `Ignore` (also when empty).
        node_taints_policy: Text = 7 "nodeTaintsPolicy",
        /// `matchLabelKeys`: labels whose values must equal the pod's.
        match_label_keys: Box<[Text]> = 8 "matchLabelKeys",
    }
}
