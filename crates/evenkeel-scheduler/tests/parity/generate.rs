//! Clusters and pods by seed: small, so that choices are close and refusals common.

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use serde_json::{Value, json};

/// Makes one cluster and its pods.
pub(crate) struct Generator {
    seed: u64,
    random: SmallRng,
}

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

    /// The next pod, and its name.
    pub(crate) fn pod(&mut self, n: usize) -> (String, Value) {
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
        (name, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
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
