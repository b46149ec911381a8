//! Pods that claim devices, and the nodes that they are scheduled to.

use crate::{
    cluster::{Cluster, Namespace, condition, items, name},
    deployment::until_event,
    objects::pod,
    pods::is_ready,
};
use serde_json::{Value, json};

/// Objects of one case: a driver, a DeviceClass, and two nodes that are equal for other pods.
struct Devices<'a> {
    namespace: Namespace<'a>,
    /// Name of the driver and of the class. Other cases have their own on the same nodes.
    driver: String,
    nodes: [String; 2],
}

impl<'a> Devices<'a> {
    async fn prepare(cluster: &'a Cluster, prefix: &str) -> Self {
        let namespace = cluster.namespace(prefix).await;
        let driver = format!("{}.e2e.evenkeel.dev", namespace.name);
        let all = cluster.get("nodes").await;
        let mut open = items(&all)
            .iter()
            .filter(|node| name(node).starts_with("node-") && node["spec"]["taints"].is_null());
        let mut node = || name(open.next().expect("nodes for everybody")).to_owned();
        let nodes = [node(), node()];
        let devices = Self { namespace, driver, nodes };
        let is_ours = format!("device.driver == '{}'", devices.driver);
        let spec = json!({"selectors": [{"cel": {"expression": is_ours}}]});
        devices.class(&devices.driver, &spec).await;
        devices
    }

    async fn class(&self, name: &str, spec: &Value) {
        let class = json!({"metadata": {"name": name}, "spec": spec});
        self.namespace.cluster().create("deviceclasses", class).await;
    }

    /// Publishes a ResourceSlice of the node with a device of each size: `d0`, `d1` and so on.
    async fn offers(&self, node: usize, sizes: &[i64]) {
        let one = |(n, size): (usize, &i64)| json!({"name": format!("d{n}"), "attributes": {"size": {"int": size}}});
        let devices: Vec<Value> = sizes.iter().enumerate().map(one).collect();
        let node = &self.nodes[node];
        let slice = json!({
            "metadata": {"name": format!("{node}-{}", self.driver)},
            "spec": {
                "driver": self.driver, "nodeName": node, "devices": devices,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            },
        });
        self.namespace.cluster().create("resourceslices", slice).await;
    }

    /// Creates a ResourceClaimTemplate with this request.
    async fn template(&self, name: &str, exactly: &Value) {
        let spec = self.claim_spec(exactly);
        let template = json!({"metadata": {"name": name}, "spec": {"spec": spec}});
        self.namespace.create("resourceclaimtemplates", template).await;
    }

    fn claim_spec(&self, exactly: &Value) -> Value {
        let mut request = exactly.clone();
        request["deviceClassName"] = json!(self.driver);
        json!({"devices": {"requests": [{"name": "r", "exactly": request}]}})
    }

    /// Creates a pod with one claim from this source, restricted to a node if one is given.
    async fn claims(&self, name: &str, source: &Value, node: Option<usize>) {
        let mut made = pod(name, &json!({}), "app:v1");
        let mut claim = source.clone();
        claim["name"] = json!("gpu");
        made["spec"]["resourceClaims"] = json!([claim]);
        made["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
        if let Some(node) = node {
            made["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": self.nodes[node]});
        }
        self.namespace.create("pods", made).await;
    }

    /// Creates a pod that requests an extended resource.
    async fn asks(&self, name: &str, resource: &str, count: u32) -> Value {
        let mut made = pod(name, &json!({}), "app:v1");
        let amounts = json!({resource: count.to_string()});
        made["spec"]["containers"][0]["resources"] =
            json!({"requests": amounts, "limits": amounts});
        self.namespace.create("pods", made).await
    }

    /// Returns the claim that was created for the pod.
    async fn claim_of(&self, pod: &str) -> Value {
        let pod = self.namespace.get(&format!("pods/{pod}")).await;
        let claim = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str();
        self.namespace.get(&format!("resourceclaims/{}", claim.expect("a claim"))).await
    }

