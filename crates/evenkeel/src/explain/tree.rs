//! Explanation of an object and its dependent objects by their controllers.

use anyhow::Result;
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::introspect::{ObjectReport, Subject, render};
use futures::future::LocalBoxFuture;
use serde::Serialize;
use std::{collections::HashSet, fmt::Write as _};

/// Maximum depth of dependent objects. The pods of a Deployment have depth 2.
const MAX_DEPTH: usize = 3;
/// Spaces of a level of the text.
const INDENT: usize = 2;
/// Maximum number of explained dependent objects of one object.
const MAX_CHILDREN: usize = 10;

/// Source of reports about objects.
pub trait Source {
    /// Returns the report of each controller that handles the object.
    fn reports<'a>(&'a self, subject: &'a Subject)
    -> LocalBoxFuture<'a, Result<Vec<ObjectReport>>>;
}

/// Explanation of an object.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// The explained object.
    pub object: Subject,
    /// Description of the reports' source. Empty except for the root.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub asked: String,
    /// Reports of the controllers.
    pub reports: Vec<ObjectReport>,
    /// Dependent objects, also explained.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Explained>,
    /// Number of further dependent objects.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// Explains an object and its dependent objects.
///
/// # Errors
/// When the source does not respond.
pub async fn explain(source: &impl Source, subject: Subject, asked: String) -> Result<Explained> {
    let mut known = HashSet::from([subject.clone()]);
    let mut explained = explain_recursively(source, subject, 0, &mut known).await?;
    explained.asked = asked;
    Ok(explained)
}

/// Explains an object and its dependents. `depth` is the object's depth below the root. `known` are the objects that
/// the explanation already contains, so that none is explained twice.
fn explain_recursively<'a>(
    source: &'a impl Source,
    object: Subject,
    depth: usize,
    known: &'a mut HashSet<Subject>,
) -> LocalBoxFuture<'a, Result<Explained>> {
    Box::pin(async move {
        let reports = source.reports(&object).await?;
        let mut new_children: Vec<Subject> = Vec::new();
        for child in reports.iter().flat_map(|report| &report.children) {
            if depth < MAX_DEPTH && known.insert(child.clone()) {
                new_children.push(child.clone());
            }
        }
        let more = new_children.len().saturating_sub(MAX_CHILDREN);
        new_children.truncate(MAX_CHILDREN);
        let mut children = Vec::with_capacity(new_children.len());
        for child in new_children {
            children.push(explain_recursively(source, child, depth + 1, known).await?);
        }
        Ok(Explained { object, asked: String::new(), reports, children, more })
    })
}

impl Explained {
    /// Formats the explanation as indented text.
    pub fn text(&self, now: Timestamp) -> String {
        self.heading() + &self.body(now)
    }

    /// Returns the first line: the object, and the source of the reports.
    pub(super) fn heading(&self) -> String {
        format!("{} ({})\n", self.object, self.asked)
    }

    /// Formats the reports: those that need attention, then the controllers of dependents with these, then one line for all
    /// that have nothing to do.
    pub(super) fn body(&self, now: Timestamp) -> String {
        let mut out = String::new();
        let (attention, quiet): (Vec<_>, Vec<_>) =
            self.reports.iter().partition(|report| needs_attention(report));
        let (main, quiet): (Vec<_>, Vec<_>) = quiet
            .into_iter()
            .partition(|report| !report.children.is_empty() && !report.sees.is_empty());
        // The garbage collector counts dependents of every owner.
        let (main, counted): (Vec<_>, Vec<_>) =
            main.into_iter().partition(|report| report.sees.len() > 1);
        for report in attention.into_iter().chain(main) {
            out.push_str(&render(report, now, INDENT));
        }
        self.write_children(&mut out, now, INDENT);
        let (seeing, silent): (Vec<_>, Vec<_>) =
            quiet.into_iter().chain(counted).partition(|report| !report.sees.is_empty());
        for report in seeing {
            let facts: Vec<String> = report
                .sees
                .iter()
                .map(|fact| format!("{} {}", fact.what, fact.value).trim_end().to_owned())
                .collect();
            let _ = writeln!(out, "  {}: nothing to do ({})", report.controller, facts.join(", "));
        }
        if !silent.is_empty() {
            let names: Vec<&str> = silent.iter().map(|report| &*report.controller).collect();
            let _ = writeln!(out, "  nothing to do: {}", names.join(", "));
        }
        out
    }

