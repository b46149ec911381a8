//! Evicts whom the plan names, beside the attempts: all but one at once, and then the last, so that the pod for whose sake it is
//! done is not tried before all are on their way out.

use evenkeel_api::{
    View as _,
    time::Timestamp,
    views::{Pod, PodDisruptionBudget},
};
use evenkeel_runtime::{
    cache::Cache,
    client::{ApiError, DeleteOptions, Metadata},
    plan::{Note, PatchForm, Target},
};
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

use super::NAME;
use crate::{
    framework::{Candidate, Handle},
    pod::PodInfo,
};

const TARGET: &str = "DisruptionTarget";
const REASON: &str = "PreemptionByScheduler";
/// After victims could not be evicted the pod is tried again after so long: what fails at once, as all does without a connection,
/// would else be tried again and again at the same moment.
const PAUSE: Duration = Duration::from_secs(1);

/// What came of an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evicted {
    /// Its end will be seen.
    Begun,
    /// It was on its way and is called back; there is no end to be seen.
    CalledBack,
    /// It is no longer there.
    Gone,
}

/// Evicts, and knows for whom.
pub(super) struct Executor {
    handle: Handle,
    pods: Cache<Pod>,
    budgets: Cache<PodDisruptionBudget>,
    /// Pods for which victims are evicted, by uid; with the last victim once all others are.
    running: Mutex<HashMap<Box<str>, Option<Arc<Pod>>>>,
}

impl Executor {
    pub(super) fn new(handle: &Handle) -> Self {
        Self {
            pods: handle.caches.of(),
            budgets: handle.filled(),
            handle: handle.clone(),
            running: Mutex::default(),
        }
    }

    pub(super) fn budgets(&self) -> Vec<Arc<PodDisruptionBudget>> {
        self.budgets.list()
    }

    pub(super) fn tried(&self) {
        self.handle.metrics.preemption_tried();
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Box<str>, Option<Arc<Pod>>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether victims of this pod are still to be evicted. That the last one is on its way out may be known before the answer to
    /// its deletion is here.
    pub(super) fn is_running(&self, uid: &str) -> bool {
        match self.running().get(uid) {
            None => false,
            Some(None) => true,
            Some(Some(last)) => self.held(last).is_some_and(|last| !last.meta.deleting()),
        }
    }

    /// The pod as the cache has it, if it does.
    fn held(&self, pod: &Pod) -> Option<Arc<Pod>> {
        let held = self.pods.get(&pod.meta.namespace, &pod.meta.name);
        held.filter(|held| held.meta.uid == pod.meta.uid)
    }

    /// Begins to evict. `lower` are pods that were promised the node and come after this one.
    pub(super) fn start(self: &Arc<Self>, pod: &PodInfo, victims: Candidate, lower: Vec<Arc<Pod>>) {
        self.handle.metrics.preempted(victims.pods.len());
        let Candidate { node, mut pods, .. } = victims;
        pods.retain(|victim| !victim.meta.deleting());
        let Some(last) = pods.pop() else { return };
        let work = Work { executor: Arc::clone(self), pod: pod.clone(), node, others: pods, last };
        self.running().insert(pod.uid().into(), None);
        self.handle.tasks.spawn_until_cancelled("preemption", async move {
            work.run(lower).await;
        });
    }
}

/// One pod's victims.
struct Work {
    executor: Arc<Executor>,
    pod: PodInfo,
    node: Arc<str>,
    others: Vec<Arc<Pod>>,
    last: Arc<Pod>,
}

impl Work {
    async fn run(self, lower: Vec<Arc<Pod>>) {
        let Self { executor, pod, .. } = &self;
        let began = Instant::now();
        let mut well = true;
        for other in &lower {
            // They may not fit any more, and find another node sooner when they know.
            if let Err(error) = self.clear_nomination(other).await {
                let meta = &other.meta;
                tracing::debug!(namespace = %meta.namespace, name = %meta.name, %error, "Nomination not cleared");
                well = false;
            }
        }
        let evicted = self.evict_all().await;
        executor.running().remove(pod.uid());
        let unseen = match evicted {
            Ok(Evicted::Begun) => false,
            Ok(Evicted::CalledBack) => true,
            // That may have been seen while the pod was held back; where it is still to be seen, that is early enough.
            Ok(Evicted::Gone) => executor.held(&self.last).is_none(),
            Err(error) => {
                let meta = &pod.pod.meta;
                tracing::warn!(namespace = %meta.namespace, name = %meta.name, %error, "Victims not evicted");
                well = false;
                false
            }
        };
        if !well {
            executor.handle.clock.sleep(PAUSE).await;
        }
        if !well || unseen {
            // Nothing will be seen that would have it tried again.
            executor.handle.activate(pod.uid());
        }
        executor.handle.metrics.preemption_ran(well, began.elapsed());
    }

