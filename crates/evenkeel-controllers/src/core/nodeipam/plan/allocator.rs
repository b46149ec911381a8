//! CIDRs allocated to nodes. Upstream: `range_allocator.go`.

use super::{
    config::Config,
    set::{CidrSet, CidrSetError},
};
use evenkeel_api::{Text, cidr::Cidr, views::Node};
use std::collections::BTreeMap;

/// The CIDR sets, and the allocations by node.
#[derive(Debug)]
pub(crate) struct Allocator {
    pub(crate) sets: Vec<CidrSet>,
    /// Allocated CIDRs by node, from the decision on, so that a write without a response is repeated with the same
    /// CIDRs.
    allocated: BTreeMap<Text, Vec<Cidr>>,
}

/// Decision about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The node has its CIDRs, or is being deleted.
    Settled,
    /// The node gets these free CIDRs.
    Allocate {
        /// One CIDR of each set.
        cidrs: Vec<Cidr>,
        /// Number of parts of each set that were tried and already allocated.
        tries_per_set: Vec<usize>,
    },
    /// The node gets the CIDRs that an earlier reconciliation allocated, because it does not have them yet.
    Repeat(Vec<Cidr>),
    /// The CIDR set of this range has no free CIDR.
    Exhausted(Cidr),
    /// The node has CIDRs that are malformed, too many, or outside the cluster CIDR. The string states the problem.
    Invalid(String),
}

impl Allocator {
    /// Builds an allocator without allocations for nodes. The Services' CIDRs are occupied.
    pub(crate) fn new(config: &Config) -> Result<Self, CidrSetError> {
        let sets: Result<Vec<CidrSet>, CidrSetError> =
            config.families.iter().map(|family| CidrSet::new(*family)).collect();
        let mut allocator = Self { sets: sets?, allocated: BTreeMap::new() };
        for set in &mut allocator.sets {
            let range = set.range();
            for services in config.services.iter().filter(|services| range.overlaps(services)) {
                set.occupy(services)?;
            }
        }
        Ok(allocator)
    }

    /// Decides about a node. Upstream: `AllocateOrOccupyCIDR`.
    pub(crate) fn verdict(&self, name: &str, node: &Node) -> Verdict {
        if !node.spec.pod_cidrs.is_empty() {
            let problem = self.check_cidrs(name, &node.spec.pod_cidrs).err();
            return problem.map_or(Verdict::Settled, Verdict::Invalid);
        }
        if node.meta.deleting() {
            return Verdict::Settled;
        }
        // The record of a deleted node of this name may contain only some CIDRs, because its others were outside the cluster
        // CIDRs.
        if let Some(cidrs) = self.allocated.get(name).filter(|cidrs| cidrs.len() == self.sets.len())
        {
            return Verdict::Repeat(cidrs.clone());
        }
        let mut cidrs = Vec::new();
        let mut tries_per_set = Vec::new();
        for set in &self.sets {
            let Some(part) = set.next_free() else {
                return Verdict::Exhausted(set.range());
            };
            cidrs.push(part.cidr);
            tries_per_set.push(part.tries);
        }
        Verdict::Allocate { cidrs, tries_per_set }
    }

    /// Decides about a node, and records the verdict.
    pub(crate) fn decide_and_record(&mut self, name: &str, node: &Node) -> Verdict {
        let verdict = self.verdict(name, node);
        self.record_verdict(name, node, &verdict);
        verdict
    }

    /// Records the CIDRs that a node has, or those that the verdict allocates to it.
    pub(crate) fn record_verdict(&mut self, name: &str, node: &Node, verdict: &Verdict) {
        if !node.spec.pod_cidrs.is_empty() {
            self.occupy_cidrs(name, &node.spec.pod_cidrs);
        } else if let Verdict::Allocate { cidrs, .. } = verdict {
            self.release(name);
            self.sets.iter_mut().zip(cidrs).for_each(|(set, cidr)| set.allocate(cidr));
            self.allocated.insert(name.into(), cidrs.clone());
        } else if matches!(verdict, Verdict::Exhausted(_)) {
            self.count_failed_allocation();
        }
    }

    /// Counts a failed allocation in the metrics. As upstream, allocates from the sets before the exhausted one and
    /// releases these CIDRs immediately.
    fn count_failed_allocation(&mut self) {
        let mut allocated = Vec::new();
        for set in &mut self.sets {
            let Some(part) = set.allocate_next() else { break };
            allocated.push(part.cidr);
        }
        self.release_ranges(&allocated);
    }