    fn write_children(&self, out: &mut String, now: Timestamp, indent: usize) {
        for child in &self.children {
            let note = if child.needs_no_attention() { ": nothing to do" } else { "" };
            let _ = writeln!(out, "{}{}{note}", " ".repeat(indent), child.object);
            // Of dependents, only what needs attention.
            for report in child.reports.iter().filter(|report| needs_attention(report)) {
                out.push_str(&render(report, now, indent + INDENT));
            }
            child.write_children(out, now, indent + INDENT);
        }
        if self.more > 0 {
            let _ = writeln!(out, "{}and {} more", " ".repeat(indent), self.more);
        }
    }

    fn needs_no_attention(&self) -> bool {
        !self.reports.iter().any(needs_attention)
            && self.children.iter().all(Self::needs_no_attention)
    }
}

/// Returns whether a report needs attention: it has a next action or a wait, its last pass failed, or the
/// object does not exist. To hand keys to another controller is no action on objects.
fn needs_attention(report: &ObjectReport) -> bool {
    let failed = report.last.as_ref().is_some_and(|last| last.error.is_some());
    let would_act = report.would.iter().any(|action| !action.starts_with("enqueue "));
    would_act || !report.waits.is_empty() || failed || !report.exists
}

/// Source for callers that have the introspection in their own process.
impl Source for evenkeel_runtime::introspect::Introspection {
    fn reports<'a>(
        &'a self,
        subject: &'a Subject,
    ) -> LocalBoxFuture<'a, Result<Vec<ObjectReport>>> {
        Box::pin(async move { Ok(self.object_reports(subject)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::introspect::Fact;

    fn report(controller: &str, facts: &[(&str, &str)], waits: &[&str]) -> ObjectReport {
        ObjectReport {
            controller: controller.to_owned(),
            exists: true,
            sees: facts
                .iter()
                .map(|(what, value)| Fact { what: (*what).to_owned(), value: (*value).to_owned() })
                .collect(),
            waits: waits.iter().map(|wait| (*wait).to_owned()).collect(),
            ..ObjectReport::default()
        }
    }

    fn node(kind: &str, reports: Vec<ObjectReport>, children: Vec<Explained>) -> Explained {
        let object = Subject::new("", kind, "", "n");
        Explained { object, asked: String::new(), reports, children, more: 0 }
    }

    #[test]
    fn controllers_with_nothing_to_do_take_a_line_at_the_end() {
        let mut main = report("owner", &[("wanted", "2"), ("there", "2")], &[]);
        main.children.push(Subject::new("", "Pod", "", "n"));
        let mut handing = report("hints", &[], &[]);
        handing.would.push("enqueue ns/p".to_owned());
        let reports = vec![
            report("idle", &[], &[]),
            report("observer", &[("zone", "Normal"), ("labels", "")], &[]),
            main,
            handing,
            report("busy", &[], &["back-off"]),
        ];
        let children = vec![node(
            "Pod",
            vec![report("child-idle", &[], &[]), report("child", &[], &["x"])],
            Vec::new(),
        )];
        let text = node("Node", reports, children).body(Timestamp::UNIX_EPOCH);
        assert_eq!(
            text,
            "  busy\n    would  do nothing\n    waits  back-off\n  owner\n    sees   wanted  2\n           there   2\n    \
             would  do nothing\n  Pod n\n    child\n      would  do nothing\n      waits  x\n  observer: nothing to do (zone \
             Normal, labels)\n  nothing to do: idle, hints\n"
        );
    }
}
