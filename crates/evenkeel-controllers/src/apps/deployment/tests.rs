//! Goldens of single syncs, and properties of whole rollouts on a simulated cluster.

mod describe;
mod progress;
mod steps;

use super::{
    annotations,
    observed::{Observed, generate_set_name},
    plan::plan,
    status::status,
};
use crate::fixtures::{T0, at, object, owned_by};
use evenkeel_api::{
    StrMap,
    shared::Shared,
    time::Timestamp,
    views::{Deployment, Pod, ReplicaSet},
};
use evenkeel_runtime::plan::{Action, EventRecord, Failure, OnError, Outcome, Outcomes, Plan};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

/// Returns the Deployment `web` with the image `one` and these limits of its rolling update.
fn deployment(replicas: i32, surge: &Value, unavailable: &Value) -> Deployment {
    object(&json!({
        "metadata": { "name": "web", "namespace": "ns", "uid": "d", "resourceVersion": "1", "generation": 1,
            "labels": { "app": "web" }, "annotations": { "team": "a" } },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template("one"),
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } },
            "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600 },
    }))
}

fn deployment_of_4() -> Deployment {
    deployment(4, &json!("25%"), &json!("25%"))
}

/// A simulated cluster: a Deployment, its ReplicaSets, and the controller's events and writes.
#[derive(Clone)]
struct World {
    deployment: Deployment,
    sets: Vec<ReplicaSet>,
    now: Timestamp,
    events: Vec<EventRecord>,
    writes: Vec<String>,
}

impl World {
    fn new(deployment: Deployment) -> Self {
        Self { deployment, sets: Vec::new(), now: T0, events: Vec::new(), writes: Vec::new() }
    }

    /// Returns a cluster whose rollout is complete, without the events and writes so far.
    fn rolled_out(deployment: Deployment) -> Self {
        let mut world = Self::new(deployment);
        world.settle();
        world.clear_log();
        world
    }

    /// Returns a cluster in the middle of a rollout: ReplicaSets of these sizes, with these numbers of available pods,
    /// oldest first. The last one has the Deployment's template. The Deployment's status still reports the last
    /// complete rollout.
    fn rolling_out(deployment: Deployment, sets: &[(i32, i32)]) -> Self {
        let mut world = Self::new(deployment);
        for n in 0..sets.len() {
            world.change_image(&n.to_string());
            world.settle();
        }
        for (set, (replicas, available)) in world.sets.iter_mut().zip(sets) {
            set.spec.replicas = Some(*replicas);
            set.status.replicas = (*replicas).max(*available);
            set.status.available_replicas = *available;
            set.status.ready_replicas = *available;
        }
        world.clear_log();
        world
    }

    fn clear_log(&mut self) {
        self.events.clear();
        self.writes.clear();
    }

    fn observed(&self) -> Observed {
        let get_set = |name: &str| {
            self.sets.iter().find(|set| *set.meta.name == *name).cloned().map(Arc::new)
        };
        Observed::new(
            Arc::new(self.deployment.clone()),
            self.sets.iter().cloned().map(Arc::new),
            get_set,
        )
    }

    /// Runs one sync of the controller. Returns whether it wrote anything.
    fn sync(&mut self) -> bool {
        let observed = self.observed();
        let next = plan(&observed, self.now);
        assert_eq!(evenkeel_runtime::plan::lint(&next), Vec::<String>::new());
        let outcomes = Outcomes(next.actions.iter().map(|action| self.apply(action)).collect());
        let status = status(&observed, &outcomes, self.now);
        for action in &status.actions {
            self.apply(action);
        }
        !next.actions.is_empty() || !status.actions.is_empty()
    }

