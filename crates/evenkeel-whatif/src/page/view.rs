//! Strings and rows of a page.

use super::{PageVariant, figures::Figures, plot::TimeAxis};
use crate::{
    compare::Comparison,
    differences::{Section, sections},
    format::{share, time},
    recording::Amounts,
    report::{NodeReport, Part, Report},
};
use std::{collections::BTreeMap, time::Duration};

/// Maximum number of rows of a table. The JSON output has all.
const MAX_ROWS: usize = 1000;
/// Maximum number of names that a row of pods with the same message lists.
const EXAMPLES: usize = 3;

/// First rows of a table, and the number of all its rows.
pub(super) struct Table<T> {
    pub(super) rows: Vec<T>,
    /// Number of all rows.
    pub(super) count: usize,
    pub(super) more: usize,
}

impl<T> Table<T> {
    fn of(rows: impl ExactSizeIterator<Item = T>) -> Self {
        let count = rows.len();
        let rows: Vec<T> = rows.take(MAX_ROWS).collect();
        Self { more: count - rows.len(), rows, count }
    }
}

/// Figure at the top of a report.
pub(super) struct Tile {
    pub(super) value: String,
    pub(super) name: &'static str,
    /// `good`, `warn`, `bad`, or empty.
    pub(super) mood: &'static str,
}

/// Row of the change.
pub(super) struct PartRow<'a> {
    pub(super) description: &'a str,
    pub(super) began: String,
    pub(super) outcome: String,
    pub(super) mood: &'static str,
}

/// Row of an evicted pod.
pub(super) struct EvictedRow<'a> {
    pub(super) after: String,
    pub(super) pod: &'a str,
    pub(super) workload: &'a str,
    pub(super) node: &'a str,
    pub(super) reason: &'a str,
}

/// Row of pending pods of a workload with the same message.
pub(super) struct PendingRow<'a> {
    pub(super) workload: &'a str,
    pub(super) count: usize,
    pub(super) pods: String,
    pub(super) since: String,
    pub(super) message: &'a str,
}

/// Row of a workload with fewer ready pods.
pub(super) struct ShortageRow<'a> {
    pub(super) workload: &'a str,
    pub(super) before: usize,
    pub(super) lowest: usize,
    pub(super) end: usize,
    pub(super) duration: String,
    pub(super) mood: &'static str,
}

/// Row of a budget that allowed no disruption, or refused one.
pub(super) struct BudgetRow<'a> {
    pub(super) budget: &'a str,
    pub(super) exhausted: String,
    pub(super) before: &'static str,
    pub(super) allows: i32,
    pub(super) refused: usize,
}

/// Row of a node's requests.
pub(super) struct NodeRow<'a> {
    pub(super) node: &'a str,
    pub(super) cpu: i64,
    pub(super) memory: i64,
    pub(super) end_cpu: i64,
    pub(super) end_memory: i64,
    pub(super) pods: usize,
    pub(super) remark: String,
}

/// Row of executed writes.
pub(super) struct WriteRow<'a> {
    pub(super) count: u64,
    pub(super) component: &'a str,
    pub(super) verb: &'a str,
    pub(super) resource: &'a str,
}

/// Report of one variant, ready for the template.
pub(super) struct VariantView<'a> {
    /// Prefix of its HTML identifiers.
    pub(super) id: String,
    pub(super) heading: String,
    pub(super) sentence: String,
    pub(super) start: &'a str,
    pub(super) tiles: Vec<Tile>,
    pub(super) remarks: &'a [String],
    pub(super) figures: Figures<'a>,
    pub(super) parts: Table<PartRow<'a>>,
    pub(super) evicted: Table<EvictedRow<'a>>,
    pub(super) pending: Table<PendingRow<'a>>,
    pub(super) shortages: Table<ShortageRow<'a>>,
    pub(super) budgets: Table<BudgetRow<'a>>,
    pub(super) nodes: Table<NodeRow<'a>>,
    pub(super) writes: Table<WriteRow<'a>>,
}

