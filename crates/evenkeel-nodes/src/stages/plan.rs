//! Decides which Stage an object follows, when it is due, and which actions it performs.

use evenkeel_api::time::{Timestamp, saturating_add};
use evenkeel_cel::Val;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

use super::{
    StageSet,
    expressions::{Expression, ValueFrom, cel, unix},
    spec::{Operator, Requirement, Selector, Stage},
    steps::{Action, actions},
};
use crate::{
    behaviors::{draw_of, hash},
    template::Environment,
};

/// Delay below which a Stage counts as due immediately.
const IMMEDIATE: Duration = Duration::from_millis(10);

/// Maximum number of consecutive Stages that are due immediately. The next one is delayed by [`THROTTLE_DELAY`].
const MAX_CONSECUTIVE: u32 = 10;

/// Delay of a Stage after [`MAX_CONSECUTIVE`] Stages that were due immediately. A longer pause resets the count.
const THROTTLE_DELAY: Duration = Duration::from_secs(1);

/// State of an object between two decisions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    /// Resource version of the object, and generation of the Stages, when the pending Stage was chosen.
    pub(crate) chosen_for: Option<(String, u64)>,
    /// The chosen Stage, until its steps are performed.
    pub(crate) pending: Option<Pending>,
    /// Number of draws so far.
    n_draws: u64,
    /// Number of Stages that the object has followed.
    n_played: u64,
    /// Number of consecutive Stages that were due immediately, and the time at which the last one was due.
    consecutive: (u32, Option<Timestamp>),
    /// Errors of the last choice with errors. Each error is reported once.
    reported: Vec<String>,
}

impl Memory {
    /// Makes a Stage pending again. The Stage resumes at `step`, whose request may succeed later. `version` is the
    /// resource version of the object after the earlier steps; `None` if they changed nothing.
    ///
    /// If another client changes the object, a Stage is chosen again.
    pub(crate) fn resume(&mut self, performed: Pending, step: usize, version: Option<String>) {
        if let (Some(version), Some((chosen_for, _))) = (version, &mut self.chosen_for) {
            *chosen_for = version;
        }
        self.pending = Some(Pending { n_done: step, ..performed });
    }

    /// Returns when a Stage that is chosen now is due after this delay. Postpones a Stage after too many consecutive
    /// Stages without a delay.
    fn throttled_due(&mut self, now: Timestamp, delay: Duration) -> Timestamp {
        let (count, last) = self.consecutive;
        let due = saturating_add(now, delay);
        if delay >= IMMEDIATE {
            self.consecutive = (0, None);
            return due;
        }
        let is_close = last.is_some_and(|last| now <= saturating_add(last, THROTTLE_DELAY));
        let count = if is_close { count.saturating_add(1) } else { 0 };
        let due = match last {
            _ if count <= MAX_CONSECUTIVE => due,
            // Changes by other clients do not delay it further.
            Some(last) if last > now => last,
            _ => saturating_add(now, THROTTLE_DELAY),
        };
        self.consecutive = (count, Some(due));
        due
    }
}

/// Chosen Stage whose steps are not performed yet.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) stage: Arc<Stage>,
    pub(crate) due: Timestamp,
    /// Number of steps that are already performed.
    pub(crate) n_done: usize,
    /// Number of Stages that the object followed before this one.
    n_played_before: u64,
}

/// Decision about an object.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) memory: Memory,
    /// Actions to perform now, each with the index of its step.
    pub(crate) actions: Vec<(usize, Action)>,
    /// Stage of the actions.
    pub(crate) performed: Option<Pending>,
    /// Time of the next decision if nothing changes before.
    pub(crate) wake: Option<Timestamp>,
    /// Errors of expressions during the choice. They do not affect the other Stages.
    pub(crate) errors: Vec<String>,
    /// Error because of which the steps after the actions are not performed.
    pub(crate) failure: Option<String>,
}

