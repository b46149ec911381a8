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
    plan::{PatchForm, Target},
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
    execute::{PreemptOutcome, condition, needs_activation, preempted, reason},
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
    /// Preemptors by uid. The value is the last victim once all others are deleted.
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

    pub(super) fn budgets(&self) -> Vec<Arc<PodDisruptionBudget>> {
        self.budgets.list()
    }

    pub(super) fn record_attempt(&self) {
        self.handle.metrics.preemption_tried();
    }

    fn preempting(&self) -> MutexGuard<'_, HashMap<Box<str>, Option<Arc<Pod>>>> {
        self.preempting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether the pod's preemption is still running. It ends as soon as the cache shows that the last victim
    /// is terminating, even before the API server responds.
    ///
    /// Upstream: `IsPodRunningPreemption`.
    pub(super) fn is_running_preemption(&self, uid: &str) -> bool {
        match self.preempting().get(uid) {
            None => false,
            Some(None) => true,
            Some(Some(last)) => self.cached(last).is_some_and(|last| !last.meta.deleting()),
        }
    }

    /// Returns the cached version of the pod, if it has the same uid.
    fn cached(&self, pod: &Pod) -> Option<Arc<Pod>> {
        let cached = self.pods.get(&pod.meta.namespace, &pod.meta.name);
        cached.filter(|cached| cached.meta.uid == pod.meta.uid)
    }

    /// Starts to preempt the victims in a task. `lower` are pods of lower priority that are nominated for the node.
    ///
    /// Upstream: `prepareCandidateAsync`.
    pub(super) fn prepare_candidate_async(
        self: &Arc<Self>,
        pod: &PodInfo,
        victims: Candidate,
        lower: Vec<Arc<Pod>>,
    ) {
        self.handle.metrics.preempted(victims.pods.len());
        let Candidate { node, mut pods, .. } = victims;
        pods.retain(|victim| !victim.meta.deleting());
        let Some(last) = pods.pop() else { return };
        let preemption =
            Preemption { executor: Arc::clone(self), pod: pod.clone(), node, others: pods, last };
        self.preempting().insert(pod.uid().into(), None);
        let (this, uid, stop) = (Arc::clone(self), pod.uid().to_owned(), self.handle.tasks.token());
        self.handle.tasks.spawn_finite("preemption", async move {
            let run = stop.run_until_cancelled(preemption.run(lower));
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
    pod: PodInfo,
    node: Arc<str>,
    others: Vec<Arc<Pod>>,
    last: Arc<Pod>,
}

impl Preemption {
    /// Clears the nominations of `lower`, evicts the victims, and activates the preemptor if no event will requeue it.
    async fn run(self, lower: Vec<Arc<Pod>>) {
        let Self { executor, pod, .. } = &self;
        let began = executor.handle.clock.instant();
        let mut succeeded = true;
        for other in &lower {
            // These pods may no longer fit on the node. Without a nomination they find another node sooner.
            if let Err(error) = self.clear_nomination(other).await {
                let meta = &other.meta;
                tracing::debug!(namespace = %meta.namespace, name = %meta.name, %error, "Nomination not cleared");
                succeeded = false;
            }
        }
        let outcome = self.preempt_victims().await;
        executor.preempting().remove(pod.uid());
        let needs_activation = match outcome {
            Ok(outcome) => needs_activation(outcome, executor.cached(&self.last).is_some()),
            Err(error) => {
                let meta = &pod.pod.meta;
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
            executor.handle.activate(pod.uid());
        }
        executor.handle.metrics.preemption_ran(succeeded, began.elapsed());
    }

    /// Preempts all victims and returns the outcome of the last one.
    async fn preempt_victims(&self) -> Result<PreemptOutcome, ApiError> {
        for group in self.others.chunks(self.executor.handle.parallelism) {
            let preemptions: Vec<_> =
                group.iter().map(|victim| self.preempt_victim_concurrently(victim)).collect();
            try_join_all(preemptions).await?;
        }
        let uid = self.pod.uid().into();
        self.executor.preempting().insert(uid, Some(Arc::clone(&self.last)));
        self.preempt_pod(&self.last).await
    }

    /// Preempts one of several victims while `scheduler_goroutines` counts the call.
    async fn preempt_victim_concurrently(&self, victim: &Pod) -> Result<PreemptOutcome, ApiError> {
        let _running = self.executor.handle.metrics.running(NAME);
        self.preempt_pod(victim).await
    }

    /// Preempts a victim: cancels it if it is only assumed, else sets `DisruptionTarget` and deletes it.
    ///
    /// Upstream: `PreemptPod`.
    async fn preempt_pod(&self, victim: &Pod) -> Result<PreemptOutcome, ApiError> {
        let handle = &self.executor.handle;
        let in_memory = handle.preempt(&victim.meta.uid, NAME);
        if !in_memory {
            match self.delete(victim).await {
                Ok(()) => {}
                Err(error) if error.is_gone() => {
                    return Ok(PreemptOutcome::NotFound);
                }
                Err(error) => return Err(error),
            }
        }
        let note = preempted(victim, self.pod.uid(), &self.node, in_memory);
        let preemptor = Target::of(Pod::kind(), &self.pod.pod.meta);
        handle.recorder.record(&note, "Preempting", Some(&preemptor));
        Ok(if in_memory { PreemptOutcome::CancelledInMemory } else { PreemptOutcome::Deleted })
    }

    /// Sets the condition `DisruptionTarget` and deletes the victim.
    async fn delete(&self, victim: &Pod) -> Result<(), ApiError> {
        let handle = &self.executor.handle;
        let message = reason(&self.pod.pod);
        if let Some(status) = condition(victim, &message, handle.clock.now()) {
            self.patch(victim, &status).await?;
        }
        let options =
            DeleteOptions { uid: victim.meta.uid.to_string(), ..DeleteOptions::default() };
        let (kind, meta) = (Pod::kind(), &victim.meta);
        handle.client.delete(&kind, &meta.namespace, &meta.name, &options).await.map(drop)
    }

    async fn clear_nomination(&self, pod: &Pod) -> Result<(), ApiError> {
        if pod.status.nominated_node_name.is_empty() {
            return Ok(());
        }
        match self.patch(pod, &json!({ "nominatedNodeName": null })).await {
            // Another pod of this name has no nomination of this one.
            Err(error) if error.is_gone() => Ok(()),
            answer => answer,
        }
    }

    async fn patch(&self, pod: &Pod, status: &Value) -> Result<(), ApiError> {
        let (kind, meta) = (Pod::kind(), &pod.meta);
        let body = json!({ "metadata": { "uid": meta.uid }, "status": status }).to_string();
        let (client, form) = (&self.executor.handle.client, PatchForm::Strategic);
        let written = client
            .patch::<Metadata>(&kind, &meta.namespace, &meta.name, "status", form, body.into())
            .await;
        written.map(drop)
    }
}

#[cfg(test)]
mod tests;
