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
    /// The failure does not count towards `backoffLimit`.
    Ignore,
    /// The failure counts, by a rule.
    Count,
    /// No rule matches, and the failure counts.
    Unmatched,
}

impl PodFailurePolicyAction {
    /// Whether the failure counts towards `backoffLimit`.
    pub(super) fn counts(&self) -> bool {
        *self != Self::Ignore
    }

    /// Returns the action's name in metrics.
    pub(super) fn action(&self) -> Option<&'static str> {
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
        let why = matched(rule, pod)?;
        match &*rule.action {
            "FailJob" => Some(PodFailurePolicyAction::FailJob(format!(
                "{why} matching FailJob rule at index {index}"
            ))),
            "FailIndex" => Some(PodFailurePolicyAction::FailIndex),
            "Ignore" => Some(PodFailurePolicyAction::Ignore),
            "Count" => Some(PodFailurePolicyAction::Count),
            _ => None,
        }
    });
    actions.next().unwrap_or(PodFailurePolicyAction::Unmatched)
}

/// Returns the message about the match of a rule and a pod; `None` if the rule does not match. Upstream:
/// `matchOnExitCodes`, `matchOnPodConditions`.
fn matched(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let id = format_args!("{}/{}", pod.meta.namespace, pod.meta.name).to_string();
    if let Some(codes) = &rule.on_exit_codes {
        let statuses =
            pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
        let (name, code) = statuses.filter_map(|status| exited(status, codes)).next()?;
        return Some(format!("Container {name} for pod {id} failed with exit code {code}"));
    }
    let condition = pod.status.conditions.iter().find(|condition| {
        let mut patterns = rule.on_pod_conditions.iter();
        patterns
            .any(|pattern| pattern.type_ == condition.type_ && pattern.status == condition.status)
    })?;
    Some(format!("Pod {id} has condition {}", condition.type_))
}

/// Returns the container's name and exit code if they match the requirement. Exit code 0 never matches.
fn exited<'a>(status: &'a ContainerStatus, codes: &OnExitCodes) -> Option<(&'a str, i32)> {
    let code = status.state.terminated.as_ref()?.exit_code;
    let named = codes.container_name.is_empty() || codes.container_name == status.name;
    let listed = codes.values.contains(&code);
    let matches = match &*codes.operator {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    };
    (named && matches && code != 0).then_some((&*status.name, code))
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
    let rules = job.spec.success_policy.iter().flat_map(|policy| policy.rules.iter());
    let met = rules.enumerate().find(|(_, rule)| is_met(rule, completions, succeeded));
    met.map(|(index, _)| format!("Matched rules at index {index}"))
}

fn is_met(rule: &SuccessPolicyRule, completions: u32, succeeded: &Indexes) -> bool {
    let enough = |succeeded_of_required: usize| {
        let count = rule.succeeded_count.and_then(|count| usize::try_from(count).ok());
        count.is_some_and(|count| succeeded_of_required >= count)
    };
    let Some(text) = &rule.succeeded_indexes else { return enough(succeeded.total()) };
    let required = Indexes::parse(text, completions);
    let succeeded_of_required = required.overlap(succeeded);
    !required.is_empty()
        && (succeeded_of_required == required.total() || enough(succeeded_of_required))
}