/// Decides for an object with the Stages for its resource.
///
/// An object follows one Stage after the other. After a change of the object, a Stage is chosen again even if one is
/// pending, and its delay starts again. A change of Stages has the same effect, unless the pending Stage still exists
/// and selects the object.
pub(crate) fn plan(
    object: &Value,
    set: &StageSet,
    memory: &Memory,
    environment: &Environment<'_>,
) -> Decision {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let inputs = (version.to_owned(), set.generation);
    let now = environment.now;
    let mut memory = memory.clone();
    let mut errors = Vec::new();
    if memory.chosen_for.as_ref() != Some(&inputs) {
        let is_same = memory.chosen_for.as_ref().is_some_and(|(version, _)| *version == inputs.0);
        let is_valid = |pending: &Pending| {
            let mut stages = set.stages.iter();
            stages.any(|stage| Arc::ptr_eq(stage, &pending.stage))
                && selects(pending.stage.selector.as_ref(), object, now) == Ok(true)
        };
        let kept = memory.pending.take().filter(|pending| is_same && is_valid(pending));
        memory.chosen_for = Some(inputs);
        memory.pending = kept.or_else(|| choose(object, set, &mut memory, now, &mut errors));
        let is_new = |error: &String| !memory.reported.contains(error);
        let new: Vec<String> = errors.iter().filter(|error| is_new(error)).cloned().collect();
        if !errors.is_empty() {
            memory.reported = std::mem::replace(&mut errors, new);
        }
    }
    let Some(pending) = memory.pending.take() else {
        return Decision { memory, errors, ..Decision::default() };
    };
    if pending.due > now {
        let wake = Some(pending.due);
        memory.pending = Some(pending);
        return Decision { memory, wake, errors, ..Decision::default() };
    }
    memory.n_played = pending.n_played_before.saturating_add(1);
    let (stage, metadata) = (&pending.stage, &object["metadata"]);
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let names =
        [text("namespace"), text("name"), &stage.name, &pending.n_played_before.to_string()];
    let environment = Environment { draws: hash(0, &names), ..*environment };
    let (actions, error) = actions(stage, pending.n_done, object, &environment);
    let failure = error.map(|why| format!("Stage {}: {why}", stage.name));
    Decision { memory, actions, performed: Some(pending), wake: None, errors, failure }
}

/// Chooses a Stage that selects the object, by weight. If an expression fails, the Stage does not select the object, has no
/// weight, or has the delay 0.
fn choose(
    object: &Value,
    set: &StageSet,
    memory: &mut Memory,
    now: Timestamp,
    errors: &mut Vec<String>,
) -> Option<Pending> {
    let mut fail = |stage: &Stage, field: &str, why: String| {
        errors.push(format!("Stage {}: spec.{field}: {why}", stage.name));
    };
    let mut candidates = Vec::new();
    for stage in &set.stages {
        match selects(stage.selector.as_ref(), object, now) {
            Ok(true) => candidates.push(stage),
            Ok(false) => {}
            Err(why) => fail(stage, "selector", why),
        }
    }
    let draw = |memory: &mut Memory| {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        memory.n_draws += 1;
        draw_of(hash(0, &[text("namespace"), text("name")]), memory.n_draws)
    };
    let index = match candidates.len() {
        0 => return None,
        1 => 0,
        _ => {
            let mut weight = |stage: &&Arc<Stage>| {
                stage.weight.integer(object, now).unwrap_or_else(|why| {
                    fail(stage, "weightFrom", why);
                    None
                })
            };
            let weights: Vec<Option<i64>> = candidates.iter().map(&mut weight).collect();
            pick(&weights, draw(memory))
        }
    };
    let stage = *candidates.get(index)?;
    let mut nanoseconds = 0;
    if let Some(delay) = &stage.delay {
        let mut read = |field: &str, from: &ValueFrom| {
            from.duration(object, now).map_err(|why| fail(stage, field, why))
        };
        match read("delay.durationFrom", &delay.duration) {
            Err(()) | Ok(None) => {}
            Ok(Some(least)) => {
                let jitter =
                    delay.jitter.as_ref().map(|jitter| read("delay.jitterDurationFrom", jitter));
                nanoseconds = match jitter {
                    None | Some(Err(()) | Ok(None)) => least,
                    Some(Ok(Some(most))) if most <= least => most,
                    Some(Ok(Some(most))) => {
                        let range = most.saturating_sub(least).unsigned_abs();
                        least.saturating_add_unsigned(draw(memory) % range)
                    }
                };
            }
        }
    }
    let delay = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or_default());
    let due = memory.throttled_due(now, delay);
    Some(Pending { stage: Arc::clone(stage), due, n_done: 0, n_played_before: memory.n_played })
}

