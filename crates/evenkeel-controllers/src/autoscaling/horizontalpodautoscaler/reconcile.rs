//! Steps of a reconciliation: read the scale, read the metrics, update the scale, write the status. Upstream:
//! `reconcileAutoscaler`.

use super::{
    Options,
    metric::{self, MetricError, Proposal, Read},
    plan::{self, Course, Decision, Measured, Observed, Pods, Problem},
    readings::Readings,
    replicas::CalculatorInputs,
    selectors::{self, Selectors},
    stabilization::StabilizationHistory,
    status::StatusBuilder,
};
use crate::scale::{self, Scale};
use evenkeel_api::{
    Kind, Text,
    selector::Selector,
    time::Timestamp,
    views::{HorizontalPodAutoscaler, MetricSpec},
};
use evenkeel_runtime::plan::{Action, Failure, Key, OnError, Plan, Steps, Update};
use std::{sync::Arc, time::Duration};

/// Maximum number of attempts to update a scale, after conflicts. Upstream: `retry.DefaultRetry`.
const MAX_ATTEMPTS: u32 = 5;

/// Delay before the read that precedes each further attempt.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// An autoscaler and its pods, before its scale is read.
pub(super) struct Watched {
    pub(super) key: Key,
    pub(super) autoscaler: Arc<HorizontalPodAutoscaler>,
    /// Pods of the namespace.
    pub(super) pods: Pods,
    /// Selectors of the namespace's autoscalers, as of their last reconciliations.
    pub(super) selectors: Selectors,
    /// The preferred version of custom metrics, and when it was discovered.
    pub(super) custom_version: Option<(Timestamp, Text)>,
}

/// Scaling action, as metrics name it. Upstream: `ActionLabel`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ScalingAction {
    Up,
    Down,
    #[default]
    Nothing,
}

impl ScalingAction {
    /// Returns the action that changes the replicas from `from` to `to`.
    fn of(from: i32, to: i32) -> Self {
        match to.cmp(&from) {
            std::cmp::Ordering::Greater => Self::Up,
            std::cmp::Ordering::Less => Self::Down,
            std::cmp::Ordering::Equal => Self::Nothing,
        }
    }
}

/// Computation of one metric of the autoscaler, for the controller's Prometheus metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Computation {
    /// Type of the metric, such as `Resource`.
    pub(super) type_: Text,
    pub(super) action: ScalingAction,
    /// Whether the spec is invalid; `None` without an error.
    pub(super) is_spec_error: Option<bool>,
    pub(super) took: Duration,
}

/// Result of a complete reconciliation.
pub(super) struct Reconciled {
    /// The error, if it failed.
    pub(super) result: Result<(), Problem>,
    pub(super) action: ScalingAction,
    /// Desired replicas, if they were computed.
    pub(super) desired: Option<i32>,
    /// History for the next reconciliation.
    pub(super) history: StabilizationHistory,
    /// Selector of the target's pods, if it was needed.
    pub(super) selector: Option<Selector>,
    /// The preferred version of custom metrics, if this reconciliation discovered it.
    pub(super) custom_version: Option<Text>,
    pub(super) computations: Vec<Computation>,
}

