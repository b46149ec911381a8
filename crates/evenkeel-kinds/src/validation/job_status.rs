//! Validation of a Job's status. Either the built-in controller writes it, or the controller that `spec.managedBy`
//! names. Most rules apply only if a field that they read has changed. Other fields can therefore be updated even if the
//! stored status breaks a rule.
//!
//! Upstream: `getStatusValidationOptions`, `validateJobStatus`, `ValidateJobStatusUpdate`.

use super::job_policies::{count_of_indexes, index_interval};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{flag, get, int, list, same, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Job with accessors of the fields that these rules read.
#[derive(Clone, Copy)]
struct Job<'a>(&'a Value);

impl<'a> Job<'a> {
    fn has_condition(self, condition_type: &str, status: &str) -> bool {
        list(self.0, "status.conditions").iter().any(|condition| {
            text(condition, "type") == condition_type && text(condition, "status") == status
        })
    }

    fn is_true(self, condition_type: &str) -> bool {
        self.has_condition(condition_type, "True")
    }

    fn is_finished(self) -> bool {
        self.is_true("Complete") || self.is_true("Failed")
    }

    /// Returns a field of the status.
    fn status(self, field: &str) -> Option<&'a Value> {
        self.0.get("status").and_then(|status| get(status, field))
    }

    fn count(self, field: &str) -> i64 {
        self.status(field).and_then(Value::as_i64).unwrap_or_default()
    }

    fn text(self, field: &str) -> &'a str {
        self.status(field).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Update of a Job's status: the new Job, the stored Job, and the path of the status for errors.
struct Update<'a> {
    new: Job<'a>,
    old: Job<'a>,
    status: Path<'a>,
}

/// Validates an update of a Job's status.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let update = Update { new: Job(new), old: Job(old), status: Path::new("status") };
    update.validate_counts(errors);
    update.validate_terminated_pods(errors);
    update.validate_conditions(errors);
    update.validate_times(errors);
    update.validate_finished(errors);
    update.validate_indexes(errors);
    update.validate_success(errors);
    update.validate_transitions(errors);
}

