//! CIDRs allocated to nodes. Upstream: `range_allocator.go`.

use super::{
    config::Config,
    set::{Problem, Set},
};
use evenkeel_api::{Text, cidr::Cidr, views::Node};
use std::collections::BTreeMap;

/// The CIDR sets, and the allocations by node.
#[derive(Debug)]
pub(crate) struct Allocator {
    pub(crate) sets: Vec<Set>,
    /// Allocated CIDRs by node, whether the write has succeeded or not: a write without a response is repeated with
    /// the same CIDRs.
    held: BTreeMap<Text, Vec<Cidr>>,
}

/// Decision about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The node has its CIDRs.
    Settled,
    /// The node gets these CIDRs. For new allocations, the numbers count the candidates tried for each CIDR.
    Give(Vec<Cidr>, Option<Vec<usize>>),
    /// The CIDR set has no free CIDR.
    Exhausted(Cidr),
    /// The node has a CIDR outside the cluster CIDR.
    Foreign(String),
}

impl Allocator {
    /// Builds an allocator without allocations for nodes; the Services' CIDRs are occupied.
    pub(crate) fn new(config: &Config) -> Result<Self, Problem> {
        let sets: Result<Vec<Set>, Problem> =
            config.families.iter().map(|family| Set::new(*family)).collect();
        let mut allocator = Self { sets: sets?, held: BTreeMap::new() };
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
            let problem = self.check(name, &node.spec.pod_cidrs).err();
            return problem.map_or(Verdict::Settled, Verdict::Foreign);
        }
        if node.meta.deleting() {
            return Verdict::Settled;
        }
        if let Some(held) = self.held.get(name) {
            return Verdict::Give(held.clone(), None);
        }
        let (mut ranges, mut tries_per_set) = (Vec::new(), Vec::new());
        for set in &self.sets {
            let Some((range, tries)) = set.next_free() else {
                return Verdict::Exhausted(set.range());
            };
            ranges.push(range);
            tries_per_set.push(tries);
        }
        Verdict::Give(ranges, Some(tries_per_set))
    }

    /// Records a node, or its deletion if `node` is `None`, and returns the verdict about it.
    pub(crate) fn record_node(&mut self, name: &str, node: Option<&Node>) -> Verdict {
        let Some(node) = node else {
            self.release(name);
            return Verdict::Settled;
        };
        let verdict = self.verdict(name, node);
        self.record(name, node, &verdict);
        verdict
    }

    /// Records the CIDRs that a node has, or those that the verdict allocates to it.
    pub(crate) fn record(&mut self, name: &str, node: &Node, verdict: &Verdict) {
        if !node.spec.pod_cidrs.is_empty() {
            self.occupy(name, &node.spec.pod_cidrs);
        } else if let Verdict::Give(ranges, Some(_)) = verdict {
            self.sets.iter_mut().zip(ranges).for_each(|(set, range)| set.take(range));
            self.held.insert(name.into(), ranges.clone());
        } else if matches!(verdict, Verdict::Exhausted(_)) {
            // As upstream, allocate and release: the metrics count both.
            let next = self.sets.iter_mut().map_while(|set| Some(set.take_next()?.0));
            let taken: Vec<Cidr> = next.collect();
            self.release_ranges(&taken);
        }
    }

    /// Releases the CIDRs of a node that was deleted or did not get them. Upstream: `ReleaseCIDR`.
    pub(crate) fn release(&mut self, name: &str) {
        if let Some(ranges) = self.held.remove(name) {
            self.release_ranges(&ranges);
        }
    }

    /// Checks the CIDRs that a node has.
    fn check(&self, name: &str, cidrs: &[Text]) -> Result<(), String> {
        let Some(ranges) = parse(cidrs) else {
            return Err(format!("failed to parse node {name}, CIDR {}", cidrs.join(",")));
        };
        let index = self.sets.len();
        if let Some(range) = ranges.get(index) {
            return Err(format!(
                "node:{name} has an allocated cidr: {range} at index:{index} that does not exist in cluster cidrs configuration"
            ));
        }
        for (range, set) in ranges.iter().zip(&self.sets) {
            set.check(range)
                .map_err(|problem| format!("range {range} of node {name}: {problem}"))?;
        }
        Ok(())
    }

    /// Records the CIDRs that a node has, up to the first outside the cluster CIDR.
    fn occupy(&mut self, name: &str, cidrs: &[Text]) {
        let Some(ranges) = parse(cidrs) else { return };
        if self.held.get(name) == Some(&ranges) {
            return;
        }
        self.release(name);
        if ranges.len() > self.sets.len() {
            return;
        }
        for (range, set) in ranges.iter().zip(&mut self.sets) {
            if set.occupy(range).is_err() {
                return;
            }
        }
        self.held.insert(name.into(), ranges);
    }

    fn release_ranges(&mut self, ranges: &[Cidr]) {
        for (set, range) in self.sets.iter_mut().zip(ranges) {
            // An allocated CIDR lies in its set.
            let _ = set.release(range);
        }
        // Another node may have the same CIDR, set by a user: such a CIDR stays occupied.
        for held in self.held.values() {
            for (index, range) in held.iter().enumerate() {
                if ranges.get(index).is_some_and(|released| released.overlaps(range)) {
                    let _ = self.sets[index].occupy(range);
                }
            }
        }
    }
}

