//! Differences of two variants as rows of strings, for the text report and the page.

use crate::{
    compare::{Comparison, Difference, Figure, Reasons},
    format::time,
};
use evenkeel_api::quantity::Quantity;
use std::time::Duration;

/// Label of a value that a variant does not have.
const NONE: &str = "none";

/// Table of differences of one kind.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    /// Heading of the first column.
    pub(crate) head: &'static str,
    /// Whether the values are sentences.
    pub(crate) is_text: bool,
    /// Names, and the values in both variants.
    pub(crate) rows: Vec<(String, [String; 2])>,
}

/// Returns a section of the figures that differ, and then the sections of details. Leaves out empty sections.
pub(crate) fn sections(comparison: &Comparison) -> Vec<Section> {
    let count = |value: i64| value.to_string();
    let seconds = |value: f64| time(Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX));
    let of_times = |figures: &[Figure<String>]| {
        let row = |figure: &Figure<String>| (figure.name.clone(), texts(figure.values, seconds));
        figures.iter().map(row).collect()
    };
    let all = [
        Section {
            title: "Figures",
            head: "Figure",
            is_text: false,
            rows: comparison
                .figures
                .iter()
                .map(|figure| {
                    (figure.name.to_owned(), texts(figure.values, |value| value.to_string()))
                })
                .collect(),
        },
        Section {
            title: "Evicted pods of workloads",
            head: "Workload",
            is_text: false,
            rows: of_numbers(&comparison.evicted, count),
        },
        Section {
            title: "Pending pods of workloads at the end",
            head: "Workload",
            is_text: false,
            rows: of_numbers(&comparison.pending, count),
        },
        Section {
            title: "Messages of the scheduler about pending pods",
            head: "Workload",
            is_text: true,
            rows: comparison.reasons.iter().map(reasons).collect(),
        },
        Section {
            title: "Time with fewer ready pods than before the change",
            head: "Workload",
            is_text: false,
            rows: of_times(&comparison.shortages),
        },
        Section {
            title: "Time of disruption budgets at their limit",
            head: "Budget",
            is_text: false,
            rows: of_times(&comparison.budgets),
        },
        Section {
            title: "Pods that disruption budgets refused to evict",
            head: "Budget",
            is_text: false,
            rows: of_numbers(&comparison.refused, count),
        },
        Section {
            title: "Pods of workloads by node at the end",
            head: "Workload and node",
            is_text: false,
            rows: of_numbers(&comparison.placements, count),
        },
        Section {
            title: "Highest CPU requests of nodes",
            head: "Node",
            is_text: false,
            rows: of_numbers(&comparison.peaks, |cpu| Quantity::from_millis(cpu).to_string()),
        },
        Section {
            title: "Highest memory requests of nodes",
            head: "Node",
            is_text: false,
            rows: of_numbers(&comparison.memory_peaks, |memory| {
                Quantity::from_bytes(memory).to_string()
            }),
        },
        Section {
            title: "Writes",
            head: "Component, verb and resource",
            is_text: false,
            rows: of_numbers(&comparison.writes, count),
        },
    ];
    all.into_iter().filter(|section| !section.rows.is_empty()).collect()
}

fn texts(values: [Option<f64>; 2], text: impl Fn(f64) -> String) -> [String; 2] {
    values.map(|value| value.map_or(NONE.to_owned(), &text))
}

fn of_numbers(
    differences: &[Difference],
    text: impl Fn(i64) -> String,
) -> Vec<(String, [String; 2])> {
    let row = |found: &Difference| (found.name.clone(), found.values.map(&text));
    differences.iter().map(row).collect()
}

fn reasons(reasons: &Reasons) -> (String, [String; 2]) {
    let text = |messages: &Vec<String>| {
        let messages = messages.iter().map(|message| match &**message {
            "" => "not tried yet",
            message => message,
        });
        let text = messages.collect::<Vec<_>>().join(" / ");
        if text.is_empty() { NONE.to_owned() } else { text }
    };
    (reasons.name.clone(), reasons.values.each_ref().map(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_units() {
        let number = |name: &str, values| vec![Difference { name: name.to_owned(), values }];
        let comparison = Comparison {
            figures: vec![Figure { name: "settled after (s)", values: [Some(0.0), None] }],
            budgets: vec![Figure { name: "shop/web".to_owned(), values: [Some(0.0), Some(95.5)] }],
            peaks: number("a", [500, 2000]),
            memory_peaks: number("a", [0, 64 << 20]),
            reasons: vec![Reasons {
                name: "Deployment shop/web".to_owned(),
                values: [Vec::new(), vec![String::new(), "Insufficient cpu".to_owned()]],
            }],
            ..Comparison::default()
        };
        let rows: Vec<String> = sections(&comparison)
            .iter()
            .flat_map(|section| &section.rows)
            .map(|(name, [a, b])| format!("{name}: {a} -> {b}"))
            .collect();
        let expected = [
            "settled after (s): 0 -> none",
            "Deployment shop/web: none -> not tried yet / Insufficient cpu",
            "shop/web: 0s -> 1m35s",
            "a: 500m -> 2",
            "a: 0 -> 64Mi",
        ];
        assert_eq!(rows, expected);
    }
}
