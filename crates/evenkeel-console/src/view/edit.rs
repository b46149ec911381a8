//! Preview of an edit: the changed fields, and the actions of the controllers and the scheduler before and after.

use super::{Link, object::shown, scheduling::scheduling};
use crate::route::{ObjectPath, controller_href};
use askama::Template;
use evenkeel_api::{View as _, views::Node};
use evenkeel_explain::Explained;
use evenkeel_runtime::introspect::{ObjectReport, Subject};
use evenkeel_scheduler::explain::{Explained as Scheduled, NodeExplained};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum length of an object's YAML in bytes. The server accepts forms of this size.
const MAX_TEXT: usize = 200_000;
/// Maximum number of changed fields on a page.
const MAX_ROWS: usize = 200;
/// Maximum length of a field's value on a page.
const MAX_VALUE: usize = 600;
/// Maximum number of nodes that are listed because the scheduler's result differs.
const MAX_NODES: usize = 20;

/// Metadata that the API server sets. The form leaves it out.
const SERVER_METADATA: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];

/// Page of an edit.
#[derive(Debug, Clone, Template)]
#[template(path = "edit.html")]
pub(crate) struct EditPage {
    /// Kind of the object.
    pub(crate) kind: String,
    /// Namespace. Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    /// Name of the object.
    pub(crate) name: String,
    /// Page of the object.
    pub(crate) object: String,
    /// Path to which the form is sent.
    pub(crate) action: String,
    /// Token of the form.
    pub(crate) form_token: String,
    /// The object's fields as YAML, or the text of the form.
    pub(crate) text: String,
    /// Path to which a what-if with the object is sent. Empty if what-ifs are not available.
    pub(crate) what_if: &'static str,
    /// Preview of the text. `None` before the form is sent.
    pub(crate) outcome: Option<Outcome>,
}

/// Preview of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The text or the API server refuses the edit.
    Refused(Refused),
    /// The edit changes nothing.
    Unchanged,
    /// The API server would accept the edit.
    Admitted {
        /// Fields that would change.
        rows: Vec<FieldRow>,
        /// Actions of the controllers and the scheduler.
        compared: Compared,
        /// Reason why these are unknown. Empty if they are known.
        error: String,
    },
}

impl Outcome {
    /// Returns a refusal without fields.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::Refused(Refused { message: message.into(), causes: Vec::new() })
    }
}

/// Refusal of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Reason of the refusal.
    pub(crate) message: String,
    /// Fields with their errors.
    pub(crate) causes: Vec<(String, String)>,
}

/// A field that would change, or whose change the API server would ignore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldRow {
    /// Path of the field, such as `spec.template.spec.containers[name=web].image`.
    pub(crate) path: String,
    /// Value now. Empty without the field.
    pub(crate) before: String,
    /// Value after the edit. Empty without the field.
    pub(crate) after: String,
    /// Origin of the change.
    pub(crate) by: ChangedBy,
}

/// Origin of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangedBy {
    /// The edit itself.
    Edit,
    /// The API server: by admission or a default.
    Server,
    /// No one: the API server would ignore this part of the edit.
    Nobody,
}

impl ChangedBy {
    /// Returns the words for a page.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Edit => "the edit",
            Self::Server => "the API server",
            Self::Nobody => "not taken",
        }
    }

    /// Returns the class of its chip.
    pub(crate) fn tone(self) -> &'static str {
        match self {
            Self::Edit => "good",
            Self::Server => "quiet",
            Self::Nobody => "warn",
        }
    }
}

/// Returns the fields of an object that can be edited, as YAML. `None` if they are too large for a form.
pub(crate) fn editable(live: &Value) -> Option<String> {
    let mut object = shown(live.clone());
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| !SERVER_METADATA.contains(&name.as_str()));
        }
    }
    serde_saphyr::to_string(&object).ok().filter(|text| text.len() <= MAX_TEXT)
}

