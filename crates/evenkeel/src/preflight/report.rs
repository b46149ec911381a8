//! The report: findings and plan, as text or JSON.

use super::{
    Program,
    findings::{Finding, Verdict, findings},
    observe::Observed,
    steps::{ProgramPlan, plans},
};
use serde::Serialize;
use std::fmt::Write as _;

/// Findings and plan for a cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report<'a> {
    server: &'a str,
    version: &'a str,
    /// User as which the API server authenticates this command.
    user: &'a str,
    /// Whether no finding is a blocker.
    pub(super) is_ready: bool,
    pub(super) findings: Vec<Finding>,
    flags: Vec<ProgramFlags<'a>>,
    pub(super) plan: Vec<ProgramPlan>,
}

/// Flags of a program, grouped by their effect on our program.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgramFlags<'a> {
    program: Program,
    accepted: &'a [String],
    without_effect: &'a [String],
    refused: &'a [String],
}

impl<'a> Report<'a> {
    /// Decides the findings and the plan from the observations.
    pub(super) fn new(observed: &'a Observed) -> Self {
        let findings = findings(observed);
        let flags = observed.programs.iter().map(|program| ProgramFlags {
            program: program.subject.program,
            accepted: &program.subject.checked.accepted,
            without_effect: &program.subject.checked.without_effect,
            refused: &program.subject.checked.refused,
        });
        Self {
            server: &observed.server,
            version: &observed.version.text,
            user: &observed.user,
            is_ready: !findings.iter().any(|finding| finding.verdict == Verdict::Blocker),
            flags: flags.collect(),
            plan: plans(observed),
            findings,
        }
    }

    /// Returns the report as JSON.
    ///
    /// # Errors
    /// Never fails: all parts are strings, numbers and lists.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Returns the report for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} ({}), as {}\n", self.server, self.version, self.user);
        let mut heading = None;
        for finding in &self.findings {
            if finding.program != heading {
                heading = finding.program;
                let name = heading.map_or("", Program::name);
                let _ = writeln!(text, "\n{name}");
            }
            let verdict = match finding.verdict {
                Verdict::Ok => "ok",
                Verdict::Warning => "warning",
                Verdict::Blocker => "BLOCKER",
            };
            let _ = writeln!(text, "  {verdict:<7}  {}: {}", finding.check, finding.message);
            if let Some(step) = &finding.next_step {
                let _ = writeln!(text, "           {step}.");
            }
        }
        if !self.is_ready {
            text.push_str("\nA finding blocks the replacement, so there is no plan.\n");
            return text;
        }
        for plan in &self.plan {
            let _ = writeln!(text, "\nPlan for {}", plan.program.name());
            for (name, steps) in
                [("replace", &plan.replace), ("watch", &plan.watch), ("go back", &plan.go_back)]
            {
                let _ = writeln!(text, "  {name}");
                for (n, step) in steps.iter().enumerate() {
                    let _ = writeln!(text, "    {}. {step}", n + 1);
                }
            }
        }
        text
    }
}