impl Update<'_> {
    fn changes(&self, field: &str) -> bool {
        !same(self.new.status(field), self.old.status(field))
    }

    fn condition_changes(&self, condition_type: &str) -> bool {
        self.new.is_true(condition_type) != self.old.is_true(condition_type)
    }

    fn finished_changes(&self) -> bool {
        self.new.is_finished() != self.old.is_finished()
    }

    /// Validates that no count is negative, and that not more pods are ready than active.
    fn validate_counts(&self, errors: &mut Errors) {
        for field in ["active", "succeeded", "failed", "ready", "terminating"] {
            let number = self.new.status(field).and_then(Value::as_i64);
            errors.non_negative(&self.status.field(field), number);
        }
        let ready = self.new.count("ready");
        if (self.changes("ready") || self.changes("active")) && ready > self.new.count("active") {
            let detail = "cannot set more ready pods than active";
            errors.invalid(&self.status.field("ready"), ready, detail);
        }
    }

    /// Validates that the uids in `uncountedTerminatedPods` are not empty and occur once.
    fn validate_terminated_pods(&self, errors: &mut Errors) {
        let path = self.status.field("uncountedTerminatedPods");
        let mut seen = BTreeSet::new();
        for field in ["succeeded", "failed"] {
            let path = path.field(field);
            let uids = self.new.status("uncountedTerminatedPods");
            let uids = uids.map_or(&[][..], |uids| list(uids, field));
            for (index, uid) in uids.iter().enumerate() {
                let uid = uid.as_str().unwrap_or_default();
                if uid.is_empty() {
                    errors.invalid(&path.index(index), uid, "must not be empty");
                } else if !seen.insert(uid) {
                    errors.duplicate(&path.index(index), uid);
                }
            }
        }
    }

    /// Validates the combination of conditions.
    fn validate_conditions(&self, errors: &mut Errors) {
        let (new, path) = (self.new, self.status.field("conditions"));
        let changes = |condition_types: [&str; 2]| {
            condition_types.iter().any(|condition_type| self.condition_changes(condition_type))
        };
        if changes(["Complete", "Failed"]) && new.is_true("Complete") && new.is_true("Failed") {
            errors.invalid_whole(&path, "cannot set Complete=True and Failed=true conditions");
        }
        if changes(["Complete", "FailureTarget"])
            && new.is_true("Complete")
            && new.is_true("FailureTarget")
        {
            errors
                .invalid_whole(&path, "cannot set Complete=True and FailureTarget=true conditions");
        }
        if (self.condition_changes("Failed") || self.changes("failedIndexes"))
            && new.is_true("Failed")
            && !new.is_true("FailureTarget")
        {
            let detail =
                "cannot set Failed=True condition without the FailureTarget=true condition";
            errors.invalid_whole(&path, detail);
        }
        if changes(["Complete", "SuccessCriteriaMet"])
            && new.is_true("Complete")
            && !new.is_true("SuccessCriteriaMet")
        {
            let detail =
                "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
            errors.invalid_whole(&path, detail);
        }
    }

    /// Validates the completion time: only a complete Job has one, and it is not before the start time.
    fn validate_times(&self, errors: &mut Errors) {
        let (new, path) = (self.new, self.status.field("completionTime"));
        let (start, completion) = (new.text("startTime"), new.text("completionTime"));
        if self.condition_changes("Complete") || self.changes("completionTime") {
            match (completion, new.is_true("Complete")) {
                ("", true) => {
                    errors.required(&path, "completionTime is required for Complete jobs");
                }
                ("", false) | (_, true) => {}
                (_, false) => {
                    let detail =
                        "cannot set completionTime when there is no Complete=True condition";
                    errors.invalid(&path, completion, detail);
                }
            }
        }
        // Times have one canonical form, so comparing the strings compares the times.
        if (self.changes("startTime") || self.changes("completionTime"))
            && !start.is_empty()
            && !completion.is_empty()
            && completion < start
        {
            errors.invalid(&path, completion, "must be equal to or after `startTime`");
        }
    }

    /// Validates that a finished Job has a start time, and no active, terminating or uncounted pods.
    fn validate_finished(&self, errors: &mut Errors) {
        let new = self.new;
        if !new.is_finished() {
            return;
        }
        let changes_to_positive =
            |field: &str| (self.finished_changes() || self.changes(field)) && new.count(field) > 0;
        if changes_to_positive("active") {
            let detail = "active>0 is invalid for finished job";
            errors.invalid(&self.status.field("active"), new.count("active"), detail);
        }
        let never_runs = flag(new.0, "spec.suspend") && int(new.0, "spec.completions") == Some(0);
        if (self.finished_changes() || self.changes("startTime"))
            && !never_runs
            && new.text("startTime").is_empty()
        {
            let detail = "startTime is required for finished job";
            errors.required(&self.status.field("startTime"), detail);
        }
        let field = "uncountedTerminatedPods";
        if let Some(uncounted) = new.status(field)
            && (self.finished_changes() || self.changes(field))
            && !(list(uncounted, "failed").is_empty() && list(uncounted, "succeeded").is_empty())
        {
            let detail = "must be empty for finished job";
            errors.invalid(&self.status.field(field), uncounted.clone(), detail);
        }
        if changes_to_positive("terminating") {
            let detail = "terminating>0 is invalid for finished job";
            errors.invalid(&self.status.field("terminating"), new.count("terminating"), detail);
        }
    }

    /// Validates `completedIndexes` and `failedIndexes`.
    fn validate_indexes(&self, errors: &mut Errors) {
        let new = self.new;
        let completions = int(new.0, "spec.completions");
        let has_limit = get(new.0, "spec.backoffLimitPerIndex").is_some();
        let is_indexed = text(new.0, "spec.completionMode") == "Indexed";
        let (completed, failed) = (new.text("completedIndexes"), new.status("failedIndexes"));
        let failed = failed.map(|failed| failed.as_str().unwrap_or_default());
        let completed_changes = self.changes_exactly("completedIndexes");
        let failed_changes = self.changes_exactly("failedIndexes");
        let validate_format = |field: &str, indexes: &str, errors: &mut Errors| {
            let Some(completions) = completions else { return };
            if let Err(why) = count_of_indexes(indexes, completions) {
                let detail = format!("error parsing {field}: {why}");
                errors.invalid(&self.status.field(field), indexes, &detail);
            }
        };
        if completed_changes {
            validate_format("completedIndexes", completed, errors);
        }
        if let Some(failed) = failed.filter(|_| failed_changes && has_limit) {
            validate_format("failedIndexes", failed, errors);
        }
        if completed_changes && !completed.is_empty() && !is_indexed {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.invalid(&self.status.field("completedIndexes"), completed, detail);
        }
        let Some(failed) = failed else { return };
        let path = self.status.field("failedIndexes");
        if failed_changes && !has_limit {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            errors.invalid(&path, failed, detail);
        }
        if let Some(completions) = completions
            && (completed_changes || failed_changes)
            && let Some(index) = overlap(completed, failed, completions)
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            errors.invalid(&path, failed, &detail);
        }
    }

    /// Returns whether a field changes. Unlike in `changes`, an empty value differs from an absent one.
    fn changes_exactly(&self, field: &str) -> bool {
        self.new.status(field) != self.old.status(field)
    }

    /// Validates that a Job whose success criteria are met does not fail.
    fn validate_success(&self, errors: &mut Errors) {
        let (new, path) = (self.new, self.status.field("conditions"));
        let is_met = new.is_true("SuccessCriteriaMet");
        if is_met && new.is_true("Failed") {
            let detail = "cannot set SuccessCriteriaMet=True and Failed=true conditions";
            errors.invalid_whole(&path, detail);
        }
        if is_met && new.is_true("FailureTarget") {
            let detail = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions";
            errors.invalid_whole(&path, detail);
        }
        if get(new.0, "spec.successPolicy").is_some() && !is_met && new.is_true("Complete") {
            let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
            errors.invalid_whole(&path, detail);
        }
    }

    /// Rejects changes that would undo an earlier status, such as the removal of a terminal condition.
    ///
    /// Upstream: `ValidateJobStatusUpdate`.
    fn validate_transitions(&self, errors: &mut Errors) {
        let Self { new, old, status } = self;
        let conditions = status.field("conditions");
        for terminal in ["Failed", "Complete", "FailureTarget"] {
            if old.is_true(terminal) && !new.is_true(terminal) {
                let detail = format!("cannot disable the terminal {terminal}=True condition");
                errors.invalid_whole(&conditions, &detail);
            }
        }
        // An Indexed Job whose `completions` equal its `parallelism` can be scaled down.
        let is_elastic = text(new.0, "spec.completionMode") == "Indexed"
            && int(new.0, "spec.completions") == int(new.0, "spec.parallelism");
        for (field, may_decrease) in [("failed", false), ("succeeded", is_elastic)] {
            if !may_decrease && new.count(field) < old.count(field) {
                let detail = format!("cannot decrease the {field} counter");
                errors.invalid(&status.field(field), new.count(field), &detail);
            }
        }
        let is_set = |job: &Job<'_>, field: &str| !job.text(field).is_empty();
        let time = "completionTime";
        if is_set(new, time) && is_set(old, time) && self.changes(time) {
            errors.invalid(&status.field(time), new.text(time), "field is immutable");
        }
        let is_resumed = old.is_true("Suspended") && new.has_condition("Suspended", "False");
        let time = "startTime";
        if is_set(old, time) && self.changes(time) && !is_resumed && !flag(new.0, "spec.suspend") {
            let value = new.status(time).cloned().unwrap_or_default();
            let detail = "field is immutable for unsuspended job once set";
            errors.invalid(&status.field(time), value, detail);
        }
        let met = "SuccessCriteriaMet";
        if old.is_true(met) && !new.is_true(met) {
            let detail = "cannot disable the SuccessCriteriaMet=True condition";
            errors.invalid_whole(&conditions, detail);
        }
        if old.is_true("Complete") && !old.is_true(met) && new.is_true(met) {
            let detail =
                "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
            errors.invalid_whole(&conditions, detail);
        }
    }
}

