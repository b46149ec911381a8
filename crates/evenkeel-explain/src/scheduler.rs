//! Scheduler that only makes dry runs, with the caches of a live cluster.

use evenkeel_api::views::Pod;
use evenkeel_runtime::{
    cache::Caches,
    client::{Client, dry_run},
    clock::Clock,
    tasks::Tasks,
};
use evenkeel_scheduler::{
    SchedulerOptions,
    explain::{Explained, Looker},
};
use std::{sync::Arc, time::Duration};

/// Timeout for reflectors to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Error: the scheduler's caches have not synced in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "after {} s, these resources are still not read: {}; `kubectl auth can-i list {}` says whether you may",
    .timeout.as_secs(),
    .resources.join(", "),
    .resources.first().map_or("pods", String::as_str)
)]
pub struct Unsynced {
    /// Timeout that has passed.
    pub timeout: Duration,
    /// Plural names of the resources whose caches have not synced.
    pub resources: Vec<String>,
}

/// Schedulers with caches of a live cluster that write nothing.
pub struct LiveScheduler {
    /// One for each scheduler of the cluster; at least one.
    lookers: Vec<Looker>,
    caches: Caches,
    reflectors: Tasks,
    clock: Clock,
}

impl LiveScheduler {
    /// Starts the caches, which all schedulers of the cluster share. Each has `options`; without any, they are upstream's
    /// defaults. They belong to these dry runs alone: plugins are connected to their caches.
    pub fn start(
        kube: kube::Client,
        clock: &Clock,
        options: &[SchedulerOptions],
        user_agent: &str,
    ) -> Self {
        let (kube, _) = dry_run(kube);
        let client = Client::builder(kube, clock.clone()).qps(-1.0).user_agent(user_agent).build();
        let caches = Caches::new(client.clone(), clock.clone(), &prometheus::Registry::new());
        let defaults = [SchedulerOptions::default()];
        let options = if options.is_empty() { &defaults } else { options };
        let looker = |options| Looker::new(client.clone(), caches.clone(), clock.clone(), options);
        let lookers = options.iter().map(looker).collect();
        let reflectors = Tasks::new();
        caches.start(&reflectors);
        Self { lookers, caches, reflectors, clock: clock.clone() }
    }

    /// Waits until the caches have synced.
    ///
    /// # Errors
    /// Fails if the caches have not synced after `timeout`. They are then stopped.
    pub async fn synced(mut self, timeout: Duration) -> Result<Self, Unsynced> {
        let ready = async {
            for looker in &mut self.lookers {
                looker.ready().await;
            }
        };
        let is_synced = tokio::select! {
            () = ready => true,
            () = self.clock.sleep(timeout) => false,
        };
        if is_synced {
            return Ok(self);
        }
        let unsynced = self.caches.unsynced();
        let resources = unsynced.iter().map(|kind| kind.plural.to_string()).collect();
        self.stop().await;
        Err(Unsynced { timeout, resources })
    }

    /// Evaluates a pod as if its scheduler scheduled it now. `None` if the pod does not exist, or no profile is for it.
    pub fn explain(&mut self, namespace: &str, name: &str) -> Option<Explained> {
        self.lookers.iter_mut().find_map(|looker| looker.explain(namespace, name))
    }

    /// Evaluates a pod that may differ from the cluster's, as if its scheduler scheduled it now. `None` if no profile selects
    /// it.
    pub fn explain_pod(&mut self, pod: &Arc<Pod>) -> Option<Explained> {
        self.lookers.iter_mut().find_map(|looker| looker.explain_pod(pod))
    }

    /// Returns the evaluator of the first scheduler. It also evaluates pods that do not exist in the cluster.
    pub fn looker(&mut self) -> &mut Looker {
        &mut self.lookers[0]
    }

    /// Stops the caches.
    pub async fn stop(self) {
        let Self { lookers, reflectors, .. } = self;
        drop(lookers);
        reflectors.shut_down(SHUTDOWN_TIMEOUT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_what_is_not_read_and_the_next_step() {
        let resources = vec!["nodes".to_owned(), "pods".to_owned()];
        let text = Unsynced { timeout: Duration::from_secs(20), resources }.to_string();
        assert!(text.starts_with("after 20 s") && text.contains("nodes, pods"), "{text}");
        assert!(text.contains("can-i list nodes"), "{text}");
    }
}
