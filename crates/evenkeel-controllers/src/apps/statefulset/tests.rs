//! Scenarios of single StatefulSets, and properties of whole rollouts on a simulated cluster.

mod describe;
mod retention;
mod rules;

use super::{identity, observed::Observed, plan::plan, status::status, strategy::Features};
use crate::{
    fixtures::{T0, at, object, owned_by},
    needs::Gates,
    pods,
};
use evenkeel_api::{
    shared::Shared,
    time::Timestamp,
    views::{ControllerRevision, PersistentVolumeClaim, Pod, StatefulSet},
};
use evenkeel_runtime::plan::{Action, EventRecord, Failure, Outcome, Outcomes, Target};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

/// Returns the StatefulSet `db` with the image `one`, changed by this merge patch.
fn set(replicas: i32, changes: &Value) -> StatefulSet {
    let mut set = json!({
        "metadata": { "name": "db", "namespace": "ns", "uid": "set", "resourceVersion": "1", "generation": 1 },
        "spec": { "replicas": replicas, "serviceName": "dbs", "selector": { "matchLabels": { "app": "db" } },
            "template": template("one"), "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } } },
    });
    merge(&mut set, changes);
    object(&set)
}

/// Applies a JSON merge patch (RFC 7386), but sets a field to null where a merge patch would remove it.
fn merge(document: &mut Value, change: &Value) {
    let Value::Object(fields) = change else {
        *document = change.clone();
        return;
    };
    for (key, value) in fields {
        merge(&mut document[key.as_str()], value);
    }
}

fn parallel() -> Value {
    json!({ "spec": { "podManagementPolicy": "Parallel" } })
}

fn with_claims(retention: &Value) -> Value {
    json!({ "spec": {
        "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"] } }],
        "persistentVolumeClaimRetentionPolicy": retention,
    } })
}

/// A simulated cluster: a StatefulSet, its pods, revisions and claims, and the log of the controller's actions.
#[derive(Debug, Clone)]
struct World {
    set: StatefulSet,
    pods: Vec<Pod>,
    revisions: Vec<ControllerRevision>,
    claims: Vec<PersistentVolumeClaim>,
    now: Timestamp,
    log: Vec<String>,
    /// The API server forbids the creation of objects whose names contain this text.
    forbidden_name: &'static str,
    features: Features,
    created_objects: i64,
}

impl World {
    fn new(set: StatefulSet) -> Self {
        Self {
            set,
            pods: Vec::new(),
            revisions: Vec::new(),
            claims: Vec::new(),
            now: T0,
            log: Vec::new(),
            forbidden_name: "nobody",
            features: Features::of(&Gates::default()),
            created_objects: 0,
        }
    }

    /// Returns a cluster whose rollout is complete, with an empty log.
    fn rolled_out(set: StatefulSet) -> Self {
        let mut world = Self::new(set);
        world.settle();
        world.log.clear();
        world
    }

    fn observed(&self) -> Observed {
        Observed::new(
            Arc::new(self.set.clone()),
            self.pods.iter().cloned().map(Arc::new),
            self.revisions.iter().cloned().map(Arc::new),
            |name| self.revisions.iter().find(|r| *r.meta.name == *name).cloned().map(Arc::new),
            |name| self.claims.iter().find(|c| *c.meta.name == *name).cloned().map(Arc::new),
            self.features,
        )
    }

    /// Runs one sync of the controller. Returns whether it wrote anything.
    fn sync(&mut self) -> bool {
        let observed = self.observed();
        let next = plan(&observed, self.now);
        assert_eq!(evenkeel_runtime::plan::lint(&next), Vec::<String>::new());
        let mut outcomes = Outcomes::default();
        for action in &next.actions {
            let outcome = self.apply(action);
            let failed = outcome.error.is_some();
            outcomes.0.push(outcome);
            if failed {
                break;
            }
        }
        let status = status(&observed, &outcomes, self.now);
        for action in &status.actions {
            self.apply(action);
        }
        let is_write = |action: &Action| !matches!(action, Action::Event(_));
        let mut attempts = next.actions.iter().zip(&outcomes.0);
        attempts.any(|(action, outcome)| outcome.error.is_none() && is_write(action))
            || status.actions.iter().any(is_write)
    }

