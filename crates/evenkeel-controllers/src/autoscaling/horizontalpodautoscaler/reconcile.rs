//! Steps of a reconciliation: reads the scale, reads the metrics, updates the scale, and writes the status. Upstream:
//! `reconcileAutoscaler`.

use super::{
    Options,
    metric::{self, MetricError, Proposal, ReadResult},
    plan::{self, Approach, Decision, Observed, Pods, Proposals, ReconcileError},
    readings::MetricsClient,
    replicas::CalculatorInputs,
    selectors::{self, Selectors},
    stabilization::HpaHistory,
    status::StatusBuilder,
};
use crate::scale::{self, Scale, Step};
use evenkeel_api::{
    Kind, Text,
    selector::Selector,
    time::Timestamp,
    views::{HorizontalPodAutoscaler, MetricSpec},
};
use evenkeel_runtime::plan::{Action, Failure, Key, OnError, Plan, Steps, Update};
use std::{sync::Arc, time::Duration};

/// Maximum number of attempts to update a scale. Conflicts are retried. Upstream: `retry.DefaultRetry`.
const MAX_UPDATE_ATTEMPTS: u32 = 5;

/// Delay before the scale is read again for a further attempt.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Inputs of a reconciliation that come from caches and earlier reconciliations.
pub(super) struct CachedAutoscaler {
    pub(super) key: Key,
    pub(super) autoscaler: Arc<HorizontalPodAutoscaler>,
    /// Pods of the namespace.
    pub(super) pods: Pods,
    /// Selectors of the namespace's autoscalers, as of their last reconciliations.
    pub(super) selectors: Selectors,
    /// The version of the custom metrics API, if a reconciliation has discovered it.
    pub(super) custom_version: Option<DiscoveredVersion>,
}

/// The server's preferred version of the custom metrics API.
#[derive(Debug, Clone)]
pub(super) struct DiscoveredVersion {
    pub(super) version: Text,
    /// Time of the discovery.
    pub(super) at: Timestamp,
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

/// Kind of error, as metrics name it. Upstream: `ErrorLabel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorLabel {
    /// There is no error.
    NoError,
    /// The autoscaler's spec is invalid.
    Spec,
    /// Another error, such as a failed request.
    Internal,
}

impl ErrorLabel {
    /// Returns the label of an error.
    fn of_error(is_spec_error: bool) -> Self {
        if is_spec_error { Self::Spec } else { Self::Internal }
    }
}

/// Computation of one metric of the autoscaler, for the controller's Prometheus metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Computation {
    /// Type of the metric, such as `Resource`.
    pub(super) metric_type: Text,
    pub(super) action: ScalingAction,
    pub(super) error: ErrorLabel,
    pub(super) took: Duration,
}

/// Result of a complete reconciliation.
pub(super) struct Reconciliation {
    pub(super) result: Result<(), ReconcileError>,
    pub(super) action: ScalingAction,
    /// Desired replicas, if they were computed.
    pub(super) desired: Option<i32>,
    /// History for the next reconciliation.
    pub(super) history: HpaHistory,
    /// Selector of the target's pods, if it was needed.
    pub(super) selector: Option<Selector>,
    /// The preferred version of the custom metrics API, if this reconciliation discovered it.
    pub(super) custom_version: Option<Text>,
    pub(super) computations: Vec<Computation>,
}

