//! Explanation of an object and its dependent objects by their controllers.

use crate::choose::kept;
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::introspect::{Fact, ObjectReport, Subject, render};
use serde::Serialize;
use std::{collections::HashSet, fmt::Write as _};

/// Number of spaces by which each level of the text is indented.
const INDENT: usize = 2;

/// Source of reports about objects.
pub trait Source {
    /// Error of the source.
    type Error;

    /// Returns the report of each controller that handles the object.
    fn reports(
        &self,
        subject: &Subject,
    ) -> impl Future<Output = Result<Vec<ObjectReport>, Self::Error>>;
}

/// Limits of an explanation.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum depth of dependent objects. The pods of a Deployment have depth 2.
    pub depth: usize,
    /// Maximum number of explained dependent objects of one object.
    pub children: usize,
    /// Maximum number of explained objects.
    pub objects: usize,
}

impl Limits {
    /// Limits of a text for the terminal.
    pub const TEXT: Self = Self { depth: 3, children: 10, objects: 1000 };
    /// Limits of a page.
    pub const PAGE: Self = Self { depth: 3, children: 25, objects: 150 };
}

/// Explanation of an object.
#[derive(Debug, Clone, Default, Serialize)]
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

/// An object to explain next: the index of its parent among the explained objects, and its depth below the root.
struct Next {
    object: Subject,
    parent: usize,
    depth: usize,
}

/// Explains an object and its dependent objects, each once, in the order of the text.
///
/// # Errors
/// Fails if the source does not respond.
pub async fn explain<S: Source>(
    source: &S,
    subject: Subject,
    asked: String,
    limits: Limits,
) -> Result<Explained, S::Error> {
    let mut known = HashSet::from([subject.clone()]);
    let mut accepted = 1;
    let mut explained: Vec<(Explained, usize)> = Vec::new();
    let mut stack = vec![Next { object: subject, parent: 0, depth: 0 }];
    while let Some(Next { object, parent, depth }) = stack.pop() {
        let reports = source.reports(&object).await?;
        let named = reports.iter().flat_map(|report| &report.children);
        let mut children: Vec<Subject> = named
            .filter(|child| depth < limits.depth && known.insert((*child).clone()))
            .cloned()
            .collect();
        let (all, room) = (children.len(), limits.objects.saturating_sub(accepted));
        let mut kept = kept(&reports, &children, limits.children.min(room)).into_iter();
        children.retain(|_| kept.next() == Some(true));
        accepted += children.len();
        let more = all - children.len();
        let (index, depth) = (explained.len(), depth + 1);
        // The stack returns the first child next.
        stack.extend(children.into_iter().rev().map(|object| Next {
            object,
            parent: index,
            depth,
        }));
        let asked = String::new();
        explained.push((Explained { object, asked, reports, children: Vec::new(), more }, parent));
    }
    Ok(Explained { asked, ..nested(explained) })
}

/// Nests each explanation in that of its parent. Parents come before their children, and the root is the first one.
fn nested(mut explained: Vec<(Explained, usize)>) -> Explained {
    while let Some((mut child, parent)) = explained.pop() {
        // They were added from the last one to the first.
        child.children.reverse();
        match explained.get_mut(parent) {
            Some((parent, _)) => parent.children.push(child),
            None => return child,
        }
    }
    Explained::default()
}

/// Reports of an object in the order in which they matter.
#[derive(Debug, Default)]
pub struct Sections<'a> {
    /// Reports that need attention.
    pub attention: Vec<&'a ObjectReport>,
    /// Reports of controllers that manage dependents and have nothing to do.
    pub managing: Vec<&'a ObjectReport>,
    /// Other reports of controllers that observe something and have nothing to do.
    pub observing: Vec<&'a ObjectReport>,
    /// Reports of controllers that neither observe nor do anything.
    pub silent: Vec<&'a ObjectReport>,
}

/// Divides the reports of an object into sections.
pub fn sections(reports: &[ObjectReport]) -> Sections<'_> {
    let mut sections = Sections::default();
    let mut counting = Vec::new();
    for report in reports {
        let manages = !report.children.is_empty() && !report.sees.is_empty();
        match (needs_attention(report), manages, report.sees.len()) {
            (true, ..) => sections.attention.push(report),
            // The garbage collector counts dependents of every owner.
            (false, true, 1) => counting.push(report),
            (false, true, _) => sections.managing.push(report),
            (false, false, 0) => sections.silent.push(report),
            (false, false, _) => sections.observing.push(report),
        }
    }
    sections.observing.extend(counting);
    sections
}

