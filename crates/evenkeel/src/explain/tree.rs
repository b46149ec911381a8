//! Explanation of an object and its dependent objects by their controllers.

use anyhow::Result;
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::introspect::{ObjectReport, Subject, render};
use futures::future::LocalBoxFuture;
use serde::Serialize;
use std::{collections::HashSet, fmt::Write as _};

/// Maximum depth of dependent objects. The pods of a Deployment have depth 2.
const MAX_DEPTH: usize = 3;
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
        let mut out = String::new();
        let _ = writeln!(out, "{} ({})", self.object, self.asked);
        self.write(&mut out, now, 0);
        out
    }

    fn write(&self, out: &mut String, now: Timestamp, depth: usize) {
        let indent = 2 * (depth + 1);
        // Show all reports of the root, but only reports of its dependents that need attention.
        let reports = self.reports.iter().filter(|report| depth == 0 || needs_attention(report));
        for report in reports {
            out.push_str(&render(report, now, indent));
        }
        for child in &self.children {
            let note = if child.needs_no_attention() { ": nothing to do" } else { "" };
            let _ = writeln!(out, "{}{}{note}", " ".repeat(indent), child.object);
            child.write(out, now, depth + 1);
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
/// object does not exist.
fn needs_attention(report: &ObjectReport) -> bool {
    let failed = report.last.as_ref().is_some_and(|last| last.error.is_some());
    !report.would.is_empty() || !report.waits.is_empty() || failed || !report.exists
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
