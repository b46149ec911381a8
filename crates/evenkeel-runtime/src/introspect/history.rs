//! Action history of a controller: its last passes (reconciles) and failures. Uses a limited amount of memory, and stores no
//! objects.

use super::types::{Failed, Pass};
use crate::{
    fast_map::FastMap,
    plan::{Action, Key, Outcomes, Target},
};
use evenkeel_api::{Kind, duration, time::Timestamp};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Maximum number of keys whose last pass is kept. The key that was added first is evicted first.
const MAX_KEYS: usize = 128;
/// Maximum number of keys in a history of all passes.
const MAX_KEYS_OF_ALL: usize = 1024;
/// Maximum number of failures that are kept.
const MAX_ERRORS: usize = 16;
/// Maximum number of actions of a pass that are kept.
const MAX_ACTIONS: usize = 4;
/// Maximum length of an error message in bytes. Longer messages, such as a server's, are truncated.
const MAX_ERROR_BYTES: usize = 500;

/// Summary of one write of a pass.
#[derive(Debug, Clone)]
pub(crate) struct RecordedAction {
    verb: &'static str,
    kind: Kind,
    namespace: Arc<str>,
    /// Name of the object. Empty for a create and for a deletion of a collection.
    name: Arc<str>,
    subresource: &'static str,
    count: u32,
    failed: bool,
}

/// Writes of a pass: the first few of them, and their total number.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedActions {
    first: Vec<RecordedAction>,
    count: usize,
}

impl RecordedActions {
    /// Adds the actions with their outcomes. Ignores actions that the pass did not reach, that were skipped, or that
    /// had no effect.
    pub(crate) fn add(&mut self, actions: &[Action], outcomes: &Outcomes) {
        for (action, outcome) in actions.iter().zip(&outcomes.0) {
            let Some(mut recorded_action) = recorded_action(action) else { continue };
            if outcome.succeeded == 0 && outcome.error.is_none() {
                continue;
            }
            self.count += 1;
            if self.first.len() < MAX_ACTIONS {
                recorded_action.failed = outcome.error.is_some();
                if recorded_action.verb == "create" {
                    recorded_action.count = if recorded_action.failed {
                        recorded_action.count
                    } else {
                        outcome.succeeded
                    };
                }
                self.first.push(recorded_action);
            }
        }
    }

    /// Adds one write of a reconcile function.
    pub(crate) fn add_write(
        &mut self,
        verb: &'static str,
        target: &Target,
        subresource: &'static str,
        failed: bool,
    ) {
        self.count += 1;
        if self.first.len() < MAX_ACTIONS {
            self.first.push(RecordedAction { failed, ..on_target(verb, target, subresource) });
        }
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn describe(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.first.iter().map(RecordedAction::describe).collect();
        let more = self.count - self.first.len();
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines
    }
}

fn on_target(verb: &'static str, target: &Target, subresource: &'static str) -> RecordedAction {
    RecordedAction {
        verb,
        kind: target.kind.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        subresource,
        count: 1,
        failed: false,
    }
}

fn recorded_action(action: &Action) -> Option<RecordedAction> {
    Some(match action {
        Action::Create(create) => RecordedAction {
            verb: "create",
            kind: create.kind.clone(),
            namespace: create.namespace.clone(),
            name: Arc::from(""),
            subresource: "",
            count: create.count,
            failed: false,
        },
        Action::Delete(delete) => on_target("delete", &delete.target, ""),
        Action::DeleteCollection(delete) => RecordedAction {
            verb: "delete all",
            kind: delete.kind.clone(),
            namespace: delete.namespace.clone(),
            name: Arc::from(""),
            subresource: "",
            count: 1,
            failed: false,
        },
        Action::Patch(patch) => on_target("patch", &patch.target, patch.subresource),
        Action::Update(update) => on_target("update", &update.target, update.subresource),
        Action::Rewrite(rewrite) => on_target("update", &rewrite.target, rewrite.subresource),
        Action::Event(_) | Action::Read(_) | Action::Local(_) => return None,
    })
}

impl RecordedAction {
    fn describe(&self) -> String {
        let Self { verb, kind, namespace, name, subresource, count, failed } = self;
        let suffix = if *failed { ": failed" } else { "" };
        if name.is_empty() {
            let in_namespace =
                if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
            return format!("{verb} {count} {}{in_namespace}{suffix}", kind.kind);
        }
        let subresource_of =
            if subresource.is_empty() { String::new() } else { format!("{subresource} of ") };
        let slash = if namespace.is_empty() { "" } else { "/" };
        format!("{verb} {subresource_of}{} {namespace}{slash}{name}{suffix}", kind.kind)
    }
}

/// The last pass over a key.
#[derive(Debug, Clone)]
struct Record {
    at: Timestamp,
    took: Duration,
    recorded: RecordedActions,
    /// Delay after which the key is reconciled again.
    again: Option<Duration>,
    error: Option<Arc<str>>,
    /// Reason why the key was queued.
    because: Option<Box<str>>,
}

/// Last passes and failures of one controller, in a limited amount of memory.
#[derive(Debug, Default)]
pub struct History {
    state: Mutex<State>,
    /// Whether passes without actions and failures are kept too.
    of_all: bool,
}

/// Recent passes and errors of a controller.
#[derive(Debug, Default)]
struct State {
    /// Last pass by key.
    last: FastMap<Key, Record>,
    /// Keys of the entries, in the order in which they were added.
    order: VecDeque<Key>,
    errors: VecDeque<(Key, Timestamp, Arc<str>)>,
}

impl History {
    /// Creates a history that also keeps passes without actions and failures.
    pub(crate) fn of_all() -> Self {
        Self { of_all: true, ..Self::default() }
    }

