//! Comparison of two reports: a pure function.
//!
//! | question | implemented in |
//! |---|---|
//! | when did the cluster settle, and how much happened | [`Comparison::figures`] |
//! | which workloads lost pods, and for how long had they fewer | [`Comparison::evicted`], [`Comparison::shortages`] |
//! | which pods are pending, and why | [`Comparison::pending`], [`Comparison::reasons`] |
//! | which budgets allowed no disruption, and how long | [`Comparison::budgets`] |
//! | where do pods run, and how full were nodes | [`Comparison::placements`], [`Comparison::peaks`] |
//! | who wrote how much | [`Comparison::writes`] |

use crate::report::{NodeReport, Pending, Placement, Report};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Differences between the reports of two variants of a simulation.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Figures that differ.
    pub figures: Vec<Figure>,
    /// Workloads whose number of evicted pods differs.
    pub evicted: Vec<Difference>,
    /// Workloads whose number of pending pods differs.
    pub pending: Vec<Difference>,
    /// Workloads whose pending pods have different messages of the scheduler.
    pub reasons: Vec<Reasons>,
    /// Workloads whose time with fewer ready pods than before the change differs, in seconds.
    pub shortages: Vec<Figure<String>>,
    /// Budgets whose time without allowed disruptions differs, in seconds.
    pub budgets: Vec<Figure<String>>,
    /// Budgets whose number of refused evictions differs.
    pub refused: Vec<Difference>,
    /// Workloads and nodes (`WORKLOAD on NODE`) whose number of pods differs.
    pub placements: Vec<Difference>,
    /// Nodes whose peak CPU request differs, in millicores.
    pub peaks: Vec<Difference>,
    /// Nodes whose peak memory request differs, in bytes.
    pub memory_peaks: Vec<Difference>,
    /// Writes (`COMPONENT VERB RESOURCE`) whose number differs.
    pub writes: Vec<Difference>,
}

/// Figure of a report, such as the number of evicted pods, with its values in both variants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure<Name = &'static str> {
    /// Name, with the unit if the figure has no section of its own, such as `settled after (s)`.
    pub name: Name,
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

/// Messages of the scheduler about the pending pods of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reasons {
    /// Workload; the pod's name if it has none.
    pub name: String,
    /// Messages in each variant, sorted; none if the variant has no pending pods of the workload.
    pub values: [Vec<String>; 2],
}

/// Returns the differences between two reports. Pods are compared by their workloads, because the names of new pods differ.
pub fn compare(reports: [&Report; 2]) -> Comparison {
    let counts = |sums: fn(&Report) -> BTreeMap<String, i64>| differences(&reports.map(sums));
    let times = |times: fn(&Report) -> BTreeMap<String, Duration>| {
        let times = reports.map(times);
        let value = |name: &String| times.each_ref().map(|times| Some(seconds(times.get(name))));
        let names = names(&times).into_iter();
        let figures = names.map(|name| Figure { values: value(name), name: name.clone() });
        figures.filter(|figure| figure.values[0] != figure.values[1]).collect()
    };
    Comparison {
        figures: figures(reports),
        evicted: counts(|report| {
            sum_by_name(report.evicted.iter().map(|found| (owner(&found.workload, &found.pod), 1)))
        }),
        pending: counts(|report| {
            sum_by_name(report.pending.iter().map(|found| (owner(&found.workload, &found.pod), 1)))
        }),
        reasons: reasons(reports),
        shortages: times(|report| {
            let shortages = report.shortages.iter();
            shortages.map(|found| (found.workload.clone(), found.duration)).collect()
        }),
        budgets: times(|report| {
            report.budgets.iter().map(|found| (found.budget.clone(), found.exhausted)).collect()
        }),
        refused: counts(|report| {
            let budgets = report.budgets.iter();
            sum_by_name(budgets.map(|found| (found.budget.clone(), number(found.refused.len()))))
        }),
        placements: counts(|report| {
            let name = |found: &Placement| format!("{} on {}", found.workload, found.node);
            sum_by_name(report.placements.iter().map(|found| (name(found), number(found.pods))))
        }),
        peaks: counts(|report| {
            sum_by_name(report.nodes.iter().map(|node| (node.node.clone(), node.peak.cpu_millis)))
        }),
        memory_peaks: counts(|report| {
            sum_by_name(report.nodes.iter().map(|node| (node.node.clone(), node.peak.memory)))
        }),
        writes: counts(|report| {
            sum_by_name(report.writes.iter().map(|write| {
                let name = format!("{} {} {}", write.component, write.verb, write.resource);
                (name, i64::try_from(write.count).unwrap_or(i64::MAX))
            }))
        }),
    }
}