/// Returns an edited object with the live object's fields that the form leaves out.
///
/// # Errors
/// Fails if the text is not an object, or names another object.
pub(crate) fn merged(mut edited: Value, live: &Value) -> Result<Value, String> {
    let Some(fields) = edited.as_object_mut() else {
        return Err("The text is not an object with apiVersion, kind and metadata.".to_owned());
    };
    for field in ["apiVersion", "kind"] {
        if fields.get(field) != live.get(field) {
            let want = live[field].as_str().unwrap_or_default();
            return Err(format!("{field}: an edit cannot change it; write {want}."));
        }
    }
    if let Some(status) = live.get("status") {
        fields.entry("status").or_insert_with(|| status.clone());
    }
    let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Err("metadata: the object has none.".to_owned());
    };
    for field in ["name", "namespace"] {
        if metadata.get(field) != live["metadata"].get(field) {
            let want = live["metadata"][field].as_str().unwrap_or_default();
            return Err(format!("metadata.{field}: an edit cannot change it; write {want}."));
        }
    }
    for field in ["creationTimestamp", "generation", "resourceVersion", "uid"] {
        if let Some(value) = live["metadata"].get(field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    Ok(edited)
}

/// Returns the fields that differ among the live object, the edited object, and the object that the API server would store.
pub(crate) fn rows(live: &Value, edited: &Value, admitted: &Value) -> Vec<FieldRow> {
    let cleaned = [live, edited, admitted].map(|object| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| !SERVER_METADATA.contains(&name.as_str()));
        }
        object
    });
    let mut rows = Vec::new();
    differences("", [Some(&cleaned[0]), Some(&cleaned[1]), Some(&cleaned[2])], &mut rows);
    rows
}

fn differences(path: &str, values: [Option<&Value>; 3], rows: &mut Vec<FieldRow>) {
    let [live, edited, admitted] = values;
    if (live == edited && edited == admitted) || rows.len() >= MAX_ROWS {
        return;
    }
    let present: Vec<&Value> = values.into_iter().flatten().collect();
    if live.is_some() && admitted.is_some() && present.iter().all(|value| value.is_object()) {
        let mut names: Vec<&String> =
            present.iter().filter_map(|it| it.as_object()).flat_map(Map::keys).collect();
        names.sort();
        names.dedup();
        for name in names {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            differences(&path, values.map(|value| value?.get(name)), rows);
        }
        return;
    }
    if live.is_some() && admitted.is_some() && present.iter().all(|value| value.is_array()) {
        let lists = values.map(|value| value.and_then(Value::as_array).map(Vec::as_slice));
        if let Some(key) = key_of(&lists) {
            let mut found: Vec<&str> = Vec::new();
            for name in
                lists.iter().flatten().flat_map(|it| it.iter()).filter_map(|i| i[key].as_str())
            {
                if !found.contains(&name) {
                    found.push(name);
                }
            }
            for name in found {
                let item = |list: Option<&'_ [Value]>| -> Option<usize> {
                    list?.iter().position(|item| item[key] == name)
                };
                let items = lists.map(|list| list.and_then(|all| all.get(item(list)?)));
                differences(&format!("{path}[{key}={name}]"), items, rows);
            }
            return;
        }
        let longest = lists.iter().flatten().map(|list| list.len()).max().unwrap_or_default();
        for index in 0..longest {
            let items = lists.map(|list| list?.get(index));
            differences(&format!("{path}[{index}]"), items, rows);
        }
        return;
    }
    let by = match (live == admitted, edited == admitted) {
        (true, _) => ChangedBy::Nobody,
        (_, true) => ChangedBy::Edit,
        _ => ChangedBy::Server,
    };
    let after = if by == ChangedBy::Nobody { edited } else { admitted };
    rows.push(FieldRow { path: path.to_owned(), before: text(live), after: text(after), by });
}

/// Returns the field that identifies the items in all these lists.
fn key_of(lists: &[Option<&[Value]>; 3]) -> Option<&'static str> {
    let is_key = |key: &&'static str| {
        lists.iter().flatten().all(|list| {
            let mut names: Vec<&str> = list.iter().filter_map(|item| item[*key].as_str()).collect();
            let all = names.len() == list.len();
            names.sort_unstable();
            names.dedup();
            all && names.len() == list.len()
        })
    };
    ["name", "mountPath", "type", "key"].into_iter().find(is_key)
}

/// Returns a value for a page: a string unchanged, other values as YAML.
fn text(value: Option<&Value>) -> String {
    let text = match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Object(_) | Value::Array(_))) => {
            serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string())
        }
        Some(value) => value.to_string(),
    };
    super::shorten(text.trim_end(), MAX_VALUE)
}

/// Actions of a controller on an object before and after an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    object: Subject,
    controller: String,
    before: Vec<Step>,
    after: Vec<Step>,
}

/// An action of a controller, or a reason why it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// Words of the controller.
    pub(crate) text: String,
    /// Whether the step is a reason to wait.
    pub(crate) is_wait: bool,
    /// Whether the other side lacks it.
    pub(crate) differs: bool,
}

fn steps(report: &ObjectReport) -> Vec<Step> {
    let step = |is_wait| move |text: &String| Step { text: text.clone(), is_wait, differs: false };
    report.would.iter().map(step(false)).chain(report.waits.iter().map(step(true))).collect()
}

