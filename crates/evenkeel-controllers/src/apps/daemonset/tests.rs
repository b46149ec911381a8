//! Scenarios of single DaemonSets, and properties of whole rollouts on a simulated cluster.

mod describe;
mod rules;

use super::{
    backoff::Backoff,
    observed::{Observed, revision_hash},
    plan::plan,
    pod_template::{PodTemplate, is_updated},
    status::status,
};
use crate::{
    fixtures::{T0, at, object, owned_by},
    pods,
};
use evenkeel_api::{
    shared::Shared,
    time::{SignedDuration, Timestamp},
    views::{ControllerRevision, DaemonSet, Node, Pod},
};
use evenkeel_component_helpers::{
    apps::daemonset::target_node, scheduling::corev1::TolerationOperators,
};
use evenkeel_runtime::plan::{Action, EventRecord, Outcome, Outcomes, Target};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the DaemonSet `log` with the image `one` and this `rollingUpdate`.
fn set(rolling_update: &Value) -> DaemonSet {
    object(&json!({
        "metadata": { "name": "log", "namespace": "ns", "uid": "set", "resourceVersion": "1", "generation": 1,
            "annotations": { "deprecated.daemonset.template.generation": "1" } },
        "spec": { "selector": { "matchLabels": { "app": "log" } }, "revisionHistoryLimit": 10,
            "template": template("one", &json!({})), "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling_update } },
    }))
}

/// Returns a pod template: `spec` with one container of this image.
fn template(image: &str, spec: &Value) -> Value {
    let mut template = json!({ "metadata": { "labels": { "app": "log" } }, "spec": spec });
    template["spec"]["containers"] = json!([{ "name": "c", "image": image }]);
    template
}

fn one_by_one() -> Value {
    json!({ "maxUnavailable": 1, "maxSurge": 0 })
}

fn surging(surge: &Value) -> Value {
    json!({ "maxUnavailable": 0, "maxSurge": surge })
}

/// Returns a node with its hostname label. `fields` replace the node's.
fn node(name: &str, fields: &Value) -> Node {
    let mut node = json!({ "metadata": { "name": name, "uid": name, "labels": { "kubernetes.io/hostname": name } } });
    for (key, value) in fields.as_object().into_iter().flatten() {
        node[key] = value.clone();
    }
    object(&node)
}

/// Returns the fields of a node with a taint.
fn tainted(effect: &str) -> Value {
    json!({ "spec": { "taints": [{ "key": "k", "effect": effect }] } })
}

/// A simulated cluster: a DaemonSet, its nodes, pods and revisions, and the log of the controller's actions.
#[derive(Debug, Clone)]
struct World {
    set: DaemonSet,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    revisions: Vec<ControllerRevision>,
    now: Timestamp,
    log: Vec<String>,
    created_objects: i64,
}

impl World {
    fn new(set: DaemonSet, nodes: usize) -> Self {
        let nodes = (0..nodes).map(|n| node(&format!("n{n}"), &json!({}))).collect();
        Self {
            set,
            nodes,
            pods: Vec::new(),
            revisions: Vec::new(),
            now: T0,
            log: Vec::new(),
            created_objects: 0,
        }
    }

    /// Returns a cluster whose rollout is complete, with an empty log.
    fn rolled_out(set: DaemonSet, nodes: usize) -> Self {
        let mut world = Self::new(set, nodes);
        world.settle();
        world.log.clear();
        world
    }

    fn observed(&self) -> Observed {
        let get_revision =
            |name: &str| self.revisions.iter().find(|r| *r.meta.name == *name).cloned();
        Observed::new(
            Arc::new(self.set.clone()),
            self.pods.iter().cloned().map(Arc::new),
            self.revisions.iter().cloned().map(Arc::new),
            self.nodes.iter().cloned().map(Arc::new),
            |name| get_revision(name).map(Arc::new),
        )
    }

    /// Runs one sync of the controller, without backoff. Returns whether it wrote anything.
    fn sync(&mut self) -> bool {
        self.sync_with_backoff(&mut Backoff::default())
    }

    /// Runs one sync of the controller. Returns whether it wrote anything.
    fn sync_with_backoff(&mut self, backoff: &mut Backoff) -> bool {
        let observed = self.observed();
        let (next, deleted_failed_pods) = plan(&observed, backoff, self.now);
        deleted_failed_pods.into_iter().for_each(|key| backoff.record(key, self.now));
        assert_eq!(evenkeel_runtime::plan::lint(&next), Vec::<String>::new());
        let outcomes = Outcomes(next.actions.iter().map(|action| self.apply(action)).collect());
        let status = status(&observed, &outcomes, self.now);
        for action in &status.actions {
            self.apply(action);
        }
        let is_write = |action: &Action| !matches!(action, Action::Event(_));
        next.actions.iter().chain(&status.actions).any(is_write)
    }

    fn apply(&mut self, action: &Action) -> Outcome {
        match action {
            Action::Create(create) => {
                let body: Value = serde_json::from_slice(&create.body).unwrap();
                let name = self.create(&create.kind.kind, &body);
                self.record(format!("create {name}"), create.done.as_ref());
            }
            Action::Delete(delete) => {
                self.delete(&delete.target);
                self.record(format!("delete {}", delete.target.name), delete.done.as_ref());
            }
            Action::Patch(patch) => {
                let name = patch.target.name.clone();
                let body: Value = serde_json::from_slice(&patch.body).unwrap();
                // Only an adoption depends on the live owner.
                let owners =
                    if patch.if_live.is_some() { owned_by(&self.set) } else { Shared::default() };
                let revision = self.revisions.iter_mut().find(|r| *r.meta.name == *name);
                match (revision, &body["metadata"]["labels"]) {
                    (Some(revision), _) => revision.meta.owners = owners,
                    (None, Value::Null) => self.pod(&name).meta.owners = owners,
                    (None, labels) => relabel(&mut self.pod(&name).meta, labels),
                }
                self.record(format!("patch {name}"), None);
            }
            Action::Update(update) => {
                let written: DaemonSet = object(&serde_json::from_slice(&update.body).unwrap());
                self.set.status = written.status;
                self.log.push("status".into());
            }
            Action::Rewrite(rewrite) => {
                let body: Value = serde_json::from_slice(&rewrite.body).unwrap();
                let name = rewrite.target.name.clone();
                let revision = self.revisions.iter_mut().find(|r| *r.meta.name == *name).unwrap();
                revision.revision = body["revision"].as_i64().unwrap_or(revision.revision);
                relabel(&mut revision.meta, &body["metadata"]["labels"]);
                self.record(format!("rewrite {name}"), None);
            }
            Action::Read(_) | Action::DeleteCollection(_) | Action::Local(_) => {
                unreachable!("not in a DaemonSet's plan")
            }
            Action::Event(event) => self.log.push(format!("  {}: {}", event.reason, event.message)),
        }
        Outcome::success()
    }

    fn record(&mut self, write: String, event: Option<&EventRecord>) {
        self.log.push(write);
        self.log.extend(event.map(|event| format!("  {}: {}", event.reason, event.message)));
    }

    fn create(&mut self, kind: &str, body: &Value) -> String {
        self.created_objects += 1;
        let (uid, creation) =
            (format!("made-{}", self.created_objects).into(), Some(at(self.created_objects)));
        if kind == "Pod" {
            let mut pod: Pod = object(body);
            // Name pods by node, so that the goldens are readable.
            let name = format!(
                "{}{}-{}",
                pod.meta.generate_name,
                target_node(&pod).unwrap(),
                self.created_objects
            );
            (pod.meta.name, pod.meta.uid, pod.meta.creation) =
                (name.as_str().into(), uid, creation);
            pod.status.phase = "Pending".into();
            self.pods.push(pod);
            return name;
        }
        let mut revision: ControllerRevision = object(body);
        (revision.meta.uid, revision.meta.creation) = (uid, creation);
        let name = revision.meta.name.to_string();
        self.revisions.push(revision);
        name
    }

    fn delete(&mut self, target: &Target) {
        match &*target.kind.kind {
            "Pod" => self.pod(&target.name).meta.deletion = Some(T0),
            _ => self.revisions.retain(|revision| *revision.meta.name != *target.name),
        }
    }

    fn pod(&mut self, name: &str) -> &mut Pod {
        self.pods.iter_mut().find(|pod| *pod.meta.name == *name).unwrap()
    }

    fn pod_on(&mut self, node: &str) -> &mut Pod {
        self.pods.iter_mut().find(|pod| target_node(pod) == Some(node)).unwrap()
    }

    /// Acts as scheduler and kubelets: removes terminating pods and runs the others. Returns whether anything
    /// changed.
    fn run_pods(&mut self) -> bool {
        let pods_before = self.pods.len();
        self.pods.retain(|pod| !pod.meta.deleting());
        let mut changed = self.pods.len() != pods_before;
        for pod in &mut self.pods {
            let node = target_node(pod).unwrap_or_default().to_owned();
            let node_exists = self.nodes.iter().any(|other| *other.meta.name == *node);
            if node_exists && !pods::is_ready(pod) && !pods::is_terminal(pod) {
                pod.spec.node_name = node.into();
                let status = json!({ "status": { "phase": "Running",
                    "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": T0.to_string() }] } });
                pod.status = object::<Pod>(&status).status;
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

    /// Replaces the pod template, as a user's update does.
    fn change_template(&mut self, template: &Value) {
        let spec = json!({ "spec": { "template": template } });
        self.set.spec.template = object::<DaemonSet>(&spec).spec.template;
        self.set.meta.generation += 1;
        // The API server increments the generation with each template.
        let generation = self.set.meta.generation.to_string();
        let key = "deprecated.daemonset.template.generation";
        self.set.meta.annotations = self.set.meta.annotations.with(key, &generation);
    }

    fn images(&self) -> Vec<String> {
        let mut images: Vec<_> = self
            .pods
            .iter()
            .map(|pod| format!("{} {}", target_node(pod).unwrap(), pod.spec.containers[0].image))
            .collect();
        images.sort();
        images
    }

    /// Returns the actions so far, with revisions replaced by numbers.
    fn history(&self) -> String {
        let mut text: String = self.log.iter().map(|line| format!("{line}\n")).collect();
        for (n, revision) in self.revisions.iter().enumerate() {
            text = text.replace(&*revision.meta.name, &format!("revision {n}"));
        }
        text
    }
}

fn relabel(meta: &mut evenkeel_api::Meta, labels: &Value) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        meta.labels = meta.labels.with(key, value.as_str().unwrap());
    }
}