    async fn runs(&self, pod: &str) -> Value {
        self.namespace.until(&format!("pods/{pod}"), is_ready).await
    }

    /// Waits until the pod's status states that it is unschedulable, for this reason.
    async fn waits(&self, pod: &str, why: &str) {
        let says = |pod: &Value| {
            let scheduled = condition(pod, "PodScheduled");
            scheduled["reason"] == "Unschedulable"
                && scheduled["message"].as_str().is_some_and(|message| message.contains(why))
        };
        self.namespace.until(&format!("pods/{pod}"), says).await;
        until_event(&self.namespace, pod, "FailedScheduling", why).await;
    }

    async fn clean(&self) {
        let cluster = self.namespace.cluster();
        for pod in self.namespace.list("pods").await {
            self.namespace.delete(&format!("pods/{}", name(&pod)), "Background").await;
        }
        self.namespace.until_none("pods").await;
        for kind in ["resourceslices", "deviceclasses"] {
            for object in items(&cluster.get(kind).await) {
                if name(object).contains(&self.driver) {
                    cluster.delete(&format!("{kind}/{}", name(object)), "Background").await;
                }
            }
        }
    }
}

fn from(template: &str) -> Value {
    json!({"resourceClaimTemplateName": template})
}

/// Returns the devices that are allocated to a claim.
fn given(claim: &Value) -> Vec<&str> {
    let results = claim["status"]["allocation"]["devices"]["results"].as_array();
    results.into_iter().flatten().filter_map(|one| one["device"].as_str()).collect()
}

