//! Options of the simulated nodes.

use crate::{Kubelets, StorageOptions};
use evenkeel_api::views::Node;
use std::{net::Ipv4Addr, time::Duration};

/// Options of all simulated nodes of one process.
#[derive(Debug, Clone)]
pub struct NodesOptions {
    /// Simulated nodes of the process.
    pub nodes: Vec<NodeOptions>,
    /// Durations of simulated work on every node; a pod's annotations override them.
    pub delays: Delays,
    /// Interval at which a node renews its Lease. Upstream: 10 s.
    pub lease_renewal: Duration,
    /// Duration of a node's Lease. Upstream: 40 s.
    pub lease_duration: Duration,
    /// Interval at which a node reports its status even if nothing changed. Upstream: 5 min.
    pub status_report: Duration,
    /// First pod IP address; later pods get the following ones.
    pub first_pod_ip: Ipv4Addr,
    /// Number of pods that are synced concurrently.
    pub workers: usize,
    /// Whether to send the kubelet's normal events (`Started`, `Killing`), one or two per container.
    /// Warnings are always sent.
    pub normal_events: bool,
    /// Whether to interpret the commands and probes of containers. Otherwise a container runs until it is stopped, and
    /// is ready. Default: true.
    pub interprets_commands: bool,
    /// Whether Behaviors of the cluster ([`behavior_definition`](crate::behavior_definition)) steer pods and nodes. The definition
    /// may be installed later. Default: false.
    pub behaviors: bool,
    /// Whether pods and nodes follow the Stages of the cluster ([`stage_definition`](crate::stage_definition)) while at
    /// least one exists. The definition may be installed later. Default: false.
    pub stages: bool,
    /// Simulated storage that provisions volumes; `None` if another driver, or none, provisions them.
    pub storage: Option<StorageOptions>,
    /// Handle that gives an API server access to the kubelets while the nodes run.
    pub kubelets: Kubelets,
}

impl Default for NodesOptions {
    fn default() -> Self {
        Self {
            nodes: NodeOptions::several(3, "node-", &["zone-a", "zone-b", "zone-c"]),
            delays: Delays::default(),
            lease_renewal: Duration::from_secs(10),
            lease_duration: Duration::from_secs(40),
            status_report: Duration::from_secs(300),
            first_pod_ip: Ipv4Addr::new(10, 128, 0, 1),
            workers: 32,
            normal_events: false,
            interprets_commands: true,
            behaviors: false,
            stages: false,
            storage: None,
            kubelets: Kubelets::default(),
        }
    }
}

/// One simulated node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOptions {
    /// Name of the node, also its host name.
    pub name: String,
    /// Address of type `InternalIP`.
    pub ip: Ipv4Addr,
    /// `status.capacity` and `status.allocatable`: resource names with quantities, such as `cpu` and `8`.
    pub capacity: Vec<(String, String)>,
    /// Labels in addition to those of every kubelet (host name, operating system, architecture).
    pub labels: Vec<(String, String)>,
    /// Taints at registration: key, value and effect.
    pub taints: Vec<(String, String, String)>,
    /// Whether the Node object exists. The kubelet then registers no node, and changes only the conditions of the
    /// object.
    pub existing: bool,
}

impl NodeOptions {
    /// Returns a node with 8 CPUs, 32 GiB of memory, 100 GiB of ephemeral storage and room for 110 pods.
    pub fn new(name: impl Into<String>, ip: Ipv4Addr) -> Self {
        let capacity =
            [("cpu", "8"), ("memory", "32Gi"), ("pods", "110"), ("ephemeral-storage", "100Gi")];
        Self {
            name: name.into(),
            ip,
            capacity: capacity
                .iter()
                .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()))
                .collect(),
            labels: Vec::new(),
            taints: Vec::new(),
            existing: false,
        }
    }

    /// Returns the node whose object exists already: it admits pods up to the object's allocatable resources.
    pub fn of_existing(node: &Node) -> Self {
        let addresses = node.status.addresses.iter();
        let mut internal = addresses.filter(|address| &*address.type_ == "InternalIP");
        let ip = internal.find_map(|address| address.address.parse().ok());
        let capacity = node.status.allocatable.iter();
        Self {
            ip: ip.unwrap_or(Ipv4Addr::UNSPECIFIED),
            capacity: capacity
                .map(|(name, amount)| (name.to_owned(), amount.to_string()))
                .collect(),
            existing: true,
            ..Self::new(&*node.meta.name, Ipv4Addr::UNSPECIFIED)
        }
    }

    /// Returns a new node with the allocatable resources, labels and taints of another one. Omits taints and labels
    /// that only describe that node: conditions, host name.
    pub fn like(node: &Node, name: &str, ip: Ipv4Addr) -> Self {
        let labels = node.meta.labels.iter().filter(|(key, _)| *key != "kubernetes.io/hostname");
        let taints = node.spec.taints.iter();
        let taints = taints.filter(|taint| !taint.key.starts_with("node.kubernetes.io/"));
        Self {
            name: name.to_owned(),
            ip,
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            taints: taints
                .map(|taint| [&taint.key, &taint.value, &taint.effect].map(ToString::to_string))
                .map(|[key, value, effect]| (key, value, effect))
                .collect(),
            existing: false,
            ..Self::of_existing(node)
        }
    }

    /// Returns `count` nodes `<prefix>0`, `<prefix>1`, … with addresses from 172.18.0.2. They are spread over `zones`
    /// in turn; without `zones` they have no zone label.
    pub fn several(count: u32, prefix: &str, zones: &[&str]) -> Vec<Self> {
        let group = NodeGroup {
            prefix: prefix.to_owned(),
            count,
            zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
            capacity: Vec::new(),
            labels: Vec::new(),
            taints: Vec::new(),
        };
        NodeGroup::nodes(&[group])
    }

    /// Returns the node with `resource` set to `amount`.
    #[must_use]
    pub fn with_capacity(mut self, resource: &str, amount: &str) -> Self {
        self.capacity.retain(|(name, _)| name != resource);
        self.capacity.push((resource.to_owned(), amount.to_owned()));
        self
    }
}