    fn apply(&mut self, action: &Action) -> Outcome {
        let done = match action {
            Action::Create(create) => {
                let mut set: ReplicaSet = object(&serde_json::from_slice(&create.body).unwrap());
                set.meta.uid = format!("uid-of-{}", set.meta.name).into();
                set.meta.creation = Some(at(self.sets.len().try_into().unwrap()));
                set.meta.generation = 1;
                self.writes.push(format!(
                    "create {} with {}",
                    set.meta.name,
                    set.spec.replicas.unwrap()
                ));
                self.sets.push(set);
                create.done.clone()
            }
            Action::Update(update) if update.subresource.is_empty() => {
                let written: ReplicaSet = object(&serde_json::from_slice(&update.body).unwrap());
                let set =
                    self.sets.iter_mut().find(|set| set.meta.name == written.meta.name).unwrap();
                assert_eq!(set.spec.selector, written.spec.selector);
                assert_eq!(set.spec.template, written.spec.template);
                assert_eq!(
                    (&set.meta.labels, &set.meta.owners),
                    (&written.meta.labels, &written.meta.owners)
                );
                self.writes.push(format!(
                    "update {} to {}",
                    set.meta.name,
                    written.spec.replicas.unwrap()
                ));
                set.meta.generation += 1;
                set.meta.annotations = written.meta.annotations;
                set.spec = written.spec;
                update.done.clone()
            }
            Action::Update(update) => {
                let written: Deployment = object(&serde_json::from_slice(&update.body).unwrap());
                self.writes.push("status".into());
                self.deployment.status = written.status;
                self.deployment.meta.annotations = written.meta.annotations;
                update.done.clone()
            }
            Action::Delete(delete) => {
                self.writes.push(format!("delete {}", delete.target.name));
                self.sets.retain(|set| *set.meta.name != *delete.target.name);
                delete.done.clone()
            }
            Action::Patch(patch) => {
                let owners = owned_by(&self.deployment);
                self.writes.push(format!("patch {}", patch.target.name));
                let set =
                    self.sets.iter_mut().find(|set| *set.meta.name == *patch.target.name).unwrap();
                set.meta.owners = if patch.if_live.is_some() { owners } else { Shared::default() };
                None
            }
            Action::Rewrite(rewrite) => {
                self.rewrite(&serde_json::from_slice(&rewrite.body).unwrap());
                rewrite.done.clone()
            }
            Action::Read(_) | Action::DeleteCollection(_) | Action::Local(_) => {
                unreachable!("not in a Deployment's plan")
            }
            Action::Event(event) => Some(event.clone()),
        };
        self.events.extend(done);
        Outcome::success()
    }

    fn rewrite(&mut self, changes: &Value) {
        self.writes.push("rewrite".into());
        self.deployment.meta.generation += 1;
        for change in changes.as_array().unwrap() {
            match change["path"].as_str().unwrap() {
                "/metadata/annotations" => {
                    let meta = object::<Deployment>(
                        &json!({ "metadata": { "annotations": change["value"] } }),
                    )
                    .meta;
                    self.deployment.meta.annotations = meta.annotations;
                }
                "/spec/template" => {
                    let spec =
                        object::<Deployment>(&json!({ "spec": { "template": change["value"] } }))
                            .spec;
                    self.deployment.spec.template = spec.template;
                }
                path => panic!("{path} is changed"),
            }
        }
    }

    /// Acts as the ReplicaSet controller and the kubelets: removes surplus pods, unavailable ones first. Makes
    /// `quarters` / 4 of the missing pods available.
    fn catch_up(&mut self, index: usize, quarters: i32) {
        let set = &mut self.sets[index];
        let replicas = set.spec.replicas.unwrap();
        let status = &mut set.status;
        status.available_replicas = status.available_replicas.min(replicas);
        status.available_replicas += (replicas - status.available_replicas) * quarters / 4;
        status.replicas = replicas;
        status.ready_replicas = status.available_replicas;
        status.fully_labeled_replicas = replicas;
        status.terminating_replicas = Some(0);
        status.observed_generation = set.meta.generation;
    }

    /// Alternates the ReplicaSet controller and syncs until neither changes anything.
    fn settle(&mut self) {
        for _ in 0..300 {
            let before: Vec<_> = self.sets.iter().map(|set| set.status.clone()).collect();
            (0..self.sets.len()).for_each(|index| self.catch_up(index, 4));
            let is_caught_up = self.sets.iter().map(|set| &set.status).eq(before.iter());
            if !self.sync() && is_caught_up {
                return;
            }
        }
        panic!("does not settle: {:?}", &self.writes[self.writes.len() - 10..]);
    }