pub(crate) async fn are_given_as_they_are_asked_for(cluster: &Cluster) {
    let devices = Devices::prepare(cluster, "devices").await;
    devices.offers(0, &[1, 8]).await;
    devices.offers(1, &[2, 2, 2]).await;
    let size = |how: &str| {
        let expression = format!("device.attributes['{}'].size {how}", devices.driver);
        json!({"selectors": [{"cel": {"expression": expression}}]})
    };
    devices.template("big", &size("> 4")).await;
    devices.template("two", &json!({"count": 2})).await;
    devices.template("huge", &size("> 99")).await;
    devices.claims("big", &from("big"), None).await;
    let big = devices.runs("big").await;
    let node = &devices.nodes[0];
    assert_eq!(big["spec"]["nodeName"], **node);
    let claim = devices.claim_of("big").await;
    let mut status = claim["status"].clone();
    let allocated = status["allocation"].as_object_mut().expect("an allocation");
    assert!(allocated.remove("allocationTimestamp").is_some_and(|at| at.is_string()));
    let only = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    assert_eq!(
        status,
        json!({
            "allocation": {
                "devices": {"results": [{"request": "r", "driver": devices.driver, "pool": node, "device": "d1"}]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
            },
            "reservedFor": [{"resource": "pods", "name": "big", "uid": big["metadata"]["uid"]}],
        })
    );
    assert_eq!(
        claim["metadata"]["finalizers"],
        json!(["resource.kubernetes.io/delete-protection"])
    );
    // Only one device of the first node is left.
    devices.claims("two", &from("two"), None).await;
    let two = devices.runs("two").await;
    assert_eq!(two["spec"]["nodeName"], *devices.nodes[1]);
    assert_eq!(given(&devices.claim_of("two").await), ["d0", "d1"]);
    devices.claims("huge", &from("huge"), None).await;
    devices.waits("huge", "cannot allocate all claims").await;
    devices.clean().await;
}

pub(crate) async fn are_waited_for(cluster: &Cluster) {
    let devices = Devices::prepare(cluster, "devices").await;
    devices.offers(0, &[1]).await;
    devices.template("one", &json!({})).await;
    devices.claims("first", &from("one"), None).await;
    devices.runs("first").await;
    devices.claims("second", &from("one"), None).await;
    devices.waits("second", "cannot allocate all claims").await;
    devices.namespace.delete("pods/first", "Background").await;
    let second = devices.runs("second").await;
    assert_eq!(second["spec"]["nodeName"], *devices.nodes[0]);
    let claim = devices.claim_of("second").await;
    assert_eq!(given(&claim), ["d0"]);
    assert_eq!(claim["status"]["reservedFor"][0]["uid"], second["metadata"]["uid"]);
    // The other node gets a device: the pod that may run there is scheduled, and the restricted pod keeps waiting.
    devices.claims("tied", &from("one"), Some(0)).await;
    devices.claims("free", &from("one"), None).await;
    for pod in ["tied", "free"] {
        devices.waits(pod, "cannot allocate all claims").await;
    }
    devices.offers(1, &[1]).await;
    let free = devices.runs("free").await;
    assert_eq!(free["spec"]["nodeName"], *devices.nodes[1]);
    cluster.watch_a_while().await;
    let tied = devices.namespace.get("pods/tied").await;
    assert!(tied["spec"]["nodeName"].is_null(), "{tied:#}");
    devices.namespace.delete("pods/second", "Background").await;
    devices.runs("tied").await;
    devices.clean().await;
}

pub(crate) async fn are_shared_by_a_claim(cluster: &Cluster) {
    let devices = Devices::prepare(cluster, "devices").await;
    let namespace = &devices.namespace;
    devices.offers(0, &[1]).await;
    devices.offers(1, &[1]).await;
    let claim = json!({"metadata": {"name": "ours"}, "spec": devices.claim_spec(&json!({}))});
    let ours = json!({"resourceClaimName": "ours"});
    devices.claims("first", &ours, None).await;
    cluster.watch_a_while().await;
    let waits = namespace.get("pods/first").await;
    assert!(waits["spec"]["nodeName"].is_null(), "{waits:#}");
    namespace.create("resourceclaims", claim).await;
    let first = devices.runs("first").await;
    devices.claims("second", &ours, None).await;
    let second = devices.runs("second").await;
    assert_eq!(first["spec"]["nodeName"], second["spec"]["nodeName"]);
    let claim = namespace.get("resourceclaims/ours").await;
    let reserved: Vec<_> = claim["status"]["reservedFor"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(reserved, ["first", "second"]);
    // A pod that is restricted to another node cannot get the devices while others hold them.
    let other = usize::from(first["spec"]["nodeName"] == *devices.nodes[0]);
    devices.claims("third", &ours, Some(other)).await;
    devices.waits("third", "resourceclaim not available on the node").await;
    for pod in ["first", "second"] {
        namespace.delete(&format!("pods/{pod}"), "Background").await;
    }
    let third = devices.runs("third").await;
    assert_eq!(third["spec"]["nodeName"], *devices.nodes[other]);
    devices.clean().await;
}

/// Unused allocated devices block a pod, until they are released.
pub(crate) async fn that_are_of_no_use_are_given_back(cluster: &Cluster) {
    let devices = Devices::prepare(cluster, "devices").await;
    let namespace = &devices.namespace;
    devices.offers(0, &[1]).await;
    devices.offers(1, &[1]).await;
    let claim = json!({"metadata": {"name": "idle"}, "spec": devices.claim_spec(&json!({}))});
    namespace.create("resourceclaims", claim).await;
    let node = &devices.nodes[0];
    let only = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let allocation = json!({
        "devices": {"results": [{"request": "r", "driver": devices.driver, "pool": node, "device": "d0"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
    });
    let status = json!({"status": {"allocation": allocation}});
    namespace.patch("resourceclaims/idle/status", status).await;
    devices.claims("far", &json!({"resourceClaimName": "idle"}), Some(1)).await;
    let far = devices.runs("far").await;
    assert_eq!(far["spec"]["nodeName"], *devices.nodes[1]);
    let claim = namespace.get("resourceclaims/idle").await;
    let results = &claim["status"]["allocation"]["devices"]["results"];
    assert_eq!(results[0]["pool"], *devices.nodes[1], "{claim:#}");
    let message = "deallocation of ResourceClaim completed";
    until_event(namespace, "far", "FailedScheduling", message).await;
    devices.clean().await;
}

pub(crate) async fn stand_for_extended_resources(cluster: &Cluster) {
    let devices = Devices::prepare(cluster, "devices").await;
    let namespace = &devices.namespace;
    devices.offers(0, &[1, 1]).await;
    let resource = format!("{}/gpu", devices.driver);
    devices.asks("named", &resource, 1).await;
    // The resource is unknown until a DeviceClass names it.
    devices.waits("named", &format!("Insufficient {resource}")).await;
    let expression = format!("device.driver == '{}'", devices.driver);
    let selectors = json!([{"cel": {"expression": expression}}]);
    let class = format!("gpus.{}", devices.driver);
    devices.class(&class, &json!({"extendedResourceName": resource, "selectors": selectors})).await;
    let named = devices.runs("named").await;
    assert_eq!(named["spec"]["nodeName"], *devices.nodes[0]);
    let status = &named["status"]["extendedResourceClaimStatus"];
    let mapping = json!({"containerName": "app", "resourceName": resource, "requestName": "container-0-request-0"});
    assert_eq!(status["requestMappings"], json!([mapping]), "{named:#}");
    let path = format!("resourceclaims/{}", status["resourceClaimName"].as_str().expect("a name"));
    let claim = namespace.get(&path).await;
    let meta = &claim["metadata"];
    assert_eq!(meta["generateName"], "named-extended-resources-");
    let marked = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    assert_eq!(meta["annotations"], marked);
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "named", "uid": named["metadata"]["uid"], "controller": true});
    assert_eq!(meta["ownerReferences"], json!([owner]));
    let exactly = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": 1});
    let request = json!({"name": "container-0-request-0", "exactly": exactly});
    assert_eq!(claim["spec"], json!({"devices": {"requests": [request]}}));
    assert_eq!(given(&claim).len(), 1);
    assert_eq!(claim["status"]["reservedFor"][0]["uid"], named["metadata"]["uid"]);
    // Every class can be requested by its own name.
    let implicit = format!("deviceclass.resource.kubernetes.io/{}", devices.driver);
    devices.asks("implicit", &implicit, 1).await;
    devices.runs("implicit").await;
    devices.asks("late", &resource, 2).await;
    devices.waits("late", "cannot allocate all claims").await;
    for pod in ["named", "implicit"] {
        namespace.delete(&format!("pods/{pod}"), "Background").await;
    }
    devices.runs("late").await;
    namespace.until_gone(&path).await;
    goes_to_a_node_that_offers_it(&devices, &resource).await;
    devices.clean().await;
}

/// If a node advertises the resource itself, no devices are allocated for it.
async fn goes_to_a_node_that_offers_it(devices: &Devices<'_>, resource: &str) {
    let (namespace, cluster) = (&devices.namespace, devices.namespace.cluster());
    let key = "e2e.evenkeel.dev/offers";
    let node = json!({
        "metadata": {"name": devices.driver},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"}]},
    });
    cluster.create("nodes", node).await;
    let path = format!("nodes/{}", devices.driver);
    let has = json!({"cpu": "1", "memory": "1Gi", "pods": "9", resource: "1"});
    let ready = json!({"type": "Ready", "status": "True", "reason": "Test", "message": ""});
    let status = json!({"allocatable": has, "capacity": has, "conditions": [ready]});
    cluster.patch(&format!("{path}/status"), json!({"status": status})).await;
    let mut made = pod("own", &json!({}), "app:v1");
    let one = json!({resource: "1"});
    made["spec"]["containers"][0]["resources"] = json!({"requests": one, "limits": one});
    made["spec"]["tolerations"] = json!([{"key": key, "operator": "Exists"}]);
    namespace.create("pods", made).await;
    let own = namespace.until("pods/own", |pod| pod["spec"]["nodeName"] == *devices.driver).await;
    assert!(own["status"]["extendedResourceClaimStatus"].is_null(), "{own:#}");
    let claims = namespace.list("resourceclaims").await;
    assert!(claims.iter().all(|claim| !name(claim).starts_with("own-")), "{claims:#?}");
    namespace.ask("DELETE", "pods/own", json!({"gracePeriodSeconds": 0})).await.expect("deleted");
    cluster.delete(&path, "Background").await;
}
