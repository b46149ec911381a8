//! What-ifs: the form of a change, and the runs.

use super::{Link, ago::Ago};
use crate::{
    WhatIfChange,
    route::{parameter, parameters},
};
use askama::Template;

/// Default of the virtual time.
const DEFAULT_DURATION: &str = "1h";

/// Fields of the form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WhatIfForm {
    /// Nodes to drain that are chosen by name.
    pub(crate) drain: Vec<String>,
    /// Further nodes to drain: one name, zone or selector per line.
    pub(crate) drain_more: String,
    /// Nodes to remove, one per line.
    pub(crate) remove: String,
    /// Number of nodes to add.
    pub(crate) add_nodes: String,
    /// Node that is the model of the added nodes.
    pub(crate) like: String,
    /// Nodes that lose their connection.
    pub(crate) outage: String,
    /// Length of the outage.
    pub(crate) outage_for: String,
    /// Objects to apply.
    pub(crate) apply: String,
    /// Virtual time to run.
    pub(crate) duration: String,
}

impl Default for WhatIfForm {
    fn default() -> Self {
        let none = String::new;
        Self {
            drain: Vec::new(),
            drain_more: none(),
            remove: none(),
            add_nodes: none(),
            like: none(),
            outage: none(),
            outage_for: none(),
            apply: none(),
            duration: DEFAULT_DURATION.to_owned(),
        }
    }
}

impl WhatIfForm {
    /// Reads a form that was sent.
    pub(crate) fn of(form: &str) -> Self {
        let line = |name| parameter(form, name).unwrap_or_default().trim().to_owned();
        let duration = Some(line("duration")).filter(|text| !text.is_empty());
        Self {
            drain: parameters(form, "drain"),
            drain_more: line("drain-more"),
            remove: line("remove"),
            add_nodes: line("add-nodes"),
            like: line("like"),
            outage: line("outage"),
            outage_for: line("outage-for"),
            apply: parameter(form, "apply").unwrap_or_default(),
            duration: duration.unwrap_or_else(|| DEFAULT_DURATION.to_owned()),
        }
    }

    /// Returns the change.
    pub(crate) fn change(&self) -> WhatIfChange {
        let lines = |text: &str| -> Vec<String> {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            lines.map(str::to_owned).collect()
        };
        WhatIfChange {
            drain: self.drain.iter().cloned().chain(lines(&self.drain_more)).collect(),
            remove: lines(&self.remove),
            add_nodes: self.add_nodes.clone(),
            like: if self.add_nodes.is_empty() { String::new() } else { self.like.clone() },
            outage: self.outage.clone(),
            outage_for: self.outage_for.clone(),
            apply: self.apply.clone(),
            duration: self.duration.clone(),
        }
    }
}

/// A node that the form offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChosenNode {
    /// Name of the node.
    pub(crate) name: String,
    /// Zone of the node. Empty without one.
    pub(crate) zone: String,
    /// Whether the user chose the node to be drained.
    pub(crate) is_chosen: bool,
}

/// A run and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunRow {
    /// Number of the run.
    pub(crate) id: u64,
    /// The change in words.
    pub(crate) change: String,
    /// User who started the run. Empty for the administrator.
    pub(crate) user: String,
    /// Number of objects of the copy.
    pub(crate) objects: usize,
    /// Time of its start.
    pub(crate) started: Ago,
    /// How far it is.
    pub(crate) state: RunState,
}

/// State of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunState {
    /// It has not ended.
    Running {
        /// Progress in words.
        words: String,
        /// Progress in percent.
        percent: u64,
    },
    /// It has a report.
    Done {
        /// Link to the report.
        report: Link,
        /// What happened, in a sentence.
        summary: String,
    },
    /// The run has no report, for this reason.
    Ended(String),
}

/// Page of what-ifs.
#[derive(Debug, Clone, Template)]
#[template(path = "whatif.html")]
pub(crate) struct WhatIfPage {
    /// Token of forms.
    pub(crate) form_token: String,
    /// Reason why the form's change cannot run. Empty without one.
    pub(crate) error: String,
    /// Nodes to choose from.
    pub(crate) nodes: Vec<ChosenNode>,
    /// Number of nodes that are not offered.
    pub(crate) more_nodes: usize,
    /// Zones of the nodes.
    pub(crate) zones: Vec<String>,
    /// Fields of the form.
    pub(crate) form: WhatIfForm,
    /// The last runs, the newest one first.
    pub(crate) runs: Vec<RunRow>,
    /// Maximum number of objects of a copy.
    pub(crate) max_objects: usize,
    /// Maximum duration of a run in minutes.
    pub(crate) max_minutes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_become_changes() {
        let form = WhatIfForm::of(
            "drain=node-1&drain=node-2&drain-more=zone%2Fa%0D%0A+pool%3Dblue+%0D%0A%0D%0A&remove=&add-nodes=&like=node-1&\
             outage=+zone%2Fb+&outage-for=10m&apply=kind%3A+Pod%0D%0A&duration=",
        );
        let change = form.change();
        assert_eq!(change.drain, ["node-1", "node-2", "zone/a", "pool=blue"]);
        assert_eq!((&*change.outage, &*change.outage_for), ("zone/b", "10m"));
        assert_eq!((&*change.duration, &*change.like), ("1h", ""), "nothing is added");
        assert_eq!(change.apply, "kind: Pod\r\n");
        assert!(change.remove.is_empty());
    }

    #[test]
    fn pages_escape_texts() {
        let hostile = || "</textarea><script>".to_owned();
        let form = WhatIfForm { apply: hostile(), drain_more: hostile(), ..WhatIfForm::default() };
        let row = |state| RunRow {
            id: 1,
            change: hostile(),
            user: hostile(),
            objects: 1,
            started: Ago::default(),
            state,
        };
        let runs = vec![
            row(RunState::Running { words: hostile(), percent: 3 }),
            row(RunState::Done { report: Link::new("Report", "/what-if/1"), summary: hostile() }),
            row(RunState::Ended(hostile())),
        ];
        let page = WhatIfPage {
            form_token: "t".to_owned(),
            error: hostile(),
            nodes: vec![ChosenNode { name: hostile(), zone: hostile(), is_chosen: true }],
            more_nodes: 2,
            zones: vec![hostile()],
            form,
            runs,
            max_objects: 1,
            max_minutes: 1,
        };
        let html = page.render().expect("rendered");
        assert!(!html.contains("<script"), "{html}");
    }
}