    /// Records that a pass over `key` failed at this time. This is for controllers without a [`crate::controller::Builder`].
    pub fn failed(&self, key: &Key, at: Timestamp, error: &str) {
        self.passed(key, at, Duration::ZERO, RecordedActions::default(), None, Err(error));
    }

    /// Records the end of a pass over `key`. A pass without actions or failure only updates an existing entry, unless the
    /// history is of all passes.
    pub(crate) fn passed(
        &self,
        key: &Key,
        at: Timestamp,
        took: Duration,
        recorded: RecordedActions,
        because: Option<String>,
        result: Result<Option<Duration>, &str>,
    ) {
        let mut state = self.lock();
        let error = result.err().map(|error| Arc::from(truncate(error)));
        if let Some(error) = &error {
            if state.errors.len() == MAX_ERRORS {
                state.errors.pop_front();
            }
            state.errors.push_back((key.clone(), at, Arc::clone(error)));
        }
        let (again, because) = (result.ok().flatten(), because.map(String::into_boxed_str));
        if let Some(known) = state.last.get_mut(key) {
            // A later pass without actions does not hide the last actions.
            let recorded = if recorded.is_empty() && error.is_none() {
                std::mem::take(&mut known.recorded)
            } else {
                recorded
            };
            *known = Record { at, took, recorded, again, error, because };
            return;
        }
        if recorded.is_empty() && error.is_none() && !self.of_all {
            return;
        }
        if state.order.len() == if self.of_all { MAX_KEYS_OF_ALL } else { MAX_KEYS }
            && let Some(oldest) = state.order.pop_front()
        {
            state.last.remove(&oldest);
        }
        state.order.push_back(key.clone());
        state.last.insert(key.clone(), Record { at, took, recorded, again, error, because });
    }

    /// Returns the last pass over `key`, if it is kept.
    pub fn last(&self, key: &Key) -> Option<Pass> {
        self.lock().last.get(key).map(|record| record.to_pass(key))
    }

    /// Returns the last passes with actions or a failure, newest first, at most `max`.
    pub(crate) fn passes(&self, max: usize) -> Vec<Pass> {
        let state = self.lock();
        let is_notable = |record: &Record| !record.recorded.is_empty() || record.error.is_some();
        let notable = state.last.iter().filter(|(_, record)| is_notable(record));
        let mut passes: Vec<Pass> = notable.map(|(key, record)| record.to_pass(key)).collect();
        passes.sort_by(|a, b| b.at.cmp(&a.at).then_with(|| a.key.cmp(&b.key)));
        passes.truncate(max);
        passes
    }