/// Returns the title of a page.
pub(super) fn title(variants: &[PageVariant<'_>]) -> String {
    let parts = variants.first().map_or(&[][..], |variant| &variant.report.parts);
    let steps = |parts: &[Part]| -> Vec<String> {
        parts.iter().map(|part| part.description.clone()).collect()
    };
    if let [a, b] = variants
        && steps(parts) != steps(&b.report.parts)
    {
        return format!("What if: {} instead of {}", b.name, a.name);
    }
    match parts {
        [] => "What if nothing is changed?".to_owned(),
        [one] => format!("What if: {}", one.description),
        [first, .., last] => {
            format!("What if: {} … {} ({} steps)", first.description, last.description, parts.len())
        }
    }
}

impl<'a> VariantView<'a> {
    pub(super) fn of(index: usize, variant: &PageVariant<'a>, named: bool, axis: TimeAxis) -> Self {
        let PageVariant { name, report, charts } = *variant;
        let heading = if named { name.to_owned() } else { "Result".to_owned() };
        Self {
            id: format!("v{index}"),
            heading,
            sentence: sentence(report),
            start: &report.start,
            tiles: tiles(report),
            remarks: &report.remarks,
            figures: Figures::of(report, charts, axis),
            parts: Table::of(report.parts.iter().map(part)),
            evicted: Table::of(report.evicted.iter().map(|eviction| EvictedRow {
                after: time(eviction.after),
                pod: &eviction.pod,
                workload: &eviction.workload,
                node: &eviction.node,
                reason: &eviction.reason,
            })),
            pending: Table::of(pending(report).into_iter()),
            shortages: Table::of(report.shortages.iter().map(|shortage| ShortageRow {
                workload: &shortage.workload,
                before: shortage.before,
                lowest: shortage.lowest,
                end: shortage.end,
                duration: time(shortage.duration),
                mood: if shortage.end < shortage.before { "bad" } else { "" },
            })),
            budgets: Table::of(report.budgets.iter().map(|budget| BudgetRow {
                budget: &budget.budget,
                exhausted: time(budget.exhausted),
                before: if budget.before { "yes" } else { "no" },
                allows: budget.allows,
                refused: budget.refused.len(),
            })),
            nodes: Table::of(nodes(report).into_iter()),
            writes: Table::of(report.writes.iter().map(|write| WriteRow {
                count: write.count,
                component: &write.component,
                verb: write.verb,
                resource: &write.resource,
            })),
        }
    }
}

/// Returns a sentence about the time when the cluster had settled.
fn sentence(report: &Report) -> String {
    let total = time(report.duration);
    match report.settled_after {
        Some(Duration::ZERO) if report.is_empty() => format!("Nothing happens within {total}."),
        Some(Duration::ZERO) => format!("The cluster settles at once ({total} simulated)."),
        Some(after) => {
            format!("The cluster settles {} after the change ({total} simulated).", time(after))
        }
        None => format!("The cluster does not settle within {total}."),
    }
}

fn tiles(report: &Report) -> Vec<Tile> {
    let mood = |bad: bool, mood: &'static str| if bad { mood } else { "good" };
    let done = report.parts.iter().filter(|part| part.completed.is_some()).count();
    let new = report.pending.iter().filter(|pending| !pending.before).count();
    let short_at_end =
        report.shortages.iter().filter(|shortage| shortage.end < shortage.before).count();
    let refused: usize = report.budgets.iter().map(|budget| budget.refused.len()).sum();
    let fullest =
        report.nodes.iter().map(|node| share(node.peak.cpu_millis, node.allocatable.cpu_millis));
    let count = |number: usize| number.to_string();
    vec![
        Tile {
            value: format!("{done} of {}", report.parts.len()),
            name: "steps of the change done",
            mood: mood(done < report.parts.len(), "bad"),
        },
        Tile { value: count(report.evicted.len()), name: "pods evicted", mood: "" },
        Tile {
            value: count(new),
            name: "pods newly pending at the end",
            mood: mood(new > 0, "bad"),
        },
        Tile {
            value: count(report.shortages.len()),
            name: "workloads with fewer ready pods for a time",
            mood: mood(!report.shortages.is_empty(), "warn"),
        },
        Tile {
            value: count(short_at_end),
            name: "of them still at the end",
            mood: mood(short_at_end > 0, "bad"),
        },
        Tile {
            value: count(refused),
            name: "pods whose eviction a budget refused at first",
            mood: mood(refused > 0, "warn"),
        },
        Tile {
            value: format!("{} %", fullest.max().unwrap_or_default()),
            name: "of CPU requested on the fullest node",
            mood: "",
        },
    ]
}

fn part(part: &Part) -> PartRow<'_> {
    let mood = match (part.completed, &*part.error) {
        (Some(_), _) => "good",
        (None, "") if !part.started => "quiet",
        (None, "") => "warn",
        (None, _) => "bad",
    };
    let outcome = part.outcome();
    let began = if part.started { time(part.began) } else { "–".to_owned() };
    PartRow { description: &part.description, began, outcome, mood }
}