    /// Releases the CIDRs of a node that was deleted or did not get them. Upstream: `ReleaseCIDR`.
    pub(crate) fn release(&mut self, name: &str) {
        if let Some(ranges) = self.allocated.remove(name) {
            self.release_ranges(&ranges);
        }
    }

    /// Checks the CIDRs that a node has.
    fn check_cidrs(&self, name: &str, cidrs: &[Text]) -> Result<(), String> {
        let Some(ranges) = parse_cidrs(cidrs) else {
            return Err(format!("failed to parse node {name}, CIDR {}", cidrs.join(",")));
        };
        // There is one set for each range, so a range at this index is one too many.
        let index = self.sets.len();
        if let Some(range) = ranges.get(index) {
            return Err(format!(
                "node:{name} has an allocated cidr: {range} at index:{index} that does not exist in cluster cidrs configuration"
            ));
        }
        for (range, set) in ranges.iter().zip(&self.sets) {
            set.check_overlap(range)
                .map_err(|problem| format!("range {range} of node {name}: {problem}"))?;
        }
        Ok(())
    }

    /// Records the CIDRs that a node has. Stops at the first one that is invalid or outside the cluster CIDRs. The
    /// node keeps those before it until it is deleted. Upstream: `occupyCIDRs`.
    fn occupy_cidrs(&mut self, name: &str, cidrs: &[Text]) {
        let valid = cidrs.iter().map_while(|text| Cidr::parse(text));
        let ranges: Vec<Cidr> = valid
            .zip(&self.sets)
            .take_while(|(range, set)| set.check_overlap(range).is_ok())
            .map(|(range, _)| range)
            .collect();
        if ranges.is_empty() || self.allocated.get(name) == Some(&ranges) {
            return;
        }
        self.release(name);
        for (range, set) in ranges.iter().zip(&mut self.sets) {
            // The set contains the range, as was checked above.
            let _ = set.occupy(range);
        }
        self.allocated.insert(name.into(), ranges);
    }

    /// Releases CIDRs, one for each set.
    fn release_ranges(&mut self, ranges: &[Cidr]) {
        for (set, range) in self.sets.iter_mut().zip(ranges) {
            // An allocated CIDR lies in its set.
            let _ = set.release(range);
        }
        // A user may have given the same CIDR to another node. Such a CIDR stays occupied.
        for cidrs in self.allocated.values() {
            for (index, range) in cidrs.iter().enumerate() {
                if ranges.get(index).is_some_and(|released| released.overlaps(range)) {
                    let _ = self.sets[index].occupy(range);
                }
            }
        }
    }
}