/// Reconciles an autoscaler, and requeues it after the sync period. Upstream: `reconcileKey`.
pub(super) fn plan(
    cached: &CachedAutoscaler,
    history: &HpaHistory,
    options: &Options,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<Plan, Plan> {
    Ok(match reconcile_autoscaler(cached, history, options, now, steps)?.result {
        Ok(()) => Plan { requeue: Some(options.sync_period), ..Plan::nothing() },
        Err(error) => Plan::failure(error.message),
    })
}

/// Reconciles an autoscaler with the outcomes of the steps so far. Once all steps are carried out, returns the results
/// for metrics and for later reconciliations. Upstream: `reconcileAutoscaler`.
///
/// # Errors
/// `Err` contains the plan of a step that the runtime has not executed yet.
pub(super) fn reconcile_autoscaler(
    cached: &CachedAutoscaler,
    history: &HpaHistory,
    options: &Options,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<Reconciliation, Plan> {
    let mut reconciliation = Reconciliation {
        result: Ok(()),
        action: ScalingAction::Nothing,
        desired: None,
        history: history.clone(),
        selector: None,
        custom_version: None,
        computations: Vec::new(),
    };
    let autoscaler = &cached.autoscaler;
    let (kind, scale) = match scale_for_resource_mappings(autoscaler, steps)? {
        Ok(found) => found,
        Err(why) => {
            let builder = plan::status_without_scale(autoscaler, &why, now);
            // Even if the status update also fails, the reconciliation reports the error of the scale.
            let _ = write_status(&builder, autoscaler, steps)?;
            reconciliation.result = Err(scale_error(autoscaler, &why));
            return Ok(reconciliation);
        }
    };
    let observed = Observed { autoscaler: autoscaler.clone(), scale };
    let approach = plan::choose_approach(&observed, options);
    let proposals = match approach {
        Approach::UseMetrics => {
            propose_all(cached, &observed, options, now, &mut reconciliation, steps)?
        }
        Approach::Disabled | Approach::UseBound { .. } => Proposals::Each(Vec::new()),
    };
    let history = &mut reconciliation.history;
    let decision = plan::decide_replicas(&observed, approach, proposals, history, options, now);
    let scale_update = match &decision.rescale_reason {
        Some(_) => Some(rescale(&kind, &observed, decision.desired, steps)?),
        None => None,
    };
    let builder =
        plan::conclude(&observed, &decision, scale_update.as_ref(), history, options, now);
    let status_update = write_status(&builder, autoscaler, steps)?;
    reconciliation.set_result(&observed, decision, scale_update, status_update.err());
    Ok(reconciliation)
}

impl Reconciliation {
    /// Returns the label of the result in metrics.
    pub(super) fn error_label(&self) -> ErrorLabel {
        match &self.result {
            Ok(()) => ErrorLabel::NoError,
            Err(error) => ErrorLabel::of_error(error.is_spec_error),
        }
    }

    /// Sets the action, the desired replicas and the result. An error of the scale update has precedence over other
    /// errors.
    fn set_result(
        &mut self,
        observed: &Observed,
        decision: Decision,
        scale_update: Option<Result<(), String>>,
        status_error: Option<&Failure>,
    ) {
        let name = &observed.autoscaler.meta.name;
        let internal = |message| Err(ReconcileError { message, is_spec_error: false });
        if let Some(Err(error)) = scale_update {
            self.result = internal(format!("failed to rescale: {error}"));
            return;
        }
        self.action = ScalingAction::of(observed.scale.replicas, decision.desired);
        self.desired = (!decision.has_failed).then_some(decision.desired);
        self.result = match (status_error, decision.error) {
            (Some(failure), _) if !decision.has_failed => {
                internal(format!("failed to update status for {name}: {failure}"))
            }
            (_, Some(error)) => Err(error),
            (_, None) => Ok(()),
        };
    }
}

/// Returns the error of a reconciliation whose scale cannot be read.
fn scale_error(autoscaler: &HorizontalPodAutoscaler, why: &str) -> ReconcileError {
    let target = &autoscaler.spec.scale_target_ref;
    let is_spec_error = group_of(&target.api_version).is_err();
    let message = if is_spec_error {
        format!("invalid API version in scale target reference: {why}")
    } else {
        let kind = &target.kind;
        let name = &target.name;
        let namespace = &autoscaler.meta.namespace;
        format!("failed to query scale subresource for {kind}/{namespace}/{name}: {why}")
    };
    ReconcileError { message, is_spec_error }
}

/// Records the events and writes the status. Returns the error of the write.
fn write_status<'a>(
    builder: &StatusBuilder,
    autoscaler: &HorizontalPodAutoscaler,
    steps: &mut Steps<'a>,
) -> Step<(), &'a Failure> {
    let actions = builder.plan(autoscaler).actions.into_iter().map(|action| match action {
        Action::Update(update) => Update { on_error: OnError::Ignore, ..update }.into(),
        other => other,
    });
    let outcomes = steps.all(Plan::of(actions.collect()))?;
    Ok(outcomes.iter().find_map(|outcome| outcome.error.as_ref()).map_or(Ok(()), Err))
}