#[track_caller]
fn check(world: &World, golden: &Expect) {
    golden.assert_eq(&world.history());
}

#[test]
fn each_node_gets_a_pod() {
    let mut world = World::new(set(&one_by_one()), 2);
    world.settle();
    check(
        &world,
        &expect![[r#"
        create revision 0
        create log-n0-2
          SuccessfulCreate: Created pod: {name}
        create log-n1-3
          SuccessfulCreate: Created pod: {name}
        status
        status
        status
    "#]],
    );
    let status = &world.set.status;
    assert_eq!((status.desired_number_scheduled, status.current_number_scheduled), (2, 2));
    assert_eq!(
        (status.number_ready, status.number_available, status.updated_number_scheduled),
        (2, 2, 2)
    );
    assert_eq!(
        (status.number_unavailable, status.number_misscheduled, status.observed_generation),
        (0, 0, 1)
    );
}

#[test]
fn pod_has_node_affinity_and_daemon_tolerations() {
    let mut daemonset = set(&one_by_one());
    let spec = json!({ "hostNetwork": true, "nodeSelector": { "a": "b" },
        "tolerations": [{ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5 }],
        "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "c", "operator": "Exists" }] }] } } } });
    daemonset.spec.template =
        object::<DaemonSet>(&json!({ "spec": { "template": template("one", &spec) } }))
            .spec
            .template;
    let owner = owned_by(&daemonset)[0].clone();
    let body: Value = serde_json::from_str(
        &PodTemplate::new(&daemonset).pod_json(&daemonset, "n0", "hash", &owner),
    )
    .unwrap();
    expect![[r#"
        {
          "apiVersion": "v1",
          "kind": "Pod",
          "metadata": {
            "generateName": "log-",
            "labels": {
              "app": "log",
              "controller-revision-hash": "hash",
              "pod-template-generation": "1"
            },
            "namespace": "ns",
            "ownerReferences": [
              {
                "apiVersion": "apps/v1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "DaemonSet",
                "name": "log",
                "uid": "set"
              }
            ]
          },
          "spec": {
            "affinity": {
              "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                  "nodeSelectorTerms": [
                    {
                      "matchFields": [
                        {
                          "key": "metadata.name",
                          "operator": "In",
                          "values": [
                            "n0"
                          ]
                        }
                      ]
                    }
                  ]
                }
              }
            },
            "containers": [
              {
                "image": "one",
                "name": "c"
              }
            ],
            "hostNetwork": true,
            "nodeSelector": {
              "a": "b"
            },
            "tolerations": [
              {
                "effect": "NoExecute",
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists"
              },
              {
                "effect": "NoExecute",
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/disk-pressure",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/memory-pressure",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/pid-pressure",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/unschedulable",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/network-unavailable",
                "operator": "Exists"
              }
            ]
          }
        }"#]]
    .assert_eq(&format!("{body:#}"));
}

#[test]
fn node_should_run_and_continue_running() {
    let affinity = json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": "disk", "operator": "In", "values": ["ssd"] }] }] } } } });
    let labelled = json!({ "metadata": { "name": "n", "labels": { "disk": "ssd" } } });
    let tolerations = json!({ "tolerations": [{ "key": "k", "operator": "Exists" }] });
    let cordoned = json!({ "spec": { "unschedulable": true, "taints": [{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }] } });
    // Pod spec, fields of the node, and the expected `should_run` and `should_continue_running`.
    let table = [
        (json!({}), json!({}), (true, true)),
        (json!({ "nodeName": "n" }), json!({}), (true, true)),
        (json!({ "nodeName": "m" }), json!({}), (false, false)),
        (json!({ "nodeSelector": { "disk": "ssd" } }), json!({}), (false, false)),
        (json!({ "nodeSelector": { "disk": "ssd" } }), labelled.clone(), (true, true)),
        (affinity.clone(), json!({}), (false, false)),
        (affinity, labelled, (true, true)),
        (json!({}), tainted("NoSchedule"), (false, true)),
        (json!({}), tainted("NoExecute"), (false, false)),
        (json!({}), tainted("PreferNoSchedule"), (true, true)),
        (tolerations.clone(), tainted("NoSchedule"), (true, true)),
        (tolerations, tainted("NoExecute"), (true, true)),
        (json!({}), cordoned, (true, true)),
    ];
    for (spec, node_fields, (should_run, should_continue_running)) in table {
        let mut daemonset = set(&one_by_one());
        daemonset.spec.template =
            object::<DaemonSet>(&json!({ "spec": { "template": template("one", &spec) } }))
                .spec
                .template;
        let fit = PodTemplate::new(&daemonset).fit(&node("n", &node_fields));
        assert_eq!(
            (fit.should_run, fit.should_continue_running),
            (should_run, should_continue_running),
            "{spec} on {node_fields}"
        );
    }
}

#[test]
fn nodes_whose_taints_are_compared_fit_with_the_feature_gate() {
    let tainted = |value: &str, effect: &str| json!({ "spec": { "taints": [{ "key": "sla", "value": value, "effect": effect }] } });
    let tolerations =
        json!({ "tolerations": [{ "key": "sla", "operator": "Gt", "value": "900" }] });
    // Node, and whether it should run a pod and may continue to, with and without the gate.
    let table = [
        (tainted("950", "NoSchedule"), (true, true), (false, true)),
        (tainted("950", "NoExecute"), (true, true), (false, false)),
        (tainted("900", "NoSchedule"), (false, true), (false, true)),
        (tainted("high", "NoExecute"), (false, false), (false, false)),
    ];
    for (node_fields, with_gate, without_gate) in table {
        let mut daemonset = set(&one_by_one());
        let template = template("one", &tolerations);
        daemonset.spec.template =
            object::<DaemonSet>(&json!({ "spec": { "template": template } })).spec.template;
        for (enabled, expected) in [(true, with_gate), (false, without_gate)] {
            let operators = TolerationOperators::with_comparison(enabled);
            let pod_template = PodTemplate::new(&daemonset).matching(operators);
            let fit = pod_template.fit(&node("n", &node_fields));
            let found = (fit.should_run, fit.should_continue_running);
            assert_eq!(found, expected, "{node_fields} {enabled}");
        }
    }
}

#[test]
fn no_execute_taint_deletes_pods_and_no_schedule_does_not() {
    let mut world = World::rolled_out(set(&one_by_one()), 3);
    world.nodes[0] = node("n0", &tainted("NoSchedule"));
    world.nodes[1] = node("n1", &tainted("NoExecute"));
    world.settle();
    assert_eq!(world.images(), ["n0 one", "n2 one"]);
    assert_eq!(
        (world.set.status.desired_number_scheduled, world.set.status.number_misscheduled),
        (1, 1)
    );
}

#[test]
fn max_unavailable_updates_node_by_node() {
    let mut world = World::rolled_out(set(&one_by_one()), 2);
    world.change_template(&template("two", &json!({})));
    world.settle();
    check(
        &world,
        &expect![[r#"
            create revision 1
            delete log-n0-2
              SuccessfulDelete: Deleted pod: log-n0-2
            status
            create log-n0-5
              SuccessfulCreate: Created pod: {name}
            status
            status
            delete log-n1-3
              SuccessfulDelete: Deleted pod: log-n1-3
            status
            create log-n1-6
              SuccessfulCreate: Created pod: {name}
            status
            status
            status
        "#]],
    );
    assert_eq!(world.images(), ["n0 two", "n1 two"]);
    world.change_template(&template("one", &json!({})));
    world.log.clear();
    world.sync();
    check(
        &world,
        &expect![[r#"
        rewrite revision 0
        delete log-n0-5
          SuccessfulDelete: Deleted pod: log-n0-5
        status
    "#]],
    );
}

#[test]
fn max_surge_creates_the_new_pod_first() {
    let mut world = World::rolled_out(set(&surging(&json!(1))), 2);
    world.change_template(&template("two", &json!({})));
    world.settle();
    check(
        &world,
        &expect![[r#"
            create revision 1
            create log-n0-5
              SuccessfulCreate: Created pod: {name}
            status
            delete log-n0-2
              SuccessfulDelete: Deleted pod: log-n0-2
            create log-n1-6
              SuccessfulCreate: Created pod: {name}
            delete log-n1-3
              SuccessfulDelete: Deleted pod: log-n1-3
            status
            status
        "#]],
    );
    assert_eq!(world.images(), ["n0 two", "n1 two"]);
}

#[test]
fn unavailable_pods_are_replaced_beyond_max_unavailable() {
    for rolling_update in [one_by_one(), surging(&json!("10%"))] {
        let mut world = World::rolled_out(set(&rolling_update), 4);
        for node in ["n1", "n2"] {
            world.pod_on(node).status.conditions = Box::default();
        }
        world.change_template(&template("two", &json!({})));
        world.sync();
        let changed_nodes: Vec<_> = world
            .pods
            .iter()
            .filter(|pod| pod.meta.deleting() || &*pod.spec.containers[0].image == "two")
            .map(|pod| target_node(pod).unwrap())
            .collect();
        let surges = rolling_update["maxSurge"] != 0;
        assert_eq!(changed_nodes, if surges { vec!["n1", "n2", "n0"] } else { vec!["n1", "n2"] });
    }
}

#[test]
fn surge_replaces_no_pod_while_its_node_is_not_cached() {
    let mut world = World::rolled_out(set(&surging(&json!(1))), 2);
    world.pod_on("n1").status.conditions = Box::default();
    world.change_template(&template("two", &json!({})));
    let missing = world.nodes.pop().unwrap();
    let (next, _) = plan(&world.observed(), &Backoff::default(), world.now);
    let error = next.error.map(|error| error.message);
    assert_eq!(
        error.as_deref(),
        Some("couldn't get node for nodeName \"n1\": node \"n1\" not found")
    );
    let replaces_pod = |action: &Action| match action {
        Action::Create(create) => &*create.kind.kind == "Pod",
        other => matches!(other, Action::Delete(_)),
    };
    assert!(!next.actions.iter().any(replaces_pod), "{:?}", next.actions);
    world.nodes.push(missing);
    world.settle();
    assert_eq!(world.images(), ["n0 two", "n1 two"]);
}

#[test]
fn on_delete_replaces_only_deleted_pods() {
    let mut daemonset = set(&one_by_one());
    daemonset.spec.update_strategy.type_ = "OnDelete".into();
    let mut world = World::rolled_out(daemonset, 2);
    world.change_template(&template("two", &json!({})));
    world.settle();
    assert_eq!(world.images(), ["n0 one", "n1 one"]);
    assert_eq!(world.set.status.updated_number_scheduled, 0);
    world.pod_on("n1").meta.deletion = Some(T0);
    world.settle();
    assert_eq!(world.images(), ["n0 one", "n1 two"]);
}

#[test]
fn failed_pods_are_deleted_with_backoff() {
    let mut world = World::rolled_out(set(&one_by_one()), 1);
    let mut backoff = Backoff::default();
    let mut waits = Vec::new();
    for _ in 0..4 {
        world.pod_on("n0").status.phase = "Failed".into();
        let (next, _) = plan(&world.observed(), &backoff, world.now);
        let wait = next.requeue.unwrap_or_default();
        waits.push(wait.as_secs());
        world.now += SignedDuration::try_from(wait).unwrap();
        world.log.clear();
        world.sync_with_backoff(&mut backoff);
        let name = &world.pods[0].meta.name;
        let event = format!(
            "  FailedDaemonPod: Found failed daemon pod ns/{name} on node n0, will try to kill it"
        );
        assert_eq!(world.log[..2], [event, format!("delete {name}")]);
        world.pods.clear();
        world.sync_with_backoff(&mut backoff);
        world.run_pods();
    }
    assert_eq!(waits, [0, 1, 2, 4]);
}

#[test]
fn older_of_two_pods_on_a_node_is_kept() {
    let mut world = World::rolled_out(set(&one_by_one()), 1);
    let mut twin = world.pods[0].clone();
    (twin.meta.name, twin.meta.uid, twin.meta.creation) =
        ("twin".into(), "twin".into(), Some(at(-5)));
    world.pods.push(twin);
    world.settle();
    assert_eq!(world.pods.len(), 1);
    assert_eq!(&*world.pods[0].meta.name, "twin");
}

#[test]
fn pod_of_a_missing_node_is_deleted() {
    let mut world = World::new(set(&one_by_one()), 2);
    world.sync();
    world.nodes.pop();
    world.settle();
    assert_eq!(world.images(), ["n0 one"]);
}

#[test]
fn newest_of_duplicate_revisions_is_kept() {
    let mut world = World::rolled_out(set(&one_by_one()), 2);
    let mut twin = world.revisions[0].clone();
    (twin.meta.name, twin.meta.uid, twin.revision) = ("log-twin".into(), "twin".into(), 7);
    twin.meta.labels = crate::fixtures::label("app", "log");
    world.revisions.push(twin);
    world.settle();
    check(
        &world,
        &expect![[r#"
        rewrite revision 0
        patch log-n0-2
        patch log-n1-3
        delete log-5d67b7984d
    "#]],
    );
    assert!(world.pods.iter().all(|pod| pods::revision_of(pod) == "log-twin"));
}

#[test]
fn unused_revisions_beyond_the_history_limit_are_deleted() {
    let mut daemonset = set(&one_by_one());
    daemonset.spec.revision_history_limit = Some(1);
    let mut world = World::rolled_out(daemonset, 1);
    for image in ["two", "three", "four"] {
        world.change_template(&template(image, &json!({})));
        world.settle();
    }
    let numbers: Vec<_> = world.revisions.iter().map(|revision| revision.revision).collect();
    assert_eq!(numbers, [3, 4]);
}

#[test]
fn revision_in_upstreams_encoding_is_reused() {
    let mut world = World::rolled_out(set(&one_by_one()), 2);
    let patch = json!({ "metadata": { "name": "log-0123", "labels": { "app": "log", "controller-revision-hash": "0123" } },
        "revision": 4, "data": { "spec": { "template": { "$patch": "replace",
        "metadata": { "creationTimestamp": null, "labels": { "app": "log" } },
        "spec": { "containers": [{ "resources": {}, "name": "c", "image": "one" }] } } } } });
    let mut revision: ControllerRevision = object(&patch);
    revision.meta.owners = owned_by(&world.set);
    world.revisions = vec![revision];
    for pod in &mut world.pods {
        pod.meta.labels = pod.meta.labels.with(pods::REVISION_LABEL, "0123");
    }
    assert!(!world.sync(), "{}", world.history());
}

#[test]
fn pod_with_the_template_generation_is_updated() {
    let mut world = World::rolled_out(set(&one_by_one()), 1);
    let pod = world.pod_on("n0").clone();
    assert!(is_updated(&world.set, &pod, "another"));
    world.set.meta.annotations =
        crate::fixtures::label("deprecated.daemonset.template.generation", "9");
    assert!(!is_updated(&world.set, &pod, "another"));
}

#[test]
fn pod_is_available_after_min_ready_seconds() {
    let mut daemonset = set(&one_by_one());
    daemonset.spec.min_ready_seconds = 30;
    let mut world = World::new(daemonset, 1);
    world.sync();
    world.run_pods();
    world.now = at(10);
    world.sync();
    assert_eq!((world.set.status.number_ready, world.set.status.number_available), (1, 0));
    let after = status(&world.observed(), &Outcomes::default(), world.now);
    assert_eq!(after.requeue, Some(std::time::Duration::from_secs(20)));
    world.now = at(31);
    world.sync();
    assert_eq!(world.set.status.number_available, 1);
}

#[test]
fn empty_selector_or_deletion_creates_no_pods() {
    let mut world = World::new(set(&one_by_one()), 1);
    world.set.spec.selector = evenkeel_api::selector::Selector::everything();
    world.sync();
    assert_eq!(
        world.history(),
        "  SelectingAll: This daemon set is selecting all pods. A non-empty selector is required.\n"
    );
    let mut world = World::new(set(&one_by_one()), 1);
    world.set.meta.deletion = Some(T0);
    assert!(!world.sync());
}

#[test]
fn sync_creates_at_most_250_pods() {
    let mut world = World::new(set(&one_by_one()), 300);
    world.sync();
    assert_eq!(world.pods.len(), 250);
    world.sync();
    assert_eq!(world.pods.len(), 300);
}

/// A pod that an earlier state of the cluster left.
#[derive(Debug, Clone)]
struct StartPod {
    node: usize,
    revision: usize,
    phase: &'static str,
    is_deleting: bool,
    is_orphan: bool,
}

fn any_start_pod() -> impl Strategy<Value = StartPod> {
    let phase = prop::sample::select(&["Pending", "Running", "Running", "Failed", "Succeeded"]);
    let is_deleting = proptest::bool::weighted(0.1);
    let is_orphan = proptest::bool::weighted(0.2);
    (0..5usize, 0..3usize, phase, is_deleting, is_orphan).prop_map(
        |(node, revision, phase, is_deleting, is_orphan)| StartPod {
            node,
            revision,
            phase,
            is_deleting,
            is_orphan,
        },
    )
}

/// Returns any state that a crash, a user or another controller might have left.
fn any_world() -> impl Strategy<Value = World> {
    // Number of nodes, update strategy, limit of the rolling update, pods, and a taint for each node.
    (
        1..5usize,
        0..3u8,
        1..3i32,
        proptest::collection::vec(any_start_pod(), 0..8),
        proptest::collection::vec(0..4u8, 5),
    )
        .prop_map(|(nodes, strategy, limit, pods, taints)| {
            let rolling_update = match strategy {
                0 => json!({ "maxUnavailable": limit, "maxSurge": 0 }),
                1 => surging(&json!(limit)),
                _ => json!({ "maxUnavailable": "50%", "maxSurge": 0 }),
            };
            let mut world = World::new(set(&rolling_update), 0);
            for image in ["zero", "two", "one"] {
                world.change_template(&template(image, &json!({})));
                world.sync();
            }
            world.nodes = (0..nodes)
                .map(|n| {
                    let taint = match taints[n] {
                        0 => tainted("NoSchedule"),
                        1 => tainted("NoExecute"),
                        _ => json!({}),
                    };
                    node(&format!("n{n}"), &taint)
                })
                .collect();
            for (n, pod) in pods.iter().enumerate() {
                add_pod(&mut world, &format!("start-{n}"), pod);
            }
            world.log.clear();
            world
        })
}

fn add_pod(world: &mut World, name: &str, start: &StartPod) {
    let revision = &world.revisions[start.revision % world.revisions.len()];
    let hash = revision_hash(revision).to_owned();
    let owner = owned_by(&world.set)[0].clone();
    let node = format!("n{}", start.node);
    let body = PodTemplate::new(&world.set).pod_json(&world.set, &node, &hash, &owner);
    world.create("Pod", &serde_json::from_str(&body).unwrap());
    let pod = world.pods.last_mut().unwrap();
    pod.meta.name = name.into();
    if start.is_orphan {
        pod.meta.owners = Shared::default();
    }
    pod.meta.deletion = start.is_deleting.then_some(T0);
    pod.status.phase = start.phase.into();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_state_converges(start in any_world()) {
        let mut world = start;
        world.settle();
        let pod_template = PodTemplate::new(&world.set);
        for node in &world.nodes {
            let pods: Vec<_> = world.pods.iter().filter(|pod| target_node(pod) == Some(&node.meta.name)).collect();
            let fit = pod_template.fit(node);
            prop_assert!(pods.len() <= 1, "{}", world.history());
            if !fit.should_continue_running {
                prop_assert!(pods.is_empty(), "{}: {}", node.meta.name, world.history());
            }
            if fit.should_run {
                prop_assert_eq!(pods.len(), 1, "{}: {}", node.meta.name, world.history());
                prop_assert!(pods[0].meta.is_controlled_by("set") && pods::is_ready(pods[0]));
                let current_hash = revision_hash(world.revisions.last().unwrap());
                prop_assert!(is_updated(&world.set, pods[0], current_hash));
            }
        }
        prop_assert!(!world.sync(), "{}", world.history());
    }

    #[test]
    fn rollout_keeps_max_unavailable(start in any_world()) {
        let mut world = start;
        world.settle();
        world.change_template(&template("next", &json!({})));
        let pod_template = PodTemplate::new(&world.set);
        let desired = world.nodes.iter().filter(|node| pod_template.fit(node).should_run).count();
        let limits = super::limits::RolloutLimits::resolve(&world.set, desired);
        for _ in 0..40 {
            world.sync();
            let available = world.nodes.iter().filter(|node| {
                let is_on_node = |pod: &&Pod| target_node(pod) == Some(&node.meta.name);
                let mut pods = world.pods.iter().filter(is_on_node);
                pod_template.fit(node).should_run && pods.any(|pod| pods::is_ready(pod) && !pod.meta.deleting())
            });
            prop_assert!(desired - available.count() <= limits.max_unavailable, "{}", world.history());
            world.run_pods();
        }
    }
}
