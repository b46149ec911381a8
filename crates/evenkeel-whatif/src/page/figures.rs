//! Figures of a page: the data of each plot, and its description in words.

use super::{
    PageVariant,
    plot::{self, Bar, LEFT, NumberAxis, Tick, TimeAxis, WIDTH},
};
use crate::{
    format::{counted, share, time},
    report::{Charts, NodeReport, Report},
};
use std::time::Duration;

/// Maximum number of workloads whose ready pods are drawn.
const MAX_WORKLOADS: usize = 12;
/// Maximum number of budgets that are drawn.
const MAX_BUDGETS: usize = 16;
/// Number of columns of a histogram over time.
const COLUMNS: usize = 60;
/// Height of a row of budgets.
const ROW: f64 = 22.0;
/// Width of the names of budgets.
const NAMES: f64 = 230.0;
/// Upper ends of the classes of nodes, in percent.
const CLASSES: [i64; 10] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];

/// Ready pods of one workload.
pub(super) struct ReadyFigure<'a> {
    pub(super) workload: &'a str,
    pub(super) path: String,
    /// Position of the number before the change, which a dashed line shows.
    pub(super) before_y: f64,
    pub(super) before: usize,
    pub(super) description: String,
}

/// Figures of one variant.
pub(super) struct Figures<'a> {
    /// Marks of the time axis.
    pub(super) ticks: Vec<Tick>,
    /// End of the axis, in words.
    pub(super) range: String,
    pub(super) ready: Vec<ReadyFigure<'a>>,
    pub(super) more_ready: usize,
    pub(super) evictions: Option<Columns>,
    pub(super) budgets: Option<Rows<'a>>,
    pub(super) nodes: Option<Columns>,
}

/// Plot of columns.
pub(super) struct Columns {
    pub(super) bars: Vec<Bar>,
    pub(super) ticks: Vec<Tick>,
    pub(super) highest: usize,
    pub(super) description: String,
}

/// Plot of rows of spans.
pub(super) struct Rows<'a> {
    pub(super) height: f64,
    pub(super) ticks: Vec<Tick>,
    pub(super) rows: Vec<Row<'a>>,
    pub(super) more: usize,
    pub(super) description: String,
}

/// Row of a budget.
pub(super) struct Row<'a> {
    pub(super) name: &'a str,
    /// Short enough for the drawing.
    pub(super) label: String,
    pub(super) y: f64,
    pub(super) spans: Vec<(f64, f64)>,
    pub(super) total: String,
}

impl<'a> Figures<'a> {
    pub(super) fn of(report: &'a Report, charts: &'a Charts, axis: TimeAxis) -> Self {
        let range = if axis.end < report.duration {
            format!(
                "The first {} of {} are drawn; later, nothing of this changes.",
                time(axis.end),
                time(report.duration)
            )
        } else {
            format!("All {} are drawn.", time(report.duration))
        };
        let mut workloads: Vec<_> = charts.workloads.iter().collect();
        let missing = |name: &str| {
            let shortage = report.shortages.iter().find(|shortage| shortage.workload == name);
            shortage.map(|shortage| {
                let at_end = shortage.before.saturating_sub(shortage.end);
                (at_end, shortage.before.saturating_sub(shortage.lowest), shortage.duration)
            })
        };
        workloads.sort_by_key(|found| std::cmp::Reverse(missing(&found.workload)));
        let more_ready = workloads.len().saturating_sub(MAX_WORKLOADS);
        let ready = workloads.into_iter().take(MAX_WORKLOADS).map(|found| {
            let highest = found.history.iter().map(|(_, number)| *number).max().unwrap_or(0);
            let numbers = NumberAxis::until(highest.max(found.before), 6.0, 74.0);
            let lowest = found.history.iter().map(|(_, number)| *number).min().unwrap_or(0);
            let end = found.history.last().map_or(0, |(_, number)| *number);
            ReadyFigure {
                workload: &found.workload,
                path: plot::steps(&found.history, axis, numbers),
                before_y: numbers.y(found.before),
                before: found.before,
                description: format!(
                    "{} ready before, {lowest} at least, {end} at the end",
                    found.before
                ),
            }
        });
        Self {
            ticks: axis.ticks(),
            range,
            ready: ready.collect(),
            more_ready,
            evictions: evictions(&charts.evictions, axis),
            budgets: budgets(charts, axis),
            nodes: nodes(&report.nodes),
        }
    }
}

