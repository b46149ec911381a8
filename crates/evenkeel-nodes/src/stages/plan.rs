//! Decides which Stage an object follows, when, and what happens then.

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

/// Delay below which a Stage is due at once.
const AT_ONCE: Duration = Duration::from_millis(10);

/// Number of Stages that an object follows at once one after the other. Then a second passes before the next one.
const MAX_STREAK: u32 = 10;

/// Delay of a Stage behind too many that were due at once. After a longer pause, the count begins anew.
const STREAK_DELAY: Duration = Duration::from_secs(1);

/// What is remembered of an object between two decisions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    /// Resource version of the object, and number of changes of its kind's Stages before, that the last choice was made
    /// with.
    pub(crate) chosen_for: Option<(String, u64)>,
    /// The chosen Stage until its steps are done.
    pub(crate) pending: Option<Pending>,
    /// Number of draws so far.
    n_draws: u64,
    /// Number of Stages that the object has followed.
    n_plays: u64,
    /// Number of Stages in a row that were due at once, and when the last one was due.
    streak: (u32, Option<Timestamp>),
    /// Errors of the last choice that had any, which are reported once.
    reported: Vec<String>,
}

impl Memory {
    /// Remembers that the steps of a Stage go on at `step`, because its request may succeed later. `version` is the
    /// resource version of the object after the steps before; `None` if these changed nothing.
    ///
    /// If something else changes the object, the next Stage is chosen anew.
    pub(crate) fn resume(&mut self, acted: Pending, step: usize, version: Option<String>) {
        if let (Some(version), Some((chosen_for, _))) = (version, &mut self.chosen_for) {
            *chosen_for = version;
        }
        self.pending = Some(Pending { n_done: step, ..acted });
    }

    /// Returns when a Stage is due that is chosen now. Too many in a row without a delay get one.
    fn paced(&mut self, now: Timestamp, delay: Duration) -> Timestamp {
        let (count, last) = self.streak;
        let due = saturating_add(now, delay);
        if delay >= AT_ONCE {
            self.streak = (0, None);
            return due;
        }
        let is_close = last.is_some_and(|last| now <= saturating_add(last, STREAK_DELAY));
        let count = if is_close { count.saturating_add(1) } else { 0 };
        let due = match last {
            _ if count <= MAX_STREAK => due,
            // Changes by others do not put it off further.
            Some(last) if last > now => last,
            _ => saturating_add(now, STREAK_DELAY),
        };
        self.streak = (count, Some(due));
        due
    }
}

/// A Stage whose steps are to be done.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) stage: Arc<Stage>,
    pub(crate) due: Timestamp,
    /// Number of steps that are done.
    pub(crate) n_done: usize,
    /// Number of Stages that the object followed before.
    play: u64,
}

/// A decision about an object.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) memory: Memory,
    /// What happens now, each with the index of its step.
    pub(crate) actions: Vec<(usize, Action)>,
    /// The Stage that the actions belong to.
    pub(crate) acted: Option<Pending>,
    /// When to decide again even if nothing changes.
    pub(crate) wake: Option<Timestamp>,
    /// Expressions that failed at the choice. The other Stages go on.
    pub(crate) errors: Vec<String>,
    /// Why the steps behind the actions can't happen.
    pub(crate) failure: Option<String>,
}

/// Decides for an object with the Stages of its kind.
///
/// An object follows one Stage after the other. A change of the object chooses anew, even if a Stage is due later, and the
/// delay begins anew. So does a change of Stages, unless the chosen one is still there and selects the object.
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
    memory.n_plays = pending.play.saturating_add(1);
    let (stage, metadata) = (&pending.stage, &object["metadata"]);
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let names = [text("namespace"), text("name"), &stage.name, &pending.play.to_string()];
    let environment = Environment { draws: hash(0, &names), ..*environment };
    let (actions, error) = actions(stage, pending.n_done, object, &environment);
    let failure = error.map(|why| format!("Stage {}: {why}", stage.name));
    Decision { memory, actions, acted: Some(pending), wake: None, errors, failure }
}

/// Chooses a Stage that selects the object, by weight. A Stage whose selector fails does not select it, a weight that
/// fails is none, and a delay that fails is 0.
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
    let due = memory.paced(now, delay);
    Some(Pending { stage: Arc::clone(stage), due, n_done: 0, play: memory.n_plays })
}

/// Returns the index that a draw picks by weight. All are equally likely without any weight, and if all weights are 0.
/// Otherwise, a candidate without a weight or with the weight 0 is not picked.
///
/// There is at least one.
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

/// Reports whether a selector selects an object.
fn selects(selector: Option<&Selector>, object: &Value, now: Timestamp) -> Result<bool, String> {
    let Some(selector) = selector else { return Ok(false) };
    let metadata = &object["metadata"];
    let has = |field: &str, pairs: &[(String, String)]| {
        pairs.iter().all(|(key, value)| metadata[field].get(key).is_some_and(|has| has == value))
    };
    if !has("labels", &selector.labels) || !has("annotations", &selector.annotations) {
        return Ok(false);
    }
    for requirement in &selector.expressions {
        if !meets(requirement, object, now)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reports whether an object meets a requirement.
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

/// Returns the patch of a node's status after which the Stages that are written for initialized nodes select it: KWOK
/// sets the phase when it initializes a node, and kubelets set none. `None` if the node has a phase or is not ready.
pub(crate) fn adoption(node: &Value) -> Option<String> {
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
        let patch = adoption(&json!({"status": {"conditions": ready}}));
        assert_eq!(patch.as_deref(), Some(r#"{"status":{"phase":"Running"}}"#));
        assert_eq!(adoption(&json!({"status": {"conditions": ready, "phase": "Running"}})), None);
        assert_eq!(adoption(&json!({"status": {"conditions": []}})), None);
    }
}