    fn apply(&mut self, action: &Action) -> Outcome {
        match action {
            Action::Create(create) => {
                let body: Value = serde_json::from_slice(&create.body).unwrap();
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                // A terminating pod of another owner may still hold the name.
                let is_taken = &*create.kind.kind == "Pod"
                    && self.pods.iter().any(|other| *other.meta.name == *name);
                if is_taken || name.contains(self.forbidden_name) {
                    let (code, reason) =
                        if is_taken { (409, "AlreadyExists") } else { (403, "Forbidden") };
                    return Outcome::failure(Failure {
                        code,
                        reason: reason.into(),
                        message: "no room".into(),
                        namespace_terminating: false,
                    });
                }
                self.create(&create.kind.kind, &body);
                self.record(format!("create {name}"), create.done.as_ref());
            }
            Action::Delete(delete) => {
                self.delete(&delete.target);
                self.record(format!("delete {}", delete.target.name), delete.done.as_ref());
            }
            Action::Patch(patch) => {
                let owners =
                    if patch.if_live.is_some() { owned_by(&self.set) } else { Shared::default() };
                let name = &patch.target.name;
                let revision = self.revisions.iter_mut().find(|r| *r.meta.name == **name);
                match revision {
                    Some(revision) => revision.meta.owners = owners,
                    None => self.pod(name).meta.owners = owners,
                }
                self.record(format!("patch {name}"), None);
            }
            Action::Update(update) => {
                let written: StatefulSet = object(&serde_json::from_slice(&update.body).unwrap());
                self.set.status = written.status;
                self.log.push("status".into());
            }
            Action::Rewrite(rewrite) => {
                let body: Value = serde_json::from_slice(&rewrite.body).unwrap();
                let name = rewrite.target.name.clone();
                self.rewrite(&rewrite.target, &body);
                self.record(format!("rewrite {name}"), rewrite.done.as_ref());
            }
            Action::Read(_) | Action::DeleteCollection(_) | Action::Local(_) => {
                unreachable!("not in a StatefulSet's plan")
            }
            Action::Event(event) => {
                self.log.push(format!("  {}: {}", event.reason, event.message));
            }
        }
        Outcome::success()
    }

    fn record(&mut self, write: String, event: Option<&EventRecord>) {
        self.log.push(write);
        self.log.extend(event.map(|event| format!("  {}: {}", event.reason, event.message)));
    }

    fn create(&mut self, kind: &str, body: &Value) {
        self.created_objects += 1;
        let (uid, creation) =
            (format!("made-{}", self.created_objects).into(), Some(at(self.created_objects)));
        match kind {
            "Pod" => {
                let mut pod: Pod = object(body);
                (pod.meta.uid, pod.meta.creation) = (uid, creation);
                pod.status.phase = "Pending".into();
                self.pods.push(pod);
            }
            "PersistentVolumeClaim" => {
                let mut claim: PersistentVolumeClaim = object(body);
                (claim.meta.uid, claim.meta.creation) = (uid, creation);
                self.claims.push(claim);
            }
            _ => {
                let mut revision: ControllerRevision = object(body);
                (revision.meta.uid, revision.meta.creation) = (uid, creation);
                self.revisions.push(revision);
            }
        }
    }

    fn delete(&mut self, target: &Target) {
        match &*target.kind.kind {
            "Pod" => self.pod(&target.name).meta.deletion = Some(T0),
            _ => self.revisions.retain(|revision| *revision.meta.name != *target.name),
        }
    }

    fn rewrite(&mut self, target: &Target, body: &Value) {
        match &*target.kind.kind {
            "PersistentVolumeClaim" => {
                let owners = object::<PersistentVolumeClaim>(body).meta.owners;
                let claim = self.claims.iter_mut().find(|c| *c.meta.name == *target.name).unwrap();
                claim.meta.owners = owners;
            }
            "Pod" => {
                let pod = self.pod(&target.name);
                for change in body.as_array().unwrap() {
                    let label =
                        change["path"].as_str().unwrap().strip_prefix("/metadata/labels/").unwrap();
                    let value = change["value"].as_str().unwrap();
                    pod.meta.labels = pod.meta.labels.with(&label.replace("~1", "/"), value);
                }
            }
            _ => {
                let revision =
                    self.revisions.iter_mut().find(|r| *r.meta.name == *target.name).unwrap();
                revision.revision = body["revision"].as_i64().unwrap();
            }
        }
    }

    fn pod(&mut self, name: &str) -> &mut Pod {
        self.pods.iter_mut().find(|pod| *pod.meta.name == *name).unwrap()
    }

    /// Acts as kubelets and garbage collector: removes terminating pods and runs the others. Returns whether anything
    /// changed.
    fn run_pods(&mut self) -> bool {
        let pods_before = self.pods.len();
        // Delete the claims that a deleted pod owns.
        let deleted_pods: Vec<_> =
            self.pods.iter().filter(|p| p.meta.deleting()).map(|p| p.meta.uid.clone()).collect();
        self.claims.retain(|claim| {
            claim.meta.owners.iter().all(|owner| !deleted_pods.contains(&owner.uid))
        });
        self.pods.retain(|pod| !pod.meta.deleting());
        let mut changed = self.pods.len() != pods_before;
        for pod in &mut self.pods {
            if !pods::is_ready(pod) && !pods::is_terminal(pod) {
                *pod = with_ready_status(pod.clone());
                changed = true;
            }
        }
        changed
    }

    /// Alternates syncs and kubelets until neither changes anything.
    fn settle(&mut self) {
        for _ in 0..300 {
            if !self.sync() && !self.run_pods() {
                return;
            }
        }
        panic!("does not settle: {:#?}", &self.log[self.log.len().saturating_sub(20)..]);
    }

    /// Changes the image in the template, as a user's update does.
    fn change_image(&mut self, image: &str) {
        let spec = json!({ "spec": { "template": template(image) } });
        self.set.spec.template = object::<StatefulSet>(&spec).spec.template;
        self.set.meta.generation += 1;
    }

    fn change(&mut self, change: impl FnOnce(&mut StatefulSet)) {
        change(&mut self.set);
        self.set.meta.generation += 1;
    }

