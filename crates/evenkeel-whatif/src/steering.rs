//! Inputs that steer the simulation besides the cluster's own objects: annotations and Behaviors, as in `evenkeel up`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | annotations and Behaviors are followed, or ignored if asked for | [`steer`], `strip` |
//! | a Behavior works without its definition in the copy | `definition` |
//! | the seed of the run changes all draws of Behaviors; zero leaves them as in the cluster | `reseed` |
//! | a Behavior without a time of creation is as old as the run | `date` |
//! | the node monitor runs at its own period if a node may become ready or not ready by itself | `changes_by_itself` |
//! | autoscalers act on pods whose usage is known | `Autoscalers` |

use crate::{
    change::Scenario,
    cluster::{Cluster, READINESS_FAULTS, fields, is_behavior, nodes_in, prepare, text},
    format::counted,
};
use evenkeel_api::{
    Encoding, StrMap, View as _,
    time::Timestamp,
    views::{Namespace, Node, Pod},
};
use evenkeel_nodes::{
    BEHAVIOR_DEFINITION, FaultEnd, KnownUsage, NodeFaults, PREFIX, behavior_definition, fault,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Odd factor that spreads seeds, so that neighboring seeds have nothing in common. It is 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Cluster and change as the input of a simulation.
pub(crate) struct Steered {
    /// Time of the copy, at which the run starts.
    pub(crate) start: Timestamp,
    /// Objects of the cluster.
    pub(crate) objects: Vec<Value>,
    /// Objects that the change applies.
    pub(crate) apply: Vec<Value>,
    /// Whether pods and nodes follow Behaviors.
    pub(crate) has_behaviors: bool,
    /// Whether a node may become ready or not ready by itself during the run.
    pub(crate) readiness_changes: bool,
    /// Whether autoscalers act.
    pub(crate) autoscales: bool,
    /// Remarks on parts of the cluster that the simulation leaves out.
    pub(crate) remarks: Vec<String>,
}

/// Prepares a cluster and its change.
pub(crate) fn steer(cluster: &Cluster, scenario: &Scenario) -> Steered {
    let start = cluster.time();
    let mut copied = cluster.objects().to_vec();
    let mut apply = scenario.apply.clone();
    if scenario.ignore_behaviors {
        copied.iter_mut().chain(&mut apply).for_each(strip);
        copied.retain(|object| !is_behavior(object));
        apply.retain(|object| !is_behavior(object));
    }
    let mut objects = prepare(copied, start);
    let has_behaviors = follow_behaviors(&mut objects, &mut apply, scenario.seed, start);
    let behaviors: Vec<&Value> =
        objects.iter().chain(&apply).filter(|object| is_behavior(object)).collect();
    let readiness_changes =
        scenario.outage.is_some() || changes_by_itself(&objects, &apply, &behaviors, start);
    let autoscalers = Autoscalers::of(&objects, &apply, &behaviors);
    let (mut remarks, autoscales) = (Vec::new(), autoscalers.known);
    if autoscales && !autoscalers.unknown.is_empty() {
        let count = counted(autoscalers.unknown.len(), "HorizontalPodAutoscaler");
        let verb = if autoscalers.unknown.len() == 1 { "does" } else { "do" };
        remarks.push(format!("{count} {verb} not act: the usage of the pods is unknown"));
    }
    if autoscales {
        let unknown = autoscalers.unknown;
        objects.retain(|object| !is_autoscaler(object) || !unknown.contains(&key(object)));
    }
    Steered { start, objects, apply, has_behaviors, readiness_changes, autoscales, remarks }
}

/// Prepares the Behaviors of the cluster and of the change, and adds their CustomResourceDefinition if the cluster lacks it.
/// Returns whether there are any.
fn follow_behaviors(
    objects: &mut Vec<Value>,
    apply: &mut [Value],
    seed: u64,
    start: Timestamp,
) -> bool {
    if !objects.iter().chain(&*apply).any(is_behavior) {
        return false;
    }
    let is_definition = |object: &Value| {
        object["kind"] == "CustomResourceDefinition"
            && text(object, "/metadata/name") == BEHAVIOR_DEFINITION
    };
    // Only a CustomResourceDefinition with a status is served immediately.
    objects.retain(|object| !is_definition(object) || is_established(object));
    if !objects.iter().any(is_definition) {
        objects.push(definition());
    }
    // The server sets the creation time of the change's Behaviors.
    objects.iter_mut().filter(|object| is_behavior(object)).for_each(|found| date(found, start));
    let all = objects.iter_mut().chain(apply);
    all.filter(|object| is_behavior(object)).for_each(|found| reseed(found, seed));
    true
}

fn is_autoscaler(object: &Value) -> bool {
    object["kind"] == "HorizontalPodAutoscaler"
        && text(object, "/apiVersion").starts_with("autoscaling/")
}

/// Removes the annotations of the simulation from an object and from the templates in it.
fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let mut is_bare = false;
            if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
                let count = annotations.len();
                annotations.retain(|key, _| !key.starts_with(PREFIX));
                // An empty map would make a template differ from its stored revision.
                is_bare = annotations.is_empty() && count > 0;
            }
            if is_bare {
                fields.remove("annotations");
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Returns the CustomResourceDefinition of Behaviors, with the status that a server sets.
fn definition() -> Value {
    let mut definition = behavior_definition();
    let names = definition["spec"]["names"].clone();
    let version = definition["spec"]["versions"][0]["name"].clone();
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": ""});
    definition["status"] = json!({
        "acceptedNames": names,
        "conditions": [
            condition("NamesAccepted", "NoConflicts"),
            condition("Established", "InitialNamesAccepted"),
        ],
        "storedVersions": [version],
    });
    definition
}

/// Returns whether a server serves the kind of a CustomResourceDefinition.
fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|found| found["type"] == "Established" && found["status"] == "True")
}