    /// Returns the last failures, newest first.
    pub fn errors(&self) -> Vec<Failed> {
        let to_failed = |(key, at, error): &(Key, Timestamp, Arc<str>)| Failed {
            key: key.to_string(),
            at: *at,
            error: error.to_string(),
        };
        self.lock().errors.iter().rev().map(to_failed).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    /// Converts the entry to the pass in a report.
    fn to_pass(&self, key: &Key) -> Pass {
        let ended = match (&self.error, self.again) {
            (Some(_), _) => "failed".to_owned(),
            (None, Some(again)) => format!("again in {}", format_duration(again)),
            (None, None) => "settled".to_owned(),
        };
        Pass {
            key: key.to_string(),
            at: self.at,
            seconds: self.took.as_secs_f64(),
            did: self.recorded.describe(),
            because: self.because.as_deref().map(str::to_owned),
            ended,
            error: self.error.as_deref().map(str::to_owned),
        }
    }
}

/// Formats a duration as Go does, with a precision of a millisecond, or of a second for durations of at least 10 s.
pub(crate) fn format_duration(time: Duration) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 1_000_000);
    let nanos =
        if time.as_secs() >= 10 { millis / 1000 * 1_000_000_000 } else { millis * 1_000_000 };
    duration::format(nanos)
}

/// Truncates a message to [`MAX_ERROR_BYTES`].
fn truncate(text: &str) -> String {
    let mut end = text.len().min(MAX_ERROR_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Create, Delete, Outcome, Target};

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);
    const AT: Timestamp = Timestamp::UNIX_EPOCH;
    const TOOK: Duration = Duration::from_millis(3);

    /// Returns the actions of a pass: a create with two of three successes, a skipped delete, and five deletes.
    fn recorded() -> RecordedActions {
        let mut actions: Vec<Action> =
            vec![Create { count: 3, ..Create::new(PODS, "ns", "{}") }.into()];
        let delete = |name: &str| Action::from(Delete::new(Target::new(PODS, "ns", name, "u")));
        actions.push(delete("skipped"));
        actions.extend((0..5).map(|n| delete(&format!("p{n}"))));
        let mut outcomes = Outcomes(vec![Outcome { succeeded: 2, ..Outcome::default() }]);
        outcomes.0.push(Outcome::default());
        outcomes.0.extend(vec![Outcome::success(); 5]);
        let mut recorded = RecordedActions::default();
        recorded.add(&actions, &outcomes);
        recorded
    }

    #[test]
    fn a_pass_lists_four_actions_and_the_number_of_others() {
        let history = History::default();
        let key = Key::new("ns", "a");
        history.passed(&key, AT, TOOK, recorded(), None, Ok(Some(Duration::from_secs(570))));
        let pass = history.last(&key).unwrap();
        let did = [
            "create 2 Pod in ns",
            "delete Pod ns/p0",
            "delete Pod ns/p1",
            "delete Pod ns/p2",
            "and 2 more",
        ];
        assert_eq!(pass.did, did);
        assert_eq!(pass.ended, "again in 9m30s");
        history.passed(&key, AT, TOOK, RecordedActions::default(), None, Ok(None));
        let pass = history.last(&key).unwrap();
        assert_eq!((pass.did.len(), &*pass.ended), (5, "settled"));
    }

    #[test]
    fn the_number_and_size_of_entries_are_limited() {
        let history = History::default();
        for n in 0..1000 {
            let key = Key::new("ns", &n.to_string());
            history.passed(
                &key,
                AT,
                TOOK,
                RecordedActions::default(),
                None,
                Err(&"é".repeat(n * 100)),
            );
        }
        assert_eq!(history.passes(usize::MAX).len(), MAX_KEYS);
        let errors = history.errors();
        assert_eq!((errors.len(), &*errors[0].key), (MAX_ERRORS, "ns/999"));
        assert!(errors[0].error.len() <= MAX_ERROR_BYTES + "…".len());
        assert!(history.last(&Key::new("ns", "1")).is_none());
    }

    #[test]
    fn passes_without_actions_are_not_kept() {
        let history = History::default();
        history.passed(&Key::new("ns", "a"), AT, TOOK, RecordedActions::default(), None, Ok(None));
        assert!(history.passes(10).is_empty());
    }

    #[test]
    fn a_history_of_all_passes_knows_idle_ones_with_their_causes() {
        let (history, key) = (History::of_all(), Key::new("ns", "a"));
        let because = Some("Secret ns/a was added".to_owned());
        history.passed(&key, AT, TOOK, RecordedActions::default(), because.clone(), Ok(None));
        let pass = history.last(&key).unwrap();
        assert_eq!((pass.because, &*pass.ended), (because, "settled"));
        assert!(history.passes(10).is_empty(), "it is not notable");
    }
}