/// Returns the scale target's resource and scale. If several resources have this kind, returns the first whose scale
/// can be read. Upstream: `scaleForResourceMappings`.
fn scale_for_resource_mappings(
    autoscaler: &HorizontalPodAutoscaler,
    steps: &mut Steps<'_>,
) -> Step<(Kind, Scale), String> {
    let target = &autoscaler.spec.scale_target_ref;
    let group = match group_of(&target.api_version) {
        Ok(group) => group,
        Err(why) => return Ok(Err(why)),
    };
    let resources = match scale::resources_in_group(group, &target.kind, steps)? {
        Ok(resources) => resources,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let namespace = &autoscaler.meta.namespace;
    let mut first_error = None;
    for resource in resources {
        match scale::get(&resource.kind, namespace, &target.name, Duration::ZERO, steps)? {
            Ok(scale) => return Ok(Ok((resource.kind, scale))),
            Err(failure) => {
                first_error.get_or_insert(failure.message);
            }
        }
    }
    Ok(Err(first_error.unwrap_or_else(|| "unrecognized resource".to_owned())))
}

/// Reads all metrics and returns their proposals. Upstream: `computeReplicasForMetrics`.
fn propose_all(
    cached: &CachedAutoscaler,
    observed: &Observed,
    options: &Options,
    now: Timestamp,
    reconciliation: &mut Reconciliation,
    steps: &mut Steps<'_>,
) -> Result<Proposals, Plan> {
    let selector_text = &observed.scale.selector;
    let selector = match selectors::parse(selector_text) {
        Ok(selector) => selector,
        Err(error) => return Ok(Proposals::Unselected(error)),
    };
    let mut pods = cached.pods.clone();
    pods.retain(|pod| selector.matches(&pod.meta.labels));
    let selector = &*reconciliation.selector.insert(selector);
    let key = &cached.key;
    let selectors = &cached.selectors;
    if let Err(error) = selectors::check_unambiguous(selectors, key, selector_text, selector, &pods)
    {
        return Ok(Proposals::Unselected(error));
    }
    let known_version = known_version(cached, options, now);
    let mut version = known_version.clone();
    let mut client = MetricsClient {
        namespace: &key.namespace,
        pod_selector: selector,
        custom_version: &mut version,
    };
    let mut results = Vec::new();
    for metric in &observed.autoscaler.spec.metrics {
        let took_before = steps.took();
        let read = client.read(metric, steps)?;
        let proposal = propose(metric, read, observed, &pods, options, now);
        let took = steps.took().saturating_sub(took_before);
        reconciliation.computations.push(computation(metric, &proposal, observed, took));
        results.push(proposal);
    }
    if known_version.is_none() {
        reconciliation.custom_version = version;
    }
    Ok(Proposals::Each(results))
}

/// Returns the preferred version of the custom metrics API, if it was discovered within the sync period.
fn known_version(cached: &CachedAutoscaler, options: &Options, now: Timestamp) -> Option<Text> {
    let DiscoveredVersion { version, at } = cached.custom_version.as_ref()?;
    let age = Duration::try_from(now.duration_since(*at)).ok()?;
    (age < options.sync_period).then(|| version.clone())
}

/// Returns the computation of a metric for the controller's Prometheus metrics.
fn computation(
    metric: &MetricSpec,
    proposal: &Result<Proposal, MetricError>,
    observed: &Observed,
    took: Duration,
) -> Computation {
    let current = observed.autoscaler.status.current_replicas;
    let (action, error) = match proposal {
        Ok(proposal) => (ScalingAction::of(current, proposal.replicas), ErrorLabel::NoError),
        Err(error) => (ScalingAction::Nothing, ErrorLabel::of_error(error.is_spec_error)),
    };
    Computation { metric_type: metric.type_.clone(), action, error, took }
}

/// Returns the replicas that a metric proposes.
fn propose(
    metric: &MetricSpec,
    read: ReadResult,
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

/// Updates the scale. After a conflict, reads the scale again and retries. Upstream: `RetryOnConflict` around
/// `reconcileAutoscaler`.
fn rescale(
    kind: &Kind,
    observed: &Observed,
    replicas: i32,
    steps: &mut Steps<'_>,
) -> Step<(), String> {
    let namespace = &observed.autoscaler.meta.namespace;
    let mut scale = observed.scale.clone();
    for attempt in 1.. {
        let result = scale::update(kind, namespace, &scale, replicas, steps)?;
        let Err(failure) = result else { break };
        if failure.code != 409 || attempt == MAX_UPDATE_ATTEMPTS {
            return Ok(Err(failure.message));
        }
        if let Ok(latest) = scale::get(kind, namespace, &scale.name, RETRY_DELAY, steps)? {
            scale = latest;
        }
    }
    Ok(Ok(()))
}

/// Returns the group of an `apiVersion`. Fails if the `apiVersion` has more than a group and a version.
fn group_of(api_version: &str) -> Result<&str, String> {
    match *api_version.split('/').collect::<Vec<_>>() {
        [_] => Ok(""),
        [group, _] => Ok(group),
        _ => Err(format!("unexpected GroupVersion string: {api_version}")),
    }
}

#[cfg(test)]
mod tests;