/// Group of simulated nodes that differ only in name, address and zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroup {
    /// Prefix of the nodes' names, before a number from 0.
    pub prefix: String,
    /// Number of nodes.
    pub count: u32,
    /// Zones that the nodes are spread over in turn. Without zones, the nodes have no zone label.
    pub zones: Vec<String>,
    /// Resource names with quantities, which add to or replace those of [`NodeOptions::new`].
    pub capacity: Vec<(String, String)>,
    /// Labels in addition to those of the kubelet and the zone.
    pub labels: Vec<(String, String)>,
    /// Taints at registration: key, value and effect.
    pub taints: Vec<(String, String, String)>,
}

impl NodeGroup {
    /// Returns the nodes of all groups, with addresses from 172.18.0.2.
    pub fn nodes(groups: &[Self]) -> Vec<NodeOptions> {
        let first = u32::from(Ipv4Addr::new(172, 18, 0, 2));
        let of_groups = groups.iter().flat_map(|group| (0..group.count).map(move |n| (group, n)));
        of_groups
            .zip(first..)
            .map(|((group, index), address)| group.node(index, Ipv4Addr::from(address)))
            .collect()
    }

    fn node(&self, index: u32, address: Ipv4Addr) -> NodeOptions {
        let mut node = NodeOptions::new(format!("{}{index}", self.prefix), address);
        if let Some(zone) = self.zones.iter().cycle().nth(index as usize % self.zones.len().max(1))
        {
            node.labels.push(("topology.kubernetes.io/zone".into(), zone.clone()));
            node.labels.push(("topology.kubernetes.io/region".into(), "sim".into()));
        }
        for (resource, amount) in &self.capacity {
            node = node.with_capacity(resource, amount);
        }
        node.labels.retain(|(key, _)| self.labels.iter().all(|(own, _)| own != key));
        node.labels.extend(self.labels.iter().cloned());
        node.taints.extend(self.taints.iter().cloned());
        node
    }
}

/// Durations of simulated work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delays {
    /// Time from the moment that a container may start until it runs.
    pub start: Duration,
    /// Time from running to ready.
    pub ready: Duration,
    /// Time from SIGTERM to the exit of a container.
    pub termination: Duration,
    /// Run time of an init container.
    pub init: Duration,
    /// Run time of the containers of a Job's pods; with `None`, they do not end. Containers of other pods do not end.
    pub job: Option<Duration>,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            start: Duration::from_millis(100),
            ready: Duration::ZERO,
            termination: Duration::ZERO,
            init: Duration::ZERO,
            job: Some(Duration::from_secs(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_share_the_addresses_and_spread_over_their_zones() {
        let text = |text: &str| text.to_owned();
        let gpu = NodeGroup {
            prefix: text("gpu-"),
            count: 3,
            zones: vec![text("a"), text("b")],
            capacity: vec![(text("cpu"), text("64")), (text("example.com/gpu"), text("8"))],
            labels: vec![(text("topology.kubernetes.io/region"), text("south"))],
            taints: vec![(text("gpu"), text("yes"), text("NoSchedule"))],
        };
        let plain = NodeGroup {
            prefix: text("node-"),
            count: 1,
            zones: Vec::new(),
            capacity: Vec::new(),
            labels: Vec::new(),
            taints: Vec::new(),
        };
        let nodes = NodeGroup::nodes(&[plain, gpu]);
        let names: Vec<(&str, Ipv4Addr)> =
            nodes.iter().map(|node| (&*node.name, node.ip)).collect();
        let ip = |last| Ipv4Addr::new(172, 18, 0, last);
        assert_eq!(
            names,
            [("node-0", ip(2)), ("gpu-0", ip(3)), ("gpu-1", ip(4)), ("gpu-2", ip(5))]
        );
        assert!(nodes[0].labels.is_empty() && nodes[0].taints.is_empty());
        let zone =
            |node: &NodeOptions| node.labels.iter().find(|(key, _)| key.ends_with("zone")).cloned();
        let zones: Vec<_> = nodes[1..].iter().filter_map(zone).map(|(_, zone)| zone).collect();
        assert_eq!(zones, ["a", "b", "a"]);
        let regions = nodes[1].labels.iter().filter(|(key, _)| key.ends_with("region"));
        assert_eq!(regions.map(|(_, region)| &**region).collect::<Vec<_>>(), ["south"]);
        let capacity =
            |resource: &str| nodes[1].capacity.iter().filter(|(name, _)| name == resource).count();
        assert_eq!([capacity("cpu"), capacity("example.com/gpu"), capacity("pods")], [1, 1, 1]);
        assert_eq!(nodes[1].taints.len(), 1);
    }
}
