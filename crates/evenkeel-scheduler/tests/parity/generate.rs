//! Random clusters and pods, reproducible by seed. The clusters are small, so that scores are close and rejections
//! common.

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use serde_json::{Value, json};

/// Generator of one cluster and its pods.
pub(crate) struct Generator {
    seed: u64,
    random: SmallRng,
}

/// A pod with its claim and start time.
pub(crate) struct GeneratedPod {
    pub(crate) name: String,
    pub(crate) pod: Value,
    /// ResourceClaim of the pod.
    pub(crate) claim: Option<Value>,
    /// Second of the year in which the pod starts. Preemption depends on start times.
    pub(crate) start_second: u32,
    /// Whether our scheduler must explain the pod before upstream's schedules it, because upstream's allocates devices
    /// or evicts pods.
    pub(crate) explain_first: bool,
}

/// PriorityClasses with their values and preemption policies.
pub(crate) const PRIORITY_CLASSES: [(&str, i32, &str); 5] = [
    ("some", 10, "PreemptLowerPriority"),
    ("more", 20, "PreemptLowerPriority"),
    ("high", 1000, "PreemptLowerPriority"),
    ("highest", 2000, "PreemptLowerPriority"),
    ("polite", 500, "Never"),
];
/// Name of the DeviceClass, and of the devices' driver.
pub(crate) const DEVICE_CLASS: &str = "parity.example.com";

