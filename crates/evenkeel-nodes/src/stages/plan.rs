//! Decides which Stage an object follows, when, and what happens then.

use evenkeel_api::time::{Timestamp, saturating_add};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

use super::{
    StageSet,
    expressions::{Expression, cel, unix},
    spec::{Operator, Requirement, Selector, Stage},
    steps::{Action, actions},
};
use crate::{
    behaviors::{draw_of, hash},
    template::Environment,
};

/// Number of times that a Stage without a delay follows itself at once. Then a second passes between them.
const MAX_STREAK: u32 = 10;

/// Delay of a Stage that follows itself too often.
const STREAK_DELAY: Duration = Duration::from_secs(1);

/// What is remembered of an object between two decisions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    /// Resource version of the object, and number of changes of Stages before, that the last choice was made with.
    pub(crate) chosen_for: Option<(String, u64)>,
    /// The chosen Stage until its steps are done.
    pub(crate) pending: Option<Pending>,
    /// Number of draws so far.
    n_draws: u64,
    /// Name of the last Stage that was due at once, and how often in a row.
    streak: (String, u32),
}

/// A Stage whose steps are to be done.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) stage: Arc<Stage>,
    pub(crate) due: Timestamp,
    /// Number of steps that are done.
    pub(crate) n_done: usize,
}

/// A decision about an object.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) memory: Memory,
    /// What happens now, each with the index of its step.
    pub(crate) actions: Vec<(usize, Action)>,
    /// When to decide again even if nothing changes.
    pub(crate) wake: Option<Timestamp>,
    /// Why a Stage can't be followed.
    pub(crate) error: Option<String>,
}

/// Decides for an object with the Stages of its kind.
///
/// An object follows one Stage after the other. A change of the object or of Stages chooses anew, even if a Stage is due
/// later, and the delay begins anew.
pub(crate) fn plan(
    object: &Value,
    set: &StageSet,
    memory: &Memory,
    environment: &Environment<'_>,
) -> Decision {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let inputs = (version.to_owned(), set.generation);
    let mut memory = memory.clone();
    let mut error = None;
    if memory.chosen_for.as_ref() != Some(&inputs) {
        memory.chosen_for = Some(inputs);
        match choose(object, set, &mut memory, environment.now) {
            Ok(pending) => memory.pending = pending,
            Err(why) => {
                memory.pending = None;
                error = Some(why);
            }
        }
    }
    let Some(pending) = memory.pending.clone() else {
        return Decision { memory, error, ..Decision::default() };
    };
    if pending.due > environment.now {
        return Decision { memory, wake: Some(pending.due), ..Decision::default() };
    }
    memory.pending = None;
    match actions(&pending.stage, pending.n_done, object, environment) {
        Ok(actions) => Decision { memory, actions, ..Decision::default() },
        Err(why) => {
            let error = Some(format!("Stage {}: {why}", pending.stage.name));
            Decision { memory, error, ..Decision::default() }
        }
    }
}

/// Chooses a Stage that selects the object, by weight.
fn choose(
    object: &Value,
    set: &StageSet,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<Option<Pending>, String> {
    let mut candidates = Vec::new();
    for stage in &set.stages {
        let named = |why| format!("Stage {}: {why}", stage.name);
        if selects(stage.selector.as_ref(), object, now).map_err(named)? {
            candidates.push((stage, None));
        }
    }
    if candidates.len() > 1 {
        for (stage, weight) in &mut candidates {
            let named = |why| format!("Stage {}: {why}", stage.name);
            *weight = stage.weight.integer(object, now).map_err(named)?;
        }
    }
    let draw = |memory: &mut Memory| {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        memory.n_draws += 1;
        draw_of(hash(0, &[text("namespace"), text("name")]), memory.n_draws)
    };
    let index = match candidates.len() {
        0 => return Ok(None),
        1 => 0,
        _ => {
            let weights: Vec<Option<i64>> = candidates.iter().map(|(_, weight)| *weight).collect();
            pick(&weights, draw(memory))
        }
    };
    let Some((stage, _)) = candidates.get(index) else { return Ok(None) };
    let mut nanoseconds = 0;
    if let Some(delay) = &stage.delay {
        let named = |why| format!("Stage {}: spec.delay: {why}", stage.name);
        if let Some(least) = delay.duration.duration(object, now).map_err(named)? {
            let jitter = match &delay.jitter {
                Some(jitter) => jitter.duration(object, now).map_err(named)?,
                None => None,
            };
            nanoseconds = match jitter {
                None => least,
                Some(most) if most <= least => most,
                Some(most) => {
                    let range = most.saturating_sub(least).unsigned_abs();
                    least.saturating_add_unsigned(draw(memory) % range)
                }
            };
        }
    }
    let mut delay = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or_default());
    let streak = &mut memory.streak;
    let is_repeated = delay.is_zero() && streak.0 == stage.name;
    *streak = (stage.name.clone(), if is_repeated { streak.1.saturating_add(1) } else { 0 });
    if streak.1 > MAX_STREAK {
        delay = STREAK_DELAY;
    }
    let due = saturating_add(now, delay);
    Ok(Some(Pending { stage: Arc::clone(stage), due, n_done: 0 }))
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
            let value = cel(program, object).map_err(|why| format!("spec.selector: {why}"))?;
            return value.as_bool().ok_or_else(|| format!("spec.selector: {value} is no bool"));
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
