//! TTL by cluster size. Upstream: `ttlBoundaries`.

use crate::wire;
use evenkeel_api::views::Node;
use evenkeel_runtime::plan::{Patch, PatchType, Plan};
use serde_json::json;

/// Annotation with the TTL in seconds.
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// TTL for a range of cluster sizes. Upstream: `ttlBoundary`.
struct SizeRange {
    min_nodes: usize,
    max_nodes: usize,
    ttl_seconds: u32,
}

/// The ranges by ascending size. They overlap to avoid flapping at a boundary.
const SIZE_RANGES: [SizeRange; 5] = [
    SizeRange { min_nodes: 0, max_nodes: 100, ttl_seconds: 0 },
    SizeRange { min_nodes: 90, max_nodes: 500, ttl_seconds: 15 },
    SizeRange { min_nodes: 450, max_nodes: 1000, ttl_seconds: 30 },
    SizeRange { min_nodes: 900, max_nodes: 2000, ttl_seconds: 60 },
    SizeRange { min_nodes: 1800, max_nodes: usize::MAX, ttl_seconds: 300 },
];

/// Number of nodes, and the index of the current range in [`SIZE_RANGES`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ClusterSize {
    nodes: usize,
    range: usize,
}

impl ClusterSize {
    /// Counts an added node. Returns whether the TTL changes.
    pub(super) fn add_node(&mut self) -> bool {
        self.nodes += 1;
        let is_above = self.nodes > SIZE_RANGES[self.range].max_nodes;
        self.range += usize::from(is_above);
        is_above
    }

    /// Counts a deleted node. Returns whether the TTL changes.
    pub(super) fn remove_node(&mut self) -> bool {
        self.nodes = self.nodes.saturating_sub(1);
        let is_below = self.nodes < SIZE_RANGES[self.range].min_nodes;
        self.range -= usize::from(is_below);
        is_below
    }

    /// Returns the TTL for the current cluster size.
    fn ttl_seconds(self) -> u32 {
        SIZE_RANGES[self.range].ttl_seconds
    }
}

/// Annotates the node, unless it has the annotation with this TTL. Upstream: `updateNodeIfNeeded`.
pub(super) fn plan(node: &Node, size: ClusterSize) -> Plan {
    let mut plan = Plan::nothing();
    let annotated = node.meta.annotations.get(ANNOTATION).and_then(|text| text.parse::<i64>().ok());
    if annotated != Some(i64::from(size.ttl_seconds())) {
        let body =
            json!({"metadata": {"annotations": {ANNOTATION: size.ttl_seconds().to_string()}}});
        plan.push(Patch::new(wire::target(node), PatchType::Strategic, body.to_string()));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{label, meta};
    use evenkeel_api::Meta;
    use proptest::prelude::*;

    /// Returns the size of a cluster to which this number of nodes was added.
    fn cluster_of(nodes: usize) -> ClusterSize {
        let mut size = ClusterSize::default();
        for _ in 0..nodes {
            size.add_node();
        }
        size
    }

    #[test]
    fn ttl_follows_the_cluster_size_with_hysteresis() {
        for (nodes, seconds) in
            [(0, 0), (100, 0), (101, 15), (500, 15), (501, 30), (1001, 60), (2000, 60), (2001, 300)]
        {
            assert_eq!(cluster_of(nodes).ttl_seconds(), seconds, "{nodes}");
        }
        let mut size = cluster_of(101);
        for _ in 0..11 {
            assert_eq!(size.ttl_seconds(), 15);
            assert!(!size.remove_node());
        }
        assert!(size.remove_node());
        assert_eq!((size.nodes, size.ttl_seconds()), (89, 0));
    }

    #[test]
    fn unchanged_annotation_is_not_written() {
        let node = |annotated: &str| Node {
            meta: Meta { annotations: label(ANNOTATION, annotated), ..meta("n") },
            ..Node::default()
        };
        assert!(plan(&node("0"), cluster_of(3)).is_nothing());
        for annotated in ["15", "x", ""] {
            assert_eq!(plan(&node(annotated), cluster_of(3)).actions.len(), 1, "{annotated:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn step_contains_the_cluster_size(changes in proptest::collection::vec(any::<bool>(), 0..3000)) {
            let mut size = cluster_of(400);
            for grows in changes {
                if grows { size.add_node(); } else { size.remove_node(); }
                let SizeRange { min_nodes, max_nodes, .. } = SIZE_RANGES[size.range];
                prop_assert!((min_nodes..=max_nodes).contains(&size.nodes));
            }
        }
    }
}