/// Returns the first index that is in both lists. Skips intervals that cannot be parsed, because they have a separate
/// error.
///
/// Upstream: `validateFailedIndexesNotOverlapCompleted`.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |indexes: &str| -> Vec<(i64, i64)> {
        let intervals = indexes.split(',');
        intervals.filter_map(|interval| index_interval(interval, completions).ok()).collect()
    };
    let (completed, failed) = (intervals(completed), intervals(failed));
    // Both lists are sorted. Advance in the list whose interval begins first.
    let (mut completed, mut failed) = (completed.iter().peekable(), failed.iter().peekable());
    while let (Some((completed_first, completed_last)), Some((failed_first, failed_last))) =
        (completed.peek(), failed.peek())
    {
        if completed_first <= failed_last && failed_first <= completed_last {
            return Some(*completed_first.max(failed_first));
        }
        if completed_first <= failed_first {
            completed.next()
        } else {
            failed.next()
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the errors of an update of the status of an Indexed Job with five completions.
    fn messages(new: Value, old: Value) -> Vec<String> {
        let spec = json!({"completions": 5, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1});
        let job = |status: Value| json!({"spec": spec, "status": status});
        let mut errors = Errors::default();
        update(&job(new), &job(old), &mut errors);
        errors.into_vec().iter().map(ToString::to_string).collect()
    }

    fn conditions(types: &[&str]) -> Value {
        types.iter().map(|one| json!({"type": one, "status": "True"})).collect()
    }

    #[test]
    fn a_job_may_run_and_complete_but_not_become_unfinished() {
        let start = "2026-01-01T00:00:00Z";
        let running = json!({"active": 2, "ready": 1, "startTime": start, "completedIndexes": "0-1", "failedIndexes": "2",
            "uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["b"]}});
        let none: [String; 0] = [];
        assert_eq!(messages(running.clone(), json!({})), none);
        let done = json!({"succeeded": 5, "startTime": start, "completionTime": "2026-01-01T00:01:00Z", "completedIndexes": "0-4",
            "conditions": conditions(&["SuccessCriteriaMet", "Complete"])});
        assert_eq!(messages(done.clone(), running), none);
        // A stored status that breaks a rule can stay unchanged.
        let broken = json!({"completedIndexes": "9", "conditions": conditions(&["Complete"])});
        assert_eq!(messages(broken.clone(), broken), none);
        let again = messages(json!({"startTime": start, "succeeded": 5}), done);
        assert_eq!(
            again,
            [
                "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
                "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
            ]
        );
    }

    #[test]
    fn invalid_updates_have_upstreams_errors() {
        let finished = |mut status: Value| {
            status["conditions"] = conditions(&["FailureTarget", "Failed"]);
            status
        };
        let uncounted = |uids: Value| json!({"uncountedTerminatedPods": uids});
        for (new, old, error) in [
            (
                json!({"active": -1}),
                json!({}),
                "status.active: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"ready": 1}),
                json!({}),
                "status.ready: Invalid value: 1: cannot set more ready pods than active",
            ),
            (
                uncounted(json!({"failed": [""]})),
                json!({}),
                "status.uncountedTerminatedPods.failed[0]: Invalid value: \"\": must not be empty",
            ),
            (
                uncounted(json!({"succeeded": ["a"], "failed": ["a"]})),
                json!({}),
                "status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"",
            ),
            (
                json!({"completedIndexes": "5"}),
                json!({}),
                "status.completedIndexes: Invalid value: \"5\": error parsing completedIndexes: too large index: \"5\"",
            ),
            (
                json!({"completedIndexes": "0-2", "failedIndexes": "2-3"}),
                json!({}),
                "status.failedIndexes: Invalid value: \"2-3\": failedIndexes and completedIndexes overlap at index: 2",
            ),
            (
                json!({"failed": 1}),
                json!({"failed": 2}),
                "status.failed: Invalid value: 1: cannot decrease the failed counter",
            ),
            (
                json!({"succeeded": 1}),
                json!({"succeeded": 2}),
                "status.succeeded: Invalid value: 1: cannot decrease the succeeded counter",
            ),
            (
                finished(json!({})),
                json!({}),
                "status.startTime: Required value: startTime is required for finished job",
            ),
            (
                finished(json!({"startTime": "2026-01-01T00:00:00Z", "active": 1})),
                json!({}),
                "status.active: Invalid value: 1: active>0 is invalid for finished job",
            ),
            (
                json!({"conditions": conditions(&["Failed"]), "startTime": "2026-01-01T00:00:00Z"}),
                json!({}),
                "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
            ),
            (
                json!({"completionTime": "2026-01-01T00:00:00Z"}),
                json!({}),
                "status.completionTime: Invalid value: \"2026-01-01T00:00:00Z\": cannot set completionTime when there is no Complete=True condition",
            ),
            (
                json!({"startTime": null}),
                json!({"startTime": "2026-01-01T00:00:00Z"}),
                "status.startTime: Invalid value: null: field is immutable for unsuspended job once set",
            ),
        ] {
            let found = messages(new.clone(), old);
            assert!(found.iter().any(|one| one == error), "{new}: {found:#?}");
        }
    }
}
