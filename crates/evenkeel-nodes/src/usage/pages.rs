//! Usage of a node as its kubelet reports it: the summary, and metrics in the Prometheus text format.

use evenkeel_api::time::{Timestamp, seconds};
use serde_json::{Value, json};
use std::fmt::Write as _;

use super::measure::ResourceUsage;

/// Usage of a node and of its running pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeUsage {
    pub(crate) node: String,
    pub(crate) time: Timestamp,
    /// Usage of the pods and of the node itself.
    pub(crate) total: ResourceUsage,
    pub(crate) pods: Vec<PodUsage>,
}

/// Usage of a pod by container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodUsage {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Name and usage of each running container.
    pub(crate) containers: Vec<(String, ResourceUsage)>,
}

impl PodUsage {
    /// Returns the usage of all containers.
    pub(super) fn total(&self) -> ResourceUsage {
        let usages = self.containers.iter().map(|(_, usage)| *usage);
        usages.fold(ResourceUsage::default(), ResourceUsage::plus)
    }
}

impl NodeUsage {
    /// Returns the page `/stats/summary`.
    pub(crate) fn summary(&self) -> Value {
        let with_usage = |mut object: Value, usage: ResourceUsage| {
            let time = seconds(self.time);
            object["cpu"] = json!({"time": time, "usageNanoCores": usage.nanocores()});
            object["memory"] =
                json!({"time": time, "usageBytes": usage.bytes, "workingSetBytes": usage.bytes});
            object
        };
        let pods = self.pods.iter().map(|pod| {
            let containers = pod.containers.iter();
            let containers =
                containers.map(|(name, usage)| with_usage(json!({"name": name}), *usage));
            let reference = json!({"name": pod.name, "namespace": pod.namespace, "uid": pod.uid});
            let object = json!({"podRef": reference, "containers": containers.collect::<Value>()});
            with_usage(object, pod.total())
        });
        let pods: Value = pods.collect();
        json!({"node": with_usage(json!({"nodeName": self.node}), self.total), "pods": pods})
    }

    /// Returns the page `/metrics/resource`. It lacks the counters of CPU time, because the simulation does not record
    /// past usage.
    pub(crate) fn resource_metrics(&self) -> String {
        let mut page = String::new();
        let write_head = |page: &mut String, name: &str, help: &str| {
            let _ = write!(page, "# HELP {name} [STABLE] {help}\n# TYPE {name} gauge\n");
        };
        let name = "container_memory_working_set_bytes";
        write_head(&mut page, name, "Current working set of the container in bytes");
        for pod in &self.pods {
            let PodUsage { namespace, name: pod_name, containers, .. } = pod;
            for (container, usage) in containers {
                let bytes = usage.bytes;
                let _ = writeln!(
                    page,
                    "{name}{{container=\"{container}\",namespace=\"{namespace}\",pod=\"{pod_name}\"}} {bytes}"
                );
            }
        }
        let name = "node_memory_working_set_bytes";
        write_head(&mut page, name, "Current working set of the node in bytes");
        let _ = writeln!(page, "{name} {}", self.total.bytes);
        let name = "pod_memory_working_set_bytes";
        write_head(&mut page, name, "Current working set of the pod in bytes");
        for pod in &self.pods {
            let PodUsage { namespace, name: pod_name, .. } = pod;
            let bytes = pod.total().bytes;
            let _ =
                writeln!(page, "{name}{{namespace=\"{namespace}\",pod=\"{pod_name}\"}} {bytes}");
        }
        page
    }

    /// Returns the page `/metrics`, with the subset of the kubelet's metrics that a simulated kubelet has.
    pub(crate) fn kubelet_metrics(&self) -> String {
        let containers: usize = self.pods.iter().map(|pod| pod.containers.len()).sum();
        format!(
            "# HELP kubelet_node_name [ALPHA] The node's name. The count is always 1.\n\
             # TYPE kubelet_node_name gauge\n\
             kubelet_node_name{{node=\"{}\"}} 1\n\
             # HELP kubelet_running_containers [ALPHA] Number of containers currently running\n\
             # TYPE kubelet_running_containers gauge\n\
             kubelet_running_containers{{container_state=\"running\"}} {containers}\n\
             # HELP kubelet_running_pods [ALPHA] Number of pods that have a running pod sandbox\n\
             # TYPE kubelet_running_pods gauge\n\
             kubelet_running_pods {}\n",
            self.node,
            self.pods.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_reported_as_json_and_as_metrics() {
        let usage = |millicores, bytes| ResourceUsage { millicores, bytes };
        let containers = vec![("a".to_owned(), usage(250, 100)), ("b".to_owned(), usage(1, 20))];
        let pod =
            PodUsage { namespace: "ns".into(), name: "p".into(), uid: "u".into(), containers };
        let time = Timestamp::from_second(1_800_000_000).expect("a time");
        let node = NodeUsage { node: "n".into(), time, total: usage(300, 1000), pods: vec![pod] };
        let summary = node.summary();
        assert_eq!(summary["node"]["nodeName"], "n");
        assert_eq!(summary["node"]["memory"]["workingSetBytes"], 1000);
        assert_eq!(
            summary["pods"][0]["podRef"],
            json!({"name": "p", "namespace": "ns", "uid": "u"})
        );
        assert_eq!(summary["pods"][0]["cpu"]["usageNanoCores"], 251_000_000);
        assert_eq!(summary["pods"][0]["containers"][1]["memory"]["usageBytes"], 20);
        let metrics = node.resource_metrics();
        for line in [
            "container_memory_working_set_bytes{container=\"a\",namespace=\"ns\",pod=\"p\"} 100\n",
            "node_memory_working_set_bytes 1000\n",
            "pod_memory_working_set_bytes{namespace=\"ns\",pod=\"p\"} 120\n",
        ] {
            assert!(metrics.contains(line), "{metrics}");
        }
        let metrics = node.kubelet_metrics();
        assert!(metrics.contains("kubelet_running_containers{container_state=\"running\"} 2\n"));
        assert!(metrics.contains("kubelet_running_pods 1\n"), "{metrics}");
    }
}