    /// Changes the image in the template, as a user's update does.
    fn change_image(&mut self, image: &str) {
        let spec = json!({ "spec": { "template": template(image) } });
        self.deployment.spec.template = object::<Deployment>(&spec).spec.template;
        self.deployment.meta.generation += 1;
    }

    fn scale(&mut self, replicas: i32) {
        self.deployment.spec.replicas = Some(replicas);
        self.deployment.meta.generation += 1;
    }

    fn sizes(&self) -> Vec<i32> {
        self.sets.iter().map(|set| set.spec.replicas.unwrap()).collect()
    }

    fn condition(&self, type_: &str) -> String {
        let found = self.deployment.status.conditions.iter().find(|c| &*c.type_ == type_);
        found.map_or_else(String::new, |c| format!("{} {}: {}", c.status, c.reason, c.message))
    }

    /// Returns writes and events, one per line. ReplicaSets are named by index instead of by hash.
    fn story(&self) -> String {
        let events = self.events.iter().map(|event| format!("{}: {}", event.reason, event.message));
        let mut story: String =
            self.writes.iter().cloned().chain(events).map(|line| line + "\n").collect();
        for (n, set) in self.sets.iter().enumerate() {
            story = story.replace(&*set.meta.name, &format!("web-{n}"));
        }
        story
    }
}

#[track_caller]
fn check(world: &World, golden: &Expect) {
    golden.assert_eq(&world.story());
}

