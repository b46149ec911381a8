//! An object among its owners and the objects that controllers manage for it.

use super::{Chip, Link};
use evenkeel_explain::Explained;
use evenkeel_runtime::introspect::Subject;
use std::fmt::Write as _;

/// An object of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Branch {
    /// Kind and name, with the object's page.
    pub(crate) link: Link,
    /// State of the object, if it is known.
    pub(crate) state: Option<Chip>,
    /// Whether the object needs attention: a controller has a next action or a wait for it, or has failed.
    pub(crate) attention: bool,
    /// Whether it is the object of the page.
    pub(crate) is_here: bool,
    /// Objects that depend on it.
    pub(crate) children: Vec<Branch>,
    /// Number of dependent objects that are not listed.
    pub(crate) more: usize,
}

/// Source of the pages and states of a tree's objects.
pub(crate) trait Look {
    /// Returns the page of an object. Empty if its kind is unknown.
    fn href(&self, subject: &Subject) -> String;
    /// Returns the state of an object, if it is known.
    fn state(&self, subject: &Subject) -> Option<Chip>;
}

/// Returns the tree of an object. `owners` are its owner, the owner's owner, and so on, each with whether it needs attention.
pub(crate) fn tree(look: &impl Look, explained: &Explained, owners: &[(Subject, bool)]) -> Branch {
    let mut branch = below(look, explained);
    branch.is_here = true;
    for (owner, attention) in owners {
        branch = Branch { children: vec![branch], ..leaf(look, owner, *attention) };
    }
    branch
}

fn leaf(look: &impl Look, subject: &Subject, attention: bool) -> Branch {
    Branch {
        link: Link::new(subject.to_string(), look.href(subject)),
        state: look.state(subject),
        attention,
        is_here: false,
        children: Vec::new(),
        more: 0,
    }
}

fn below(look: &impl Look, explained: &Explained) -> Branch {
    Branch {
        children: explained.children.iter().map(|child| below(look, child)).collect(),
        more: explained.more,
        ..leaf(look, &explained.object, explained.is_loud())
    }
}

impl Branch {
    /// Returns whether the object has neither owners nor dependent objects.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_here && self.children.is_empty() && self.more == 0
    }

    /// Returns the tree as nested lists in HTML. It is not a template, because a template cannot contain itself.
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

/// Escapes a string for HTML, as templates do.
fn escape(text: &str) -> String {
    askama::filters::escape(text, askama::filters::Html)
        .map(|escaped| escaped.to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::introspect::ObjectReport;

    struct Pages;

    impl Look for Pages {
        fn href(&self, subject: &Subject) -> String {
            format!("/{}", subject.name)
        }

        fn state(&self, subject: &Subject) -> Option<Chip> {
            (subject.kind == "Pod").then(|| Chip::of_state("Running"))
        }
    }

    fn pod(name: &str, would: &[&str]) -> Explained {
        let would = would.iter().map(|action| (*action).to_owned()).collect();
        let report = ObjectReport { exists: true, would, ..ObjectReport::default() };
        let object = Subject::new("", "Pod", "a", name);
        Explained { object, reports: vec![report], ..Explained::default() }
    }

    #[test]
    fn a_tree_has_owners_above_and_dependents_below() {
        let owner = (Subject::new("apps", "Deployment", "a", "<web>"), true);
        let set = Explained {
            object: Subject::new("apps", "ReplicaSet", "a", "set"),
            children: vec![pod("p0", &["delete it"]), pod("p1", &[])],
            more: 975,
            ..Explained::default()
        };
        let tree = tree(&Pages, &set, std::slice::from_ref(&owner));
        assert_eq!((&*tree.link.text, tree.attention), ("Deployment a/<web>", true));
        let here = &tree.children[0];
        assert!(here.is_here && !here.attention && !tree.is_here && !here.is_alone());
        let pods: Vec<_> = here.children.iter().map(|p| (&*p.link.text, p.attention)).collect();
        assert_eq!(pods, [("Pod a/p0", true), ("Pod a/p1", false)]);
        let html = tree.html();
        assert!(
            html.contains("<a href=\"/&#60;web&#62;\">Deployment a/&#60;web&#62;</a>"),
            "{html}"
        );
        assert!(html.contains("and 975 more"), "{html}");
        assert_eq!(html.matches("<ul").count(), html.matches("</ul>").count());
    }
}