    fn images(&self) -> Vec<String> {
        let mut images: Vec<_> = self
            .pods
            .iter()
            .map(|pod| format!("{} {}", pod.meta.name, pod.spec.containers[0].image))
            .collect();
        images.sort();
        images
    }

    /// Returns the actions so far, with revisions replaced by numbers.
    fn history(&self) -> String {
        let mut text: String = self.log.iter().map(|line| format!("{line}\n")).collect();
        let mut revisions: Vec<_> = self.revisions.iter().collect();
        revisions.sort_by_key(|revision| revision.meta.creation);
        for (n, revision) in revisions.iter().enumerate() {
            text = text.replace(&*revision.meta.name, &format!("revision {n}"));
        }
        text
    }
}

fn with_ready_status(mut pod: Pod) -> Pod {
    let status = json!({ "status": { "phase": "Running",
        "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": T0.to_string() }] } });
    pod.status = object::<Pod>(&status).status;
    pod
}

#[track_caller]
fn check(world: &World, golden: &Expect) {
    golden.assert_eq(&world.history());
}

#[test]
fn ordered_ready_creates_pods_in_order() {
    let mut world = World::new(set(2, &json!({})));
    world.settle();
    check(
        &world,
        &expect![[r#"
        create revision 0
        create db-0
          SuccessfulCreate: Create Pod db-0 in StatefulSet db successful
        status
        status
        create db-1
          SuccessfulCreate: Create Pod db-1 in StatefulSet db successful
        status
        status
        status
    "#]],
    );
    let status = &world.set.status;
    assert_eq!((status.replicas, status.ready_replicas, status.current_replicas), (2, 2, 2));
    assert_eq!((status.updated_replicas, status.available_replicas), (2, 2));
    assert_eq!(
        (&status.current_revision, status.collision_count),
        (&status.update_revision, Some(0))
    );
    let observed = world.observed();
    assert!(plan(&observed, T0).is_nothing() && status_plans_nothing(&observed));
}

fn status_plans_nothing(observed: &Observed) -> bool {
    status(observed, &Outcomes::default(), T0).is_nothing()
}

#[test]
fn pod_has_its_identity_and_claims() {
    let mut world = World::new(set(1, &with_claims(&Value::Null)));
    world.set.spec.ordinals =
        object::<StatefulSet>(&json!({ "spec": { "ordinals": { "start": 7 } } })).spec.ordinals;
    let plan = plan(&world.observed(), T0);
    let bodies: Vec<String> = plan
        .actions
        .iter()
        .map(|action| match action {
            Action::Create(create) => String::from_utf8_lossy(&create.body).into_owned() + "\n",
            other => panic!("{other:?}"),
        })
        .collect();
    expect![[r#"
        {"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"db-774477d5b4","namespace":"ns","labels":{"app":"db","controller.kubernetes.io/hash":"774477d5b4"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","uid":"set","controller":true,"blockOwnerDeletion":true}]},"data":{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"db"}},"spec":{"containers":[{"image":"one","name":"c","resources":{}}]}}}},"revision":1}
        {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"labels":{"app":"db"},"name":"data-db-7","namespace":"ns"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{}},"status":{}}
        {"apiVersion":"v1","kind":"Pod","metadata":{"name":"db-7","generateName":"db-","namespace":"ns","labels":{"app":"db","apps.kubernetes.io/pod-index":"7","controller-revision-hash":"db-774477d5b4","statefulset.kubernetes.io/pod-name":"db-7"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","uid":"set","controller":true,"blockOwnerDeletion":true}]},"spec":{"containers":[{"image":"one","name":"c"}],"hostname":"db-7","subdomain":"dbs","volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"data-db-7"}}]}}
    "#]].assert_eq(&bodies.concat());
    world.settle();
    assert_eq!(world.images(), ["db-7 one"]);
}

