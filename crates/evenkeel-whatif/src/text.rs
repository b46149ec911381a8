//! Reports and comparisons as text.

use crate::{
    compare::Comparison,
    differences::sections,
    format::{counted, share, time},
    recording::Amounts,
    report::{NodeReport, Report},
};
use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

/// Maximum number of lines of a section. The JSON output has all.
const MAX_LINES: usize = 20;

impl Report {
    /// Returns the report as text. Long sections are truncated.
    pub fn text(&self) -> String {
        let total = time(self.duration);
        let mut text = match self.settled_after {
            Some(Duration::ZERO) if self.is_empty() => format!("Nothing happens within {total}.\n"),
            Some(Duration::ZERO) => format!("Settled at once ({total} simulated).\n"),
            Some(after) => {
                format!("Settled {} after the change ({total} simulated).\n", time(after))
            }
            None => format!("Not settled within {total}.\n"),
        };
        for remark in &self.remarks {
            let _ = writeln!(text, "Note: {remark}.");
        }
        section(
            &mut text,
            "Change",
            self.parts.iter().map(|part| format!("{}: {}", part.description, part.outcome())),
        );
        let evicted = self.evicted.iter().map(|eviction| {
            let lone = if eviction.workload.is_empty() { ", and nothing replaces it" } else { "" };
            format!(
                "{} from {} after {}: {}{lone}",
                eviction.pod,
                eviction.node,
                time(eviction.after),
                eviction.reason
            )
        });
        section(&mut text, &format!("Evicted: {}", counted(self.evicted.len(), "pod")), evicted);
        self.write_pending(&mut text);
        section(
            &mut text,
            "Fewer ready pods than before",
            self.shortages.iter().map(|shortage| {
                format!(
                    "{}: {} before, {} at least, {} at the end; fewer for {}",
                    shortage.workload,
                    shortage.before,
                    shortage.lowest,
                    shortage.end,
                    time(shortage.duration)
                )
            }),
        );
        section(
            &mut text,
            "Disruption budgets at their limit",
            self.budgets.iter().map(|budget| {
                let before = if budget.before { ", as before the change" } else { "" };
                let refused = match budget.refused.len() {
                    0 => String::new(),
                    count => format!("; evictions of {} refused", counted(count, "pod")),
                };
                format!("{}: for {}{before}{refused}", budget.budget, time(budget.exhausted))
            }),
        );
        let mut nodes: Vec<&NodeReport> = self.nodes.iter().collect();
        nodes.sort_by_key(|node| {
            std::cmp::Reverse(share(node.peak.cpu_millis, node.allocatable.cpu_millis))
        });
        section(&mut text, "Nodes, by highest CPU requests", nodes.into_iter().map(node_line));
        let writes: u64 = self.writes.iter().map(|write| write.count).sum();
        section(
            &mut text,
            &format!("Writes: {writes}"),
            self.writes.iter().map(|write| {
                format!("{:>6} {} {} {}", write.count, write.component, write.verb, write.resource)
            }),
        );
        text
    }

    /// Writes the pending pods, grouped by message.
    fn write_pending(&self, text: &mut String) {
        let mut groups: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for pending in &self.pending {
            let message =
                if pending.message.is_empty() { "not tried yet" } else { &pending.message };
            groups.entry((&pending.workload, message)).or_default().push(&pending.pod);
        }
        let before = self.pending.iter().filter(|pending| pending.before).count();
        let title = match before {
            0 => format!("Pending: {}", counted(self.pending.len(), "pod")),
            _ => {
                let pods = counted(self.pending.len(), "pod");
                format!("Pending: {pods}, {before} of them before the change")
            }
        };
        section(
            text,
            &title,
            groups.into_iter().map(|((_, message), pods)| {
                let more = match pods.len() {
                    1 => String::new(),
                    count => format!(" and {} more of its workload", count - 1),
                };
                format!("{}{more}: {message}", pods.first().copied().unwrap_or_default())
            }),
        );
    }
}

impl Comparison {
    /// Returns the comparison as text, with the names of the variants. Each line has the value of the first variant,
    /// and then the value of the second. Long sections are truncated.
    pub fn text(&self, names: [&str; 2]) -> String {
        let [a, b] = names;
        let sections = sections(self);
        if sections.is_empty() {
            return format!("{a} and {b} do not differ.\n");
        }
        let mut text = format!("{b} instead of {a}\n");
        for found in sections {
            let line = |(name, [a, b]): &(String, [String; 2])| format!("{name}: {a} -> {b}");
            section(&mut text, found.title, found.rows.iter().map(line));
        }
        text
    }
}

/// Appends a section, unless it has no lines.
fn section(text: &mut String, title: &str, lines: impl ExactSizeIterator<Item = String>) {
    let count = lines.len();
    if count == 0 {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    for line in lines.take(MAX_LINES) {
        let _ = writeln!(text, "  {line}");
    }
    if count > MAX_LINES {
        let _ = writeln!(text, "  and {} more", count - MAX_LINES);
    }
}

fn node_line(node: &NodeReport) -> String {
    let Amounts { cpu_millis, memory } = node.allocatable;
    let mut line = format!(
        "{}: CPU {}%, memory {}%, {}",
        node.node,
        share(node.peak.cpu_millis, cpu_millis),
        share(node.peak.memory, memory),
        counted(node.peak_pods, "pod")
    );
    if !node.not_ready.is_zero() {
        let _ = write!(line, ", not ready for {}", time(node.not_ready));
    }
    if node.removed {
        line += ", removed";
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sections_are_cut() {
        let mut text = String::new();
        section(&mut text, "Many", (0..25).map(|index| index.to_string()));
        assert_eq!(text.lines().count(), 1 + 1 + MAX_LINES + 1);
        assert!(text.ends_with("  and 5 more\n"), "{text}");
        let mut empty = String::new();
        section(&mut empty, "None", std::iter::empty::<String>().collect::<Vec<_>>().into_iter());
        assert_eq!(empty, "");
    }
}
