//! Executes a preemption concurrently with other attempts. It preempts all victims but one in parallel, then the last
//! one. The preemptor is therefore not retried before every victim is terminating.
//!
//! Upstream: `pkg/scheduler/framework/preemption/executor.go`.

use evenkeel_api::{
    View as _,
    views::{Pod, PodDisruptionBudget},
};
use evenkeel_runtime::{
    cache::Cache,
    client::{ApiError, DeleteOptions, Metadata},
    plan::{PatchType, Target},
    tasks::catch_panic,
};
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    NAME,
    victim::{
        PreemptOutcome, disruption_target_message, disruption_target_patch, needs_activation,
        preempted_event,
    },
};
use crate::{
    framework::{Candidate, Handle},
    pod::PodInfo,
};

/// Delay before the preemptor is retried after a failure. Without it, immediate failures (no connection) would cause a
/// busy loop.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Runs preemptions, and records the preemptors whose preemption is running.
pub(super) struct Executor {
    handle: Handle,
    pods: Cache<Pod>,
    budgets: Cache<PodDisruptionBudget>,
    /// Preemptors by uid. The value is the last victim, or `None` until all other victims are deleted.
    preempting: Mutex<HashMap<Box<str>, Option<Arc<Pod>>>>,
}

impl Executor {
    pub(super) fn new(handle: &Handle) -> Self {
        Self {
            pods: handle.caches.of(),
            budgets: handle.lister(),
            handle: handle.clone(),
            preempting: Mutex::default(),
        }
    }

    /// Returns all PodDisruptionBudgets.
    pub(super) fn budgets(&self) -> Vec<Arc<PodDisruptionBudget>> {
        self.budgets.list()
    }

    /// Counts a preemption attempt.
    pub(super) fn record_attempt(&self) {
        self.handle.metrics.count_preemption_attempt();
    }

    /// Locks the preemptions in progress.
    fn preempting(&self) -> MutexGuard<'_, HashMap<Box<str>, Option<Arc<Pod>>>> {
        self.preempting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the pod's preemption is still running. It ends as soon as the cache shows that the last victim
    /// is terminating, even before the API server responds.
    ///
    /// Upstream: `IsPodRunningPreemption`.
    pub(super) fn is_running_preemption(&self, uid: &str) -> bool {
        match self.preempting().get(uid) {
            None => false,
            Some(None) => true,
            Some(Some(last)) => self.cached_pod(last).is_some_and(|last| !last.meta.deleting()),
        }
    }

    /// Returns the cached version of the pod, if it has the same uid.
    fn cached_pod(&self, pod: &Pod) -> Option<Arc<Pod>> {
        let cached = self.pods.get(&pod.meta.namespace, &pod.meta.name);
        cached.filter(|cached| cached.meta.uid == pod.meta.uid)
    }

    /// Returns the preemption of the victims that are not being deleted anyway. `None` if there are none.
    fn preemption(self: &Arc<Self>, pod: &PodInfo, candidate: Candidate) -> Option<Preemption> {
        self.handle.metrics.observe_victims(candidate.pods.len());
        let Candidate { node, pods: mut other_victims, .. } = candidate;
        other_victims.retain(|victim| !victim.meta.deleting());
        let last_victim = other_victims.pop()?;
        let (executor, preemptor) = (Arc::clone(self), pod.clone());
        Some(Preemption { executor, preemptor, node, other_victims, last_victim })
    }

    /// Preempts the victims of the candidate, then clears the nominations of `lower_priority_pods`. The scheduler attempts
    /// no other pod meanwhile.
    ///
    /// Upstream: `prepareCandidate`.
    ///
    /// # Errors
    /// Fails if a victim cannot be evicted.
    pub(super) async fn prepare_candidate(
        self: &Arc<Self>,
        pod: &PodInfo,
        candidate: Candidate,
        lower_priority_pods: Vec<Arc<Pod>>,
    ) -> Result<(), ApiError> {
        let Some(preemption) = self.preemption(pod, candidate) else { return Ok(()) };
        let began_at = self.handle.clock.instant();
        let preempted = preemption.preempt_victims().await;
        self.preempting().remove(pod.uid());
        self.handle.metrics.observe_preemption(preempted.is_ok(), began_at.elapsed());
        preempted?;
        // Upstream goes on if a nomination stays.
        preemption.clear_nominations(&lower_priority_pods).await;
        Ok(())
    }

    /// Starts to preempt the victims of the candidate in a task. `lower_priority_pods` are nominated for the node.
    ///
    /// Upstream: `prepareCandidateAsync`.
    pub(super) fn prepare_candidate_async(
        self: &Arc<Self>,
        pod: &PodInfo,
        candidate: Candidate,
        lower_priority_pods: Vec<Arc<Pod>>,
    ) {
        let Some(preemption) = self.preemption(pod, candidate) else { return };
        self.preempting().insert(pod.uid().into(), None);
        let this = Arc::clone(self);
        let uid = pod.uid().to_owned();
        let stop = self.handle.tasks.token();
        self.handle.tasks.spawn_finite("preemption", async move {
            let run = stop.run_until_cancelled(preemption.run(lower_priority_pods));
            if let Err(panic) = catch_panic(run).await {
                tracing::error!(uid, panic, "Preemption panicked");
                // Otherwise the preemptor would wait forever for the preemption to end.
                this.preempting().remove(&*uid);
                this.handle.activate(&uid);
            }
        });
    }
}

/// Preemption of one candidate's victims for one pod.
struct Preemption {
    executor: Arc<Executor>,
    preemptor: PodInfo,
    node: Arc<str>,
    other_victims: Vec<Arc<Pod>>,
    last_victim: Arc<Pod>,
}

