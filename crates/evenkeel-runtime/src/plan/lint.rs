//! Rules for all plans. Debug builds and the planners' tests check each plan.

use super::{Action, Plan, Target};
use evenkeel_api::Kind;
use std::collections::HashSet;

/// Maximum number of objects that one plan creates.
///
/// Upstream: `BurstReplicas`.
pub const BURST_LIMIT: u64 = 500;

/// Returns the violations of the rules in `plan`.
pub fn lint(plan: &Plan) -> Vec<String> {
    let mut violations = Vec::new();
    let created: u64 = plan.actions.iter().map(created_count).sum();
    if created > BURST_LIMIT {
        violations.push(format!("{created} objects created in one plan, more than {BURST_LIMIT}"));
    }
    let mut deleted = HashSet::new();
    for target in plan.actions.iter().filter_map(deleted_target) {
        if !deleted.insert(identity(target)) {
            violations.push(format!("{} deleted twice", describe(target)));
        }
    }
    for target in plan.actions.iter().filter_map(adopted_target) {
        if deleted.contains(&identity(target)) {
            violations.push(format!("{} both adopted and deleted", describe(target)));
        }
    }
    violations.extend(plan.actions.iter().filter_map(without_object_name));
    violations
}

/// Returns the number of objects that an action creates.
fn created_count(action: &Action) -> u64 {
    match action {
        Action::Create(create) => u64::from(create.count),
        _ => 0,
    }
}

fn deleted_target(action: &Action) -> Option<&Target> {
    match action {
        Action::Delete(delete) => Some(&delete.target),
        _ => None,
    }
}

fn changed_target(action: &Action) -> Option<&Target> {
    match action {
        Action::Patch(patch) => Some(&patch.target),
        Action::Update(update) => Some(&update.target),
        Action::Rewrite(rewrite) => Some(&rewrite.target),
        _ => None,
    }
}

/// Returns the object that a patch adopts. Only adoptions have a live precondition.
fn adopted_target(action: &Action) -> Option<&Target> {
    match action {
        Action::Patch(patch) if patch.if_live.is_some() => Some(&patch.target),
        _ => None,
    }
}

/// Returns an error for a write without a name, or without the namespace that its kind requires, because it would
/// affect the collection.
fn without_object_name(action: &Action) -> Option<String> {
    let target = deleted_target(action).or_else(|| changed_target(action))?;
    let wrong_scope = target.kind.namespaced == target.namespace.is_empty();
    (target.name.is_empty() || wrong_scope).then(|| format!("{} names no object", describe(target)))
}

fn identity(target: &Target) -> (&Kind, &str, &str) {
    (&target.kind, &target.namespace, &target.name)
}

fn describe(target: &Target) -> String {
    format!("{} {}/{}", target.kind.plural, target.namespace, target.name)
}

#[cfg(test)]
mod tests {
    use super::super::{Create, Delete, Patch, PatchType};
    use super::*;

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);

    fn pod(name: &str) -> Target {
        Target::new(PODS, "default", name, "uid")
    }

    #[test]
    fn a_sound_plan_passes() {
        let mut plan = Plan::nothing();
        plan.push(Patch::new(pod("a"), PatchType::Merge, "{}"));
        plan.push(Delete::new(pod("b")));
        plan.push(Create { count: 500, ..Create::new(PODS, "default", "{}") });
        assert_eq!(lint(&plan), Vec::<String>::new());
    }

    #[test]
    fn each_violation_is_reported() {
        let mut plan = Plan::nothing();
        plan.push(Patch {
            if_live: Some(pod("owner")),
            ..Patch::new(pod("a"), PatchType::Merge, "{}")
        });
        plan.push(Delete::new(pod("a")));
        plan.push(Delete::new(pod("a")));
        plan.push(Delete::new(pod("")));
        plan.push(Create { count: 501, ..Create::new(PODS, "default", "{}") });
        assert_eq!(
            lint(&plan),
            [
                "501 objects created in one plan, more than 500",
                "pods default/a deleted twice",
                "pods default/a both adopted and deleted",
                "pods default/ names no object",
            ]
        );
    }
}
