//! The invalid objects: the name of each states its defect.

use crate::objects::pod_spec;
use serde_json::{Map, Value, json};

/// An invalid object, and its resource.
pub(crate) struct Bad {
    /// Path of the object's collection.
    pub(crate) collection: String,
    /// Key of the object in etcd.
    pub(crate) key: String,
    /// The whole object.
    pub(crate) object: Value,
    /// Whether the API server would remove the defect, such as a uid or a time.
    pub(crate) as_it_is: bool,
}

impl Bad {
    /// Returns the object's path.
    pub(crate) fn path(&self) -> String {
        let name = self.object["metadata"]["name"].as_str().expect("a name");
        format!("{}/{name}", self.collection)
    }
}

/// Creates the objects, and numbers them for their uids.
struct Maker<'a> {
    namespace: &'a str,
    all: Vec<Bad>,
}

/// Returns all invalid objects, in this namespace or cluster-scoped.
pub(crate) fn bad(namespace: &str) -> Vec<Bad> {
    let mut maker = Maker { namespace, all: Vec::new() };
    maker.deployments();
    maker.sets();
    maker.pods();
    maker.owners();
    maker.finalizers();
    maker.sizes();
    maker.others();
    maker.limits();
    maker.cluster_scoped();
    maker.all
}

fn uid(number: usize) -> String {
    format!("00000000-0000-4000-9000-{number:012}")
}

/// Sets `value` at `path` (`a.b.c`), and creates missing parents.
fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for step in path.split('.') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[step];
    }
    *at = value;
}

fn labelled(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}, "spec": pod_spec("app:v1")})
}

fn owner(kind: &str, api_version: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid})
}