    /// Evicts all of them; what came of the last one.
    async fn evict_all(&self) -> Result<Evicted, ApiError> {
        for group in self.others.chunks(self.executor.handle.parallelism) {
            let evictions: Vec<_> = group.iter().map(|victim| self.evict_beside(victim)).collect();
            try_join_all(evictions).await?;
        }
        let uid = self.pod.uid().into();
        self.executor.running().insert(uid, Some(Arc::clone(&self.last)));
        self.evict(&self.last).await
    }

    /// One of several, which upstream counts as they go on.
    async fn evict_beside(&self, victim: &Pod) -> Result<Evicted, ApiError> {
        let _running = self.executor.handle.metrics.running(NAME);
        self.evict(victim).await
    }

    async fn evict(&self, victim: &Pod) -> Result<Evicted, ApiError> {
        let handle = &self.executor.handle;
        let in_memory = handle.preempt(&victim.meta.uid, NAME);
        if !in_memory {
            match self.delete(victim).await {
                Ok(()) => {}
                Err(error) if error.is_not_found() || error.is_other_uid() => {
                    return Ok(Evicted::Gone);
                }
                Err(error) => return Err(error),
            }
        }
        let suffix = if in_memory { " (in kube-scheduler memory)." } else { "" };
        let note = Note {
            regarding: Target::of(Pod::kind(), &victim.meta),
            warning: false,
            reason: "Preempted",
            message: format!("Preempted by pod {} on node {}{suffix}", self.pod.uid(), self.node),
        };
        let preemptor = Target::of(Pod::kind(), &self.pod.pod.meta);
        handle.recorder.record(&note, "Preempting", Some(&preemptor));
        Ok(if in_memory { Evicted::CalledBack } else { Evicted::Begun })
    }

    async fn delete(&self, victim: &Pod) -> Result<(), ApiError> {
        let handle = &self.executor.handle;
        let scheduler = match &*self.pod.pod.spec.scheduler_name {
            "" => crate::DEFAULT_SCHEDULER,
            name => name,
        };
        let message = format!("{scheduler}: preempting to accommodate a higher priority pod");
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
            Err(error) if error.is_not_found() => Ok(()),
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

/// The status in which a victim says why it leaves, unless it says so already.
fn condition(victim: &Pod, message: &str, now: Timestamp) -> Option<Value> {
    let conditions = &victim.status.conditions;
    let found = conditions.iter().find(|condition| &*condition.type_ == TARGET);
    let same = found.is_some_and(|found| {
        &*found.status == "True" && &*found.reason == REASON && *found.message == *message
    });
    if same {
        return None;
    }
    let since = found.filter(|found| &*found.status == "True");
    let since = since.and_then(|found| found.last_transition_time).unwrap_or(now);
    let mut order: Vec<&str> = conditions.iter().map(|condition| &*condition.type_).collect();
    if found.is_none() {
        order.push(TARGET);
    }
    let order: Vec<Value> = order.into_iter().map(|type_| json!({ "type": type_ })).collect();
    let mut condition = json!({
        "type": TARGET,
        "status": "True",
        "reason": REASON,
        "message": message,
        "lastTransitionTime": evenkeel_api::time::seconds(since),
    });
    if found.is_none() {
        condition["lastProbeTime"] = Value::Null;
    }
    if victim.meta.generation != 0 {
        condition["observedGeneration"] = victim.meta.generation.into();
    }
    Some(json!({ "$setElementOrder/conditions": order, "conditions": [condition] }))
}

#[cfg(test)]
mod tests;
