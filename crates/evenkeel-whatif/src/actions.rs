//! Performs a change in a simulated cluster.

use crate::{
    change::{Nodes, Outage, Scenario},
    cluster::text,
    kubelets::Kubelets,
    observe::{Recorder, full_name},
    recording::EventKind,
};
use evenkeel_api::{
    View as _,
    views::{Metadata, Node, Pod, PodDisruptionBudget, ServiceAccount},
};
use evenkeel_component_helpers::scheduling::corev1;
use evenkeel_nodes::{NodeOptions, NodesOptions, SILENT};
use evenkeel_runtime::{
    cache::{Cache, Caches, Index},
    client::{ApiError, Client, DeleteOptions},
    clock::Clock,
    plan::{PatchType, Target},
    tasks::Tasks,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc, time::Duration};

/// Interval at which a drain retries evictions that a budget refused. Upstream: `kubectl drain`.
const RETRY: Duration = Duration::from_secs(5);
/// Interval of retries once a budget has refused for an hour. kubectl continues to retry every five seconds.
const LATE_RETRY: Duration = Duration::from_mins(1);
/// Time after which refusals are retried at the longer interval.
const LATE: Duration = Duration::from_hours(1);
/// Interval at which a drain checks whether evicted pods still exist.
const POLL: Duration = Duration::from_secs(1);
/// Interval of checks for the prerequisites of an applied object, such as the service account of a new namespace.
const NEEDS_POLL: Duration = Duration::from_millis(100);
/// Maximum time for the prerequisites to appear. After it, the server's refusal names the missing one.
const NEEDS_TIMEOUT: Duration = Duration::from_secs(10);
/// Name of the service account of pods that name none. Its controller creates it in each namespace.
const DEFAULT_ACCOUNT: &str = "default";
/// First address of added nodes.
const FIRST_NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 31, 0, 2);
/// First IP of pods on added nodes, in the range that RFC 6598 reserves for carriers.
const FIRST_POD_ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 127, 0, 1);

/// Client that makes the change in a simulated cluster.
pub(crate) struct Actor {
    client: Client,
    /// Client that added nodes use.
    kubelet: Client,
    clock: Clock,
    caches: Caches,
    nodes: Cache<Node>,
    budgets: Cache<PodDisruptionBudget>,
    pods_by_node: Index<Pod>,
    recorder: Recorder,
    /// Tasks of added nodes.
    tasks: Tasks,
    /// Options of added nodes, apart from the nodes themselves.
    node_options: NodesOptions,
    kubelets: Kubelets,
}

impl Actor {
    pub(crate) fn new(
        wire: &kube::Client,
        clock: &Clock,
        caches: &Caches,
        recorder: &Recorder,
        (node_options, kubelets): (NodesOptions, &Kubelets),
    ) -> Self {
        let client = |agent| Client::builder(wire.clone(), clock.clone()).user_agent(agent).build();
        Self {
            client: client("evenkeel-what-if"),
            kubelet: client("kubelet"),
            clock: clock.clone(),
            caches: caches.clone(),
            nodes: caches.of(),
            budgets: caches.of(),
            pods_by_node: caches.of::<Pod>().index("node", corev1::node_key),
            recorder: recorder.clone(),
            tasks: Tasks::new(),
            node_options,
            kubelets: kubelets.clone(),
        }
    }

    /// Performs the parts of the change, one after the other.
    pub(crate) async fn change(&self, scenario: &Scenario) {
        for description in self.planned(scenario) {
            self.recorder.record_change(&description, EventKind::Planned);
        }
        for object in &scenario.apply {
            self.part(&apply_part(object), self.apply(object, &scenario.apply)).await;
        }
        if let Some((count, like)) = &scenario.add {
            self.part(&add_part(*count, like), async { self.add_nodes(*count, like) }).await;
        }
        if let Some(outage) = &scenario.outage {
            self.part(OUTAGE_PART, self.partition(outage)).await;
        }
        let drained = self.chosen(&scenario.drain);
        for node in &drained {
            let cordoned = self.cordon(&node.meta.name).await;
            if let Err(error) = cordoned {
                let message = error.to_string();
                let name = format!("cordon {}", node.meta.name);
                self.recorder.record_change(&name, EventKind::Failed { message });
            }
        }
        for node in &drained {
            let name = format!("drain {}", node.meta.name);
            self.part(&name, self.drain(&node.meta.name)).await;
        }
        for node in self.chosen(&scenario.remove) {
            let name = format!("remove {}", node.meta.name);
            self.part(&name, self.remove(&node.meta.name)).await;
        }
    }