const MODELS: [&str; 3] = ["a", "b", "c"];
const APPS: [&str; 3] = ["web", "db", "cache"];
const DISKS: [&str; 3] = ["ssd", "hdd", "none"];

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, random: SmallRng::seed_from_u64(seed) }
    }

    /// Returns a random element.
    fn choose<'a>(&mut self, values: &[&'a str]) -> &'a str {
        values[self.random.random_range(0..values.len())]
    }

    /// Returns true with this probability.
    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    /// Generates the cluster's nodes.
    pub(crate) fn nodes(&mut self) -> Vec<Value> {
        let count = self.random.random_range(8..24);
        (0..count).map(|n| self.node(n)).collect()
    }

    fn node(&mut self, n: usize) -> Value {
        let name = format!("c{}-n{n:02}", self.seed);
        let mut labels = json!({
            "kubernetes.io/hostname": name,
            "disk": self.choose(&DISKS),
            "speed": self.random.random_range(1..5).to_string(),
        });
        if !self.chance(10) {
            labels["topology.kubernetes.io/zone"] =
                format!("z{}", self.random.random_range(0..3)).into();
            labels["topology.kubernetes.io/region"] = "r".into();
        }
        let mut taints = Vec::new();
        if self.chance(15) {
            taints
                .push(json!({"key": "only", "value": self.choose(&APPS), "effect": "NoSchedule"}));
        }
        if self.chance(25) {
            taints.push(json!({"key": "rather-not", "value": self.choose(&["a", "b"]), "effect": "PreferNoSchedule"}));
        }
        let cpu = self.choose(&["2", "4", "8"]);
        let capacity = json!({
            "cpu": cpu,
            "memory": self.choose(&["4Gi", "8Gi", "16Gi"]),
            "ephemeral-storage": "20Gi",
            "pods": self.random.random_range(4..12).to_string(),
            "example.com/gpu": self.choose(&["0", "1", "2"]),
        });
        let images: Vec<Value> = APPS
            .iter()
            .filter(|_| self.random.random_range(0..3) == 0)
            .map(|app| json!({"names": [format!("registry.test/{app}:1")], "sizeBytes": 400_000_000}))
            .collect();
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": self.chance(6)},
            "status": {"capacity": capacity, "allocatable": capacity, "images": images},
        })
    }

    /// Generates devices of about half of the nodes.
    pub(crate) fn slices(&mut self, nodes: &[Value]) -> Vec<Value> {
        let mut slices = Vec::new();
        for node in nodes {
            if self.chance(50) {
                continue;
            }
            let count = self.random.random_range(1..4);
            let devices: Vec<Value> = (0..count).map(|n| self.device(n)).collect();
            let name = &node["metadata"]["name"];
            let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
            let spec =
                json!({"driver": DEVICE_CLASS, "nodeName": name, "pool": pool, "devices": devices});
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
            "attributes": {"model": {"string": self.choose(&MODELS)}},
            "capacity": {"memory": {"value": self.choose(&["8Gi", "16Gi"])}},
        })
    }

    /// Generates a claim of devices.
    fn claim(&mut self, name: &str) -> Value {
        let mut request = self.request("of");
        if self.chance(30) {
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
        let model = self.choose(&MODELS);
        let memory = self.choose(&["8Gi", "16Gi"]);
        let by_model = format!("device.attributes[\"{DEVICE_CLASS}\"].model == \"{model}\"");
        let by_memory = format!(
            "device.capacity[\"{DEVICE_CLASS}\"].memory.compareTo(quantity(\"{memory}\")) >= 0"
        );
        let mut selectors = Vec::new();
        if self.chance(40) {
            selectors.push(json!({"cel": {"expression": by_model}}));
        }
        if self.chance(40) {
            selectors.push(json!({"cel": {"expression": by_memory}}));
        }
        json!({"name": name, "deviceClassName": DEVICE_CLASS, "selectors": selectors, "count": self.random.random_range(1..3)})
    }

    /// Generates PodDisruptionBudgets, each with its number of allowed disruptions.
    pub(crate) fn budgets(&mut self) -> Vec<(Value, i32)> {
        let mut budgets = Vec::new();
        for app in APPS {
            if self.chance(50) {
                continue;
            }
            let metadata = json!({"name": format!("c{}-{app}", self.seed), "namespace": "default"});
            let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": app}}});
            let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec});
            budgets.push((budget, self.random.random_range(0..3)));
        }
        budgets
    }

    /// Generates a pod.
    pub(crate) fn pod(&mut self, n: usize) -> GeneratedPod {
        let name = format!("c{}-p{n:03}", self.seed);
        let app = self.choose(&APPS);
        let mut requests = json!({});
        if !self.chance(15) {
            requests["cpu"] = self.choose(&["100m", "250m", "500m", "1", "3"]).into();
            requests["memory"] = self.choose(&["64Mi", "256Mi", "1Gi", "3Gi"]).into();
        }
        if self.chance(8) {
            requests["example.com/gpu"] = "1".into();
        }
        let mut container = json!({
            "name": "main", "image": format!("registry.test/{app}:1"),
            "resources": {"requests": requests, "limits": {}},
        });
        if let Some(gpu) = requests.get("example.com/gpu") {
            container["resources"]["limits"]["example.com/gpu"] = gpu.clone();
        }
        if self.chance(10) {
            let port = self.random.random_range(8000..8003);
            container["ports"] = json!([{"containerPort": port, "hostPort": port}]);
        }
        let mut spec = json!({"containers": [container], "terminationGracePeriodSeconds": 0});
        if self.chance(15) {
            let init = json!({"requests": {"cpu": self.choose(&["1", "2"])}});
            spec["initContainers"] = json!([{"name": "first", "image": "i", "resources": init}]);
        }
        if self.chance(25) {
            spec["tolerations"] = json!([{"key": "only", "operator": "Equal", "value": app}]);
        } else if self.chance(20) {
            spec["tolerations"] = json!([{"key": "rather-not", "operator": "Exists"}]);
        }
        if self.chance(12) {
            spec["nodeSelector"] = json!({"disk": self.choose(&DISKS)});
        }
        if let Some(affinity) = self.affinity(app) {
            spec["affinity"] = affinity;
        }
        if self.chance(30) {
            spec["topologySpreadConstraints"] = self.spread(app);
        }
        let labels = json!({"app": app, "tier": self.choose(&["front", "back"])});
        let metadata = json!({"name": name, "namespace": "default", "labels": labels});
        let (mut claim, mut explain_first) = (None, false);
        if self.chance(10) {
            claim = Some(self.claim(&name));
            spec["resourceClaims"] = json!([{"name": "own", "resourceClaimName": name}]);
            explain_first = true;
        }
        if self.chance(20) {
            let (class, ..) = PRIORITY_CLASSES[self.random.random_range(0..PRIORITY_CLASSES.len())];
            spec["priorityClassName"] = class.into();
            explain_first = true;
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        GeneratedPod {
            name,
            pod,
            claim,
            start_second: self.random.random_range(0..1000),
            explain_first,
        }
    }

    fn spread(&mut self, app: &str) -> Value {
        let mut constraints = Vec::new();
        for key in ["topology.kubernetes.io/zone", "kubernetes.io/hostname"] {
            if !self.chance(60) {
                continue;
            }
            let when_unsatisfiable = self.choose(&["DoNotSchedule", "ScheduleAnyway"]);
            let mut constraint = json!({
                "maxSkew": self.random.random_range(1..3),
                "topologyKey": key,
                "whenUnsatisfiable": when_unsatisfiable,
                "labelSelector": {"matchLabels": {"app": app}},
            });
            if self.chance(20) {
                constraint["nodeTaintsPolicy"] = "Honor".into();
            }
            if self.chance(20) {
                constraint["nodeAffinityPolicy"] = "Ignore".into();
            }
            if when_unsatisfiable == "DoNotSchedule" && self.chance(20) {
                constraint["minDomains"] = self.random.random_range(1..5).into();
            }
            constraints.push(constraint);
        }
        constraints.into()
    }

    fn affinity(&mut self, app: &str) -> Option<Value> {
        let mut affinity = json!({});
        let zone_or_host = ["topology.kubernetes.io/zone", "kubernetes.io/hostname"];
        if self.chance(15) {
            let disks = json!({"key": "disk", "operator": self.choose(&["In", "NotIn"]), "values": [self.choose(&DISKS)]});
            affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": [{"matchExpressions": [disks]}]});
        }
        if self.chance(20) {
            let fast = json!({"key": "speed", "operator": "Gt", "values": [self.choose(&["1", "2", "3"])]});
            affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([{"weight": self.random.random_range(1..100), "preference": {"matchExpressions": [fast]}}]);
        }
        for (kind, percent) in [("podAffinity", 12), ("podAntiAffinity", 15)] {
            let other = self.choose(&[app, APPS[0], APPS[1]]);
            let term = json!({
                "labelSelector": {"matchLabels": {"app": other}},
                "topologyKey": self.choose(&zone_or_host),
            });
            if self.chance(percent) {
                affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term]);
            } else if self.chance(percent) {
                affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"] =
                    json!([{"weight": self.random.random_range(1..100), "podAffinityTerm": term}]);
            }
        }
        affinity.as_object().is_some_and(|map| !map.is_empty()).then_some(affinity)
    }
}
