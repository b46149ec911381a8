//! What a failed pod means (KEP-3329), and when a Job is complete before all of its indexes are (KEP-3998).

use super::indexes::Indexes;
use evenkeel_api::views::{
    ContainerStatus, Job, OnExitCodes, Pod, PodFailurePolicyRule, SuccessPolicyRule,
};

/// What a failed pod means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The Job fails, for this reason.
    FailJob(String),
    /// Its index fails.
    FailIndex,
    /// It is as if it had not failed.
    Ignore,
    /// It is counted, as a rule says.
    Count,
    /// It is counted, as no rule says otherwise.
    Unmatched,
}

impl Meaning {
    /// Whether the failure counts towards limits.
    pub(super) fn counts(&self) -> bool {
        *self != Self::Ignore
    }

    /// The rule's action, as metrics name it.
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

/// What the failure of this pod means: the first rule that matches it says.
pub(super) fn meaning(job: &Job, pod: &Pod) -> Meaning {
    let rules = job.spec.pod_failure_policy.iter().flat_map(|policy| policy.rules.iter());
    let mut told = rules.enumerate().filter_map(|(at, rule)| {
        let why = matched(rule, pod)?;
        match &*rule.action {
            "FailJob" => {
                Some(Meaning::FailJob(format!("{why} matching FailJob rule at index {at}")))
            }
            "FailIndex" => Some(Meaning::FailIndex),
            "Ignore" => Some(Meaning::Ignore),
            "Count" => Some(Meaning::Count),
            _ => None,
        }
    });
    told.next().unwrap_or(Meaning::Unmatched)
}

/// What of the pod the rule matches.
fn matched(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let id = format_args!("{}/{}", pod.meta.namespace, pod.meta.name).to_string();
    if let Some(codes) = &rule.on_exit_codes {
        let statuses =
            pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
        let (name, code) = statuses.filter_map(|status| exited(status, codes)).next()?;
        return Some(format!("Container {name} for pod {id} failed with exit code {code}"));
    }
    let condition = pod.status.conditions.iter().find(|condition| {
        let mut wanted = rule.on_pod_conditions.iter();
        wanted.any(|want| want.type_ == condition.type_ && want.status == condition.status)
    })?;
    Some(format!("Pod {id} has condition {}", condition.type_))
}

fn exited<'a>(status: &'a ContainerStatus, codes: &OnExitCodes) -> Option<(&'a str, i32)> {
    let code = status.state.terminated.as_ref()?.exit_code;
    let named = codes.container_name.is_empty() || codes.container_name == status.name;
    let listed = codes.values.contains(&code);
    let wanted = match &*codes.operator {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    };
    (named && wanted && code != 0).then_some((&*status.name, code))
}

/// Why the Job is complete with these indexes, if its success policy says so.
pub(super) fn success(job: &Job, completions: u32, succeeded: &Indexes) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let rules = job.spec.success_policy.iter().flat_map(|policy| policy.rules.iter());
    let met = rules.enumerate().find(|(_, rule)| is_met(rule, completions, succeeded));
    met.map(|(at, _)| format!("Matched rules at index {at}"))
}

fn is_met(rule: &SuccessPolicyRule, completions: u32, succeeded: &Indexes) -> bool {
    let enough = |have: usize| {
        let count = rule.succeeded_count.and_then(|count| usize::try_from(count).ok());
        count.is_some_and(|count| have >= count)
    };
    let Some(text) = &rule.succeeded_indexes else { return enough(succeeded.total()) };
    let wanted = Indexes::parse(text, completions);
    let have = wanted.overlap(succeeded);
    !wanted.is_empty() && (have == wanted.total() || enough(have))
}