#[test]
fn rolling_update_replaces_pods_from_the_last_ordinal() {
    let mut world = World::rolled_out(set(3, &json!({})));
    world.change_image("two");
    world.settle();
    check(
        &world,
        &expect![[r#"
        create revision 1
        delete db-2
          SuccessfulDelete: Delete Pod db-2 in StatefulSet db successful
        status
        create db-2
          SuccessfulCreate: Create Pod db-2 in StatefulSet db successful
        status
        status
        delete db-1
          SuccessfulDelete: Delete Pod db-1 in StatefulSet db successful
        status
        create db-1
          SuccessfulCreate: Create Pod db-1 in StatefulSet db successful
        status
        status
        delete db-0
          SuccessfulDelete: Delete Pod db-0 in StatefulSet db successful
        status
        create db-0
          SuccessfulCreate: Create Pod db-0 in StatefulSet db successful
        status
        status
        status
    "#]],
    );
    world.change_image("one");
    world.log.clear();
    world.sync();
    check(
        &world,
        &expect![[r#"
        rewrite revision 0
        delete db-2
          SuccessfulDelete: Delete Pod db-2 in StatefulSet db successful
        status
    "#]],
    );
}

#[test]
fn partition_keeps_lower_ordinals_at_the_old_revision() {
    let mut world = World::rolled_out(set(3, &json!({})));
    let two = json!({ "spec": { "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } } } });
    world.set.spec.update_strategy = object::<StatefulSet>(&two).spec.update_strategy;
    world.change_image("two");
    world.settle();
    assert_eq!(world.images(), ["db-0 one", "db-1 one", "db-2 two"]);
    assert_ne!(world.set.status.current_revision, world.set.status.update_revision);
    // A lost pod is recreated from the old revision.
    world.pod("db-1").meta.deletion = Some(T0);
    world.settle();
    assert_eq!(world.images(), ["db-0 one", "db-1 one", "db-2 two"]);
}

#[test]
fn max_unavailable_percentage_is_rounded_down() {
    let rolling =
        json!({ "spec": { "updateStrategy": { "rollingUpdate": { "maxUnavailable": "50%" } } } });
    let mut world = World::rolled_out(set(5, &rolling));
    world.change_image("two");
    world.sync();
    let terminating: Vec<_> =
        world.pods.iter().filter(|p| p.meta.deleting()).map(|p| &*p.meta.name).collect();
    assert_eq!(terminating, ["db-3", "db-4"]);
    assert_eq!(world.set.status.current_replicas, 3);
    world.sync();
    assert_eq!(world.pods.iter().filter(|p| p.meta.deleting()).count(), 2);
}

#[test]
fn parallel_replaces_a_broken_pod_and_scales_down_at_once() {
    let mut world = World::rolled_out(set(3, &parallel()));
    assert_eq!(world.images(), ["db-0 one", "db-1 one", "db-2 one"]);
    world.change_image("bad");
    world.sync();
    world.run_pods();
    world.sync();
    world.pod("db-2").status = object::<Pod>(&json!({ "status": { "phase": "Pending" } })).status;
    // A pod that never starts uses up `maxUnavailable`. Its replacement does not count.
    world.log.clear();
    world.change_image("good");
    world.sync();
    check(
        &world,
        &expect![[r#"
        create revision 2
        delete db-2
          SuccessfulDelete: Delete Pod db-2 in StatefulSet db successful
        status
    "#]],
    );
    world.settle();
    assert_eq!(world.images(), ["db-0 good", "db-1 good", "db-2 good"]);
    world.change(|set| set.spec.replicas = Some(1));
    world.log.clear();
    world.sync();
    check(
        &world,
        &expect![[r#"
        delete db-2
          SuccessfulDelete: Delete Pod db-2 in StatefulSet db successful
        delete db-1
          SuccessfulDelete: Delete Pod db-1 in StatefulSet db successful
        status
    "#]],
    );
}

#[test]
fn ordered_ready_scales_down_from_the_last_ordinal() {
    let mut world = World::rolled_out(set(3, &json!({})));
    world.change(|set| set.spec.replicas = Some(1));
    world.settle();
    check(
        &world,
        &expect![[r#"
        delete db-2
          SuccessfulDelete: Delete Pod db-2 in StatefulSet db successful
        status
        status
        delete db-1
          SuccessfulDelete: Delete Pod db-1 in StatefulSet db successful
        status
        status
        status
    "#]],
    );
}

#[test]
fn finished_pods_are_recreated() {
    for phase in ["Failed", "Succeeded"] {
        let mut world = World::rolled_out(set(2, &json!({})));
        let uid = world.pod("db-0").meta.uid.clone();
        world.pod("db-0").status = object::<Pod>(&json!({ "status": { "phase": phase } })).status;
        world.settle();
        assert_eq!(world.images(), ["db-0 one", "db-1 one"]);
        assert_ne!(world.pod("db-0").meta.uid, uid);
    }
}

#[test]
fn claims_are_created_before_their_pod() {
    let mut world = World::new(set(1, &with_claims(&Value::Null)));
    world.forbidden_name = "data-db";
    world.sync();
    check(
        &world,
        &expect![[r#"
        create revision 0
          FailedCreate: Create Claim data-db-0 for Pod db-0 in StatefulSet db failed error: no room
          FailedCreate: Create Pod db-0 in StatefulSet db failed error: failed to create PVC data-db-0: no room
        status
    "#]],
    );
    world.forbidden_name = "nobody";
    world.settle();
    assert_eq!(world.images(), ["db-0 one"]);
    // A pending pod cannot start without its claim, so a deleted claim is recreated.
    world.claims.clear();
    world.pod("db-0").status = object::<Pod>(&json!({ "status": { "phase": "Pending" } })).status;
    world.log.clear();
    world.sync();
    check(
        &world,
        &expect![[r#"
        create data-db-0
          SuccessfulCreate: Create Claim data-db-0 Pod db-0 in StatefulSet db success
        status
    "#]],
    );
}

#[test]
fn terminating_claim_blocks_its_pod() {
    let mut world = World::rolled_out(set(1, &with_claims(&Value::Null)));
    world.pods.clear();
    world.claims[0].meta.deletion = Some(T0);
    world.log.clear();
    world.sync();
    check(
        &world,
        &expect![[r#"
          FailedCreate: Create Pod db-0 in StatefulSet db failed error: pvc data-db-0 is being deleted
        status
    "#]],
    );
}

fn pending() -> evenkeel_api::views::PodStatus {
    object::<Pod>(&json!({ "status": { "phase": "Pending" } })).status
}

#[test]
fn parallel_terminating_claim_blocks_scale_down_and_update() {
    let mut parallel_with_claims = with_claims(&Value::Null);
    merge(&mut parallel_with_claims, &parallel());
    let mut world = World::rolled_out(set(4, &parallel_with_claims));
    world.pod("db-0").status = pending();
    world.claims[0].meta.deletion = Some(T0);
    world.pods.retain(|pod| &*pod.meta.name != "db-1");
    world.change(|set| set.spec.replicas = Some(3));
    world.change_image("two");
    world.log.clear();
    world.sync();
    // The sync deletes neither the condemned pod nor an old one, and records no event about the pending pod.
    check(
        &world,
        &expect![[r#"
        create revision 1
        create db-1
          SuccessfulCreate: Create Pod db-1 in StatefulSet db successful
        status
    "#]],
    );
    world.claims.remove(0);
    world.log.clear();
    world.sync();
    check(
        &world,
        &expect![[r#"
        create data-db-0
          SuccessfulCreate: Create Claim data-db-0 Pod db-0 in StatefulSet db success
        delete db-3
          SuccessfulDelete: Delete Pod db-3 in StatefulSet db successful
        delete db-0
          SuccessfulDelete: Delete Pod db-0 in StatefulSet db successful
        status
    "#]],
    );
}

#[test]
fn terminating_claim_blocks_the_update_of_its_pod() {
    let mut world = World::rolled_out(set(1, &with_claims(&Value::Null)));
    world.pod("db-0").spec.volumes = Default::default();
    world.claims[0].meta.deletion = Some(T0);
    world.change_image("two");
    world.log.clear();
    world.sync();
    check(
        &world,
        &expect![[r#"
        create revision 1
          FailedUpdate: Update Pod db-0 in StatefulSet db failed error: pvc data-db-0 is being deleted
        status
    "#]],
    );
}

#[test]
fn max_unavailable_is_1_without_the_gate() {
    let mut changes = parallel();
    let rolling_update =
        json!({ "spec": { "updateStrategy": { "rollingUpdate": { "maxUnavailable": 3 } } } });
    merge(&mut changes, &rolling_update);
    let mut world = World::rolled_out(set(4, &changes));
    world.features = Features::of(&Gates::new(|gate| gate != "MaxUnavailableStatefulSet"));
    world.change_image("two");
    world.pod("db-1").status = pending();
    let terminating_pods = |world: &World| -> Vec<String> {
        let terminating = world.pods.iter().filter(|pod| pod.meta.deleting());
        terminating.map(|pod| pod.meta.name.to_string()).collect()
    };
    for _ in 0..2 {
        world.sync();
        assert_eq!(
            terminating_pods(&world),
            ["db-3"],
            "the last ordinal, although another pod is not ready"
        );
    }
    world.pods.retain(|pod| !pod.meta.deleting());
    world.sync();
    world.sync();
    assert_eq!(terminating_pods(&world), [] as [&str; 0], "the update waits for the new pod");
    world.settle();
    assert_eq!(world.images(), ["db-0 two", "db-1 two", "db-2 two", "db-3 two"]);
}

fn recreate() -> Value {
    json!({ "spec": { "updateStrategy": { "type": "Recreate", "rollingUpdate": null } } })
}

#[test]
fn recreate_needs_the_gate() {
    let mut world = World::new(set(2, &recreate()));
    world.sync();
    check(
        &world,
        &expect![[r#"
        create revision 0
          UnknownStrategy: statefulset ns/db uses Recreate strategy but feature gate StatefulSetRecreateStrategy is disabled
    "#]],
    );
}

#[test]
fn recreate_deletes_all_pods_first() {
    let mut world = World::new(set(2, &recreate()));
    world.features = Features::of(&Gates::new(|_| true));
    world.settle();
    assert_eq!(world.images(), ["db-0 one", "db-1 one"]);
    world.change_image("two");
    world.log.clear();
    let conditions = |world: &World| -> Vec<String> {
        let conditions = world.set.status.conditions.iter();
        conditions.map(|c| format!("{} {}: {}", c.type_, c.status, c.reason)).collect()
    };
    world.sync();
    assert_eq!(conditions(&world), ["Progressing True: RecreateInProgress"]);
    world.pods.retain(|pod| &*pod.meta.name == "db-1");
    world.sync();
    assert_eq!(world.pods.len(), 1, "no pod is created while an old one exists");
    world.settle();
    assert_eq!(world.images(), ["db-0 two", "db-1 two"]);
    assert_eq!(conditions(&world), ["Progressing False: RecreateCompleted"]);
    check(
        &world,
        &expect![[r#"
        create revision 1
        delete db-0
          SuccessfulDelete: Delete Pod db-0 in StatefulSet db successful
        delete db-1
          SuccessfulDelete: Delete Pod db-1 in StatefulSet db successful
        status
        status
        create db-0
          SuccessfulCreate: Create Pod db-0 in StatefulSet db successful
        status
        status
        create db-1
          SuccessfulCreate: Create Pod db-1 in StatefulSet db successful
        status
        status
        status
    "#]],
    );
}

#[test]
fn claim_owners_follow_the_retention_policy() {
    let owners_of = |claim: &PersistentVolumeClaim| {
        let owners = claim.meta.owners.iter();
        owners.map(|owner| format!("{}/{}", owner.kind, owner.name)).collect::<Vec<_>>().join(",")
    };
    let claims_with_owners = |world: &World| -> Vec<String> {
        let claims = world.claims.iter();
        claims.map(|claim| format!("{}: {}", claim.meta.name, owners_of(claim))).collect()
    };
    // `whenDeleted`, `whenScaled`, and the expected owner of a replica's and of a condemned pod's claim; `None` if
    // that claim is deleted with the pod.
    for (when_deleted, when_scaled, in_range, condemned) in [
        ("Retain", "Retain", "", Some("")),
        ("Delete", "Retain", "StatefulSet/db", Some("StatefulSet/db")),
        ("Retain", "Delete", "", None),
        ("Delete", "Delete", "StatefulSet/db", None),
    ] {
        let policy = json!({ "whenDeleted": when_deleted, "whenScaled": when_scaled });
        let mut world = World::rolled_out(set(2, &with_claims(&policy)));
        assert_eq!(
            claims_with_owners(&world),
            [format!("data-db-0: {in_range}"), format!("data-db-1: {in_range}")]
        );
        world.change(|set| set.spec.replicas = Some(1));
        world.settle();
        let mut expected = vec![format!("data-db-0: {in_range}")];
        expected.extend(condemned.map(|owner| format!("data-db-1: {owner}")));
        assert_eq!(claims_with_owners(&world), expected, "{when_deleted}, {when_scaled}");
        world.change(|set| set.spec.replicas = Some(2));
        world.settle();
        assert_eq!(world.claims.len(), 2);
    }
}

#[test]
fn claim_owned_by_a_stale_pod_blocks_the_new_pod() {
    let policy = json!({ "whenDeleted": "Retain", "whenScaled": "Delete" });
    let mut world = World::rolled_out(set(1, &with_claims(&policy)));
    let owner = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "db-0", "uid": "before", "controller": true }] } });
    world.claims[0].meta.owners = object::<PersistentVolumeClaim>(&owner).meta.owners;
    world.pods.clear();
    world.sync();
    assert!(world.pods.is_empty());
    world.claims.clear();
    world.settle();
    assert_eq!(world.images(), ["db-0 one"]);
}

#[test]
fn claim_of_another_controller_is_unchanged() {
    let policy = json!({ "whenDeleted": "Delete", "whenScaled": "Retain" });
    let mut world = World::rolled_out(set(1, &with_claims(&policy)));
    let owner = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x", "controller": true }] } });
    world.claims[0].meta.owners = object::<PersistentVolumeClaim>(&owner).meta.owners;
    world.pod("db-0").status = object::<Pod>(&json!({ "status": { "phase": "Pending" } })).status;
    world.log.clear();
    world.sync();
    check(
        &world,
        &expect![[r#"
          ConflictingController: PersistentVolumeClaim data-db-0 has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim
        status
    "#]],
    );
}

/// Returns the names of the claims whose owner references the next sync changes, each with the reason of the event
/// that a failure records.
fn planned_claim_updates(world: &World) -> Vec<(String, Option<String>)> {
    let plan = plan(&world.observed(), world.now);
    let rewrites = plan.actions.iter().filter_map(|action| match action {
        Action::Rewrite(rewrite) => Some(rewrite),
        _ => None,
    });
    rewrites
        .map(|rewrite| {
            assert!(!rewrite.retries_on_conflict, "only pods' own updates are retried");
            let failure_reason = rewrite.failed.as_ref().map(|event| event.reason.to_string());
            (rewrite.target.name.to_string(), failure_reason)
        })
        .collect()
}

/// Upstream's callers of `UpdatePodClaimForRetentionPolicy` record an event, except the one for condemned pods.
#[test]
fn failed_claim_update_records_an_event_except_for_condemned_pods() {
    let policy = |deleted: &str, scaled: &str| {
        with_claims(&json!({ "whenDeleted": deleted, "whenScaled": scaled }))
    };
    let failed_update = |name: &str| (name.to_owned(), Some("FailedUpdate".to_owned()));
    for management_policy in [parallel(), json!({})] {
        let with_policy = |deleted: &str, scaled: &str| {
            let mut changes = management_policy.clone();
            merge(&mut changes, &policy(deleted, scaled));
            changes
        };
        let mut world = World::rolled_out(set(2, &with_policy("Retain", "Retain")));
        world.set.spec = set(2, &with_policy("Delete", "Retain")).spec;
        // The sync checks a pending pod's claim twice, and writes it once.
        world.pod("db-0").status =
            object::<Pod>(&json!({ "status": { "phase": "Pending" } })).status;
        let updates = planned_claim_updates(&world);
        assert_eq!(updates[0], failed_update("data-db-0"));
        assert_eq!(updates.iter().filter(|(name, _)| name == "data-db-0").count(), 1);

        let mut world = World::rolled_out(set(2, &with_policy("Retain", "Retain")));
        world.set.spec = set(1, &with_policy("Retain", "Delete")).spec;
        assert_eq!(planned_claim_updates(&world), [("data-db-1".to_owned(), None)]);
    }
}

/// Upstream's `UpdateStatefulPod` retries conflicts.
#[test]
fn pod_identity_update_retries_conflicts() {
    let mut world = World::rolled_out(set(1, &json!({})));
    let pod = world.pod("db-0");
    pod.meta.labels = pod.meta.labels.with("statefulset.kubernetes.io/pod-name", "another");
    let plan = plan(&world.observed(), world.now);
    let is_retried = plan.actions.iter().any(|action| {
        matches!(action, Action::Rewrite(change)
            if change.target.kind.kind == "Pod" && change.failed.is_some() && change.retries_on_conflict)
    });
    assert!(is_retried, "{plan:?}");
}

#[test]
fn revision_in_upstreams_encoding_is_reused() {
    let mut world = World::rolled_out(set(2, &json!({})));
    let revision = &mut world.revisions[0];
    let patch = json!({ "metadata": { "name": "db-0123" }, "revision": 4, "data": { "spec": { "template": {
        "$patch": "replace", "metadata": { "creationTimestamp": null, "labels": { "app": "db" } },
        "spec": { "containers": [{ "resources": {}, "name": "c", "image": "one" }] } } } } });
    let written: ControllerRevision = object(&patch);
    (revision.meta.name, revision.data, revision.revision) = (written.meta.name, written.data, 4);
    for pod in &mut world.pods {
        pod.meta.labels = pod.meta.labels.with(pods::REVISION_LABEL, "db-0123");
    }
    world.set.status.current_revision = "db-0123".into();
    world.set.status.update_revision = "db-0123".into();
    assert!(!world.sync(), "{}", world.history());
    // While the set is unchanged, its update revision stays, whatever its data.
    world.revisions[0].data = Default::default();
    assert!(!world.sync(), "{}", world.history());
}

#[test]
fn revision_name_collision_increments_collision_count() {
    let mut world = World::new(set(1, &json!({})));
    world.sync();
    let mut taken = world.revisions[0].clone();
    taken.meta.owners = Shared::default();
    taken.meta.labels = Default::default();
    taken.data = Default::default();
    let mut world = World::new(set(1, &json!({})));
    world.revisions.push(taken.clone());
    world.settle();
    assert_eq!(world.set.status.collision_count, Some(1));
    assert_eq!(world.revisions.len(), 2);
    assert_ne!(world.revisions[1].meta.name, taken.meta.name);
}

#[test]
fn unused_revisions_beyond_the_history_limit_are_deleted() {
    let mut world = World::rolled_out(set(1, &json!({ "spec": { "revisionHistoryLimit": 2 } })));
    for image in ["two", "three", "four", "five"] {
        world.change_image(image);
        world.settle();
    }
    let numbers: Vec<_> = world.revisions.iter().map(|revision| revision.revision).collect();
    assert_eq!(numbers, [3, 4, 5]);
}

#[test]
fn orphaned_pods_and_revisions_are_adopted() {
    let mut world = World::rolled_out(set(2, &json!({})));
    for pod in &mut world.pods {
        pod.meta.owners = Shared::default();
    }
    world.revisions[0].meta.owners = Shared::default();
    world.pod("db-1").meta.labels = crate::fixtures::label("app", "db");
    world.log.clear();
    world.settle();
    check(
        &world,
        &expect![[r#"
        patch revision 0
        patch db-0
        patch db-1
        status
        rewrite db-1
          SuccessfulUpdate: Update Pod db-1 in StatefulSet db successful
        delete db-1
          SuccessfulDelete: Delete Pod db-1 in StatefulSet db successful
        status
        status
        create db-1
          SuccessfulCreate: Create Pod db-1 in StatefulSet db successful
        status
        status
        status
    "#]],
    );
}

#[test]
fn pod_is_available_after_min_ready_seconds() {
    let mut world = World::new(set(2, &json!({ "spec": { "minReadySeconds": 30 } })));
    world.sync();
    world.run_pods();
    world.now = at(10);
    world.sync();
    assert_eq!(world.pods.len(), 1);
    let observed = world.observed();
    let after = status(&observed, &Outcomes::default(), world.now);
    assert_eq!(after.requeue, Some(std::time::Duration::from_secs(20)));
    world.now = at(31);
    world.sync();
    assert_eq!(world.pods.len(), 2);
}

#[test]
fn deleted_set_changes_no_pods() {
    let mut world = World::rolled_out(set(2, &json!({})));
    world.set.meta.deletion = Some(T0);
    world.revisions.clear();
    world.pods.pop();
    world.log.clear();
    world.sync();
    assert_eq!(world.history(), "status\n");
}

/// A pod that an earlier state of the cluster left.
#[derive(Debug, Clone)]
struct StartPod {
    ordinal: i32,
    revision: usize,
    /// The pod's phase, or `Ready`.
    state: &'static str,
    is_deleting: bool,
    is_orphan: bool,
}

fn any_start_pod() -> impl Strategy<Value = StartPod> {
    let state = prop::sample::select(&["Pending", "Running", "Ready", "Failed", "Succeeded"]);
    let is_deleting = proptest::bool::weighted(0.1);
    let is_orphan = proptest::bool::weighted(0.2);
    (0..7i32, 0..3usize, state, is_deleting, is_orphan).prop_map(
        |(ordinal, revision, state, is_deleting, is_orphan)| StartPod {
            ordinal,
            revision,
            state,
            is_deleting,
            is_orphan,
        },
    )
}

/// Returns any state that a crash, a user or another controller might have left.
fn any_world() -> impl Strategy<Value = World> {
    // Replicas, whether `OrderedReady`, partition, `maxUnavailable`, pods, number of earlier images, `whenScaled`,
    // and whether the set has claims.
    (
        0..5i32,
        proptest::bool::ANY,
        0..3i32,
        1..3i32,
        proptest::collection::vec(any_start_pod(), 0..6),
        0..3usize,
        proptest::sample::select(vec!["Retain", "Delete"]),
        proptest::bool::ANY,
    )
        .prop_map(|(replicas, ordered, partition, unavailable, pods, images, scaled, claims)| {
            let mut changes = json!({ "spec": {
                "podManagementPolicy": if ordered { "OrderedReady" } else { "Parallel" },
                "updateStrategy": { "rollingUpdate": { "partition": partition, "maxUnavailable": unavailable } },
            } });
            if claims {
                let policy = json!({ "whenDeleted": "Delete", "whenScaled": scaled });
                merge(&mut changes, &with_claims(&policy));
            }
            let mut world = World::new(set(replicas, &changes));
            for image in ["zero", "two", "three"].into_iter().take(images) {
                world.change_image(image);
                world.sync();
            }
            world.change_image("one");
            world.sync();
            world.pods.clear();
            for pod in &pods {
                add_pod(&mut world, pod);
            }
            world.log.clear();
            world
        })
}

/// Adds the pod, unless one of its name exists.
fn add_pod(world: &mut World, start: &StartPod) {
    let name = identity::pod_name(&world.set, start.ordinal);
    if world.pods.iter().any(|pod| *pod.meta.name == *name) {
        return;
    }
    let revision = world.revisions[start.revision % world.revisions.len()].clone();
    let template = revision.data.0.clone().unwrap();
    let owner = owned_by(&world.set)[0].clone();
    let revision_name = &revision.meta.name;
    let body = identity::pod_json(&world.set, &template, revision_name, start.ordinal, &owner);
    world.create("Pod", &serde_json::from_str(&body).unwrap());
    let pod = world.pods.last_mut().unwrap();
    if start.is_orphan {
        pod.meta.owners = Shared::default();
    }
    pod.meta.deletion = start.is_deleting.then_some(T0);
    match start.state {
        "Ready" => *pod = with_ready_status(pod.clone()),
        phase => pod.status.phase = phase.into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_state_converges(start in any_world()) {
        let mut world = start;
        world.settle();
        let (start, replicas) = (identity::ordinals_start(&world.set), identity::replicas(&world.set));
        let partition = world.set.spec.update_strategy.rolling_update.as_ref().unwrap().partition.unwrap();
        let mut names: Vec<_> = world.pods.iter().map(|pod| pod.meta.name.to_string()).collect();
        names.sort();
        let expected: Vec<_> = (start..start + replicas).map(|n| format!("db-{n}")).collect();
        prop_assert_eq!(names, expected);
        for pod in &world.pods {
            prop_assert!(pod.meta.is_controlled_by("set") && pods::is_ready(pod));
            if identity::ordinal(pod).unwrap() >= partition {
                prop_assert_eq!(&*pod.spec.containers[0].image, "one");
                prop_assert_eq!(pods::revision_of(pod), &*world.set.status.update_revision);
            }
        }
        prop_assert!(!world.sync(), "{}", world.history());
        prop_assert_eq!(world.set.status.ready_replicas, replicas);
    }

    #[test]
    fn ordered_ready_creates_a_pod_after_its_predecessors(start in any_world()) {
        let mut world = start;
        prop_assume!(world.observed().is_ordered());
        for _ in 0..60 {
            let is_available = |world: &World, n: i32| {
                let name = identity::pod_name(&world.set, n);
                world.pods.iter().any(|pod| *pod.meta.name == *name && pods::is_ready(pod) && !pod.meta.deleting())
            };
            let before_sync = world.clone();
            world.sync();
            let existed = |pod: &Pod| before_sync.pods.iter().any(|before| before.meta.name == pod.meta.name);
            let created: Vec<_> = world.pods.iter().filter(|pod| !existed(pod)).collect();
            prop_assert!(created.len() <= 1);
            for pod in created {
                let ordinal = identity::ordinal(pod).unwrap();
                prop_assert!((0..ordinal).all(|n| is_available(&before_sync, n)), "{}", pod.meta.name);
            }
            world.run_pods();
        }
    }

    #[test]
    fn rollout_keeps_max_unavailable(start in any_world()) {
        let mut world = start;
        world.settle();
        world.change_image("next");
        let max = super::limits::max_unavailable(&world.set);
        for _ in 0..60 {
            world.sync();
            let available = world.pods.iter().filter(|pod| pods::is_ready(pod) && !pod.meta.deleting()).count();
            let unavailable = identity::replicas(&world.set) - i32::try_from(available).unwrap();
            prop_assert!(unavailable <= max, "{unavailable} of {max}: {}", world.history());
            world.run_pods();
        }
    }
}