/// Parses all CIDRs, or returns `None` if one is invalid.
fn parse_cidrs(cidrs: &[Text]) -> Option<Vec<Cidr>> {
    cidrs.iter().map(|text| Cidr::parse(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{core::nodeipam::Options, fixtures::meta};
    use evenkeel_api::views::NodeSpec;

    /// Returns an allocator of these cluster CIDRs without the service CIDRs. The mask 0 selects the default.
    fn allocator(cluster: &str, services: &str, mask: i64) -> Allocator {
        let options = Options {
            cluster: cluster.to_owned(),
            services: services.to_owned(),
            mask,
            ..Options::default()
        };
        Allocator::new(&Config::new(&options).unwrap()).unwrap()
    }

    /// Returns a node with these pod CIDRs.
    fn node(ranges: &[&str]) -> Node {
        let pod_cidrs = ranges.iter().map(|range| (*range).into()).collect();
        Node {
            meta: meta("n"),
            spec: NodeSpec { pod_cidrs, ..NodeSpec::default() },
            ..Node::default()
        }
    }

    /// Returns the allocated CIDRs, separated by commas.
    fn allocated(verdict: &Verdict) -> String {
        let (Verdict::Allocate { cidrs, .. } | Verdict::Repeat(cidrs)) = verdict else {
            panic!("{verdict:?}")
        };
        cidrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn node_gets_a_cidr_per_family_outside_the_service_ranges() {
        let mut allocator =
            allocator("10.96.0.0/14,fd00:10:244::/56", "10.96.0.0/16,fd00:10:96::/112", 0);
        assert_eq!(
            allocated(&allocator.decide_and_record("a", &node(&[]))),
            "10.97.0.0/24,fd00:10:244::/64"
        );
        assert_eq!(
            allocated(&allocator.decide_and_record("b", &node(&[]))),
            "10.97.1.0/24,fd00:10:244:1::/64"
        );
        // Until the write is visible, a second request gets the same CIDRs.
        assert_eq!(
            allocated(&allocator.decide_and_record("a", &node(&[]))),
            "10.97.0.0/24,fd00:10:244::/64"
        );
        let with_cidrs = node(&["10.97.0.0/24", "fd00:10:244::/64"]);
        assert_eq!(allocator.decide_and_record("a", &with_cidrs), Verdict::Settled);
        allocator.release("a");
        assert_eq!(
            allocated(&allocator.decide_and_record("c", &node(&[]))),
            "10.97.2.0/24,fd00:10:244:2::/64"
        );
    }

    #[test]
    fn verdict_alone_allocates_nothing() {
        let mut allocator = allocator("10.0.0.0/23", "", 24);
        let node = node(&[]);
        assert_eq!(allocated(&allocator.verdict("a", &node)), "10.0.0.0/24");
        assert_eq!(allocated(&allocator.verdict("b", &node)), "10.0.0.0/24");
        assert_eq!(
            allocator.decide_and_record("a", &node),
            Verdict::Allocate { cidrs: vec![cidr("10.0.0.0/24")], tries_per_set: vec![0] }
        );
        assert_eq!(allocated(&allocator.verdict("b", &node)), "10.0.1.0/24");
        assert_eq!(allocator.sets[0].allocated_parts(), 1);
        allocator.decide_and_record("b", &node);
        assert!(matches!(allocator.verdict("c", &node), Verdict::Exhausted(_)));
    }

    fn cidr(text: &str) -> Cidr {
        Cidr::parse(text).unwrap()
    }

    #[test]
    fn existing_pod_cidrs_are_allocated() {
        let mut allocator = allocator("10.0.0.0/23", "", 24);
        assert_eq!(allocated(&allocator.decide_and_record("a", &node(&[]))), "10.0.0.0/24");
        assert_eq!(allocator.decide_and_record("a", &node(&["10.0.1.0/24"])), Verdict::Settled);
        assert_eq!(allocator.decide_and_record("b", &node(&["10.0.1.0/24"])), Verdict::Settled);
        assert_eq!(allocated(&allocator.decide_and_record("c", &node(&[]))), "10.0.0.0/24");
        assert!(matches!(allocator.decide_and_record("d", &node(&[])), Verdict::Exhausted(_)));
        // One of the two nodes is deleted; the other still has the CIDR.
        allocator.release("a");
        assert!(matches!(allocator.decide_and_record("d", &node(&[])), Verdict::Exhausted(_)));
        allocator.release("b");
        assert_eq!(allocated(&allocator.decide_and_record("d", &node(&[]))), "10.0.1.0/24");
    }

    #[test]
    fn released_cidr_is_allocated_again() {
        let mut allocator = allocator("10.0.0.0/24", "", 24);
        allocator.decide_and_record("a", &node(&[]));
        allocator.release("a");
        assert_eq!(allocated(&allocator.decide_and_record("b", &node(&[]))), "10.0.0.0/24");
    }

    #[test]
    fn foreign_pod_cidrs_allocate_nothing() {
        let mut allocator = allocator("10.0.0.0/24", "", 24);
        for ranges in [["x"], ["11.0.0.0/24"]] {
            let verdict = allocator.decide_and_record("a", &node(&ranges));
            assert!(matches!(verdict, Verdict::Invalid(_)), "{ranges:?}: {verdict:?}");
        }
        assert_eq!(allocated(&allocator.decide_and_record("b", &node(&[]))), "10.0.0.0/24");
        let mut terminating = node(&[]);
        terminating.meta.deletion = Some(crate::fixtures::T0);
        assert_eq!(allocator.decide_and_record("c", &terminating), Verdict::Settled);
    }

    #[test]
    fn cidrs_before_a_foreign_one_are_occupied_until_the_node_is_deleted() {
        for (cluster, foreign) in [
            ("10.0.0.0/24", "fd00::/64"),
            ("10.0.0.0/24,fd00::/64", "fd01::/64"),
            ("10.0.0.0/24,fd00::/64", "x"),
        ] {
            let mut allocator = allocator(cluster, "", 0);
            let foreign = node(&["10.0.0.0/24", foreign]);
            for _ in 0..2 {
                let verdict = allocator.decide_and_record("a", &foreign);
                assert!(matches!(verdict, Verdict::Invalid(_)), "{verdict:?}");
                assert!(matches!(allocator.verdict("b", &node(&[])), Verdict::Exhausted(_)));
                assert_eq!(allocator.sets[0].allocated_parts(), 1);
            }
            allocator.release("a");
            assert_eq!(allocator.sets[0].allocated_parts(), 0);
            assert!(matches!(allocator.verdict("b", &node(&[])), Verdict::Allocate { .. }));
        }
    }
}
