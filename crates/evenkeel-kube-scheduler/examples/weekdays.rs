//! A scheduler with an out-of-tree plugin beside the in-tree ones: nodes take no pods on days on which they are closed. A
//! KubeSchedulerConfiguration enables the plugin and sets its arguments:
//!
//! ```yaml
//! apiVersion: kubescheduler.config.k8s.io/v1
//! kind: KubeSchedulerConfiguration
//! profiles:
//! - plugins:
//!     multiPoint:
//!       enabled:
//!       - name: Weekdays
//!   pluginConfig:
//!   - name: Weekdays
//!     args:
//!       label: example.com/closed
//!       today: sunday
//! ```

use evenkeel_kube_scheduler::Registry;
use evenkeel_scheduler::{
    framework::{CycleState, Filter, Plugin, Status, StatusResult},
    nodes::NodeRef,
    pod::PodInfo,
};
use std::{process::ExitCode, sync::Arc};

/// Arguments of the plugin (`pluginConfig`).
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Weekdays {
    /// Node label whose value names the day on which the node is closed.
    label: String,
    /// Name of the current day.
    today: String,
}

impl Plugin for Weekdays {
    fn name(&self) -> &'static str {
        "Weekdays"
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl Filter for Weekdays {
    fn filter(&self, _: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        match node.node().meta.labels.get(&self.label) {
            Some(closed) if *closed == *self.today => {
                Err(Status::unschedulable("node(s) were closed"))
            }
            _ => Ok(()),
        }
    }
}

/// Registers the in-tree plugins and `Weekdays`.
fn plugins() -> Registry {
    Registry::in_tree().with("Weekdays", |context| Ok(Arc::new(context.parse::<Weekdays>()?)))
}

fn main() -> ExitCode {
    evenkeel_kube_scheduler::main(std::env::args().skip(1), &plugins())
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::{cache::Caches, client::Client, clock::Clock, tasks::Tasks};
    use evenkeel_scheduler::{SchedulerOptions, explain::Looker, simulate::Dump};

    const CONFIG: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: Weekdays}]}}
  pluginConfig: [{name: Weekdays, args: {label: example.com/closed, today: sunday}}]
";

    const CLUSTER: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: open}, status: {allocatable: {cpu: 1, memory: 1Gi, pods: 9}}}
- apiVersion: v1
  kind: Node
  metadata: {name: closed, labels: {example.com/closed: sunday}}
  status: {allocatable: {cpu: 1, memory: 1Gi, pods: 9}}
- {apiVersion: v1, kind: Pod, metadata: {name: waits, namespace: shop}, spec: {containers: [{name: c}]}}
";

    #[tokio::test]
    async fn closed_nodes_take_no_pods() {
        let mut dump = Dump::default();
        dump.add(CLUSTER).unwrap();
        let profiles = evenkeel_kube_scheduler::profiles(CONFIG, &plugins()).unwrap();
        let options = SchedulerOptions { profiles, ..SchedulerOptions::default() };
        let (clock, tasks) = (Clock::system(), Tasks::new());
        let client = Client::new(dump.connection(), clock.clone());
        let caches = Caches::new(client.clone(), clock.clone(), &prometheus::Registry::new());
        let mut looker = Looker::new(client, caches.clone(), clock, &options);
        caches.start(&tasks);
        looker.ready().await;
        let explained = looker.explain("shop", "waits").unwrap();
        assert_eq!(explained.feasible(), ["open"]);
        let refused = explained.nodes.last().and_then(|node| node.refused.clone()).unwrap();
        assert_eq!(
            (refused.plugin, refused.reasons),
            ("Weekdays", vec!["node(s) were closed".to_owned()])
        );
        tasks.token().cancel();
    }

    #[test]
    fn arguments_that_it_does_not_know_are_refused() {
        let error =
            evenkeel_kube_scheduler::profiles(&CONFIG.replace("today", "tomorrow"), &plugins())
                .err()
                .unwrap();
        assert!(format!("{error:#}").contains("tomorrow"), "{error:#}");
    }
}
