//! Comparison of two reports: a pure function.

use crate::report::{Placement, Report};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Differences between the reports of two variants of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Figures that differ.
    pub figures: Vec<Figure>,
    /// Workloads whose number of pending pods differs.
    pub pending: Vec<Difference>,
    /// Workloads and nodes (`WORKLOAD on NODE`) whose number of pods differs.
    pub placements: Vec<Difference>,
    /// Nodes whose peak CPU request differs, in millicores.
    pub peaks: Vec<Difference>,
}

/// Figure of a report, such as the number of evicted pods, with its values in both variants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Name with the unit, such as `settled after (s)`.
    pub name: &'static str,
    /// Value in each variant; `None` if the variant has none.
    pub values: [Option<f64>; 2],
}

/// Number that belongs to a workload or a node, with its values in both variants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Workload, node, or `WORKLOAD on NODE`.
    pub name: String,
    /// Value in each variant; 0 if the variant does not list the name.
    pub values: [i64; 2],
}

/// Returns the differences between two reports. Pods are compared by their workloads, because the names of new pods differ.
pub fn compare(reports: [&Report; 2]) -> Comparison {
    let figure =
        |name, value: fn(&Report) -> Option<f64>| Figure { name, values: reports.map(value) };
    let mut figures = vec![
        figure("settled after (s)", |report| report.settled_after.map(|time| time.as_secs_f64())),
        figure("evicted pods", |report| Some(report.evicted.len() as f64)),
        figure("pending pods", |report| Some(report.pending.len() as f64)),
        figure("workloads short of ready pods", |report| Some(report.shortages.len() as f64)),
        figure("longest shortage (s)", |report| {
            let longest = report.shortages.iter().map(|shortage| shortage.duration).max();
            Some(longest.unwrap_or(Duration::ZERO).as_secs_f64())
        }),
        figure("refused evictions", |report| {
            Some(report.budgets.iter().map(|budget| budget.refused.len()).sum::<usize>() as f64)
        }),
        figure("nodes with pods", |report| {
            let nodes: BTreeSet<&str> =
                report.placements.iter().map(|placement| &*placement.node).collect();
            Some(nodes.len() as f64)
        }),
        figure("writes", |report| {
            Some(report.writes.iter().map(|write| write.count).sum::<u64>() as f64)
        }),
    ];
    figures.retain(|figure| figure.values[0] != figure.values[1]);
    Comparison {
        figures,
        pending: differences(&reports.map(|report| {
            sum_by_name(report.pending.iter().map(|pending| {
                let name =
                    if pending.workload.is_empty() { &pending.pod } else { &pending.workload };
                (name.clone(), 1)
            }))
        })),
        placements: differences(&reports.map(|report| {
            let name =
                |placement: &Placement| format!("{} on {}", placement.workload, placement.node);
            sum_by_name(report.placements.iter().map(|placement| {
                (name(placement), i64::try_from(placement.pods).unwrap_or(i64::MAX))
            }))
        })),
        peaks: differences(&reports.map(|report| {
            sum_by_name(report.nodes.iter().map(|node| (node.node.clone(), node.peak.cpu_millis)))
        })),
    }
}

/// Adds up the numbers of each name.
fn sum_by_name(numbers: impl Iterator<Item = (String, i64)>) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for (name, number) in numbers {
        *sums.entry(name).or_insert(0) += number;
    }
    sums
}

/// Returns the names whose sums differ.
fn differences(sums: &[BTreeMap<String, i64>; 2]) -> Vec<Difference> {
    let names: BTreeSet<&String> = sums.iter().flat_map(BTreeMap::keys).collect();
    let value = |name: &String| sums.each_ref().map(|sums| sums.get(name).copied().unwrap_or(0));
    names
        .into_iter()
        .map(|name| Difference { name: name.clone(), values: value(name) })
        .filter(|difference| difference.values[0] != difference.values[1])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Pending;

    fn report() -> Report {
        Report {
            start: String::new(),
            duration: Duration::from_secs(60),
            settled_after: Some(Duration::ZERO),
            parts: Vec::new(),
            evicted: Vec::new(),
            pending: Vec::new(),
            shortages: Vec::new(),
            budgets: Vec::new(),
            nodes: Vec::new(),
            placements: Vec::new(),
            writes: Vec::new(),
            remarks: Vec::new(),
            timeline: Vec::new(),
        }
    }

    fn placed(node: &str, pods: usize) -> Placement {
        Placement { workload: "Deployment shop/web".to_owned(), node: node.to_owned(), pods }
    }

    #[test]
    fn only_differences_are_listed() {
        let same = report();
        let found = compare([&same, &same]);
        assert_eq!(
            found,
            Comparison { figures: vec![], pending: vec![], placements: vec![], peaks: vec![] }
        );
        let mut spread = report();
        spread.placements = vec![placed("a", 2), placed("b", 1)];
        let mut packed = report();
        packed.placements = vec![placed("a", 2), placed("c", 1)];
        packed.pending.push(Pending {
            pod: "shop/web-x".to_owned(),
            workload: "Deployment shop/web".to_owned(),
            since: Duration::ZERO,
            before: false,
            message: String::new(),
        });
        packed.settled_after = None;
        let found = compare([&spread, &packed]);
        let names: Vec<&str> = found.figures.iter().map(|figure| figure.name).collect();
        assert_eq!(names, ["settled after (s)", "pending pods"]);
        assert_eq!(found.figures[0].values, [Some(0.0), None]);
        let numbers = |found: &[Difference]| {
            found.iter().map(|found| (found.name.clone(), found.values)).collect::<Vec<_>>()
        };
        assert_eq!(
            numbers(&found.placements),
            [
                ("Deployment shop/web on b".to_owned(), [1, 0]),
                ("Deployment shop/web on c".to_owned(), [0, 1])
            ]
        );
        assert_eq!(numbers(&found.pending), [("Deployment shop/web".to_owned(), [0, 1])]);
    }
}