/// Returns the figures of both reports that differ.
fn figures(reports: [&Report; 2]) -> Vec<Figure> {
    let figure =
        |name, value: fn(&Report) -> Option<f64>| Figure { name, values: reports.map(value) };
    let mut figures = vec![
        figure("change done after (s)", |report| {
            let ends: Option<Vec<Duration>> =
                report.parts.iter().map(|part| part.completed).collect();
            ends?.into_iter().max().map(|end| end.as_secs_f64())
        }),
        figure("settled after (s)", |report| report.settled_after.map(|time| time.as_secs_f64())),
        figure("evicted pods", |report| Some(report.evicted.len() as f64)),
        figure("pending pods", |report| Some(report.pending.len() as f64)),
        figure("workloads short of ready pods", |report| Some(report.shortages.len() as f64)),
        figure("longest shortage (s)", |report| {
            Some(seconds(report.shortages.iter().map(|shortage| &shortage.duration).max()))
        }),
        figure("budgets at their limit", |report| {
            let at_limit = report.budgets.iter().filter(|budget| !budget.exhausted.is_zero());
            Some(at_limit.count() as f64)
        }),
        figure("refused evictions", |report| {
            Some(report.budgets.iter().map(|budget| budget.refused.len()).sum::<usize>() as f64)
        }),
        figure("nodes with pods", |report| {
            let nodes: BTreeSet<&str> =
                report.placements.iter().map(|placement| &*placement.node).collect();
            Some(nodes.len() as f64)
        }),
        figure("nodes that were not ready", |report| {
            let not_ready = |node: &&NodeReport| !node.not_ready.is_zero();
            Some(report.nodes.iter().filter(not_ready).count() as f64)
        }),
        figure("writes", |report| {
            Some(report.writes.iter().map(|write| write.count).sum::<u64>() as f64)
        }),
    ];
    figures.retain(|figure| figure.values[0] != figure.values[1]);
    figures
}

/// Returns the workloads whose pending pods have different messages.
fn reasons(reports: [&Report; 2]) -> Vec<Reasons> {
    let messages = reports.map(|report| {
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for Pending { workload, pod, message, .. } in &report.pending {
            found.entry(owner(workload, pod)).or_default().insert(message.clone());
        }
        found
    });
    let value = |name: &String| {
        messages.each_ref().map(|found| found.get(name).into_iter().flatten().cloned().collect())
    };
    names(&messages)
        .into_iter()
        .map(|name| Reasons { name: name.clone(), values: value(name) })
        .filter(|found| found.values[0] != found.values[1])
        .collect()
}

/// Returns the workload of a pod; its own name if it has none.
fn owner(workload: &str, pod: &str) -> String {
    if workload.is_empty() { pod } else { workload }.to_owned()
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn seconds(time: Option<&Duration>) -> f64 {
    time.copied().unwrap_or_default().as_secs_f64()
}

/// Returns the names in either map.
fn names<T>(maps: &[BTreeMap<String, T>; 2]) -> BTreeSet<&String> {
    maps.iter().flat_map(BTreeMap::keys).collect()
}

fn sum_by_name(entries: impl Iterator<Item = (String, i64)>) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for (name, value) in entries {
        let sum: &mut i64 = sums.entry(name).or_default();
        *sum = sum.saturating_add(value);
    }
    sums
}