impl Maker<'_> {
    /// Adds an object of a namespaced kind: a valid one with these changes.
    fn add(&mut self, resource: (&str, &str, &str, &str), name: &str, changes: &[(&str, Value)]) {
        let (api_version, kind, plural, shelf) = resource;
        let number = self.all.len() + 1;
        let mut object = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {
                "name": name, "namespace": self.namespace, "uid": uid(number), "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
        });
        if let Some(spec) = good_spec(kind, name) {
            object["spec"] = spec;
        }
        for (path, value) in changes {
            set(&mut object, path, value.clone());
        }
        let root = if api_version.contains('/') { "apis" } else { "api" };
        let lost = ["metadata.uid", "metadata.deletionTimestamp", "metadata.generation", "status"];
        let as_it_is =
            changes.iter().any(|(path, _)| lost.iter().any(|lost| path.starts_with(lost)));
        self.all.push(Bad {
            collection: format!("/{root}/{api_version}/namespaces/{}/{plural}", self.namespace),
            key: format!("{shelf}/{}/{name}", self.namespace),
            object,
            as_it_is,
        });
    }

    fn next_uid(&self) -> String {
        uid(self.all.len() + 1)
    }

    fn deployments(&mut self) {
        const DEPLOYMENT: (&str, &str, &str, &str) =
            ("apps/v1", "Deployment", "deployments", "deployments");
        let max = json!(i32::MAX);
        let bad_name = json!("Not A Name!");
        let mut add = |name: &str, changes: &[(&str, Value)]| self.add(DEPLOYMENT, name, changes);
        add("negative-replicas", &[("spec.replicas", json!(-5))]);
        add("all-the-replicas", &[("spec.replicas", max.clone()), ("spec.paused", json!(true))]);
        let impossible = json!([{"name": bad_name, "image": ""}]);
        add(
            "no-such-pod",
            &[("spec.replicas", max.clone()), ("spec.template.spec.containers", impossible)],
        );
        for (n, surge) in [
            json!("abc"),
            json!("150000%"),
            json!("-20%"),
            json!("%%"),
            json!(""),
            json!(-3),
            max.clone(),
        ]
        .into_iter()
        .enumerate()
        {
            add(
                &format!("surge-{n}"),
                &[
                    ("spec.replicas", json!(0)),
                    ("spec.strategy.type", json!("RollingUpdate")),
                    ("spec.strategy.rollingUpdate.maxSurge", surge.clone()),
                    ("spec.strategy.rollingUpdate.maxUnavailable", surge),
                ],
            );
        }
        add(
            "no-room",
            &[
                ("spec.strategy.type", json!("RollingUpdate")),
                ("spec.strategy.rollingUpdate", json!({"maxSurge": 0, "maxUnavailable": 0})),
            ],
        );
        add("sideways", &[("spec.strategy.type", json!("Sideways"))]);
        for (n, field) in ["minReadySeconds", "progressDeadlineSeconds", "revisionHistoryLimit"]
            .into_iter()
            .enumerate()
        {
            add(&format!("negative-{n}"), &[(&format!("spec.{field}"), json!(-1))]);
            add(&format!("least-{n}"), &[(&format!("spec.{field}"), json!(i32::MIN))]);
            add(&format!("most-{n}"), &[(&format!("spec.{field}"), max.clone())]);
        }
        let requirement = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (n, selector) in [
            json!({}),
            requirement("a b", "Perhaps", json!(["?!"])),
            requirement("app", "In", json!([])),
            requirement("app", "Exists", json!(["x"])),
            requirement("ключ/☃", "NotIn", json!(["\u{202e}gnitset"])),
            requirement("no-such-label", "DoesNotExist", Value::Null),
            json!({"matchLabels": {"app": "somebody-else"}}),
            json!({"matchLabels": {"": ""}}),
        ]
        .into_iter()
        .enumerate()
        {
            add(
                &format!("selector-{n}"),
                &[("spec.selector", selector), ("spec.replicas", json!(1))],
            );
        }
        add("no-labels", &[("spec.template.metadata", json!({}))]);
        add(
            "rolls-back",
            &[("metadata.annotations", json!({"deprecated.deployment.rollback.to": "-1"}))],
        );
        add(
            "rolls-far-back",
            &[(
                "metadata.annotations",
                json!({"deprecated.deployment.rollback.to": "9223372036854775807"}),
            )],
        );
        add(
            "odd-status",
            &[(
                "status",
                json!({
                    "replicas": -7, "updatedReplicas": i32::MAX, "availableReplicas": i32::MIN,
                    "observedGeneration": i64::MAX, "collisionCount": i32::MAX,
                    "conditions": vec![json!({"type": "Progressing", "status": "Perhaps", "reason": "☃"}); 100],
                }),
            )],
        );
        add("old-generation", &[("metadata.generation", json!(-4))]);
        add(
            "long-gone",
            &[
                ("metadata.deletionTimestamp", json!("1970-01-01T00:00:00Z")),
                ("metadata.finalizers", json!(["never.example.com/goes"])),
            ],
        );
        add(
            "goes-in-ages",
            &[
                ("metadata.deletionTimestamp", json!("2999-01-01T00:00:00Z")),
                ("metadata.deletionGracePeriodSeconds", json!(-1)),
                ("metadata.finalizers", json!(["never.example.com/goes"])),
            ],
        );
    }

    fn sets(&mut self) {
        const SET: (&str, &str, &str, &str) =
            ("apps/v1", "ReplicaSet", "replicasets", "replicasets");
        const CONTROLLER: (&str, &str, &str, &str) =
            ("v1", "ReplicationController", "replicationcontrollers", "controllers");
        let own = self.next_uid();
        self.add(SET, "its-own-owner", &[(
            "metadata.ownerReferences",
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "its-own-owner", "uid": own, "controller": true, "blockOwnerDeletion": true}]),
        ), ("metadata.uid", json!(own))]);
        self.add(SET, "least", &[("spec.replicas", json!(i32::MIN))]);
        self.add(SET, "never-ready", &[("spec.minReadySeconds", json!(i32::MIN))]);
        self.add(
            SET,
            "strangers",
            &[
                ("spec.replicas", json!(3)),
                ("spec.selector", json!({"matchLabels": {"app": "nobody"}})),
            ],
        );
        for name in ["claims-1", "claims-2"] {
            let labels = json!({"app": "claimed"});
            self.add(
                SET,
                name,
                &[
                    ("spec.replicas", json!(1)),
                    ("spec.selector.matchLabels", labels.clone()),
                    ("spec.template.metadata.labels", labels),
                ],
            );
        }
        let two = json!([
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a", "uid": "u-1", "controller": true},
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "b", "uid": "u-2", "controller": true},
        ]);
        self.add(CONTROLLER, "two-masters", &[("metadata.ownerReferences", two)]);
        self.add(CONTROLLER, "negative", &[("spec.replicas", json!(-3))]);
        self.add(
            CONTROLLER,
            "strangers",
            &[("spec.replicas", json!(2)), ("spec.selector", json!({"no such": "label, surely!"}))],
        );
        self.add(CONTROLLER, "nothing", &[("spec", json!({"replicas": 1}))]);
        self.add(
            CONTROLLER,
            "empty-selector",
            &[("spec.replicas", json!(1)), ("spec.selector", json!({}))],
        );
    }

    fn pods(&mut self) {
        const POD: (&str, &str, &str, &str) = ("v1", "Pod", "pods", "pods");
        self.add(POD, "lost", &[("metadata.labels", json!({"app": "claimed"}))]);
        self.add(POD, "no-such-node", &[("spec.nodeName", json!("no-such-node"))]);
        self.add(POD, "odd-phase", &[("status", json!({"phase": "Sideways", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": null},
            {"type": "Ready", "status": "False", "lastTransitionTime": "2999-01-01T00:00:00Z"},
        ]}))]);
        self.add(
            POD,
            "odd-seconds",
            &[
                ("spec.terminationGracePeriodSeconds", json!(i64::MIN)),
                ("spec.activeDeadlineSeconds", json!(-1)),
            ],
        );
        self.add(POD, "for-ever", &[("spec.terminationGracePeriodSeconds", json!(i64::MAX))]);
        self.add(
            POD,
            "odd-labels",
            &[(
                "metadata.labels",
                json!({"": "", "a b": "\u{0}☃\u{202e}", "app": "x".repeat(5000)}),
            )],
        );
        self.add(POD, "wrong-version", &[(
            "metadata.ownerReferences",
            json!([{"apiVersion": "extensions/v1beta1", "kind": "ReplicaSet", "name": "claims-1", "uid": "other", "controller": true}]),
        )]);
        self.add(
            POD,
            "held",
            &[
                ("metadata.deletionTimestamp", json!("2026-01-01T00:00:00Z")),
                ("metadata.deletionGracePeriodSeconds", json!(0)),
                ("metadata.finalizers", json!(["never.example.com/goes"])),
                ("metadata.labels", json!({"app": "claimed"})),
            ],
        );
    }

    fn map(&mut self, name: &str, changes: &[(&str, Value)]) {
        self.add(("v1", "ConfigMap", "configmaps", "configmaps"), name, changes);
    }

    fn owners(&mut self) {
        let (first, second) = (uid(self.all.len() + 1), uid(self.all.len() + 2));
        for (name, of, of_name) in
            [("circle-a", &second, "circle-b"), ("circle-b", &first, "circle-a")]
        {
            let mut reference = owner("ConfigMap", "v1", of_name, of);
            reference["blockOwnerDeletion"] = json!(true);
            let own = self.next_uid();
            self.map(
                name,
                &[
                    ("metadata.uid", json!(own)),
                    ("metadata.ownerReferences", json!([reference])),
                    ("metadata.finalizers", json!(["never.example.com/goes"])),
                ],
            );
        }
        let own = self.next_uid();
        let itself = owner("ConfigMap", "v1", "self", &own);
        self.map(
            "self",
            &[("metadata.uid", json!(own)), ("metadata.ownerReferences", json!([itself]))],
        );
        let real = self.all[0].object["metadata"]["uid"].as_str().expect("a uid").to_owned();
        let held = json!(["never.example.com/goes"]);
        for (n, references) in [
            json!([owner("Nonsense", "nonsense.example.com/v9", "x", "no-such-uid")]),
            json!([owner("Widget", "a/b/c", "x", "no-such-uid-2")]),
            json!([owner("", "", "", "")]),
            json!([owner("ConfigMap", "v1", "negative-replicas", &real)]),
            json!([owner("Deployment", "apps/v1", "another-name", &real)]),
            json!(vec![owner("Deployment", "apps/v1", "negative-replicas", &real); 3]),
            json!([owner("Node", "v1", "no-such-node", "no-such-node-uid")]),
            json!(
                (0..300)
                    .map(|n| owner("Secret", "v1", &format!("s-{n}"), &format!("dangling-{n}")))
                    .collect::<Vec<_>>()
            ),
            json!([owner("Pod", "v1", "☃/../..", "../../etc")]),
        ]
        .into_iter()
        .enumerate()
        {
            self.map(
                &format!("owned-{n}"),
                &[("metadata.ownerReferences", references), ("metadata.finalizers", held.clone())],
            );
        }
        for name in ["twin-1", "twin-2"] {
            self.map(name, &[("metadata.uid", json!("one-uid-for-two"))]);
        }
        self.map("no-uid", &[("metadata.uid", json!(""))]);
    }

    fn finalizers(&mut self) {
        let gone = json!("2026-01-01T00:00:00Z");
        for (n, finalizers) in [
            json!(["orphan", "foregroundDeletion", "never.example.com/goes"]),
            json!(["foregroundDeletion", "never.example.com/goes"]),
            json!(["orphan", "never.example.com/goes"]),
            json!(["", "☃", "a/b/c", "never.example.com/goes", "never.example.com/goes"]),
        ]
        .into_iter()
        .enumerate()
        {
            self.map(
                &format!("finalizers-{n}"),
                &[
                    ("metadata.deletionTimestamp", gone.clone()),
                    ("metadata.deletionGracePeriodSeconds", json!(0)),
                    ("metadata.finalizers", finalizers),
                ],
            );
        }
    }

    fn sizes(&mut self) {
        let long = "n".repeat(253);
        self.map(&long, &[]);
        let many: Map<String, Value> =
            (0..500).map(|n| (format!("a-{n}"), json!("x".repeat(400)))).collect();
        self.map("many-annotations", &[("metadata.annotations", Value::Object(many))]);
        self.map("much-data", &[("data", json!({"a": "x".repeat(900_000)}))]);
        let deployment = ("apps/v1", "Deployment", "deployments", "deployments");
        self.add(deployment, &"d".repeat(253), &[("spec.replicas", json!(1))]);
        let history = (0..20_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        self.add(deployment, "much-history", &[(
            "metadata.annotations",
            json!({"deployment.kubernetes.io/revision-history": history, "deployment.kubernetes.io/revision": "-1"}),
        )]);
    }

    fn others(&mut self) {
        let any = json!({"matchLabels": {"app": "claimed"}});
        let template = labelled("claimed");
        self.add(("apps/v1", "StatefulSet", "statefulsets", "statefulsets"), "negative", &[(
            "spec",
            json!({"replicas": -1, "selector": any, "template": template, "serviceName": "☃", "podManagementPolicy": "Sideways",
                   "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": -9}}, "revisionHistoryLimit": -1}),
        )]);
        self.add(("apps/v1", "DaemonSet", "daemonsets", "daemonsets"), "nowhere", &[(
            "spec",
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Perhaps"}]}, "template": template,
                   "updateStrategy": {"type": "Sideways"}, "minReadySeconds": -1}),
        )]);
        self.add(("batch/v1", "Job", "jobs", "jobs"), "backwards", &[(
            "spec",
            json!({"parallelism": -1, "completions": -1, "backoffLimit": -1, "activeDeadlineSeconds": -1,
                   "ttlSecondsAfterFinished": -1, "completionMode": "Sideways", "selector": any, "template": template}),
        )]);
        for (n, schedule) in
            ["nonsense", "* * * * * * *", "@every -1s", "61 25 32 13 8", ""].into_iter().enumerate()
        {
            self.add(("batch/v1", "CronJob", "cronjobs", "cronjobs"), &format!("never-{n}"), &[(
                "spec",
                json!({"schedule": schedule, "timeZone": "Mars/Olympus", "startingDeadlineSeconds": -1,
                       "concurrencyPolicy": "Perhaps", "successfulJobsHistoryLimit": -1,
                       "jobTemplate": {"spec": {"template": template}}}),
            )]);
        }
        self.add(("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudgets"), "abc", &[(
            "spec",
            json!({"minAvailable": "abc%", "maxUnavailable": -5, "selector": {"matchExpressions": [{"key": "", "operator": ""}]}}),
        )]);
        self.add(
            ("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "horizontalpodautoscalers"),
            "upside-down",
            &[("spec", json!({"minReplicas": 9, "maxReplicas": -9, "scaleTargetRef": {"kind": "", "name": "☃"}}))],
        );
        self.add(("v1", "Service", "services", "services/specs"), "odd", &[(
            "spec",
            json!({"clusterIP": "999.1.2.3", "clusterIPs": ["999.1.2.3"], "type": "Sideways", "selector": {"": ""},
                   "ports": [{"port": -1, "targetPort": "no such port", "protocol": "ICMP"}]}),
        )]);
        self.add(("v1", "Secret", "secrets", "secrets"), "no-such-account", &[
            ("type", json!("kubernetes.io/service-account-token")),
            ("metadata.annotations", json!({"kubernetes.io/service-account.name": "☃", "kubernetes.io/service-account.uid": "none"})),
        ]);
        self.add(
            ("v1", "ServiceAccount", "serviceaccounts", "serviceaccounts"),
            "strange",
            &[
                ("secrets", json!([{"name": "☃"}, {}])),
                ("metadata.finalizers", json!(["never.example.com/goes"])),
            ],
        );
        self.add(("v1", "ResourceQuota", "resourcequotas", "resourcequotas"), "owing", &[(
            "spec",
            json!({"hard": {"no/such/thing": "-5", "count/nonsense.example.com": "1"}, "scopes": ["Sideways"]}),
        )]);
        self.add(
            ("coordination.k8s.io/v1", "Lease", "leases", "leases"),
            "negative",
            &[(
                "spec",
                json!({"leaseDurationSeconds": -1, "leaseTransitions": -1, "holderIdentity": ""}),
            )],
        );
        self.add(
            ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", "endpointslices"),
            "odd",
            &[
                ("addressType", json!("Pigeon")),
                ("endpoints", json!([{"addresses": ["☃"]}])),
                ("metadata.labels", json!({"kubernetes.io/service-name": "odd"})),
            ],
        );
    }

    fn limits(&mut self) {
        self.add(("v1", "LimitRange", "limitranges", "limitranges"), "upside-down", &[(
            "spec",
            json!({"limits": [{"type": "Sideways", "min": {"cpu": "9"}, "max": {"cpu": "-9"}}]}),
        )]);
        for (n, storage) in ["-1Gi", "0", "9E"].into_iter().enumerate() {
            self.add(
                ("v1", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaims"),
                &format!("claim-{n}"),
                &[(
                    "spec",
                    json!({"accessModes": ["Sideways"], "volumeName": "☃", "storageClassName": "",
                           "resources": {"requests": {"storage": storage}}}),
                )],
            );
        }
        let policy =
            ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", "networkpolicies");
        self.add(policy, "odd", &[(
            "spec",
            json!({"podSelector": {"matchExpressions": [{"key": "", "operator": "?"}]}, "policyTypes": ["Sideways"]}),
        )]);
    }

    fn cluster_scoped(&mut self) {
        let mut add = |kind: &str, plural: &str, shelf: &str, name: &str, rest: Value| {
            let mut object = json!({
                "apiVersion": "v1", "kind": kind,
                "metadata": {"name": name, "uid": uid(self.all.len() + 1), "creationTimestamp": "2026-01-01T00:00:00Z"},
            });
            for (field, value) in rest.as_object().into_iter().flatten() {
                set(&mut object, field, value.clone());
            }
            self.all.push(Bad {
                collection: format!("/api/v1/{plural}"),
                key: format!("{shelf}/{name}"),
                object,
                as_it_is: true,
            });
        };
        let namespace = |n: u32| format!("hostile-namespace-{n}");
        add(
            "Namespace",
            "namespaces",
            "namespaces",
            &namespace(1),
            json!({"status.phase": "Terminating"}),
        );
        add(
            "Namespace",
            "namespaces",
            "namespaces",
            &namespace(2),
            json!({
                "metadata.deletionTimestamp": "2026-01-01T00:00:00Z", "spec.finalizers": ["never.example.com/goes"],
                "status.phase": "Sideways",
            }),
        );
        add(
            "Node",
            "nodes",
            "minions",
            "hostile-node",
            json!({
                "spec.podCIDR": "nonsense", "spec.taints": [{"key": "a", "effect": "Sideways"}, {"key": "a", "effect": "Sideways"}],
                "status.conditions": [{"type": "Ready", "status": "Perhaps"}, {"type": "Ready", "status": "True"}],
            }),
        );
    }
}

/// Returns the spec of a valid object of the kind.
fn good_spec(kind: &str, name: &str) -> Option<Value> {
    let name = &name[..name.len().min(63)];
    match kind {
        "Deployment" | "ReplicaSet" => Some(json!({
            "replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": labelled(name),
        })),
        "ReplicationController" => {
            Some(json!({"replicas": 0, "selector": {"app": name}, "template": labelled(name)}))
        }
        "Pod" => Some(pod_spec("app:v1")),
        _ => None,
    }
}