/// Returns the time axis on which all variants are drawn.
pub(super) fn axis(variants: &[PageVariant<'_>]) -> TimeAxis {
    let axes = variants.iter().map(|PageVariant { report, charts, .. }| {
        TimeAxis::until(last_change(report, charts), report.duration)
    });
    let nothing = TimeAxis::until(Duration::ZERO, Duration::MAX);
    axes.max_by_key(|axis| axis.end).unwrap_or(nothing)
}

/// Returns the time of the last event that a plot shows.
fn last_change(report: &Report, charts: &Charts) -> Duration {
    let ready = charts.workloads.iter().filter_map(|found| found.history.last());
    let spans = charts.budgets.iter().filter_map(|found| found.spans.last());
    // A budget that allows no disruption until the end of the recording does not extend the axis to that end.
    let ends = spans.map(|(from, to)| if *to >= report.duration { *from } else { *to });
    let parts = report.parts.iter().map(|part| part.completed.unwrap_or(part.began));
    let times =
        ready.map(|(at, _)| *at).chain(ends).chain(parts).chain(charts.evictions.last().copied());
    times.max().unwrap_or_default()
}

fn evictions(times: &[Duration], axis: TimeAxis) -> Option<Columns> {
    let (first, last) = (times.first()?, times.last()?);
    let counts = plot::histogram(times, axis, COLUMNS);
    let length = axis.end / u32::try_from(COLUMNS).unwrap_or(1);
    let bars = columns(&counts, |index| {
        let from = length * u32::try_from(index).unwrap_or_default();
        format!("{} from {} on", counted(counts[index], "pod"), time(from))
    });
    let description = format!(
        "{} evicted between {} and {} after the change; at most {} within {}",
        counted(times.len(), "pod"),
        time(*first),
        time(*last),
        counts.iter().max().copied().unwrap_or_default(),
        time(length),
    );
    Some(Columns { bars, ticks: axis.ticks(), highest: counts.into_iter().max()?, description })
}

fn nodes(nodes: &[NodeReport]) -> Option<Columns> {
    let shares = nodes.iter().filter(|node| node.allocatable.cpu_millis > 0);
    let shares: Vec<i64> =
        shares.map(|node| share(node.peak.cpu_millis, node.allocatable.cpu_millis)).collect();
    let highest = *shares.iter().max()?;
    let mut counts = vec![0; CLASSES.len()];
    for share in &shares {
        let class = CLASSES.iter().position(|end| share <= end).unwrap_or(CLASSES.len() - 1);
        counts[class] += 1;
    }
    let class = |index: usize| {
        let from = if index == 0 { 0 } else { CLASSES[index - 1] + 1 };
        format!("{from} to {} percent", CLASSES[index])
    };
    let bars = columns(&counts, |index| {
        let nodes = counted(counts[index], "node");
        format!("{nodes} with {} of their CPU requested", class(index))
    });
    let width = (WIDTH - LEFT - 14.0) / CLASSES.len() as f64;
    let ticks = CLASSES.iter().enumerate().map(|(index, end)| Tick {
        at: plot::round(LEFT + (index + 1) as f64 * width),
        label: format!("{end} %"),
    });
    let full = shares.iter().filter(|share| **share > 90).count();
    let description = format!(
        "{}; the fullest had {highest} percent of its CPU requested, and {full} had more than 90 percent",
        counted(shares.len(), "node")
    );
    Some(Columns { bars, ticks: ticks.collect(), highest: counts.into_iter().max()?, description })
}

/// Returns the columns of counts, from left to right, without empty ones.
fn columns(counts: &[usize], label: impl Fn(usize) -> String) -> Vec<Bar> {
    let highest = counts.iter().max().copied().unwrap_or_default();
    let numbers = NumberAxis::until(highest, 8.0, 104.0);
    let width = (WIDTH - LEFT - 14.0) / counts.len().max(1) as f64;
    let filled = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let bar = |(index, count): (usize, &usize)| {
        let y = numbers.y(*count);
        Bar {
            x: plot::round(LEFT + index as f64 * width + 0.5),
            y,
            width: plot::round((width - 1.0).max(1.0)),
            height: plot::round(104.0 - y),
            label: label(index),
        }
    };
    filled.map(bar).collect()
}

fn budgets(charts: &Charts, axis: TimeAxis) -> Option<Rows<'_>> {
    let total = |spans: &[(Duration, Duration)]| {
        spans.iter().map(|(from, to)| *to - *from).sum::<Duration>()
    };
    let mut budgets: Vec<_> =
        charts.budgets.iter().map(|found| (total(&found.spans), found)).collect();
    budgets.sort_by(|(a, one), (b, two)| b.cmp(a).then_with(|| one.budget.cmp(&two.budget)));
    let (longest, first) = budgets.first()?;
    let description = format!(
        "{} allowed no disruption for some time; {} the longest, for {}",
        counted(budgets.len(), "budget"),
        first.budget,
        time(*longest)
    );
    let more = budgets.len().saturating_sub(MAX_BUDGETS);
    // Names are at the left: spans use the rest of the width.
    let scale = (WIDTH - NAMES - 14.0) / (WIDTH - LEFT - 14.0);
    let place = |(x, width): (f64, f64)| {
        (plot::round(NAMES + (x - LEFT) * scale), plot::round((width * scale).max(1.5)))
    };
    let rows: Vec<Row<'_>> = budgets
        .iter()
        .take(MAX_BUDGETS)
        .enumerate()
        .map(|(index, (total, found))| Row {
            name: &found.budget,
            label: shortened(&found.budget, 34),
            y: index as f64 * ROW,
            spans: plot::spans(&found.spans, axis).into_iter().map(place).collect(),
            total: time(*total),
        })
        .collect();
    let ticks = axis.ticks().into_iter().map(|tick| Tick { at: place((tick.at, 0.0)).0, ..tick });
    let height = rows.len() as f64 * ROW + 4.0;
    Some(Rows { height, ticks: ticks.collect(), rows, more, description })
}

/// Returns the end of a name that is too long, because names differ at their end more often than at their start.
fn shortened(name: &str, length: usize) -> String {
    let count = name.chars().count();
    if count <= length {
        return name.to_owned();
    }
    let end: String = name.chars().skip(count - length + 1).collect();
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("shop/web", 10), "shop/web");
        assert_eq!(shortened("namespace/web", 6), "…e/web");
        assert_eq!(shortened("ääääää", 3), "…ää");
    }

    #[test]
    fn empty_columns_are_left_out() {
        let bars = columns(&[0, 2, 1], |index| index.to_string());
        let labels: Vec<&str> = bars.iter().map(|bar| &*bar.label).collect();
        assert_eq!(labels, ["1", "2"]);
        assert_eq!((bars[0].y, bars[0].height), (8.0, 96.0));
        assert_eq!(bars[1].height, 48.0);
    }
}