    /// Returns the descriptions of the parts, in their order. A node that an earlier part creates or labels is not among them.
    fn planned(&self, scenario: &Scenario) -> Vec<String> {
        let of_nodes = |verb: &'static str, choices: &[Nodes]| {
            let nodes = self.chosen(choices).into_iter();
            nodes.map(move |node| format!("{verb} {}", node.meta.name))
        };
        let add = scenario.add.as_ref().map(|(count, like)| add_part(*count, like));
        let outage = scenario.outage.as_ref().map(|_| OUTAGE_PART.to_owned());
        (scenario.apply.iter().map(apply_part))
            .chain(add)
            .chain(outage)
            .chain(of_nodes("drain", &scenario.drain))
            .chain(of_nodes("remove", &scenario.remove))
            .collect()
    }

    /// Records the start and the end of a part of the change.
    async fn part(&self, description: &str, work: impl Future<Output = Result<(), String>>) {
        self.recorder.record_change(description, EventKind::Began);
        let end = match work.await {
            Ok(()) => EventKind::Completed,
            Err(message) => EventKind::Failed { message },
        };
        self.recorder.record_change(description, end);
    }

    /// Returns the chosen nodes, by name.
    fn chosen(&self, choices: &[Nodes]) -> Vec<Arc<Node>> {
        let mut nodes = self.nodes.list();
        nodes.retain(|node| choices.iter().any(|choice| choice.includes(node)));
        nodes.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        nodes
    }

    /// Applies an object as kubectl does, and waits until later objects can use it: a new namespace has its service account,
    /// and the resource of a CustomResourceDefinition among `all` is served.
    async fn apply(&self, object: &Value, all: &[Value]) -> Result<(), String> {
        let (version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
        let is_defined = all.iter().any(|other| {
            text(other, "/kind") == "CustomResourceDefinition"
                && text(other, "/spec/names/kind") == kind
        });
        let deadline = self.clock.instant() + NEEDS_TIMEOUT;
        let resource = loop {
            let resources = self.client.api_resources().await.map_err(|error| error.to_string())?;
            match resources.of_kind(version, kind) {
                Some(resource) => break resource.clone(),
                None if is_defined && self.clock.instant() < deadline => {
                    self.clock.sleep(NEEDS_POLL).await;
                }
                None => return Err(format!("the cluster has no {kind} of {version}")),
            }
        };
        let namespace = match text(object, "/metadata/namespace") {
            _ if !resource.kind.namespaced => "",
            "" => "default",
            namespace => namespace,
        };
        let name = text(object, "/metadata/name");
        let target = Target::new(resource.kind.clone(), namespace, name, "");
        let body = object.to_string().into();
        let applied = self.client.apply::<Metadata>(&target, "kubectl", true, body).await;
        applied.map_err(|error| error.to_string())?;
        if (version, kind) == ("v1", "Namespace") {
            self.wait_for_account(name).await;
        }
        Ok(())
    }

    /// Waits until a namespace has its default service account, without which the server refuses pods.
    async fn wait_for_account(&self, namespace: &str) {
        let deadline = self.clock.instant() + NEEDS_TIMEOUT;
        while self.clock.instant() < deadline {
            let kind = ServiceAccount::kind();
            if self.client.get_metadata(&kind, namespace, DEFAULT_ACCOUNT).await.is_ok() {
                return;
            }
            self.clock.sleep(NEEDS_POLL).await;
        }
    }

    /// Starts simulated nodes that resemble another node.
    fn add_nodes(&self, count: u32, like: &str) -> Result<(), String> {
        let node = self.nodes.get("", like).ok_or_else(|| format!("there is no node {like:?}"))?;
        let first = u32::from(FIRST_NODE_ADDRESS);
        let nodes = (0..count).map(|index| {
            let address = Ipv4Addr::from(first.wrapping_add(index));
            NodeOptions::like(&node, &format!("{like}-added-{index}"), address)
        });
        let nodes: Vec<NodeOptions> = nodes.collect();
        self.kubelets.add(nodes.iter().map(|node| node.name.clone()));
        let options =
            NodesOptions { nodes, first_pod_ip: FIRST_POD_ADDRESS, ..self.node_options.clone() };
        let kubelet = self.kubelet.clone();
        let (caches, clock) = (self.caches.clone(), self.clock.clone());
        let run = evenkeel_nodes::run(kubelet, caches, clock, options, self.tasks.token());
        self.tasks.spawn("added nodes", run);
        Ok(())
    }

    /// Partitions nodes from the API server, and ends the partition after the outage.
    async fn partition(&self, outage: &Outage) -> Result<(), String> {
        let nodes = self.chosen(std::slice::from_ref(&outage.nodes));
        if nodes.is_empty() {
            return Err("no node is like that".to_owned());
        }
        for node in &nodes {
            self.annotate(&node.meta.name, json!("true"))
                .await
                .map_err(|error| error.to_string())?;
        }
        let Some(duration) = outage.duration else { return Ok(()) };
        self.clock.sleep(duration).await;
        for node in &nodes {
            match self.annotate(&node.meta.name, Value::Null).await {
                Err(error) if !error.is_not_found() => return Err(error.to_string()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Sets the annotation that partitions a node, or removes it if `silent` is null.
    async fn annotate(&self, node: &str, silent: Value) -> Result<(), ApiError> {
        let patch = json!({ "metadata": { "annotations": { SILENT: silent } } });
        self.patch_node(node, patch).await
    }

    async fn cordon(&self, node: &str) -> Result<(), ApiError> {
        self.patch_node(node, json!({ "spec": { "unschedulable": true } })).await
    }

    async fn patch_node(&self, node: &str, patch: Value) -> Result<(), ApiError> {
        let (kind, body) = (Node::kind(), patch.to_string().into());
        let patched =
            self.client.patch::<Metadata>(&kind, "", node, "", PatchType::Merge, body).await;
        patched.map(drop)
    }

    /// Evicts the pods of a node until no evictable pod is left.
    ///
    /// Upstream: `RunNodeDrain` with `--ignore-daemonsets`, `--delete-emptydir-data` and `--force`.
    async fn drain(&self, node: &str) -> Result<(), String> {
        let start = self.clock.now();
        let mut refused = BTreeSet::new();
        loop {
            let mut pods = self.pods_by_node.filter(node, is_evictable);
            if pods.is_empty() {
                return Ok(());
            }
            // kubectl evicts in the order of the API server's list.
            pods.sort_by(|a, b| {
                (&a.meta.namespace, &a.meta.name).cmp(&(&b.meta.namespace, &b.meta.name))
            });
            let mut is_refused = false;
            for pod in pods.iter().filter(|pod| !pod.meta.deleting()) {
                match self.evict(pod).await {
                    Ok(()) => {}
                    Err(error) if error.is_not_found() => {}
                    Err(error) if error.is_too_many_requests() => {
                        is_refused = true;
                        if refused.insert(pod.meta.uid.clone()) {
                            self.record_refusal(pod);
                        }
                    }
                    Err(error) => return Err(error.to_string()),
                }
            }
            let passed = self.clock.now().duration_since(start).unsigned_abs();
            let delay = match (is_refused, passed > LATE) {
                (false, _) => POLL,
                (true, false) => RETRY,
                (true, true) => LATE_RETRY,
            };
            self.clock.sleep(delay).await;
        }
    }

    async fn evict(&self, pod: &Pod) -> Result<(), ApiError> {
        let (namespace, name) = (&*pod.meta.namespace, &*pod.meta.name);
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": name, "namespace": namespace },
        });
        let body = body.to_string().into();
        let kind = Pod::kind();
        let evicted = self
            .client
            .create_subresource::<Metadata>(&kind, namespace, name, "eviction", body)
            .await;
        evicted.map(drop)
    }

    /// Records that all budgets that select the pod refused its eviction.
    fn record_refusal(&self, pod: &Pod) {
        let pod_name = full_name(&pod.meta);
        let mut budgets = self.budgets.namespace(&pod.meta.namespace);
        budgets.retain(|budget| budget.spec.selector.matches(&pod.meta.labels));
        budgets.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        for budget in budgets {
            self.recorder.record_refusal(full_name(&budget.meta), pod_name.clone());
        }
    }

    async fn remove(&self, node: &str) -> Result<(), String> {
        match self.client.delete(&Node::kind(), "", node, &DeleteOptions::default()).await {
            Err(error) if !error.is_not_found() => Err(error.to_string()),
            _ => Ok(()),
        }
    }
}

/// Description of an outage.
const OUTAGE_PART: &str = "outage";

/// Returns the description of an object's application.
fn apply_part(object: &Value) -> String {
    format!("apply {} {}", text(object, "/kind"), text(object, "/metadata/name"))
}

/// Returns the description of the addition of nodes.
fn add_part(count: u32, like: &str) -> String {
    let nodes = if count == 1 { "node" } else { "nodes" };
    format!("add {count} {nodes} like {like}")
}

/// Returns whether a drain evicts a pod. It does not evict pods of DaemonSets and mirror pods of static pods.
///
/// Upstream: `daemonSetFilter`, `mirrorPodFilter`.
fn is_evictable(pod: &Pod) -> bool {
    let of_daemonset = pod.meta.controller().is_some_and(|owner| &*owner.kind == "DaemonSet");
    let is_mirror = pod.meta.annotations.get("kubernetes.io/config.mirror").is_some();
    !of_daemonset && !is_mirror
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::OwnerReference;

    #[test]
    fn a_drain_leaves_daemonsets_and_static_pods() {
        let pod = |owner: &str, mirror: bool| {
            let mut pod = Pod::default();
            if !owner.is_empty() {
                let owner =
                    OwnerReference { kind: owner.into(), controller: true, ..Default::default() };
                pod.meta.owners = [owner].into_iter().collect();
            }
            if mirror {
                pod.meta.annotations = [("kubernetes.io/config.mirror", "x")].into_iter().collect();
            }
            pod
        };
        assert!(is_evictable(&pod("", false)));
        assert!(is_evictable(&pod("ReplicaSet", false)));
        assert!(!is_evictable(&pod("DaemonSet", false)));
        assert!(!is_evictable(&pod("Node", true)));
    }
}