/// Returns the names whose sums differ.
fn differences(sums: &[BTreeMap<String, i64>; 2]) -> Vec<Difference> {
    let value = |name: &String| sums.each_ref().map(|sums| sums.get(name).copied().unwrap_or(0));
    names(sums)
        .into_iter()
        .map(|name| Difference { name: name.clone(), values: value(name) })
        .filter(|difference| difference.values[0] != difference.values[1])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{BudgetReport, Eviction, Part, Shortage, WriteCount};

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

    #[test]
    fn each_part_of_a_report_is_compared() {
        let text = |text: &str| text.to_owned();
        let mut calm = report();
        calm.pending.push(Pending {
            pod: text("shop/db-0"),
            workload: String::new(),
            since: Duration::ZERO,
            before: true,
            message: text("no volume"),
        });
        let mut busy = calm.clone();
        busy.pending[0].message = text("Insufficient cpu");
        busy.evicted.push(Eviction {
            pod: text("shop/web-1"),
            workload: text("Deployment shop/web"),
            node: text("a"),
            reason: text("EvictionByEvictionAPI"),
            after: Duration::from_secs(5),
        });
        busy.shortages.push(Shortage {
            workload: text("Deployment shop/web"),
            before: 2,
            lowest: 1,
            end: 2,
            duration: Duration::from_millis(2500),
        });
        busy.budgets.push(BudgetReport {
            budget: text("shop/web"),
            exhausted: Duration::from_secs(9),
            before: false,
            allows: 1,
            refused: vec![text("shop/web-1")],
        });
        busy.writes.push(WriteCount {
            component: text("kube-scheduler"),
            verb: "create",
            resource: text("pods/binding"),
            count: 3,
        });
        busy.parts.push(Part {
            description: text("drain a"),
            began: Duration::ZERO,
            started: true,
            completed: Some(Duration::from_secs(7)),
            error: String::new(),
            waits: String::new(),
        });
        let found = compare([&calm, &busy]);
        let figures: Vec<_> =
            found.figures.iter().map(|figure| (figure.name, figure.values)).collect();
        let from_zero = |value: f64| [Some(0.0), Some(value)];
        assert_eq!(
            figures,
            [
                ("change done after (s)", [None, Some(7.0)]),
                ("evicted pods", from_zero(1.0)),
                ("workloads short of ready pods", from_zero(1.0)),
                ("longest shortage (s)", from_zero(2.5)),
                ("budgets at their limit", from_zero(1.0)),
                ("refused evictions", from_zero(1.0)),
                ("writes", from_zero(3.0)),
            ]
        );
        let one = |name: &str, value: i64| [Difference { name: text(name), values: [0, value] }];
        assert_eq!(found.evicted, one("Deployment shop/web", 1));
        assert_eq!(found.refused, one("shop/web", 1));
        assert_eq!(found.writes, one("kube-scheduler create pods/binding", 3));
        let time = |name: &str, value: f64| [Figure { name: text(name), values: from_zero(value) }];
        assert_eq!(found.shortages, time("Deployment shop/web", 2.5));
        assert_eq!(found.budgets, time("shop/web", 9.0));
        assert_eq!(found.pending, []);
        let values = [vec![text("no volume")], vec![text("Insufficient cpu")]];
        assert_eq!(found.reasons, [Reasons { name: text("shop/db-0"), values }]);
        busy.parts[0].completed = None;
        let open = compare([&calm, &busy]);
        assert!(open.figures.iter().all(|figure| figure.name != "change done after (s)"));
    }

    fn placed(node: &str, pods: usize) -> Placement {
        Placement { workload: "Deployment shop/web".to_owned(), node: node.to_owned(), pods }
    }

    #[test]
    fn only_differences_are_listed() {
        let same = report();
        let found = compare([&same, &same]);
        assert_eq!(found, Comparison::default());
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
