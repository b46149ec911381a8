//! Pod failure policy (KEP-3329) and success policy (KEP-3998). Upstream: `pod_failure_policy.go`, `success_policy.go`.

use super::indexes::Indexes;
use evenkeel_api::views::{
    ContainerStatus, Job, OnExitCodes, Pod, PodFailurePolicyRule, SuccessPolicyRule,
};

/// Action for a failed pod, by the first matching rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PodFailurePolicyAction {
    /// The Job fails, with this message.
    FailJob(String),
    /// The pod's index fails.
    FailIndex,
    /// The failure does not count towards `backoffLimit` or `backoffLimitPerIndex`.
    Ignore,
    /// A rule says that the failure counts.
    Count,
    /// No rule matches, and the failure counts.
    Unmatched,
}

impl PodFailurePolicyAction {
    /// Returns whether the failure counts towards `backoffLimit` or `backoffLimitPerIndex`.
    pub(super) fn counts_failure(&self) -> bool {
        *self != Self::Ignore
    }

    /// Returns the value of the metric's label `action`; `None` if no rule matched.
    pub(super) fn metric_label(&self) -> Option<&'static str> {
        match self {
            Self::FailJob(_) => Some("FailJob"),
            Self::FailIndex => Some("FailIndex"),
            Self::Ignore => Some("Ignore"),
            Self::Count => Some("Count"),
            Self::Unmatched => None,
        }
    }
}

/// Returns the action of the first rule that matches the failed pod. Upstream: `matchPodFailurePolicy`.
pub(super) fn match_pod_failure_policy(job: &Job, pod: &Pod) -> PodFailurePolicyAction {
    let rules = job.spec.pod_failure_policy.iter().flat_map(|policy| policy.rules.iter());
    let mut actions = rules.enumerate().filter_map(|(index, rule)| {
        let match_message = match_rule(rule, pod)?;
        match &*rule.action {
            "FailJob" => Some(PodFailurePolicyAction::FailJob(format!(
                "{match_message} matching FailJob rule at index {index}"
            ))),
            "FailIndex" => Some(PodFailurePolicyAction::FailIndex),
            "Ignore" => Some(PodFailurePolicyAction::Ignore),
            "Count" => Some(PodFailurePolicyAction::Count),
            _ => None,
        }
    });
    actions.next().unwrap_or(PodFailurePolicyAction::Unmatched)
}

/// Returns the message about the match of a rule and a pod, or `None` if the rule does not match. Upstream:
/// `matchOnExitCodes`, `matchOnPodConditions`.
fn match_rule(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let namespace = &pod.meta.namespace;
    let name = &pod.meta.name;
    if let Some(codes) = &rule.on_exit_codes {
        let mut statuses =
            pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
        return statuses.find_map(|status| {
            let container = &status.name;
            let code = matching_exit_code(status, codes)?;
            Some(format!(
                "Container {container} for pod {namespace}/{name} failed with exit code {code}"
            ))
        });
    }
    let condition = pod.status.conditions.iter().find(|condition| {
        let mut patterns = rule.on_pod_conditions.iter();
        patterns
            .any(|pattern| pattern.type_ == condition.type_ && pattern.status == condition.status)
    })?;
    Some(format!("Pod {namespace}/{name} has condition {}", condition.type_))
}

/// Returns the container's exit code if it matches the requirement. Exit code 0 never matches.
fn matching_exit_code(status: &ContainerStatus, requirement: &OnExitCodes) -> Option<i32> {
    let code = status.state.terminated.as_ref()?.exit_code;
    if !requirement.container_name.is_empty() && requirement.container_name != status.name {
        return None;
    }
    let is_listed = requirement.values.contains(&code);
    let matches = match &*requirement.operator {
        "In" => is_listed,
        "NotIn" => !is_listed,
        _ => false,
    };
    (matches && code != 0).then_some(code)
}

/// Returns the message of the first success policy rule that the succeeded indexes satisfy. Upstream:
/// `matchSuccessPolicy`.
pub(super) fn match_success_policy(
    job: &Job,
    completions: u32,
    succeeded: &Indexes,
) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let mut rules = job.spec.success_policy.iter().flat_map(|policy| policy.rules.iter());
    let index = rules.position(|rule| is_met(rule, completions, succeeded))?;
    Some(format!("Matched rules at index {index}"))
}

/// Returns whether the succeeded indexes meet a rule of the success policy. Without `succeededIndexes`, all succeeded
/// indexes count towards `succeededCount`.
fn is_met(rule: &SuccessPolicyRule, completions: u32, succeeded: &Indexes) -> bool {
    let reaches_count = |succeeded: usize| {
        let count = rule.succeeded_count.and_then(|count| usize::try_from(count).ok());
        count.is_some_and(|count| succeeded >= count)
    };
    let Some(text) = &rule.succeeded_indexes else { return reaches_count(succeeded.total()) };
    let required = Indexes::parse(text, completions);
    let succeeded_of_required = required.overlap(succeeded);
    !required.is_empty()
        && (succeeded_of_required == required.total() || reaches_count(succeeded_of_required))
}
