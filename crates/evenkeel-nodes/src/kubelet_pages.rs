//! Pages of a kubelet's server, by path, and its configuration.

use serde_json::{Value, json};

use crate::NodesOptions;

/// Page of a kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page<'a> {
    /// Health of the kubelet.
    Health,
    /// Pods that are bound to the node.
    Pods,
    /// Usage of the node and its pods, as JSON.
    Summary,
    /// Usage of the node and its pods, as Prometheus metrics.
    ResourceMetrics,
    /// Metrics of the kubelet itself.
    Metrics,
    /// Configuration of the kubelet.
    Configuration,
    /// List of the node's log files.
    Logs,
    /// Log of a container.
    ContainerLog { namespace: &'a str, pod: &'a str, container: &'a str },
}

/// Returns the page at a path, or `None` for an unknown path.
///
/// Upstream: `InstallAuthNotRequiredHandlers`, `InstallAuthRequiredHandlers` of the kubelet's server.
pub(crate) fn page_at(path: &str) -> Option<Page<'_>> {
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    Some(match *parts.as_slice() {
        ["healthz"] | ["healthz", "ping" | "log" | "syncloop"] => Page::Health,
        ["pods"] | ["pods", ""] => Page::Pods,
        ["stats", "summary"] => Page::Summary,
        ["metrics", "resource"] => Page::ResourceMetrics,
        ["metrics"] => Page::Metrics,
        ["configz"] => Page::Configuration,
        ["logs", ""] => Page::Logs,
        ["containerLogs", namespace, pod, container] => {
            Page::ContainerLog { namespace, pod, container }
        }
        _ => return None,
    })
}

/// Returns the configuration of the kubelets.
pub(crate) fn configuration(options: &NodesOptions) -> Value {
    json!({"kubeletconfig": {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "enableServer": true,
        "nodeStatusReportFrequency": format!("{}s", options.status_report.as_secs()),
        "nodeLeaseDurationSeconds": options.lease_duration.as_secs(),
        "port": 10250,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_pages() {
        for (path, page) in [
            ("/healthz", Some(Page::Health)),
            ("/healthz/ping", Some(Page::Health)),
            ("/healthz/x", None),
            ("/pods", Some(Page::Pods)),
            ("/pods/", Some(Page::Pods)),
            ("/stats/summary", Some(Page::Summary)),
            ("/metrics", Some(Page::Metrics)),
            ("/metrics/resource", Some(Page::ResourceMetrics)),
            ("/configz", Some(Page::Configuration)),
            ("/logs/", Some(Page::Logs)),
            ("/logs/kubelet.log", None),
            (
                "/containerLogs/ns/p/c",
                Some(Page::ContainerLog { namespace: "ns", pod: "p", container: "c" }),
            ),
            ("/run/ns/p/c", None),
            ("", None),
        ] {
            assert_eq!(page_at(path), page, "{path}");
        }
    }
}