/// Sets the creation time of a Behavior that has none. The faults of nodes are timed from it.
fn date(behavior: &mut Value, start: Timestamp) {
    let Some(metadata) = fields(behavior, "metadata") else { return };
    let created = metadata.entry("creationTimestamp").or_insert(Value::Null);
    if created.is_null() {
        *created = start.to_string().into();
    }
}

/// Combines the seed of a Behavior with that of the run. Leaves an invalid seed unchanged.
fn reseed(behavior: &mut Value, seed: u64) {
    let Some(spec) = fields(behavior, "spec").filter(|_| seed != 0) else { return };
    let own = spec.entry("seed").or_insert_with(|| 0.into());
    if let Some(number) = own.as_i64() {
        let mixed = number.cast_unsigned().wrapping_add(seed.wrapping_mul(SPREAD));
        *own = mixed.cast_signed().into();
    }
}

/// Returns whether a node may become ready or not ready without a change of its object: by a Behavior, by an annotation with an
/// end, or because it is ready in the copy despite its fault.
fn changes_by_itself(
    objects: &[Value],
    apply: &[Value],
    behaviors: &[&Value],
    start: Timestamp,
) -> bool {
    let faults = NodeFaults::of_objects(behaviors.iter().copied());
    let is_ready = |node: &Node| {
        let mut conditions = node.status.conditions.iter();
        conditions.any(|found| &*found.type_ == "Ready" && &*found.status == "True")
    };
    let is_drawn = |node: &Node| READINESS_FAULTS.iter().any(|name| faults.is_drawn(node, name));
    let changes = |node: &Node| {
        let found = READINESS_FAULTS.map(|name| fault(&node.meta.annotations, name, start));
        let mut found = found.into_iter().flatten();
        found.any(|end| matches!(end, FaultEnd::At(_)) || is_ready(node)) || is_drawn(node)
    };
    let is_set =
        |node: &Node| READINESS_FAULTS.iter().any(|name| node.meta.annotations.get(name).is_some());
    nodes_in(objects).iter().any(changes)
        || nodes_in(apply).iter().any(|node| is_set(node) || is_drawn(node))
}

/// Kind, namespace and name.
type ObjectKey = (String, String, String);