/// Pairs the reports of two explanations, in the order of the second one.
pub(crate) fn pairs(before: &Explained, after: &Explained) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for (explained, is_after) in [(after, true), (before, false)] {
        each(explained, &mut |object, report| {
            let is_same =
                |pair: &Pair| pair.object == *object && pair.controller == report.controller;
            let index = pairs.iter().position(is_same).unwrap_or_else(|| {
                pairs.push(Pair {
                    object: object.clone(),
                    controller: report.controller.clone(),
                    before: Vec::new(),
                    after: Vec::new(),
                });
                pairs.len() - 1
            });
            let side = match is_after {
                true => &mut pairs[index].after,
                false => &mut pairs[index].before,
            };
            *side = steps(report);
        });
    }
    for Pair { before, after, .. } in &mut pairs {
        for step in before.iter_mut() {
            step.differs = !after.iter().any(|other| is_alike(step, other));
        }
        for step in after.iter_mut() {
            step.differs = !before.iter().any(|other| is_alike(step, other));
        }
    }
    pairs
}

fn each(explained: &Explained, call: &mut impl FnMut(&Subject, &ObjectReport)) {
    for report in &explained.reports {
        call(&explained.object, report);
    }
    for child in &explained.children {
        each(child, call);
    }
}

/// Returns whether two steps differ at most in times and durations, which pass between two reports.
fn is_alike(one: &Step, other: &Step) -> bool {
    let is_time = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(['s', 'm', 'h', 'd', 'Z'])
    };
    let words = |text: &str| -> Vec<String> {
        let words = text.split_whitespace();
        words.map(|word| if is_time(word) { String::new() } else { word.to_owned() }).collect()
    };
    one.is_wait == other.is_wait && words(&one.text) == words(&other.text)
}

/// Actions of the controllers and the scheduler before and after an edit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    /// Controllers with an action or a reason to wait. Controllers with differences are first.
    pub(crate) rows: Vec<ComparedRow>,
    /// Number of rows that differ.
    pub(crate) differing: usize,
    /// Number of controllers without actions and waits on either side.
    pub(crate) quiet: usize,
    /// The scheduler's results. `None` for other objects than pods, and if the user may not see nodes and pods.
    pub(crate) scheduler: Option<SchedulerPair>,
}

/// Actions of a controller on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ComparedRow {
    /// The object, with its page.
    pub(crate) object: Link,
    /// The controller, with its page.
    pub(crate) controller: Link,
    /// Steps without the edit.
    pub(crate) before: Vec<Step>,
    /// Steps after the edit.
    pub(crate) after: Vec<Step>,
    /// Whether a step differs.
    pub(crate) differs: bool,
}

/// Returns the rows of a page. `href` returns the page of an object.
pub(crate) fn compared(pairs: Vec<Pair>, href: impl Fn(&Subject) -> String) -> Compared {
    let all = pairs.len();
    let mut rows: Vec<ComparedRow> = pairs
        .into_iter()
        .filter(|pair| !pair.before.is_empty() || !pair.after.is_empty())
        .map(|Pair { object, controller, before, after }| ComparedRow {
            object: Link::new(object.to_string(), href(&object)),
            controller: Link::new(&*controller, controller_href(&controller)),
            differs: before.iter().chain(&after).any(|step| step.differs),
            before,
            after,
        })
        .collect();
    rows.sort_by_key(|row| !row.differs);
    Compared {
        differing: rows.iter().filter(|row| row.differs).count(),
        quiet: all - rows.len(),
        rows,
        scheduler: None,
    }
}

/// Results of the scheduler before and after an edit of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchedulerPair {
    /// Outcome now, and after the edit.
    pub(crate) outcomes: [String; 2],
    /// Nodes with different results: their pages, and the results now and after the edit.
    pub(crate) nodes: Vec<(Link, [String; 2])>,
    /// Number of further nodes.
    pub(crate) more: usize,
    /// Whether the pod already has a node, so that the results are only informative.
    pub(crate) is_placed: bool,
}