fn parse(cidrs: &[Text]) -> Option<Vec<Cidr>> {
    cidrs.iter().map(|text| Cidr::parse(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{core::nodeipam::Options, fixtures::meta};
    use evenkeel_api::views::NodeSpec;

    /// Returns an allocator of these cluster CIDRs without the service CIDRs. The node mask size 0 is the default.
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
        let Verdict::Give(ranges, _) = verdict else { panic!("{verdict:?}") };
        ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn node_gets_a_cidr_per_family_outside_the_service_ranges() {
        let mut allocator =
            allocator("10.96.0.0/14,fd00:10:244::/56", "10.96.0.0/16,fd00:10:96::/112", 0);
        assert_eq!(
            allocated(&allocator.record_node("a", Some(&node(&[])))),
            "10.97.0.0/24,fd00:10:244::/64"
        );
        assert_eq!(
            allocated(&allocator.record_node("b", Some(&node(&[])))),
            "10.97.1.0/24,fd00:10:244:1::/64"
        );
        // Until the write is visible, a second request gets the same CIDRs.
        assert_eq!(
            allocated(&allocator.record_node("a", Some(&node(&[])))),
            "10.97.0.0/24,fd00:10:244::/64"
        );
        let has = node(&["10.97.0.0/24", "fd00:10:244::/64"]);
        assert_eq!(allocator.record_node("a", Some(&has)), Verdict::Settled);
        assert_eq!(allocator.record_node("a", None), Verdict::Settled);
        assert_eq!(
            allocated(&allocator.record_node("c", Some(&node(&[])))),
            "10.97.2.0/24,fd00:10:244:2::/64"
        );
    }

    #[test]
    fn verdict_alone_allocates_nothing() {
        let mut allocator = allocator("10.0.0.0/23", "", 24);
        let a = node(&[]);
        assert_eq!(allocated(&allocator.verdict("a", &a)), "10.0.0.0/24");
        assert_eq!(allocated(&allocator.verdict("b", &a)), "10.0.0.0/24");
        assert_eq!(
            allocator.record_node("a", Some(&a)),
            Verdict::Give(vec![cidr("10.0.0.0/24")], Some(vec![0]))
        );
        assert_eq!(allocated(&allocator.verdict("b", &a)), "10.0.1.0/24");
        assert_eq!(allocator.sets[0].taken(), 1);
        allocator.record_node("b", Some(&a));
        assert!(matches!(allocator.verdict("c", &a), Verdict::Exhausted(_)));
    }

    fn cidr(text: &str) -> Cidr {
        Cidr::parse(text).unwrap()
    }

    #[test]
    fn existing_pod_cidrs_are_allocated() {
        let mut allocator = allocator("10.0.0.0/23", "", 24);
        assert_eq!(allocated(&allocator.record_node("a", Some(&node(&[])))), "10.0.0.0/24");
        assert_eq!(allocator.record_node("a", Some(&node(&["10.0.1.0/24"]))), Verdict::Settled);
        assert_eq!(allocator.record_node("b", Some(&node(&["10.0.1.0/24"]))), Verdict::Settled);
        assert_eq!(allocated(&allocator.record_node("c", Some(&node(&[])))), "10.0.0.0/24");
        assert!(matches!(allocator.record_node("d", Some(&node(&[]))), Verdict::Exhausted(_)));
        // One of the two nodes is deleted; the other still has the CIDR.
        allocator.record_node("a", None);
        assert!(matches!(allocator.record_node("d", Some(&node(&[]))), Verdict::Exhausted(_)));
        allocator.record_node("b", None);
        assert_eq!(allocated(&allocator.record_node("d", Some(&node(&[])))), "10.0.1.0/24");
    }

    #[test]
    fn released_cidr_is_allocated_again() {
        let mut allocator = allocator("10.0.0.0/24", "", 24);
        allocator.record_node("a", Some(&node(&[])));
        allocator.release("a");
        assert_eq!(allocated(&allocator.record_node("b", Some(&node(&[])))), "10.0.0.0/24");
    }

    #[test]
    fn foreign_pod_cidrs_allocate_nothing() {
        let mut allocator = allocator("10.0.0.0/24", "", 24);
        for ranges in [&["x"][..], &["11.0.0.0/24"], &["10.0.0.0/24", "fd00::/64"]] {
            let verdict = allocator.record_node("a", Some(&node(ranges)));
            assert!(matches!(verdict, Verdict::Foreign(_)), "{ranges:?}: {verdict:?}");
        }
        assert_eq!(allocated(&allocator.record_node("b", Some(&node(&[])))), "10.0.0.0/24");
        let mut terminating = node(&[]);
        terminating.meta.deletion = Some(crate::fixtures::T0);
        assert_eq!(allocator.record_node("c", Some(&terminating)), Verdict::Settled);
    }
}