/// Returns the observations of a controller in one line.
pub fn facts(report: &ObjectReport) -> String {
    let line = |fact: &Fact| format!("{} {}", fact.what, fact.value).trim_end().to_owned();
    report.sees.iter().map(line).collect::<Vec<_>>().join(", ")
}

impl Explained {
    /// Formats the explanation as indented text.
    pub fn text(&self, now: Timestamp) -> String {
        self.heading() + &self.body(now)
    }

    /// Returns the first line: the object, and the source of the reports.
    pub fn heading(&self) -> String {
        format!("{} ({})\n", self.object, self.asked)
    }

    /// Formats the reports: those that need attention, then controllers with their dependents, then one line for all
    /// controllers that have nothing to do.
    pub fn body(&self, now: Timestamp) -> String {
        let mut out = String::new();
        let Sections { attention, managing, observing, silent } = sections(&self.reports);
        for report in attention.into_iter().chain(managing) {
            out.push_str(&render(report, now, INDENT));
        }
        self.write_children(&mut out, now, INDENT);
        for report in observing {
            let _ = writeln!(out, "  {}: nothing to do ({})", report.controller, facts(report));
        }
        if !silent.is_empty() {
            let names: Vec<&str> = silent.iter().map(|report| &*report.controller).collect();
            let _ = writeln!(out, "  nothing to do: {}", names.join(", "));
        }
        out
    }

    /// Returns whether a report on the object itself needs attention.
    pub fn is_loud(&self) -> bool {
        self.reports.iter().any(needs_attention)
    }

    fn write_children(&self, out: &mut String, now: Timestamp, indent: usize) {
        for child in &self.children {
            let note = if child.needs_no_attention() { ": nothing to do" } else { "" };
            let _ = writeln!(out, "{}{}{note}", " ".repeat(indent), child.object);
            // Print only the dependents that need attention.
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
        !self.is_loud() && self.children.iter().all(Self::needs_no_attention)
    }
}

/// Returns whether a report needs attention: it has a next action or a wait, its last pass failed, or the object does not
/// exist. An action that only enqueues keys of another controller does not count.
pub fn needs_attention(report: &ObjectReport) -> bool {
    let failed = report.last.as_ref().is_some_and(|last| last.error.is_some());
    let would_act = report.would.iter().any(|action| !action.starts_with("enqueue "));
    would_act || !report.waits.is_empty() || failed || !report.exists
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

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

    /// A set with this many pods, each of which names the set again, and named by two controllers.
    struct Set(usize);

    impl Source for Set {
        type Error = Infallible;

        async fn reports(&self, subject: &Subject) -> Result<Vec<ObjectReport>, Infallible> {
            let set = Subject::new("apps", "ReplicaSet", "a", "set");
            let children = match &*subject.kind {
                "Deployment" => vec![set],
                "ReplicaSet" => {
                    (0..self.0).map(|n| Subject::new("", "Pod", "a", &format!("p{n}"))).collect()
                }
                _ => vec![set],
            };
            let report = ObjectReport { exists: true, children, ..ObjectReport::default() };
            Ok(vec![report.clone(), report])
        }
    }

    async fn explained(pods: usize, limits: Limits) -> Explained {
        let web = Subject::new("apps", "Deployment", "a", "web");
        match explain(&Set(pods), web, "asked".to_owned(), limits).await {
            Ok(explained) => explained,
            Err(error) => match error {},
        }
    }

    #[tokio::test]
    async fn dependents_are_explained_once_and_in_order() {
        let root = explained(3, Limits::PAGE).await;
        assert_eq!((&*root.asked, root.children.len(), root.more), ("asked", 1, 0));
        let set = &root.children[0];
        let names: Vec<_> = set.children.iter().map(|pod| &*pod.object.name).collect();
        assert_eq!(names, ["p0", "p1", "p2"]);
        assert!(set.asked.is_empty() && set.children.iter().all(|pod| pod.children.is_empty()));
    }

    #[tokio::test]
    async fn large_explanations_are_cut() {
        let set = explained(1000, Limits::PAGE).await.children.remove(0);
        assert_eq!((set.children.len(), set.more), (25, 975), "none is counted twice");
        let few = Limits { depth: 3, children: 25, objects: 5 };
        let set = explained(1000, few).await.children.remove(0);
        assert_eq!((set.children.len(), set.more), (3, 997));
        let flat = Limits { depth: 1, ..Limits::PAGE };
        let set = explained(1000, flat).await.children.remove(0);
        assert_eq!((set.children.len(), set.more), (0, 0));
    }
}