impl SchedulerPair {
    /// Compares two results. `None` stands for a pod that no profile of the schedulers selects.
    pub(crate) fn of(
        before: Option<&Scheduled>,
        after: Option<&Scheduled>,
        is_placed: bool,
    ) -> Self {
        let outcome = |explained: Option<&Scheduled>| match explained {
            None => "No scheduler has a profile for the pod: see spec.schedulerName.".to_owned(),
            Some(explained) => {
                let page = scheduling("", "", "", explained);
                match page.message.is_empty() {
                    true => page.outcome,
                    false => page.message,
                }
            }
        };
        let answers = |explained: Option<&Scheduled>| -> BTreeMap<String, String> {
            let nodes = explained.map(|explained| &*explained.nodes).unwrap_or_default();
            nodes.iter().map(|node| (node.node.to_string(), answer(node))).collect()
        };
        let (now, then) = (answers(before), answers(after));
        let names: std::collections::BTreeSet<&String> = now.keys().chain(then.keys()).collect();
        let of = |side: &BTreeMap<String, String>, name: &str| {
            side.get(name).cloned().unwrap_or_else(|| "left out".to_owned())
        };
        let mut nodes: Vec<(Link, [String; 2])> = names
            .into_iter()
            .map(|name| (name, [of(&now, name), of(&then, name)]))
            .filter(|(_, [now, then])| now != then)
            .map(|(name, answers)| {
                (Link::new(name, ObjectPath::of(&Node::kind(), "", name).href()), answers)
            })
            .collect();
        let more = nodes.len().saturating_sub(MAX_NODES);
        nodes.truncate(MAX_NODES);
        Self { outcomes: [outcome(before), outcome(after)], nodes, more, is_placed }
    }

    /// Returns whether the results differ.
    pub(crate) fn differs(&self) -> bool {
        !self.nodes.is_empty() || self.outcomes[0] != self.outcomes[1]
    }
}

