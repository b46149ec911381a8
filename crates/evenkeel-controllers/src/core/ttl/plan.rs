//! TTL by cluster size. Upstream: `ttlBoundaries`.

use crate::wire;
use evenkeel_api::views::Node;
use evenkeel_runtime::plan::{Patch, PatchForm, Plan};
use serde_json::json;

/// Annotation with the TTL in seconds.
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// Minimum and maximum number of nodes, and the TTL in seconds. The ranges overlap to avoid flapping at a boundary.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

/// Number of nodes, and the index of the current range in [`STEPS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    nodes: usize,
    step: usize,
}

impl Size {
    /// Counts an added node. Returns whether the TTL changes.
    pub(super) fn grow(&mut self) -> bool {
        self.nodes += 1;
        let more = self.nodes > STEPS[self.step].1;
        self.step += usize::from(more);
        more
    }

    /// Counts a deleted node. Returns whether the TTL changes.
    pub(super) fn shrink(&mut self) -> bool {
        self.nodes = self.nodes.saturating_sub(1);
        let less = self.nodes < STEPS[self.step].0;
        self.step -= usize::from(less);
        less
    }

    fn seconds(self) -> u32 {
        STEPS[self.step].2
    }
}

/// Annotates the node, unless it has the annotation with this TTL. Upstream: `updateNodeIfNeeded`.
pub(super) fn plan(node: &Node, size: Size) -> Plan {
    let mut plan = Plan::nothing();
    let annotated = node.meta.annotations.get(ANNOTATION).and_then(|text| text.parse::<i64>().ok());
    if annotated != Some(i64::from(size.seconds())) {
        let body = json!({"metadata": {"annotations": {ANNOTATION: size.seconds().to_string()}}});
        plan.push(Patch::new(wire::target(node), PatchForm::Strategic, body.to_string()));
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
    fn sized(nodes: usize) -> Size {
        let mut size = Size::default();
        for _ in 0..nodes {
            size.grow();
        }
        size
    }

    #[test]
    fn ttl_follows_the_cluster_size_with_hysteresis() {
        for (nodes, seconds) in
            [(0, 0), (100, 0), (101, 15), (500, 15), (501, 30), (1001, 60), (2000, 60), (2001, 300)]
        {
            assert_eq!(sized(nodes).seconds(), seconds, "{nodes}");
        }
        let mut size = sized(101);
        for _ in 0..11 {
            assert_eq!(size.seconds(), 15);
            assert!(!size.shrink());
        }
        assert!(size.shrink());
        assert_eq!((size.nodes, size.seconds()), (89, 0));
    }

    #[test]
    fn unchanged_annotation_is_not_written() {
        let node = |annotated: &str| Node {
            meta: Meta { annotations: label(ANNOTATION, annotated), ..meta("n") },
            ..Node::default()
        };
        assert!(plan(&node("0"), sized(3)).is_nothing());
        for annotated in ["15", "x", ""] {
            assert_eq!(plan(&node(annotated), sized(3)).actions.len(), 1, "{annotated:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn step_contains_the_cluster_size(changes in proptest::collection::vec(any::<bool>(), 0..3000)) {
            let mut size = sized(400);
            for grows in changes {
                if grows { size.grow(); } else { size.shrink(); }
                let (least, most, _) = STEPS[size.step];
                prop_assert!((least..=most).contains(&size.nodes));
            }
        }
    }
}
