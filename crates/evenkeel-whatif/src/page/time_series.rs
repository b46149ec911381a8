//! Time series of two variants in one plot.

use super::{
    PageVariant,
    plot::{self, NumberAxis, Tick, TimeAxis},
};
use crate::{format::time, report::Charts};
use std::{collections::BTreeMap, time::Duration};

/// Values, each with the time from which it holds.
type History = Vec<(Duration, usize)>;

/// Plot of one number over time in both variants.
pub(super) struct TimeSeries {
    pub(super) title: &'static str,
    pub(super) ticks: Vec<Tick>,
    pub(super) highest: usize,
    /// SVG paths of the variants' step lines.
    pub(super) paths: [String; 2],
    pub(super) description: String,
}

impl TimeSeries {
    /// Returns the plots of two variants on one time axis. A number that is always zero in both variants gets no plot.
    pub(super) fn all(variants: [&PageVariant<'_>; 2], axis: TimeAxis) -> Vec<Self> {
        let plot_of = |title, history: fn(&Charts) -> History| {
            Self::of(title, variants, variants.map(|variant| history(variant.charts)), axis)
        };
        let plots =
            [plot_of("Evicted pods in all", evicted), plot_of("Missing ready pods", missing)];
        plots.into_iter().flatten().collect()
    }

    fn of(
        title: &'static str,
        variants: [&PageVariant<'_>; 2],
        histories: [History; 2],
        axis: TimeAxis,
    ) -> Option<Self> {
        let peak = |history: &History| history.iter().map(|(_, number)| *number).max().unwrap_or(0);
        let highest = histories.iter().map(peak).max().filter(|highest| *highest > 0)?;
        let numbers = NumberAxis::until(highest, 8.0, 104.0);
        let [a, b] = [0, 1].map(|index| {
            let end = histories[index].last().map_or(0, |(_, number)| *number);
            format!(
                "{}: at most {}, {end} at the end",
                variants[index].name,
                peak(&histories[index])
            )
        });
        let description =
            format!("{a} (solid line); {b} (dashed line); the first {} are drawn", time(axis.end));
        Some(Self {
            title,
            ticks: axis.ticks(),
            highest,
            paths: histories.map(|history| plot::steps(&history, axis, numbers)),
            description,
        })
    }
}

/// Returns the cumulative number of evicted pods over time.
fn evicted(charts: &Charts) -> History {
    let counted = charts.evictions.iter().zip(1..).map(|(at, count)| (*at, count));
    std::iter::once((Duration::ZERO, 0)).chain(counted).collect()
}

/// Returns the number of ready pods that all workloads together lack over time, compared with before the change.
fn missing(charts: &Charts) -> History {
    // Change of the number of missing pods at each time.
    let mut changes: BTreeMap<Duration, i64> = BTreeMap::from([(Duration::ZERO, 0)]);
    let signed = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    for workload in &charts.workloads {
        let mut before = 0;
        for (at, ready) in &workload.history {
            let now = signed(workload.before.saturating_sub(*ready));
            *changes.entry(*at).or_default() += now - before;
            before = now;
        }
    }
    let sums = changes.into_iter().scan(0, |sum: &mut i64, (at, change)| {
        *sum += change;
        Some((at, usize::try_from(*sum).unwrap_or(0)))
    });
    sums.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ReadyPods;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn time_series_sum_up_all_workloads() {
        let ready = |before: usize, history: &[(u64, usize)]| ReadyPods {
            workload: String::new(),
            before,
            history: history.iter().map(|(second, number)| (at(*second), *number)).collect(),
        };
        let charts = Charts {
            workloads: vec![
                ready(3, &[(0, 3), (10, 1), (20, 4)]),
                ready(2, &[(0, 2), (10, 1), (30, 2)]),
            ],
            evictions: vec![at(10), at(10), at(12)],
            budgets: Vec::new(),
        };
        assert_eq!(missing(&charts), [(at(0), 0), (at(10), 3), (at(20), 1), (at(30), 0)]);
        assert_eq!(evicted(&charts), [(at(0), 0), (at(10), 1), (at(10), 2), (at(12), 3)]);
        assert_eq!(missing(&Charts::default()), [(at(0), 0)]);
    }
}