/// Returns the pending pods, grouped by workload and message.
fn pending(report: &Report) -> Vec<PendingRow<'_>> {
    let mut groups: BTreeMap<(&str, &str), Vec<_>> = BTreeMap::new();
    for pending in &report.pending {
        groups.entry((&pending.workload, &pending.message)).or_default().push(pending);
    }
    let mut rows: Vec<PendingRow<'_>> = groups
        .into_iter()
        .map(|((workload, message), pods)| {
            let examples: Vec<&str> = pods.iter().take(EXAMPLES).map(|pod| &*pod.pod).collect();
            let more = match pods.len() - examples.len() {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            let before = pods.iter().filter(|pod| pod.before).count();
            let since = match pods.iter().filter(|pod| !pod.before).map(|pod| pod.since).min() {
                None => "before the change".to_owned(),
                Some(first) if before == 0 => time(first),
                Some(first) => format!("{}; {before} before the change", time(first)),
            };
            PendingRow {
                workload,
                count: pods.len(),
                pods: examples.join(", ") + &more,
                since,
                message: if message.is_empty() { "not tried yet" } else { message },
            }
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}

/// Returns the nodes, the fullest first.
fn nodes(report: &Report) -> Vec<NodeRow<'_>> {
    let mut rows: Vec<NodeRow<'_>> = report.nodes.iter().map(node).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.cpu.max(row.memory)));
    rows
}

fn node(node: &NodeReport) -> NodeRow<'_> {
    let Amounts { cpu_millis, memory } = node.allocatable;
    let mut remarks = Vec::new();
    if !node.not_ready.is_zero() {
        remarks.push(format!("not ready for {}", time(node.not_ready)));
    }
    if node.removed {
        remarks.push("removed".to_owned());
    }
    NodeRow {
        node: &node.node,
        cpu: share(node.peak.cpu_millis, cpu_millis),
        memory: share(node.peak.memory, memory),
        end_cpu: share(node.end.cpu_millis, cpu_millis),
        end_memory: share(node.end.memory, memory),
        pods: node.peak_pods,
        remark: remarks.join(", "),
    }
}

/// Differences of two variants.
pub(super) struct ComparisonView {
    pub(super) names: [String; 2],
    pub(super) tables: Vec<DifferenceTable>,
}

/// Values that differ.
pub(super) struct DifferenceTable {
    pub(super) caption: &'static str,
    pub(super) head: &'static str,
    /// Class of the cells.
    pub(super) class: &'static str,
    pub(super) table: Table<(String, [String; 2])>,
}

impl ComparisonView {
    pub(super) fn of(comparison: &Comparison, names: [&str; 2]) -> Self {
        let table = |section: Section| DifferenceTable {
            caption: section.title,
            head: section.head,
            class: if section.is_text { "" } else { "n" },
            table: Table::of(section.rows.into_iter()),
        };
        let tables = sections(comparison).into_iter().map(table).collect();
        Self { names: names.map(str::to_owned), tables }
    }
}
