//! Clusters and pods by seed: small, so that choices are close and refusals common.

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use serde_json::{Value, json};

/// Makes one cluster and its pods.
pub(crate) struct Generator {
    seed: u64,
    random: SmallRng,
}

/// A pod, and what it needs beside it.
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) pod: Value,
    /// A claim of its own.
    pub(crate) claim: Option<Value>,
    /// When it starts where it is placed, in seconds: what preemption goes by.
    pub(crate) starts: u32,
    /// Ours must be asked before upstream's acts, since that changes more than the pod: devices are allocated, others evicted.
    pub(crate) first: bool,
}

/// Classes of priority, and whether their pods have others evicted. Those of pods without a class cannot.
pub(crate) const CLASSES: [(&str, i32, &str); 5] = [
    ("some", 10, "PreemptLowerPriority"),
    ("more", 20, "PreemptLowerPriority"),
    ("high", 1000, "PreemptLowerPriority"),
    ("highest", 2000, "PreemptLowerPriority"),
    ("polite", 500, "Never"),
];
/// The class of devices, and their driver.
pub(crate) const DEVICES: &str = "parity.example.com";

const MODELS: [&str; 3] = ["a", "b", "c"];
const APPS: [&str; 3] = ["web", "db", "cache"];
const DISKS: [&str; 3] = ["ssd", "hdd", "none"];

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, random: SmallRng::seed_from_u64(seed) }
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.random_range(0..of.len())]
    }

    /// Whether something that happens so often in a hundred happens.
    fn now_and_then(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    /// The cluster's nodes.
    pub(crate) fn nodes(&mut self) -> Vec<Value> {
        let many = self.random.random_range(8..24);
        (0..many).map(|n| self.node(n)).collect()
    }

    fn node(&mut self, n: usize) -> Value {
        let name = format!("c{}-n{n:02}", self.seed);
        let mut labels = json!({
            "kubernetes.io/hostname": name,
            "disk": self.one(&DISKS),
            "speed": self.random.random_range(1..5).to_string(),
        });
        if !self.now_and_then(10) {
            labels["topology.kubernetes.io/zone"] =
                format!("z{}", self.random.random_range(0..3)).into();
            labels["topology.kubernetes.io/region"] = "r".into();
        }
        let mut taints = Vec::new();
        if self.now_and_then(15) {
            taints.push(json!({"key": "only", "value": self.one(&APPS), "effect": "NoSchedule"}));
        }
        if self.now_and_then(25) {
            taints.push(json!({"key": "rather-not", "value": self.one(&["a", "b"]), "effect": "PreferNoSchedule"}));
        }
        let cpu = self.one(&["2", "4", "8"]);
        let room = json!({
            "cpu": cpu,
            "memory": self.one(&["4Gi", "8Gi", "16Gi"]),
            "ephemeral-storage": "20Gi",
            "pods": self.random.random_range(4..12).to_string(),
            "example.com/gpu": self.one(&["0", "1", "2"]),
        });
        let images: Vec<Value> = APPS
            .iter()
            .filter(|_| self.random.random_range(0..3) == 0)
            .map(|app| json!({"names": [format!("registry.test/{app}:1")], "sizeBytes": 400_000_000}))
            .collect();
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": self.now_and_then(6)},
            "status": {"capacity": room, "allocatable": room, "images": images},
        })
    }

    /// The devices of some nodes.
    pub(crate) fn slices(&mut self, nodes: &[Value]) -> Vec<Value> {
        let mut slices = Vec::new();
        for node in nodes {
            if self.now_and_then(50) {
                continue;
            }
            let many = self.random.random_range(1..4);
            let devices: Vec<Value> = (0..many).map(|n| self.device(n)).collect();
            let name = &node["metadata"]["name"];
            let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
            let spec =
                json!({"driver": DEVICES, "nodeName": name, "pool": pool, "devices": devices});
            slices.push(json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
                "metadata": {"name": name}, "spec": spec,
            }));
        }
        slices
    }

    fn device(&mut self, n: usize) -> Value {
        json!({
            "name": format!("d{n}"),
            "attributes": {"model": {"string": self.one(&MODELS)}},
            "capacity": {"memory": {"value": self.one(&["8Gi", "16Gi"])}},
        })
    }

    /// A claim of devices.
    fn claim(&mut self, name: &str) -> Value {
        let mut request = self.request("of");
        if self.now_and_then(30) {
            request = json!({"firstAvailable": [self.request("best"), self.request("next")]});
        } else if let Some(fields) = request.as_object_mut() {
            fields.remove("name");
            request = json!({"exactly": request});
        }
        request["name"] = "some".into();
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [request]}},
        })
    }

    fn request(&mut self, name: &str) -> Value {
        let model = self.one(&MODELS);
        let memory = self.one(&["8Gi", "16Gi"]);
        let by_model = format!("device.attributes[\"{DEVICES}\"].model == \"{model}\"");
        let by_memory =
            format!("device.capacity[\"{DEVICES}\"].memory.compareTo(quantity(\"{memory}\")) >= 0");
        let mut selectors = Vec::new();
        if self.now_and_then(40) {
            selectors.push(json!({"cel": {"expression": by_model}}));
        }
        if self.now_and_then(40) {
            selectors.push(json!({"cel": {"expression": by_memory}}));
        }
        json!({"name": name, "deviceClassName": DEVICES, "selectors": selectors, "count": self.random.random_range(1..3)})
    }

    /// Disruption budgets, and how many each lets go.
    pub(crate) fn budgets(&mut self) -> Vec<(Value, i32)> {
        let mut budgets = Vec::new();
        for app in APPS {
            if self.now_and_then(50) {
                continue;
            }
            let metadata = json!({"name": format!("c{}-{app}", self.seed), "namespace": "default"});
            let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": app}}});
            let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec});
            budgets.push((budget, self.random.random_range(0..3)));
        }
        budgets
    }

    /// The next pod.
    pub(crate) fn pod(&mut self, n: usize) -> Made {
        let name = format!("c{}-p{n:03}", self.seed);
        let app = self.one(&APPS);
        let mut requests = json!({});
        if !self.now_and_then(15) {
            requests["cpu"] = self.one(&["100m", "250m", "500m", "1", "3"]).into();
            requests["memory"] = self.one(&["64Mi", "256Mi", "1Gi", "3Gi"]).into();
        }
        if self.now_and_then(8) {
            requests["example.com/gpu"] = "1".into();
        }
        let mut container = json!({
            "name": "main", "image": format!("registry.test/{app}:1"),
            "resources": {"requests": requests, "limits": {}},
        });
        if let Some(gpu) = requests.get("example.com/gpu") {
            container["resources"]["limits"]["example.com/gpu"] = gpu.clone();
        }
        if self.now_and_then(10) {
            let port = self.random.random_range(8000..8003);
            container["ports"] = json!([{"containerPort": port, "hostPort": port}]);
        }
        let mut spec = json!({"containers": [container], "terminationGracePeriodSeconds": 0});
        if self.now_and_then(15) {
            let init = json!({"requests": {"cpu": self.one(&["1", "2"])}});
            spec["initContainers"] = json!([{"name": "first", "image": "i", "resources": init}]);
        }
        if self.now_and_then(25) {
            spec["tolerations"] = json!([{"key": "only", "operator": "Equal", "value": app}]);
        } else if self.now_and_then(20) {
            spec["tolerations"] = json!([{"key": "rather-not", "operator": "Exists"}]);
        }
        if self.now_and_then(12) {
            spec["nodeSelector"] = json!({"disk": self.one(&DISKS)});
        }
        if let Some(affinity) = self.affinity(app) {
            spec["affinity"] = affinity;
        }
        if self.now_and_then(30) {
            spec["topologySpreadConstraints"] = self.spread(app);
        }
        let labels = json!({"app": app, "tier": self.one(&["front", "back"])});
        let metadata = json!({"name": name, "namespace": "default", "labels": labels});
        let (mut claim, mut first) = (None, false);
        if self.now_and_then(10) {
            claim = Some(self.claim(&name));
            spec["resourceClaims"] = json!([{"name": "own", "resourceClaimName": name}]);
            first = true;
        }
        if self.now_and_then(20) {
            let (class, ..) = CLASSES[self.random.random_range(0..CLASSES.len())];
            spec["priorityClassName"] = class.into();
            first = true;
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        Made { name, pod, claim, starts: self.random.random_range(0..1000), first }
    }

    fn spread(&mut self, app: &str) -> Value {
        let mut constraints = Vec::new();
        for key in ["topology.kubernetes.io/zone", "kubernetes.io/hostname"] {
            if !self.now_and_then(60) {
                continue;
            }
            let when = self.one(&["DoNotSchedule", "ScheduleAnyway"]);
            let mut constraint = json!({
                "maxSkew": self.random.random_range(1..3),
                "topologyKey": key,
                "whenUnsatisfiable": when,
                "labelSelector": {"matchLabels": {"app": app}},
            });
            if self.now_and_then(20) {
                constraint["nodeTaintsPolicy"] = "Honor".into();
            }
            if self.now_and_then(20) {
                constraint["nodeAffinityPolicy"] = "Ignore".into();
            }
            if when == "DoNotSchedule" && self.now_and_then(20) {
                constraint["minDomains"] = self.random.random_range(1..5).into();
            }
            constraints.push(constraint);
        }
        constraints.into()
    }

    fn affinity(&mut self, app: &str) -> Option<Value> {
        let mut affinity = json!({});
        let zone_or_host = ["topology.kubernetes.io/zone", "kubernetes.io/hostname"];
        if self.now_and_then(15) {
            let disks = json!({"key": "disk", "operator": self.one(&["In", "NotIn"]), "values": [self.one(&DISKS)]});
            affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": [{"matchExpressions": [disks]}]});
        }
        if self.now_and_then(20) {
            let fast =
                json!({"key": "speed", "operator": "Gt", "values": [self.one(&["1", "2", "3"])]});
            affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([{"weight": self.random.random_range(1..100), "preference": {"matchExpressions": [fast]}}]);
        }
        for (kind, percent) in [("podAffinity", 12), ("podAntiAffinity", 15)] {
            let other = self.one(&[app, APPS[0], APPS[1]]);
            let term = json!({
                "labelSelector": {"matchLabels": {"app": other}},
                "topologyKey": self.one(&zone_or_host),
            });
            if self.now_and_then(percent) {
                affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term]);
            } else if self.now_and_then(percent) {
                affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"] =
                    json!([{"weight": self.random.random_range(1..100), "podAffinityTerm": term}]);
            }
        }
        affinity.as_object().is_some_and(|map| !map.is_empty()).then_some(affinity)
    }
}