/// Reconciles an autoscaler, and requeues it after the sync period. Upstream: `reconcileKey`.
pub(super) fn plan(
    watched: &Watched,
    history: &StabilizationHistory,
    options: &Options,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<Plan, Plan> {
    Ok(match reconcile_autoscaler(watched, history, options, now, steps)?.result {
        Ok(()) => Plan { requeue: Some(options.sync_period), ..Plan::nothing() },
        Err(problem) => Plan::failure(problem.text),
    })
}

/// Plans the steps. Once all are carried out, returns the results for metrics and for later reconciliations.
/// Upstream: `reconcileAutoscaler`.
pub(super) fn reconcile_autoscaler(
    watched: &Watched,
    history: &StabilizationHistory,
    options: &Options,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<Reconciled, Plan> {
    let mut reconciled = Reconciled {
        result: Ok(()),
        action: ScalingAction::Nothing,
        desired: None,
        history: history.clone(),
        selector: None,
        custom_version: None,
        computations: Vec::new(),
    };
    let autoscaler = &watched.autoscaler;
    let (kind, scale) = match scale_for_resource_mappings(autoscaler, steps)? {
        Ok(found) => found,
        Err(why) => {
            let builder = plan::without_scale(autoscaler, &why, now);
            // Return the error about the scale even if the status update fails, too.
            let _ = write_status(&builder, autoscaler, steps)?;
            reconciled.result = Err(no_scale(autoscaler, &why));
            return Ok(reconciled);
        }
    };
    let observed = Observed { autoscaler: autoscaler.clone(), scale };
    let course = plan::course(&observed, options);
    let measured = match course {
        Course::Measure => measure(watched, &observed, options, now, &mut reconciled, steps)?,
        Course::Disabled | Course::Bound(..) => Measured::Each(Vec::new()),
    };
    let history = &mut reconciled.history;
    let decision = plan::decide(&observed, course, measured, history, options, now);
    let scaled = match &decision.rescale {
        Some(_) => Some(rescale(&kind, &observed, decision.desired, steps)?),
        None => None,
    };
    let builder = plan::conclude(&observed, &decision, scaled.as_ref(), history, options, now);
    let written = write_status(&builder, autoscaler, steps)?;
    reconciled.end(&observed, decision, scaled, written.err());
    Ok(reconciled)
}

impl Reconciled {
    fn end(
        &mut self,
        observed: &Observed,
        decision: Decision,
        scaled: Option<Result<(), String>>,
        status_error: Option<&Failure>,
    ) {
        let name = &observed.autoscaler.meta.name;
        let internal = |text| Err(Problem { text, is_spec_error: false });
        if let Some(Err(error)) = scaled {
            self.result = internal(format!("failed to rescale: {error}"));
            return;
        }
        self.action = ScalingAction::of(observed.scale.replicas, decision.desired);
        self.desired = (!decision.failed).then_some(decision.desired);
        self.result = match (status_error, decision.error) {
            (Some(failure), _) if !decision.failed => {
                internal(format!("failed to update status for {name}: {failure}"))
            }
            (_, Some(error)) => Err(error),
            (_, None) => Ok(()),
        };
    }
}

/// Returns the error of a reconciliation whose scale cannot be read.
fn no_scale(autoscaler: &HorizontalPodAutoscaler, why: &str) -> Problem {
    let target = &autoscaler.spec.scale_target_ref;
    let is_spec_error = group_of(&target.api_version).is_err();
    let text = if is_spec_error {
        format!("invalid API version in scale target reference: {why}")
    } else {
        let (kind, name, namespace) = (&target.kind, &target.name, &autoscaler.meta.namespace);
        format!("failed to query scale subresource for {kind}/{namespace}/{name}: {why}")
    };
    Problem { text, is_spec_error }
}

/// Records the events and writes the status. Returns the error of the write.
fn write_status<'a>(
    builder: &StatusBuilder,
    autoscaler: &HorizontalPodAutoscaler,
    steps: &mut Steps<'a>,
) -> Result<Result<(), &'a Failure>, Plan> {
    let actions = builder.plan(autoscaler).actions.into_iter().map(|action| match action {
        Action::Update(update) => Update { on_error: OnError::Ignore, ..update }.into(),
        other => other,
    });
    let outcomes = steps.all(Plan::of(actions.collect()))?;
    Ok(outcomes.iter().find_map(|outcome| outcome.error.as_ref()).map_or(Ok(()), Err))
}