fn key(object: &Value) -> ObjectKey {
    let text = |path| text(object, path).to_owned();
    (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// Autoscalers, grouped by whether the usage of their pods is known.
struct Autoscalers {
    /// Whether it is for some.
    known: bool,
    /// Autoscalers of the cluster whose pods' usage is unknown.
    unknown: Vec<ObjectKey>,
}

impl Autoscalers {
    fn of(objects: &[Value], apply: &[Value], behaviors: &[&Value]) -> Self {
        let mut found = Self { known: false, unknown: Vec::new() };
        let all = || objects.iter().chain(apply);
        if !all().any(is_autoscaler) {
            return found;
        }
        let usage = KnownUsage::of_objects(behaviors.iter().copied());
        // Objects that the change applies replace those of the cluster.
        let workloads: BTreeMap<ObjectKey, &Value> = all()
            .filter(|object| has_template(object))
            .map(|object| (key(object), object))
            .collect();
        let namespaces: BTreeMap<String, StrMap> = all().filter_map(namespace_labels).collect();
        let is_known = |autoscaler: &Value| {
            let namespace = text(autoscaler, "/metadata/namespace");
            let target = (
                text(autoscaler, "/spec/scaleTargetRef/kind").to_owned(),
                namespace.to_owned(),
                text(autoscaler, "/spec/scaleTargetRef/name").to_owned(),
            );
            let pod = workloads.get(&target).and_then(|workload| pod_of(workload, namespace));
            pod.is_some_and(|pod| usage.includes(&pod, namespaces.get(namespace)))
        };
        for autoscaler in objects.iter().filter(|object| is_autoscaler(object)) {
            if is_known(autoscaler) {
                found.known = true;
            } else {
                found.unknown.push(key(autoscaler));
            }
        }
        let mut applied = apply.iter().filter(|object| is_autoscaler(object));
        found.known |= applied.any(is_known);
        found
    }
}

fn has_template(object: &Value) -> bool {
    let kind = text(object, "/kind");
    matches!(kind, "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController")
}

/// Returns a pod as the template of a workload describes it.
fn pod_of(workload: &Value, namespace: &str) -> Option<Pod> {
    let template = workload.pointer("/spec/template")?;
    let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
    fields(&mut pod, "metadata")?.insert("namespace".to_owned(), namespace.into());
    Pod::decode(pod.to_string().as_bytes(), Encoding::Json).ok()
}

/// Returns the name and the labels of a namespace; `None` for another object.
fn namespace_labels(object: &Value) -> Option<(String, StrMap)> {
    if object["kind"] != "Namespace" {
        return None;
    }
    let namespace = Namespace::decode(object.to_string().as_bytes(), Encoding::Json).ok()?;
    Some((namespace.meta.name.to_string(), namespace.meta.labels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clone::CloneOptions;

    const START: &str = "2026-05-01T00:00:00Z";

    fn cluster(objects: &[Value]) -> Cluster {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let mut cluster = Cluster::default();
        cluster.add(&list.to_string(), &CloneOptions::default()).expect("objects");
        cluster
    }

    fn node(annotations: &Value, ready: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "n", "labels": {"pool": "spot"}, "annotations": annotations,
                "creationTimestamp": START
            },
            "status": {"conditions": [{"type": "Ready", "status": ready}]}
        })
    }

    fn behavior(spec: &Value) -> Value {
        json!({
            "apiVersion": "sim.evenkeel.dev/v1alpha1", "kind": "Behavior",
            "metadata": {"name": "b"}, "spec": spec
        })
    }

    fn failing(kind: &str, pool: &str) -> Value {
        behavior(&json!({
            "nodes": {"selector": {"matchLabels": {"pool": pool}}},
            "nodeFaults": [{"kind": kind, "meanTimeBetweenFailures": "1h", "meanTimeToRepair": "10m"}]
        }))
    }

    #[test]
    fn nodes_that_change_by_themselves_are_found() {
        let until = json!({"sim.evenkeel.dev/silent": "until 2026-05-01T01:00:00Z"});
        let over = json!({"sim.evenkeel.dev/not-ready": "until 2026-04-30T01:00:00Z"});
        let open = json!({"sim.evenkeel.dev/silent": "true"});
        let none = json!({});
        let applied = json!({"sim.evenkeel.dev/silent": "false"});
        for (objects, apply, want) in [
            (vec![node(&none, "True")], vec![], false),
            // It is silent already.
            (vec![node(&none, "Unknown")], vec![], false),
            (vec![node(&open, "Unknown")], vec![], false),
            (vec![node(&open, "True")], vec![], true),
            (vec![node(&until, "Unknown")], vec![], true),
            (vec![node(&over, "True")], vec![], false),
            (vec![node(&none, "True")], vec![node(&applied, "True")], true),
            (vec![node(&none, "True"), failing("silent", "spot")], vec![], true),
            (vec![node(&none, "True"), failing("not-ready", "spot")], vec![], true),
            (vec![node(&none, "True"), failing("silent", "other")], vec![], false),
            (vec![node(&none, "True"), failing("disk-pressure", "spot")], vec![], false),
            (vec![node(&none, "True")], vec![failing("silent", "spot")], true),
        ] {
            let scenario = Scenario { apply: apply.clone(), ..Scenario::default() };
            let found = steer(&cluster(&objects), &scenario).readiness_changes;
            assert_eq!(found, want, "{objects:?} {apply:?}");
            let ignoring = Scenario { ignore_behaviors: true, ..scenario };
            let found = steer(&cluster(&objects), &ignoring);
            assert!(!found.readiness_changes && !found.has_behaviors, "{objects:?} {apply:?}");
        }
    }

    #[test]
    fn behaviors_get_their_definition_a_seed_and_a_time() {
        let seed_of = |own: Option<i64>, seed: u64| {
            let spec = own.map_or(json!({}), |own| json!({"seed": own}));
            let scenario = Scenario { seed, ..Scenario::default() };
            let steered = steer(&cluster(&[node(&json!({}), "True"), behavior(&spec)]), &scenario);
            assert!(steered.has_behaviors);
            let named = |kind: &str| {
                let mut found = steered.objects.iter().filter(|object| object["kind"] == kind);
                let object = found.next().expect(kind).clone();
                assert_eq!(found.count(), 0, "{kind}");
                object
            };
            assert_eq!(named("CustomResourceDefinition")["metadata"]["name"], BEHAVIOR_DEFINITION);
            let behavior = named("Behavior");
            assert_eq!(behavior["metadata"]["creationTimestamp"], START);
            behavior["spec"].get("seed").cloned()
        };
        assert_eq!(seed_of(None, 0), None, "as in the cluster");
        assert_eq!(seed_of(Some(-7), 0), Some(json!(-7)));
        let seeds = [(None, 1), (Some(0), 2), (Some(1), 1), (Some(-7), 1)]
            .map(|(own, seed)| seed_of(own, seed).and_then(|found| found.as_i64()).expect("one"));
        assert_eq!(seed_of(Some(0), 1), Some(json!(seeds[0])));
        let distinct: std::collections::BTreeSet<i64> = seeds.into_iter().collect();
        assert_eq!(distinct.len(), 4, "{seeds:?}");
        let mut invalid = behavior(&json!({"seed": "many"}));
        reseed(&mut invalid, 5);
        assert_eq!(invalid["spec"]["seed"], "many");
        let none = steer(&cluster(&[node(&json!({}), "True")]), &Scenario::default());
        assert!(!none.has_behaviors && none.objects.len() == 1, "{:?}", none.objects);
    }

    #[test]
    fn ignored_annotations_leave_no_trace() {
        let steered = json!({"sim.evenkeel.dev/run-time": "5s"});
        let mut object = json!({
            "metadata": {"annotations": {"sim.evenkeel.dev/cpu": "1", "team": "a"}},
            "data": {"spec": {"template": {"metadata": {"annotations": steered, "labels": {}}}}},
            "spec": {"templates": [{"metadata": {"annotations": {}}}, {"annotations": "text"}]},
        });
        strip(&mut object);
        let expected = json!({
            "metadata": {"annotations": {"team": "a"}},
            "data": {"spec": {"template": {"metadata": {"labels": {}}}}},
            "spec": {"templates": [{"metadata": {"annotations": {}}}, {"annotations": "text"}]},
        });
        assert_eq!(object, expected);
    }

    #[test]
    fn autoscalers_act_if_the_usage_of_some_pods_is_known() {
        let workload = |name: &str, annotations: Value| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": name, "namespace": "shop"},
                "spec": {"template": {
                    "metadata": {"labels": {"app": name}, "annotations": annotations},
                    "spec": {"containers": [{"name": "c", "image": "i"}]}
                }}
            })
        };
        let autoscaler = |name: &str| {
            json!({
                "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": name, "namespace": "shop"},
                "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}}
            })
        };
        let load = || json!({"sim.evenkeel.dev/cpu-load": "2"});
        let objects = [
            workload("known", load()),
            workload("guessed", json!({})),
            autoscaler("known"),
            autoscaler("guessed"),
            autoscaler("gone"),
        ];
        let names = |steered: &Steered| {
            let found = steered.objects.iter().filter(|object| is_autoscaler(object));
            found.map(|found| text(found, "/metadata/name").to_owned()).collect::<Vec<_>>()
        };
        let some = steer(&cluster(&objects), &Scenario::default());
        assert_eq!((some.autoscales, names(&some)), (true, vec!["known".to_owned()]));
        let remark = "2 HorizontalPodAutoscalers do not act: the usage of the pods is unknown";
        assert_eq!(some.remarks, [remark]);
        // Nothing changes them, so they stay.
        let none = steer(&cluster(&objects[1..]), &Scenario::default());
        assert_eq!((none.autoscales, names(&none).len()), (false, 3));
        let apply = vec![workload("guessed", load())];
        let applied = steer(&cluster(&objects), &Scenario { apply, ..Scenario::default() });
        assert_eq!(names(&applied), ["known", "guessed"]);
        let behavior = behavior(&json!({
            "pods": {"selector": {"matchLabels": {"app": "guessed"}}}, "cpu": "1"
        }));
        let with = [&objects[..], &[behavior]].concat();
        assert_eq!(names(&steer(&cluster(&with), &Scenario::default())), ["known", "guessed"]);
        let ignoring = Scenario { ignore_behaviors: true, ..Scenario::default() };
        assert!(!steer(&cluster(&with), &ignoring).autoscales);
    }
}
