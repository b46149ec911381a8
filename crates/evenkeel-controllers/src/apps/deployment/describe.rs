//! Description of a Deployment for `evenkeel explain`: ReplicaSets, progress, and what it waits for.

use super::{
    annotations,
    observed::Observed,
    progress,
    sets::SetCopy,
    status,
    sync::{DeploymentSync, PROGRESSING},
};
use crate::{wire, words};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::introspect::Description;

/// Maximum number of old ReplicaSets listed by name.
const MAX_LISTED: usize = 5;

/// Describes the observed state, the awaited changes and the ReplicaSets.
pub(super) fn describe(observed: &Observed, now: Timestamp) -> Description {
    let (sync, mut description) = (DeploymentSync::decide(observed, now), Description::new());
    let spec = &observed.deployment.spec;
    description.fact("wanted", words::count(i64::from(sync.limits.desired), "pod"));
    let (most, least) = (sync.limits.max_replicas(), sync.limits.min_available());
    let strategy = if sync.is_rolling() {
        format!("{}: at most {most} pods, at least {least} available", spec.strategy.type_)
    } else {
        spec.strategy.type_.to_string()
    };
    description.fact("strategy", strategy);
    if let Some(revision) = observed.deployment.meta.annotations.get(annotations::REVISION) {
        description.fact("revision", revision);
    }
    sets(&sync, &mut description);
    for condition in &sync.conditions {
        let text = format!("{} ({}) {}", condition.status, condition.reason, condition.message);
        description.fact(&condition.type_.to_lowercase(), text.trim_end());
    }
    waits(&sync, &mut description);
    for set in &observed.sets {
        description.child(&wire::target(&**set));
    }
    description
}

fn sets(sync: &DeploymentSync<'_>, description: &mut Description) {
    // Show the existing sets: the listed actions already contain the changes.
    let present = |index: usize| sync.observed.sets.get(index).map(SetCopy::unchanged);
    match sync.observed.new.and_then(present) {
        Some(set) => description.fact("new set", counts(&set)),
        None => description.fact("new set", "none has the deployment's template"),
    }
    let old = (0..sync.observed.sets.len()).filter(|index| Some(*index) != sync.observed.new);
    let old: Vec<SetCopy<'_>> = old.filter_map(present).collect();
    let in_use: Vec<_> =
        old.iter().filter(|set| set.replicas > 0 || set.status().replicas > 0).collect();
    for set in in_use.iter().take(MAX_LISTED) {
        description.fact("old set", counts(set));
    }
    if in_use.len() > MAX_LISTED {
        description.fact("old sets", format!("{} more with pods", in_use.len() - MAX_LISTED));
    }
    let n_unused = old.len() - in_use.len();
    if n_unused > 0 {
        description.fact(
            "history",
            format!("{} without pods", words::count(words::signed(n_unused), "set")),
        );
    }
    let claims = &sync.observed.claims;
    if claims.n_to_adopt > 0 || !claims.release.is_empty() {
        let text =
            format!("{} to be adopted, {} to be released", claims.n_to_adopt, claims.release.len());
        description.fact("unclaimed", text);
    }
}

fn counts(set: &SetCopy<'_>) -> String {
    let status = set.status();
    let lags = set.present.is_some_and(|set| set.status.observed_generation < set.meta.generation);
    format!(
        "{}: {} wanted, {} there, {} ready, {} available{}",
        set.name,
        set.replicas,
        status.replicas,
        status.ready_replicas,
        status.available_replicas,
        if lags { " (its controller has not seen its last change yet)" } else { "" }
    )
}

fn waits(sync: &DeploymentSync<'_>, description: &mut Description) {
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
    rollout(sync, description);
    if let Some(left) = status::until_stuck_now(sync) {
        description.waits(format!("progress deadline in {}", words::go_duration(left)));
    }
    let stuck = progress::condition(&sync.conditions, PROGRESSING)
        .is_some_and(|condition| &*condition.reason == status::TIMED_OUT);
    if stuck {
        description
            .waits("the rollout has passed its progress deadline; it goes on as soon as pods do");
    }
}

fn rollout(sync: &DeploymentSync<'_>, description: &mut Description) {
    let desired = sync.limits.desired;
    let Some(set) = sync.observed.new.and_then(|index| sync.observed.sets.get(index)) else {
        return;
    };
    let available = set.status.available_replicas;
    if available < desired {
        let name = &set.meta.name;
        description
            .waits(format!("{available} of {desired} pods of the new set {name} are available"));
    }
    let old: i32 = sync
        .old()
        .filter_map(|index| sync.sets[index].present)
        .fold(0, |sum: i32, set| sum.saturating_add(set.status.replicas));
    if old > 0 {
        let pods = words::count(i64::from(old), "pod");
        description.waits(format!("old sets still have {pods}"));
    }
    if !sync.observed.running.is_empty() && available < desired && !sync.is_rolling() {
        description.waits("old pods have to end before new ones are made");
    }
}
