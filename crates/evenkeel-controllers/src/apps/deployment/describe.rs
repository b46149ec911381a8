//! Description of a Deployment for `evenkeel explain`: its ReplicaSets, its progress, and the changes that it waits
//! for.

use super::{
    annotations,
    observed::Observed,
    progress,
    sets::PlannedSet,
    status,
    sync::{DeploymentSync, PROGRESSING},
};
use crate::{wire, words};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::introspect::Description;

/// Maximum number of old ReplicaSets listed by name.
const MAX_LISTED: usize = 5;

/// Describes the observed state, the pending changes and the ReplicaSets.
pub(super) fn describe(observed: &Observed, now: Timestamp) -> Description {
    let sync = DeploymentSync::decide(observed, now);
    let mut description = Description::new();
    description.fact("wanted", words::count(i64::from(sync.limits.desired), "pod"));
    let mut strategy = observed.deployment.spec.strategy.type_.to_string();
    if sync.is_rolling() {
        let max_replicas = words::count(i64::from(sync.limits.max_replicas()), "pod");
        let min_available = sync.limits.min_available();
        strategy += &format!(": at most {max_replicas}, at least {min_available} available");
    }
    description.fact("strategy", strategy);
    if let Some(revision) = observed.deployment.meta.annotations.get(annotations::REVISION) {
        description.fact("revision", revision);
    }
    describe_sets(&sync, &mut description);
    for condition in &sync.conditions {
        let text = format!("{} ({}) {}", condition.status, condition.reason, condition.message);
        description.fact(&condition.type_.to_lowercase(), text.trim_end());
    }
    describe_waits(&sync, &mut description);
    for set in &observed.sets {
        description.child(&wire::target(&**set));
    }
    description
}

/// Adds facts about the existing sets, without the planned changes. `evenkeel explain` prints the planned actions
/// separately.
fn describe_sets(sync: &DeploymentSync<'_>, description: &mut Description) {
    let sets = &sync.observed.sets;
    let new_index = sync.observed.new_index;
    match new_index.and_then(|index| sets.get(index)) {
        Some(set) => description.fact("new set", format_counts(&PlannedSet::unchanged(set))),
        None => description.fact("new set", "none has the deployment's template"),
    }
    let old_sets = sets.iter().enumerate().filter(|(index, _)| Some(*index) != new_index);
    let (with_pods, without_pods): (Vec<_>, Vec<_>) = old_sets
        .map(|(_, set)| PlannedSet::unchanged(set))
        .partition(|set| set.replicas > 0 || set.status().replicas > 0);
    for set in with_pods.iter().take(MAX_LISTED) {
        description.fact("old set", format_counts(set));
    }
    if with_pods.len() > MAX_LISTED {
        description.fact("old sets", format!("{} more with pods", with_pods.len() - MAX_LISTED));
    }
    if !without_pods.is_empty() {
        let count = words::count(words::signed(without_pods.len()), "set");
        description.fact("history", format!("{count} without pods"));
    }
    let claims = &sync.observed.claims;
    if claims.n_to_adopt > 0 || !claims.release.is_empty() {
        let text =
            format!("{} to be adopted, {} to be released", claims.n_to_adopt, claims.release.len());
        description.fact("unclaimed", text);
    }
}

/// Formats the name, the replica counts and the staleness of a set.
fn format_counts(set: &PlannedSet<'_>) -> String {
    let status = set.status();
    let is_status_stale =
        set.existing.is_some_and(|set| set.status.observed_generation < set.meta.generation);
    format!(
        "{}: {} wanted, {} there, {} ready, {} available{}",
        set.name,
        set.replicas,
        status.replicas,
        status.ready_replicas,
        status.available_replicas,
        if is_status_stale { " (its controller has not seen its last change yet)" } else { "" }
    )
}

/// Adds the changes that the Deployment waits for.
fn describe_waits(sync: &DeploymentSync<'_>, description: &mut Description) {
    let deployment = &*sync.observed.deployment;
    let spec = &deployment.spec;
    if spec.selector.is_everything() {
        description.waits("it selects all pods: nothing is done until its selector says which");
        return;
    }
    if let Some(error) = spec.selector.error() {
        description.waits(format!("its selector cannot be read: {error}"));
        return;
    }
    if deployment.meta.deleting() {
        description.waits("it is being deleted: its sets are left as they are");
        return;
    }
    if spec.paused {
        description.waits("paused: new templates are not rolled out until it is resumed");
        return;
    }
    describe_rollout(sync, description);
    if let Some(remaining) = status::until_deadline_check_after_plan(sync) {
        description.waits(format!("progress deadline in {}", words::go_duration(remaining)));
    }
    let is_timed_out = progress::find_condition(&sync.conditions, PROGRESSING)
        .is_some_and(|condition| &*condition.reason == status::TIMED_OUT);
    if is_timed_out {
        description
            .waits("the rollout has passed its progress deadline; it goes on as soon as pods do");
    }
}

/// Adds the pods that the rollout waits for: unavailable pods of the new set, and remaining pods of old sets.
fn describe_rollout(sync: &DeploymentSync<'_>, description: &mut Description) {
    let desired = sync.limits.desired;
    let Some(set) = sync.observed.new_index.and_then(|index| sync.observed.sets.get(index)) else {
        return;
    };
    let available = set.status.available_replicas;
    if available < desired {
        let name = &set.meta.name;
        description
            .waits(format!("{available} of {desired} pods of the new set {name} are available"));
    }
    let old_pods: i32 = sync
        .old_indexes()
        .filter_map(|index| sync.sets[index].existing)
        .fold(0, |sum: i32, set| sum.saturating_add(set.status.replicas));
    if old_pods > 0 {
        let pods = words::count(i64::from(old_pods), "pod");
        description.waits(format!("old sets still have {pods}"));
    }
    if !sync.observed.running_sets.is_empty() && available < desired && !sync.is_rolling() {
        description.waits("old pods have to end before new ones are made");
    }
}