impl Preemption {
    /// Clears the nominations of `lower_priority_pods`, evicts the victims, and activates the preemptor if no event
    /// will requeue it.
    async fn run(self, lower_priority_pods: Vec<Arc<Pod>>) {
        let Self { executor, preemptor, .. } = &self;
        let began_at = executor.handle.clock.instant();
        let mut succeeded = self.clear_nominations(&lower_priority_pods).await;
        let outcome = self.preempt_victims().await;
        executor.preempting().remove(preemptor.uid());
        let needs_activation = match outcome {
            Ok(outcome) => {
                needs_activation(outcome, executor.cached_pod(&self.last_victim).is_some())
            }
            Err(error) => {
                let meta = &preemptor.pod.meta;
                tracing::warn!(namespace = %meta.namespace, name = %meta.name, %error, "Victims not evicted");
                succeeded = false;
                false
            }
        };
        if !succeeded {
            executor.handle.clock.sleep(RETRY_DELAY).await;
        }
        if !succeeded || needs_activation {
            // No event will follow that requeues the preemptor.
            executor.handle.activate(preemptor.uid());
        }
        executor.handle.metrics.observe_preemption_task(succeeded, began_at.elapsed());
    }

    /// Preempts all victims and returns the outcome of the last one.
    async fn preempt_victims(&self) -> Result<PreemptOutcome, ApiError> {
        for group in self.other_victims.chunks(self.executor.handle.parallelism) {
            let preemptions: Vec<_> =
                group.iter().map(|victim| self.preempt_victim_concurrently(victim)).collect();
            try_join_all(preemptions).await?;
        }
        let uid = self.preemptor.uid().into();
        self.executor.preempting().insert(uid, Some(Arc::clone(&self.last_victim)));
        self.preempt_pod(&self.last_victim).await
    }

    /// Preempts a victim. `scheduler_goroutines` counts the running call.
    async fn preempt_victim_concurrently(&self, victim: &Pod) -> Result<PreemptOutcome, ApiError> {
        let _running = self.executor.handle.metrics.count_running(NAME);
        self.preempt_pod(victim).await
    }

    /// Preempts a victim: cancels it if it is only assumed, otherwise sets `DisruptionTarget` and deletes it.
    ///
    /// Upstream: `PreemptPod`.
    async fn preempt_pod(&self, victim: &Pod) -> Result<PreemptOutcome, ApiError> {
        let handle = &self.executor.handle;
        let in_memory = handle.preempt(&victim.meta.uid, NAME);
        if !in_memory {
            match self.delete(victim).await {
                Ok(()) => {}
                Err(error) if error.is_not_found_or_replaced() => {
                    return Ok(PreemptOutcome::NotFound);
                }
                Err(error) => return Err(error),
            }
        }
        let event = preempted_event(victim, self.preemptor.uid(), &self.node, in_memory);
        let preemptor = Target::of(Pod::kind(), &self.preemptor.pod.meta);
        handle.recorder.record(&event, "Preempting", Some(&preemptor));
        Ok(if in_memory { PreemptOutcome::CancelledInMemory } else { PreemptOutcome::Deleted })
    }

    /// Sets the condition `DisruptionTarget` and deletes the victim.
    async fn delete(&self, victim: &Pod) -> Result<(), ApiError> {
        let handle = &self.executor.handle;
        let message = disruption_target_message(&self.preemptor.pod);
        if let Some(status) = disruption_target_patch(victim, &message, handle.clock.now()) {
            self.patch_status(victim, &status).await?;
        }
        let options =
            DeleteOptions { uid: victim.meta.uid.to_string(), ..DeleteOptions::default() };
        let kind = Pod::kind();
        let meta = &victim.meta;
        handle.client.delete(&kind, &meta.namespace, &meta.name, &options).await.map(drop)
    }

    /// Clears the nominations of pods that may no longer fit on the node. Without one they find another node sooner.
    /// Returns whether all are cleared.
    async fn clear_nominations(&self, lower_priority_pods: &[Arc<Pod>]) -> bool {
        let mut succeeded = true;
        for other in lower_priority_pods {
            if let Err(error) = self.clear_nomination(other).await {
                let meta = &other.meta;
                tracing::debug!(namespace = %meta.namespace, name = %meta.name, %error, "Nomination not cleared");
                succeeded = false;
            }
        }
        succeeded
    }

    /// Removes the nominated node from the pod's status.
    async fn clear_nomination(&self, pod: &Pod) -> Result<(), ApiError> {
        if pod.status.nominated_node_name.is_empty() {
            return Ok(());
        }
        match self.patch_status(pod, &json!({ "nominatedNodeName": null })).await {
            // A new pod with this name does not have the nomination.
            Err(error) if error.is_not_found_or_replaced() => Ok(()),
            result => result,
        }
    }

    /// Patches the status of the pod, provided that it still has the same uid.
    async fn patch_status(&self, pod: &Pod, status: &Value) -> Result<(), ApiError> {
        let kind = Pod::kind();
        let meta = &pod.meta;
        // The server rejects a patch whose uid differs from the object's.
        let body = json!({ "metadata": { "uid": meta.uid }, "status": status }).to_string();
        let client = &self.executor.handle.client;
        let form = PatchType::Strategic;
        let patched = client
            .patch::<Metadata>(&kind, &meta.namespace, &meta.name, "status", form, body.into())
            .await;
        patched.map(drop)
    }
}

#[cfg(test)]
mod tests;