/// Returns the index of the candidate that a draw selects by weight. If no candidate has a weight above 0, the
/// candidates with a weight are equally likely; without any weight, all candidates are. Otherwise, candidates without a
/// weight or with the weight 0 are not selected.
///
/// There must be at least one candidate.
fn pick(weights: &[Option<i64>], draw: u64) -> usize {
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX).max(1);
    let total: u64 = weights.iter().flatten().map(|weight| weight.max(&0).unsigned_abs()).sum();
    if total == 0 {
        let weighted: Vec<usize> = weights
            .iter()
            .enumerate()
            .filter_map(|(index, weight)| weight.is_some().then_some(index))
            .collect();
        let place = |n| usize::try_from(draw % count(n)).unwrap_or_default();
        return match weighted.len() {
            0 => place(weights.len()),
            n => weighted.get(place(n)).copied().unwrap_or_default(),
        };
    }
    let mut rest = draw % total;
    for (index, weight) in weights.iter().enumerate() {
        let weight = weight.unwrap_or_default().max(0).unsigned_abs();
        if rest < weight {
            return index;
        }
        rest -= weight;
    }
    0
}

/// Returns whether a selector selects an object.
fn selects(selector: Option<&Selector>, object: &Value, now: Timestamp) -> Result<bool, String> {
    let Some(selector) = selector else { return Ok(false) };
    let metadata = &object["metadata"];
    let has_all = |field: &str, pairs: &[(String, String)]| {
        pairs.iter().all(|(key, value)| metadata[field].get(key).is_some_and(|has| has == value))
    };
    if !has_all("labels", &selector.labels) || !has_all("annotations", &selector.annotations) {
        return Ok(false);
    }
    for requirement in &selector.expressions {
        if !meets(requirement, object, now)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether an object meets a requirement.
fn meets(requirement: &Requirement, object: &Value, now: Timestamp) -> Result<bool, String> {
    let query = match &requirement.expression {
        Expression::Jq(query) => query,
        Expression::Cel(program) => {
            return match cel(program, object)? {
                Val::Bool(holds) => Ok(holds),
                other => Err(format!("its type is {}, not bool", other.type_name())),
            };
        }
    };
    // An expression that fails has no output.
    let outputs = query.run(object, unix(now)).unwrap_or_default();
    let is_value = |output: &Value| match output {
        Value::String(text) => requirement.values.contains(text),
        Value::Bool(_) => requirement.values.contains(&output.to_string()),
        Value::Number(number) if number.is_i64() => {
            requirement.values.contains(&number.to_string())
        }
        _ => false,
    };
    Ok(match requirement.operator {
        Operator::In => outputs.iter().any(is_value),
        Operator::NotIn => !outputs.iter().any(is_value),
        Operator::Exists => !outputs.is_empty(),
        Operator::DoesNotExist => outputs.is_empty(),
    })
}

/// Returns the patch that sets the phase `Running` in a node's status; `None` if the node has a phase or is not ready. KWOK
/// sets the phase when it initializes a node, and its Stages select nodes by it. Simulated kubelets set none.
pub(crate) fn initial_phase_patch(node: &Value) -> Option<String> {
    let status = &node["status"];
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let is_ready =
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let has_phase = status["phase"].as_str().is_some_and(|phase| !phase.is_empty());
    (is_ready && !has_phase).then(|| json!({"status": {"phase": "Running"}}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_picked_by_weight() {
        let picked = |weights: &[Option<i64>]| {
            let mut counts = vec![0; weights.len()];
            for n in 0..1000 {
                counts[pick(weights, draw_of(3, n))] += 1;
            }
            counts
        };
        assert_eq!(picked(&[Some(0), Some(5)]), [0, 1000]);
        assert_eq!(picked(&[None, Some(0)]), [0, 1000]);
        assert_eq!(picked(&[Some(-1), Some(1)]), [0, 1000]);
        for weights in [[None, None], [Some(0), Some(0)], [Some(7), Some(7)]] {
            let counts = picked(&weights);
            assert!(
                counts.iter().all(|count| (400..600).contains(count)),
                "{weights:?} {counts:?}"
            );
        }
        let counts = picked(&[Some(1), Some(3), None]);
        assert!((150..350).contains(&counts[0]) && counts[2] == 0, "{counts:?}");
    }

    #[test]
    fn initialized_nodes_get_a_phase_once() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let patch = initial_phase_patch(&json!({"status": {"conditions": ready}}));
        assert_eq!(patch.as_deref(), Some(r#"{"status":{"phase":"Running"}}"#));
        assert_eq!(
            initial_phase_patch(&json!({"status": {"conditions": ready, "phase": "Running"}})),
            None
        );
        assert_eq!(initial_phase_patch(&json!({"status": {"conditions": []}})), None);
    }
}
