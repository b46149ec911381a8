//! An object among its owners and the objects that controllers manage for it.

use super::{Chip, Link, explain::needs_attention};
use evenkeel_runtime::introspect::{ObjectReport, Subject};
use std::{collections::HashSet, fmt::Write as _};

/// Maximum depth of dependent objects below the object of the page.
const MAX_DEPTH: usize = 3;
/// Maximum number of listed dependent objects of one object.
const MAX_CHILDREN: usize = 25;
/// Maximum number of objects in a tree.
const MAX_OBJECTS: usize = 150;

/// An object of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Branch {
    /// Kind and name, with the object's page.
    pub(crate) link: Link,
    /// State of the object, if it is known.
    pub(crate) state: Option<Chip>,
    /// Whether a controller acts on it, waits or failed.
    pub(crate) attention: bool,
    /// Whether it is the object of the page.
    pub(crate) is_here: bool,
    /// Objects that depend on it.
    pub(crate) children: Vec<Branch>,
    /// Number of dependent objects that are not listed.
    pub(crate) more: usize,
}

/// What the tree reads of objects.
pub(crate) trait Look {
    /// Returns the report of each controller that handles an object.
    fn reports(&self, subject: &Subject) -> Vec<ObjectReport>;
    /// Returns the page of an object. Empty if its kind is unknown.
    fn href(&self, subject: &Subject) -> String;
    /// Returns the state of an object, if it is known.
    fn state(&self, subject: &Subject) -> Option<Chip>;
}

/// Returns the tree of an object. `owners` are its owner, the owner's owner, and so on.
pub(crate) fn tree(look: &impl Look, subject: &Subject, owners: &[Subject]) -> Branch {
    let mut known: HashSet<Subject> = owners.iter().cloned().chain([subject.clone()]).collect();
    let mut branch = below(look, subject, 0, &mut known);
    branch.is_here = true;
    for owner in owners {
        branch = Branch { children: vec![branch], ..leaf(look, owner, &look.reports(owner)) };
    }
    branch
}

fn leaf(look: &impl Look, subject: &Subject, reports: &[ObjectReport]) -> Branch {
    Branch {
        link: Link::new(subject.to_string(), look.href(subject)),
        state: look.state(subject),
        attention: reports.iter().any(needs_attention),
        is_here: false,
        children: Vec::new(),
        more: 0,
    }
}

fn below(
    look: &impl Look,
    subject: &Subject,
    depth: usize,
    known: &mut HashSet<Subject>,
) -> Branch {
    let reports = look.reports(subject);
    let mut branch = leaf(look, subject, &reports);
    if depth == MAX_DEPTH {
        return branch;
    }
    for child in reports.iter().flat_map(|report| &report.children) {
        if known.contains(child) {
            continue;
        }
        if branch.children.len() == MAX_CHILDREN || known.len() >= MAX_OBJECTS {
            branch.more += 1;
            continue;
        }
        known.insert(child.clone());
        branch.children.push(below(look, child, depth + 1, known));
    }
    branch
}

impl Branch {
    /// Returns whether the object has neither owners nor dependent objects.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_here && self.children.is_empty() && self.more == 0
    }

    /// Returns the tree as nested lists in HTML. A template cannot contain itself.
    pub(crate) fn html(&self) -> String {
        let mut out = "<ul class=\"tree\">".to_owned();
        self.write(&mut out);
        out.push_str("</ul>");
        out
    }

    fn write(&self, out: &mut String) {
        let text = escape(&self.link.text);
        out.push_str("<li>");
        // Writing to a String cannot fail.
        let _ = match (self.is_here, &*self.link.href) {
            (true, _) => write!(out, "<strong aria-current=\"page\">{text}</strong>"),
            (false, "") => write!(out, "<span>{text}</span>"),
            (false, href) => write!(out, "<a href=\"{}\">{text}</a>", escape(href)),
        };
        if let Some(state) = &self.state {
            let _ =
                write!(out, " <span class=\"chip {}\">{}</span>", state.tone, escape(&state.text));
        }
        if self.attention {
            out.push_str(" <span class=\"note\">needs attention</span>");
        }
        if !self.children.is_empty() || self.more > 0 {
            out.push_str("<ul>");
            for child in &self.children {
                child.write(out);
            }
            if self.more > 0 {
                let _ = write!(out, "<li class=\"note\">and {} more</li>", self.more);
            }
            out.push_str("</ul>");
        }
        out.push_str("</li>");
    }
}

/// Escapes a text for HTML, as templates do.
fn escape(text: &str) -> String {
    askama::filters::escape(text, askama::filters::Html)
        .map(|escaped| escaped.to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set with this many pods, each with a child that is the set again.
    struct Set(usize);

    impl Look for Set {
        fn reports(&self, subject: &Subject) -> Vec<ObjectReport> {
            let children = match &*subject.kind {
                "ReplicaSet" => {
                    (0..self.0).map(|n| Subject::new("", "Pod", "a", &format!("p{n}"))).collect()
                }
                "Pod" => vec![Subject::new("apps", "ReplicaSet", "a", "set")],
                _ => Vec::new(),
            };
            let would =
                if subject.name == "p0" { vec!["delete it".to_owned()] } else { Vec::new() };
            vec![ObjectReport { exists: true, children, would, ..ObjectReport::default() }]
        }

        fn href(&self, subject: &Subject) -> String {
            format!("/{}", subject.name)
        }

        fn state(&self, subject: &Subject) -> Option<Chip> {
            (subject.kind == "Pod").then(|| Chip::of_state("Running"))
        }
    }

    #[test]
    fn a_tree_has_owners_above_and_dependents_below() {
        let (set, owner) = (
            Subject::new("apps", "ReplicaSet", "a", "set"),
            Subject::new("apps", "Deployment", "a", "<web>"),
        );
        let tree = tree(&Set(2), &set, std::slice::from_ref(&owner));
        assert_eq!(tree.link.text, "Deployment a/<web>");
        let here = &tree.children[0];
        assert!(here.is_here && !here.attention && !tree.is_here);
        let pods: Vec<_> =
            here.children.iter().map(|p| (&*p.link.text, p.attention, p.children.len())).collect();
        assert_eq!(pods, [("Pod a/p0", true, 0), ("Pod a/p1", false, 0)]);
        let html = tree.html();
        assert!(
            html.contains("<a href=\"/&#60;web&#62;\">Deployment a/&#60;web&#62;</a>"),
            "{html}"
        );
        assert_eq!(html.matches("<ul").count(), html.matches("</ul>").count());
    }

    #[test]
    fn a_large_tree_is_cut() {
        let set = Subject::new("apps", "ReplicaSet", "a", "set");
        let tree = tree(&Set(1000), &set, &[]);
        assert_eq!((tree.children.len(), tree.more), (MAX_CHILDREN, 1000 - MAX_CHILDREN));
        assert!(tree.html().contains("and 975 more"));
    }
}