/// Returns the scale target's resource and scale. If the kind has several resources, returns the first with this
/// object. Upstream: `scaleForResourceMappings`.
fn scale_for_resource_mappings(
    autoscaler: &HorizontalPodAutoscaler,
    steps: &mut Steps<'_>,
) -> Result<Result<(Kind, Scale), String>, Plan> {
    let target = &autoscaler.spec.scale_target_ref;
    let group = match group_of(&target.api_version) {
        Ok(group) => group,
        Err(why) => return Ok(Err(why)),
    };
    let resources = match scale::resources_in_group(group, &target.kind, steps)? {
        Ok(resources) => resources,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let (namespace, mut first) = (&autoscaler.meta.namespace, None);
    for resource in resources {
        match scale::get(&resource.kind, namespace, &target.name, Duration::ZERO, steps)? {
            Ok(scale) => return Ok(Ok((resource.kind, scale))),
            Err(failure) => {
                first.get_or_insert(failure.message);
            }
        }
    }
    Ok(Err(first.unwrap_or_else(|| "unrecognized resource".to_owned())))
}

/// Reads all metrics and returns their proposals. Upstream: `computeReplicasForMetrics`.
fn measure(
    watched: &Watched,
    observed: &Observed,
    options: &Options,
    now: Timestamp,
    reconciled: &mut Reconciled,
    steps: &mut Steps<'_>,
) -> Result<Measured, Plan> {
    let text = &observed.scale.selector;
    let selector = match selectors::parse(text) {
        Ok(selector) => selector,
        Err(unselected) => return Ok(unselected),
    };
    let mut pods = watched.pods.clone();
    pods.retain(|pod| selector.matches(&pod.meta.labels));
    let selector = &*reconciled.selector.insert(selector);
    if let Err(ambiguous) =
        selectors::check_unambiguous(&watched.selectors, &watched.key, text, selector, &pods)
    {
        return Ok(ambiguous);
    }
    let known = known_version(watched, options, now);
    let mut version = known.clone();
    let namespace = &*watched.key.namespace;
    let mut readings = Readings { namespace, pods: selector, custom_version: &mut version };
    let mut each = Vec::new();
    for metric in &observed.autoscaler.spec.metrics {
        let started = steps.took();
        let read = readings.read(metric, steps)?;
        let proposal = propose(metric, read, observed, &pods, options, now);
        let took = steps.took().saturating_sub(started);
        reconciled.computations.push(computed(metric, &proposal, observed, took));
        each.push(proposal);
    }
    reconciled.custom_version = version.filter(|_| known.is_none());
    Ok(Measured::Each(each))
}

/// Returns the preferred version of custom metrics, if it was discovered within the sync period.
fn known_version(watched: &Watched, options: &Options, now: Timestamp) -> Option<Text> {
    let (at, version) = watched.custom_version.as_ref()?;
    let age = Duration::try_from(now.duration_since(*at)).ok()?;
    (age < options.sync_period).then(|| version.clone())
}

fn computed(
    metric: &MetricSpec,
    proposal: &Result<Proposal, MetricError>,
    observed: &Observed,
    took: Duration,
) -> Computation {
    let before = observed.autoscaler.status.current_replicas;
    let (action, is_spec_error) = match proposal {
        Ok(proposal) => (ScalingAction::of(before, proposal.replicas), None),
        Err(error) => (ScalingAction::Nothing, Some(error.is_spec_error)),
    };
    Computation { type_: metric.type_.clone(), action, is_spec_error, took }
}

fn propose(
    metric: &MetricSpec,
    read: Read,
    observed: &Observed,
    pods: &Pods,
    options: &Options,
    now: Timestamp,
) -> Result<Proposal, MetricError> {
    let behavior = observed.autoscaler.spec.behavior.as_deref();
    let inputs = CalculatorInputs {
        pods,
        spec_replicas: observed.scale.replicas,
        status_replicas: observed.scale.current,
        tolerances: plan::tolerances(behavior, options),
        options,
        now,
    };
    metric::propose(metric, read, &inputs, &observed.autoscaler.meta.namespace)
}

/// Updates the scale, and retries conflicts with the new resource version. Upstream: `RetryOnConflict` around
/// `reconcileAutoscaler`.
fn rescale(
    kind: &Kind,
    observed: &Observed,
    replicas: i32,
    steps: &mut Steps<'_>,
) -> Result<Result<(), String>, Plan> {
    let namespace = &observed.autoscaler.meta.namespace;
    let mut scale = observed.scale.clone();
    for attempt in 1.. {
        let changed = scale::update(kind, namespace, &scale, replicas, steps)?;
        let Err(failure) = changed else { break };
        if failure.code != 409 || attempt == MAX_ATTEMPTS {
            return Ok(Err(failure.message));
        }
        if let Ok(latest) = scale::get(kind, namespace, &scale.name, RETRY_DELAY, steps)? {
            scale = latest;
        }
    }
    Ok(Ok(()))
}

/// Returns the group of the target's `apiVersion`, or the error that it is no group and version.
fn group_of(api_version: &str) -> Result<&str, String> {
    match *api_version.split('/').collect::<Vec<_>>() {
        [_] => Ok(""),
        [group, _] => Ok(group),
        _ => Err(format!("unexpected GroupVersion string: {api_version}")),
    }
}

#[cfg(test)]
mod tests;