#[test]
fn new_deployment_creates_a_replica_set() {
    let mut world = World::new(deployment_of_4());
    world.sync();
    check(
        &world,
        &expect![[r#"
        create web-0 with 4
        status
        ScalingReplicaSet: Scaled up replica set web-0 from 0 to 4
    "#]],
    );
    let set = &world.sets[0];
    let annotations: Vec<_> = set.meta.annotations.iter().collect();
    let golden = [
        ("deployment.kubernetes.io/desired-replicas", "4"),
        ("deployment.kubernetes.io/max-replicas", "5"),
        ("deployment.kubernetes.io/revision", "1"),
        ("team", "a"),
    ];
    assert_eq!(annotations, golden);
    let hash = set.meta.labels.get("pod-template-hash").unwrap();
    assert_eq!(set.meta.name, format!("web-{hash}").into());
    assert_eq!(set.spec.template.labels.get("pod-template-hash"), Some(hash));
    assert!(set.spec.selector.matches(&set.meta.labels));
    assert!(set.meta.is_controlled_by("d"));
    assert_eq!(world.deployment.meta.annotations.get(annotations::REVISION), Some("1"));
    assert_eq!(
        world.condition("Available"),
        "False MinimumReplicasUnavailable: Deployment does not have minimum availability."
    );
    let created =
        format!("True NewReplicaSetCreated: Created new replica set \"{}\"", set.meta.name);
    assert_eq!(world.condition("Progressing"), created);
}

#[test]
fn rolling_update_completes() {
    let mut world = World::rolled_out(deployment_of_4());
    assert!(world.condition("Progressing").starts_with("True NewReplicaSetAvailable: ReplicaSet"));
    world.change_image("two");
    world.settle();
    check(
        &world,
        &expect![[r#"
        create web-1 with 1
        update web-0 to 3
        status
        update web-1 to 2
        status
        update web-0 to 1
        status
        update web-1 to 4
        status
        update web-0 to 0
        status
        status
        ScalingReplicaSet: Scaled up replica set web-1 from 0 to 1
        ScalingReplicaSet: Scaled down replica set web-0 from 4 to 3
        ScalingReplicaSet: Scaled up replica set web-1 from 1 to 2
        ScalingReplicaSet: Scaled down replica set web-0 from 3 to 1
        ScalingReplicaSet: Scaled up replica set web-1 from 2 to 4
        ScalingReplicaSet: Scaled down replica set web-0 from 1 to 0
    "#]],
    );
    assert_eq!(world.sizes(), [0, 4]);
    assert_eq!(world.deployment.meta.annotations.get(annotations::REVISION), Some("2"));
    world.clear_log();
    assert!(!world.sync());
}

#[test]
fn scaling_resizes_the_only_active_replica_set() {
    let mut world = World::rolled_out(deployment_of_4());
    world.scale(7);
    world.settle();
    check(
        &world,
        &expect![[r#"
        update web-0 to 7
        status
        status
        ScalingReplicaSet: Scaled up replica set web-0 from 4 to 7
    "#]],
    );
}

#[test]
fn scaling_during_a_rollout_is_proportional() {
    let mut world = World::rolled_out(deployment(10, &json!(3), &json!(2)));
    world.change_image("two");
    world.sync();
    assert_eq!(world.sizes(), [8, 3]);
    world.scale(30);
    world.sync();
    assert_eq!(world.sizes().iter().sum::<i32>(), 33);
    check(
        &world,
        &expect![[r#"
        create web-1 with 3
        update web-0 to 8
        status
        update web-0 to 25
        update web-1 to 8
        status
        ScalingReplicaSet: Scaled up replica set web-1 from 0 to 3
        ScalingReplicaSet: Scaled down replica set web-0 from 10 to 8
        ScalingReplicaSet: Scaled up replica set web-0 from 8 to 25
        ScalingReplicaSet: Scaled up replica set web-1 from 3 to 8
    "#]],
    );
}

#[test]
fn paused_deployment_scales_without_rollout() {
    let mut world = World::rolled_out(deployment_of_4());
    world.deployment.spec.paused = true;
    world.change_image("two");
    world.scale(6);
    world.settle();
    assert_eq!(world.condition("Progressing"), "Unknown DeploymentPaused: Deployment is paused");
    assert_eq!(world.sizes(), [6]);
    world.deployment.spec.paused = false;
    world.sync();
    assert_eq!(world.sizes().len(), 2);
    let created = format!(
        "True NewReplicaSetCreated: Created new replica set \"{}\"",
        world.sets[1].meta.name
    );
    assert_eq!(world.condition("Progressing"), created);
}

#[test]
fn recreate_waits_for_old_pods_to_stop() {
    let mut start = deployment_of_4();
    start.spec.strategy.type_ = "Recreate".into();
    let mut world = World::rolled_out(start);
    world.change_image("two");
    world.sync();
    assert_eq!(world.sizes(), [0]);
    world.catch_up(0, 4);
    // The set's status counts no pods, but one still runs.
    let running = Pod { meta: crate::fixtures::meta("p"), ..Pod::default() };
    let observed = world.observed().with_pods(|_| [Arc::new(running.clone())]);
    assert_eq!(plan(&observed, T0), Plan::nothing());
    let mut ended = running;
    ended.status.phase = "Succeeded".into();
    let observed = world.observed().with_pods(|_| [Arc::new(ended.clone())]);
    assert_eq!(plan(&observed, T0).actions.len(), 1);
    world.settle();
    check(
        &world,
        &expect![[r#"
        update web-0 to 0
        status
        create web-1 with 4
        status
        status
        ScalingReplicaSet: Scaled down replica set web-0 from 4 to 0
        ScalingReplicaSet: Scaled up replica set web-1 from 0 to 4
    "#]],
    );
}

fn roll_back_to(world: &mut World, revision: &str) {
    let annotations = &mut world.deployment.meta.annotations;
    *annotations = annotations.with(annotations::ROLLBACK_TO, revision);
}

#[test]
fn rollback_restores_template_and_annotations() {
    let mut world = World::rolled_out(deployment_of_4());
    let first = world.deployment.spec.template.clone();
    world.change_image("two");
    world.deployment.meta.annotations = world.deployment.meta.annotations.with("team", "b");
    world.settle();
    roll_back_to(&mut world, "0");
    world.clear_log();
    world.settle();
    check(
        &world,
        &expect![[r#"
        rewrite
        update web-0 to 1
        status
        update web-1 to 2
        status
        update web-0 to 3
        status
        update web-1 to 0
        status
        update web-0 to 4
        status
        status
        DeploymentRollback: Rolled back deployment "web" to revision 1
        ScalingReplicaSet: Scaled up replica set web-0 from 0 to 1
        ScalingReplicaSet: Scaled down replica set web-1 from 4 to 2
        ScalingReplicaSet: Scaled up replica set web-0 from 1 to 3
        ScalingReplicaSet: Scaled down replica set web-1 from 2 to 0
        ScalingReplicaSet: Scaled up replica set web-0 from 3 to 4
    "#]],
    );
    assert_eq!(world.deployment.spec.template, first);
    assert_eq!(world.sizes(), [4, 0]);
    let annotations: Vec<_> = world.deployment.meta.annotations.iter().collect();
    assert_eq!(annotations, [(annotations::REVISION, "3"), ("team", "a")]);
    assert_eq!(world.sets[0].meta.annotations.get(annotations::REVISION_HISTORY), Some("1"));
}

#[test]
fn rollback_without_effect_is_reported_and_cleared() {
    for (to, golden) in [
        (
            "0",
            expect![[r#"
            rewrite
            status
            DeploymentRollbackRevisionNotFound: Unable to find last revision.
        "#]],
        ),
        (
            "7",
            expect![[r#"
            rewrite
            status
            DeploymentRollbackRevisionNotFound: Unable to find the revision to rollback to.
        "#]],
        ),
        (
            "1",
            expect![[r#"
            rewrite
            status
            DeploymentRollbackTemplateUnchanged: The rollback revision contains the same template as current deployment "web"
        "#]],
        ),
    ] {
        let mut world = World::rolled_out(deployment_of_4());
        roll_back_to(&mut world, to);
        world.settle();
        check(&world, &golden);
        assert_eq!(world.deployment.meta.annotations.get(annotations::ROLLBACK_TO), None);
    }
}

#[test]
fn rollout_times_out_after_progress_deadline_seconds() {
    let mut world = World::rolled_out(deployment_of_4());
    world.change_image("two");
    world.sync();
    world.catch_up(0, 4);
    world.catch_up(1, 0);
    while world.sync() {
        world.catch_up(0, 4);
        world.catch_up(1, 0);
    }
    let observed = world.observed();
    let wait = status(&observed, &Outcomes::default(), at(100));
    assert_eq!(wait.requeue.map(|after| after.as_secs()), Some(501));
    assert!(wait.actions.is_empty());
    world.now = at(601);
    world.sync();
    let name = &world.sets[1].meta.name;
    let timed_out =
        format!("False ProgressDeadlineExceeded: ReplicaSet \"{name}\" has timed out progressing.");
    assert_eq!(world.condition("Progressing"), timed_out);
    assert_eq!(status(&world.observed(), &Outcomes::default(), at(700)), Plan::nothing());
}

fn failure(code: u16, reason: &str) -> Failure {
    let message = "refused".into();
    Failure { code, reason: reason.into(), message, namespace_terminating: false }
}

/// Returns the outcome of a plan whose only action failed with this error.
fn failed(failure: Failure) -> Outcomes {
    Outcomes(vec![Outcome::failure(failure)])
}

#[test]
fn failed_replica_set_creation_sets_progressing() {
    let world = World::new(deployment_of_4());
    let next = plan(&world.observed(), T0);
    assert!(
        matches!(&next.actions[..], [Action::Create(create)] if create.on_error == OnError::SkipRest)
    );
    let mut after = world.clone();
    let forbidden = failed(failure(403, "Forbidden"));
    for action in status(&world.observed(), &forbidden, T0).actions {
        after.apply(&action);
    }
    let name = super::observed::new_set_name(&world.deployment);
    let text = format!("Failed to create new replica set \"{name}\": refused");
    assert_eq!(after.condition("Progressing"), format!("False ReplicaSetCreateError: {text}"));
    assert_eq!(after.events[0].message, text);
    let terminating = failed(Failure { namespace_terminating: true, ..failure(403, "Forbidden") });
    assert_eq!(status(&world.observed(), &terminating, T0), Plan::nothing());
}

#[test]
fn terminating_replicas_need_the_gate() {
    let world = World::rolled_out(deployment_of_4());
    assert_eq!(world.deployment.status.terminating_replicas, Some(0));
    let observed = Observed { counts_terminating: false, ..world.observed() };
    let after = status(&observed, &Outcomes::default(), world.now);
    let Some(Action::Update(update)) = after.actions.first() else { panic!("{after:?}") };
    let body: Value = serde_json::from_slice(&update.body).unwrap();
    assert_eq!(body["status"]["terminatingReplicas"], Value::Null);
}

#[test]
fn name_collision_increments_collision_count() {
    let mut world = World::new(deployment_of_4());
    let name = super::observed::new_set_name(&world.deployment);
    let name_taken = failed(failure(409, "AlreadyExists"));
    assert_eq!(
        status(&world.observed(), &name_taken, T0),
        Plan::nothing(),
        "the cache may be stale"
    );
    let mut rival: ReplicaSet = object(&json!({ "spec": { "template": template("other") } }));
    rival.meta = crate::fixtures::meta(&name);
    rival.meta.owners =
        owned_by(&object::<Deployment>(&json!({ "metadata": { "name": "x", "uid": "x" } })));
    world.sets.push(rival);
    for action in status(&world.observed(), &name_taken, T0).actions {
        world.apply(&action);
    }
    assert_eq!(world.deployment.status.collision_count, Some(1));
    assert_ne!(super::observed::new_set_name(&world.deployment), name);
    // After 20 collisions the count stays: the hash of the created sets does not match.
    world.deployment.status.collision_count = Some(20);
    world.sets[0].meta = crate::fixtures::meta(&super::observed::new_set_name(&world.deployment));
    for action in status(&world.observed(), &name_taken, T0).actions {
        world.apply(&action);
    }
    assert_eq!(world.deployment.status.collision_count, Some(20));
    assert!(world.condition("Progressing").starts_with("False ReplicaSetCreateError"));
}

#[test]
fn empty_selector_creates_no_replica_set() {
    let mut world = World::new(deployment_of_4());
    world.deployment.spec.selector =
        object::<Deployment>(&json!({ "spec": { "selector": {} } })).spec.selector;
    world.sync();
    check(
        &world,
        &expect![[r#"
        status
        SelectingAll: This deployment is selecting all pods. A non-empty selector is required.
    "#]],
    );
    assert_eq!(world.deployment.status.observed_generation, 1);
    assert!(world.sets.is_empty());
}

#[test]
fn revision_history_limit_deletes_the_oldest() {
    let mut start = deployment_of_4();
    start.spec.revision_history_limit = Some(2);
    let mut world = World::rolled_out(start);
    for image in ["two", "three", "four", "five"] {
        world.change_image(image);
        world.settle();
    }
    let revisions: Vec<_> =
        world.sets.iter().map(|set| annotations::revision(&set.meta.annotations)).collect();
    assert_eq!(revisions, [Some(3), Some(4), Some(5)]);
}

#[test]
fn orphan_with_the_template_is_adopted() {
    let mut world = World::rolled_out(deployment_of_4());
    world.sets[0].meta.owners = Shared::default();
    world.settle();
    assert_eq!(world.sets.len(), 1);
    assert!(world.sets[0].meta.is_controlled_by("d"));
    assert_eq!(world.story(), "patch web-0\n");
}

#[test]
fn replica_set_name_is_truncated_to_253_characters() {
    let name = generate_set_name(&"a".repeat(253), "5f6bc9d8f7");
    assert_eq!(name.len(), 253);
    assert!(name.ends_with("a-5f6bc9d8f7"));
}

#[test]
fn revision_history_annotation_has_at_most_2000_characters() {
    let entries = |annotations: &StrMap| {
        annotations.get(annotations::REVISION_HISTORY).unwrap_or_default().to_owned()
    };
    let mut annotations: StrMap = [(annotations::REVISION, "1")].into_iter().collect();
    for n in 2..=600 {
        annotations = annotations::for_new_set(&annotations, &StrMap::default(), n);
    }
    let history = entries(&annotations);
    assert!(
        history.len() <= 2000 && history.ends_with("598,599") && !history.starts_with("1,"),
        "{history}"
    );
    let invalid: StrMap = [(annotations::REVISION, "odd")].into_iter().collect();
    assert_eq!(annotations::for_new_set(&invalid, &StrMap::default(), 7), invalid);
}

#[derive(Debug, Clone)]
enum Step {
    Sync,
    CatchUp { set: usize, quarters: i32 },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Sync),
        (0..4usize, 0..=4i32).prop_map(|(set, quarters)| Step::CatchUp { set, quarters }),
    ]
}

fn any_limit() -> impl Strategy<Value = Value> {
    prop_oneof![(0..8i32).prop_map(|n| json!(n)), (0..=100i32).prop_map(|n| json!(format!("{n}%")))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rollout_keeps_max_surge_and_max_unavailable(
        replicas in 0..25i32, surge in any_limit(), unavailable in any_limit(),
        steps in prop::collection::vec(any_step(), 0..60), images in prop::collection::vec("[abc]", 1..4),
    ) {
        let mut world = World::rolled_out(deployment(replicas, &surge, &unavailable));
        let limits = super::limits::RolloutLimits::resolve(&world.deployment);
        let mut steps = steps.into_iter();
        for image in images {
            world.change_image(&image);
            for step in steps.by_ref().take(20) {
                let available = |world: &World| world.sets.iter().map(|set| set.status.available_replicas.min(set.spec.replicas.unwrap())).sum::<i32>();
                match step {
                    Step::Sync => {
                        let before = available(&world);
                        world.sync();
                        prop_assert!(world.sizes().iter().sum::<i32>() <= limits.max_replicas());
                        prop_assert!(available(&world) >= limits.min_available().min(before));
                    }
                    Step::CatchUp { set, quarters } if set < world.sets.len() => world.catch_up(set, quarters),
                    Step::CatchUp { .. } => {}
                }
            }
        }
        world.settle();
        let wanted = &world.deployment.spec.template;
        let updated = world.sets.iter().filter(|set| set.spec.template.equal_ignoring_hash(wanted));
        prop_assert_eq!(updated.map(|set| set.spec.replicas.unwrap()).sum::<i32>(), replicas);
        prop_assert_eq!(world.sizes().iter().sum::<i32>(), replicas);
    }

    #[test]
    fn scaling_at_any_time_converges(
        sizes in prop::collection::vec(0..40i32, 1..5), steps in prop::collection::vec(any_step(), 0..40), recreate: bool,
    ) {
        let mut start = deployment(5, &json!(2), &json!("30%"));
        if recreate {
            start.spec.strategy.type_ = "Recreate".into();
        }
        let mut world = World::rolled_out(start);
        let mut steps = steps.into_iter();
        world.change_image("two");
        for size in &sizes {
            world.scale(*size);
            for step in steps.by_ref().take(8) {
                match step {
                    Step::Sync => drop(world.sync()),
                    Step::CatchUp { set, quarters } if set < world.sets.len() => world.catch_up(set, quarters),
                    Step::CatchUp { .. } => {}
                }
            }
        }
        world.settle();
        prop_assert_eq!(world.sizes(), [0, *sizes.last().unwrap()]);
    }

    #[test]
    fn plan_is_independent_of_replica_set_order(seed in any::<[bool; 3]>()) {
        let mut world = World::rolled_out(deployment_of_4());
        world.change_image("two");
        world.sync();
        let expected = plan(&world.observed(), T0);
        if seed[0] {
            world.sets.reverse();
        }
        prop_assert_eq!(plan(&world.observed(), T0), expected);
    }
}