/// Returns the scheduler's result for a node. Scores are left out, because each change of the cluster changes them.
fn answer(node: &NodeExplained) -> String {
    match &node.refused {
        None => "feasible".to_owned(),
        Some(refusal) => format!("{}: {}", refusal.plugin, refusal.reasons.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(replicas: u32, image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [
                {"name": "side", "image": "s"}, {"name": "web", "image": image},
            ]}}},
            "status": {"replicas": 2},
        })
    }

    #[test]
    fn a_form_leaves_out_what_the_server_sets_and_an_edit_gets_it_back() {
        let live = deployment(2, "a");
        let text = editable(&live).expect("a text");
        for hidden in ["uid", "resourceVersion", "generation", "status"] {
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
        let edited: Value = serde_saphyr::from_str(&text).expect("YAML");
        assert_eq!(merged(edited, &live), Ok(live.clone()));
        let large = json!({"data": "x".repeat(MAX_TEXT)});
        assert_eq!(editable(&large), None);
    }

    #[test]
    fn an_edit_is_of_the_same_object() {
        let live = deployment(2, "a");
        for (pointer, value, want) in [
            ("/kind", json!("Job"), "kind: an edit cannot change it; write Deployment."),
            ("/metadata/name", json!("x"), "metadata.name: an edit cannot change it; write web."),
            ("/metadata/namespace", json!("x"), "metadata.namespace: an edit cannot"),
            ("/metadata", json!(1), "metadata: the object has none."),
        ] {
            let mut edited = live.clone();
            *edited.pointer_mut(pointer).expect("a field") = value;
            let error = merged(edited, &live).expect_err(pointer);
            assert!(error.starts_with(want), "{error}");
        }
        assert!(merged(json!([]), &live).is_err());
    }

    #[test]
    fn changed_fields_have_paths_and_who_changes_them() {
        let (live, edited) = (deployment(2, "a"), deployment(3, "b"));
        let mut edited = edited;
        edited["spec"]["nonsense"] = json!(true);
        let mut admitted = deployment(3, "b");
        admitted["metadata"]["generation"] = json!(4);
        admitted["metadata"]["annotations"] = json!({"added": "yes"});
        let rows = rows(&live, &edited, &admitted);
        let shown: Vec<_> =
            rows.iter().map(|row| (&*row.path, &*row.before, &*row.after, row.by)).collect();
        let want = [
            ("metadata.annotations", "", "added: yes", ChangedBy::Server),
            ("spec.nonsense", "", "true", ChangedBy::Nobody),
            ("spec.replicas", "2", "3", ChangedBy::Edit),
            ("spec.template.spec.containers[name=web].image", "a", "b", ChangedBy::Edit),
        ];
        assert_eq!(shown.len(), want.len(), "{shown:?}");
        for (shown, want) in shown.iter().zip(&want) {
            // YAML may quote the word.
            assert_eq!((shown.0, shown.1, shown.3), (want.0, want.1, want.3));
            assert_eq!(shown.2.replace(['"', '\''], ""), want.2);
        }
        assert!(super::rows(&live, &live, &live).is_empty());
    }

    #[test]
    fn items_of_a_list_are_found_by_their_names() {
        let list = |names: &[&str]| json!({"c": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()});
        let (one, two) = (list(&["a", "b"]), list(&["b"]));
        let removed = rows(&one, &two, &two);
        assert_eq!(removed.len(), 1);
        assert_eq!((&*removed[0].path, removed[0].by), ("c[name=a]", ChangedBy::Edit));
        let plain = rows(&json!({"c": ["a", "b"]}), &json!({"c": ["b"]}), &json!({"c": ["b"]}));
        let paths: Vec<_> = plain.iter().map(|row| &*row.path).collect();
        assert_eq!(paths, ["c[0]", "c[1]"]);
    }

    fn explained(object: &Subject, reports: &[(&str, &[&str], &[&str])]) -> Explained {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let report = |(controller, would, waits): &(&str, &[&str], &[&str])| ObjectReport {
            controller: (*controller).to_owned(),
            would: texts(would),
            waits: texts(waits),
            ..ObjectReport::default()
        };
        let reports = reports.iter().map(report).collect();
        Explained { object: object.clone(), reports, ..Explained::default() }
    }

    #[test]
    fn actions_that_only_one_side_has_are_marked_and_first() {
        let web = Subject::new("apps", "Deployment", "shop", "web");
        let old = Subject::new("apps", "ReplicaSet", "shop", "old");
        let mut before = explained(
            &web,
            &[("waiting", &[], &["due in 9m57s"]), ("d", &["old"], &[]), ("q", &[], &[])],
        );
        before.children.push(explained(&old, &[("r", &["delete p"], &[])]));
        let after = explained(
            &web,
            &[("waiting", &[], &["due in 9m56s"]), ("d", &["scale to 5"], &[]), ("q", &[], &[])],
        );
        let compared = compared(pairs(&before, &after), |subject| format!("/{}", subject.name));
        let shown: Vec<_> = compared
            .rows
            .iter()
            .map(|row| (&*row.object.href, &*row.controller.text, row.differs))
            .collect();
        let want = [("/web", "d", true), ("/old", "r", true), ("/web", "waiting", false)];
        assert_eq!(shown, want);
        assert_eq!((compared.differing, compared.quiet), (2, 1));
        let row = &compared.rows[0];
        assert_eq!((&*row.before[0].text, row.before[0].differs), ("old", true));
        assert_eq!((&*row.after[0].text, row.after[0].differs), ("scale to 5", true));
        assert!(compared.rows[1].after.is_empty());
    }

    #[test]
    fn nodes_whose_answers_differ_are_listed() {
        let node = |name: &str, refused: bool| NodeExplained {
            node: name.into(),
            refused: refused.then(|| evenkeel_scheduler::explain::Refusal {
                plugin: "NodeAffinity",
                reasons: vec!["no".to_owned()],
            }),
            scores: Vec::new(),
            total: 0,
        };
        let scheduled = |refused: bool| Scheduled {
            scheduler: "default-scheduler".to_owned(),
            overall: None,
            nodes: vec![node("a", false), node("b", refused)],
            message: None,
            evictions: Vec::new(),
        };
        let (before, after) = (scheduled(true), scheduled(false));
        let pair = SchedulerPair::of(Some(&before), Some(&after), false);
        assert!(pair.differs());
        assert_eq!(pair.nodes.len(), 1);
        assert_eq!(pair.nodes[0].1, ["NodeAffinity: no".to_owned(), "feasible".to_owned()]);
        assert!(pair.outcomes[1].starts_with("2 of 2 nodes are feasible"), "{pair:?}");
        assert!(!SchedulerPair::of(Some(&after), Some(&after), false).differs());
    }

    #[test]
    fn pages_escape_texts() {
        let page = EditPage {
            kind: "Pod".to_owned(),
            namespace: "a".to_owned(),
            name: "p".to_owned(),
            object: "/object".to_owned(),
            action: "/edit".to_owned(),
            form_token: "t".to_owned(),
            text: "</textarea><script>".to_owned(),
            what_if: "/what-if",
            outcome: Some(Outcome::refused("<script>")),
        };
        let html = page.render().expect("rendered");
        assert!(!html.contains("<script"), "{html}");
        let admitted = Outcome::Admitted {
            rows: vec![FieldRow {
                path: "<script>".to_owned(),
                before: "<script>".to_owned(),
                after: String::new(),
                by: ChangedBy::Edit,
            }],
            compared: Compared::default(),
            error: "<script>".to_owned(),
        };
        let html = EditPage { outcome: Some(admitted), ..page }.render().expect("rendered");
        assert!(!html.contains("<script"), "{html}");
    }
}
