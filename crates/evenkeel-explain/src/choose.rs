//! Chooses dependents if there are more than a limit: first those that need attention, then the newest.

use crate::tree::Explained;
use evenkeel_runtime::introspect::{ObjectReport, Subject};

/// Maximum number of dependents of one object whose causes are read, so that the pods of one set do not use up the limit.
const MAX_OF_PARENT: usize = 10;

/// Returns at most `limit` objects whose causes are read, in the order of the output. Prefers the explained object, then
/// dependents that need attention, then others. At most [`MAX_OF_PARENT`] dependents of one object are among them.
pub(crate) fn chosen(explained: &Explained, limit: usize) -> Vec<&Subject> {
    let mut dependents = Vec::new();
    add_below(explained, &mut Vec::new(), &mut dependents);
    // The sort is stable: the newest are first among those that need attention, and among the others.
    dependents.sort_by_key(|dependent| !dependent.needs_attention);
    dependents.truncate(limit.saturating_sub(1));
    dependents.sort_by(|a, b| a.position.cmp(&b.position));
    let dependents = dependents.into_iter().map(|dependent| dependent.subject);
    std::iter::once(&explained.object).chain(dependents).take(limit).collect()
}

/// A dependent object that may be chosen.
struct Dependent<'a> {
    subject: &'a Subject,
    needs_attention: bool,
    /// Position in the output: the index of each ancestor among its siblings, then its own index.
    position: Vec<usize>,
}

fn add_below<'a>(parent: &'a Explained, path: &mut Vec<usize>, into: &mut Vec<Dependent<'a>>) {
    let needs_attention =
        |child: &Explained| child.is_loud() || is_named(&parent.reports, &child.object);
    let mut children: Vec<(usize, &Explained, bool)> = parent
        .children
        .iter()
        .enumerate()
        .map(|(index, child)| (index, child, needs_attention(child)))
        .collect();
    children.sort_by_key(|(index, child, needs_attention)| {
        (!needs_attention, rank(*index, &child.object))
    });
    children.truncate(MAX_OF_PARENT);
    for (index, child, needs_attention) in children {
        path.push(index);
        into.push(Dependent { subject: &child.object, needs_attention, position: path.clone() });
        add_below(child, path, into);
        path.pop();
    }
}

/// Returns for each child of an object whether it is explained. Selects `limit` children: first those that the object's
/// controllers wait for, then the newest revisions, and the first ones of other kinds.
pub(crate) fn kept(reports: &[ObjectReport], children: &[Subject], limit: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..children.len()).collect();
    order.sort_by_cached_key(|&index| {
        let child = &children[index];
        (!is_named(reports, child), rank(index, child))
    });
    let mut kept = vec![false; children.len()];
    for &index in order.iter().take(limit) {
        kept[index] = true;
    }
    kept
}

/// Returns the sort key of a child among those that equally need attention, by its index. The last revision is the newest.
fn rank(index: usize, child: &Subject) -> usize {
    if is_revision(child) { usize::MAX - index } else { index }
}

/// Returns whether dependents of this kind are revisions of their owner, which controllers name from the oldest to the newest.
fn is_revision(subject: &Subject) -> bool {
    matches!(&*subject.kind, "ReplicaSet" | "ControllerRevision")
}

/// Returns whether a controller waits for a dependent: a wait of the reports contains its name as a word.
fn is_named(reports: &[ObjectReport], subject: &Subject) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let has_name = |wait: &String| {
        let mut words = wait.split(|c: char| !is_part(c));
        words.any(|word| word.trim_end_matches('.') == &*subject.name)
    };
    reports.iter().flat_map(|report| &report.waits).any(has_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str, waits: &[&str], children: Vec<Explained>) -> Explained {
        let report = ObjectReport {
            exists: true,
            waits: waits.iter().map(|wait| (*wait).to_owned()).collect(),
            ..ObjectReport::default()
        };
        let object = Subject::new("", kind, "ns", name);
        Explained { object, reports: vec![report], children, ..Explained::default() }
    }

    fn pods(set: &str, number: usize) -> Vec<Explained> {
        (0..number).map(|n| object("Pod", &format!("{set}-{n}"), &[], Vec::new())).collect()
    }

    fn names(explained: &Explained, limit: usize) -> Vec<&str> {
        chosen(explained, limit).into_iter().map(|subject| &*subject.name).collect()
    }

    #[test]
    fn the_new_set_is_read_before_the_pods_of_old_ones() {
        let sets = vec![
            object("ReplicaSet", "old", &[], pods("old", 25)),
            object("ReplicaSet", "new", &[], pods("new", 3)),
        ];
        let web =
            object("Deployment", "web", &["0 of 3 pods of the new set new are available"], sets);
        assert_eq!(names(&web, 5), ["web", "new", "new-0", "new-1", "new-2"]);
        let all = names(&web, 30);
        assert_eq!(all.len(), 1 + 1 + 10 + 1 + 3, "ten pods of the old set: {all:?}");
        assert_eq!(all[..2], ["web", "old"], "in the order of the text");
        // Without a wait, the last one is the newest.
        let quiet = Explained { reports: Vec::new(), ..web };
        assert_eq!(names(&quiet, 3), ["web", "new", "new-0"]);
        assert_eq!(names(&quiet, 1), ["web"]);
    }

    #[test]
    fn pods_with_trouble_are_read_first() {
        let mut of_old = pods("old", 24);
        of_old.push(object("Pod", "old-24", &["back-off"], Vec::new()));
        let waits = &["pod new-2 is not Ready", "and new-1."];
        let sets = vec![
            object("ReplicaSet", "old", &[], of_old),
            object("ReplicaSet", "new", waits, pods("new", 12)),
        ];
        let web = object("Deployment", "web", &[], sets);
        // The set is loud itself.
        assert_eq!(names(&web, 5), ["web", "old-24", "new", "new-1", "new-2"]);
    }

    #[test]
    fn a_name_is_a_whole_word() {
        let report =
            |wait: &str| ObjectReport { waits: vec![wait.to_owned()], ..Default::default() };
        let pod = Subject::new("", "Pod", "ns", "web-1");
        for (wait, want) in [
            ("pod web-1 is not Ready", true),
            ("pod ns/web-1", true),
            ("web-1.", true),
            ("pod web-10 is not Ready", false),
            ("pod my-web-1", false),
            ("", false),
        ] {
            assert_eq!(is_named(&[report(wait)], &pod), want, "{wait}");
        }
    }

    #[test]
    fn of_many_revisions_the_newest_are_explained() {
        let subjects = |kind: &str| -> Vec<Subject> {
            (0..5).map(|n| Subject::new("", kind, "ns", &format!("x-{n}"))).collect()
        };
        let report = ObjectReport { waits: vec!["pods of x-2".to_owned()], ..Default::default() };
        let reports = [report];
        for (kind, reports, want) in [
            ("ReplicaSet", &[][..], [false, false, false, true, true]),
            ("ReplicaSet", &reports, [false, false, true, false, true]),
            ("Pod", &[], [true, true, false, false, false]),
            ("Pod", &reports, [true, false, true, false, false]),
        ] {
            assert_eq!(kept(reports, &subjects(kind), 2), want, "{kind} {}", reports.len());
        }
    }
}
