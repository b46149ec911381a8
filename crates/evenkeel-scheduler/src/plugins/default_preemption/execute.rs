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
    framework::{Handle, Victims},
    pod::PodInfo,
};

const TARGET: &str = "DisruptionTarget";
const REASON: &str = "PreemptionByScheduler";
/// After victims could not be evicted the pod is tried again after so long.
const PAUSE: Duration = Duration::from_secs(1);
/// So many victims are evicted at the same time.
const AT_ONCE: usize = 16;

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
            Some(Some(last)) => {
                let seen = self.pods.get(&last.meta.namespace, &last.meta.name);
                seen.is_some_and(|seen| seen.meta.uid == last.meta.uid && !seen.meta.deleting())
            }
        }
    }

    /// Begins to evict. `lower` are pods that were promised the node and come after this one.
    pub(super) fn start(self: &Arc<Self>, pod: &PodInfo, victims: Victims, lower: Vec<Arc<Pod>>) {
        self.handle.metrics.preempted(victims.pods.len());
        let Victims { node, mut pods, .. } = victims;
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
            Ok(unseen) => unseen,
            Err(error) => {
                let meta = &pod.pod.meta;
                tracing::warn!(namespace = %meta.namespace, name = %meta.name, %error, "Victims not evicted");
                well = false;
                false
            }
        };
        if !well {
            // What cannot be evicted now cannot be in the next instant either.
            executor.handle.clock.sleep(PAUSE).await;
        }
        if !well || unseen {
            // No deletion will be seen that would have it tried again.
            executor.handle.activate(pod.uid());
        }
        executor.handle.metrics.preemption_ran(well, began.elapsed());
    }

    /// Whether no deletion of the last victim will be seen.
    async fn evict_all(&self) -> Result<bool, ApiError> {
        for group in self.others.chunks(AT_ONCE) {
            let evictions: Vec<_> = group.iter().map(|victim| self.evict(victim)).collect();
            try_join_all(evictions).await?;
        }
        let uid = self.pod.uid().into();
        self.executor.running().insert(uid, Some(Arc::clone(&self.last)));
        self.evict(&self.last).await
    }

    /// Whether no deletion of the victim will be seen: it was called back instead, or is gone.
    async fn evict(&self, victim: &Pod) -> Result<bool, ApiError> {
        let handle = &self.executor.handle;
        let in_memory = handle.preempt(&victim.meta.uid, NAME);
        if !in_memory {
            match self.delete(victim).await {
                Ok(()) => {}
                // Gone already; that may have been seen while the pod was still held back.
                Err(error) if error.is_not_found() || error.is_other_uid() => return Ok(true),
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
        Ok(in_memory)
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
mod tests {
    use super::*;
    use crate::fixtures::{at, pod};

    #[test]
    fn a_victim_says_once_why_it_leaves() {
        let ready = json!({ "type": "Ready", "status": "True" });
        let fresh = pod("v", &json!({ "status": { "conditions": [ready] } }));
        let status = condition(&fresh, "for another", at(9)).unwrap();
        assert_eq!(
            status["$setElementOrder/conditions"],
            json!([{ "type": "Ready" }, { "type": TARGET }])
        );
        let mut told = status["conditions"][0].clone();
        assert_eq!((&told["reason"], &told["observedGeneration"]), (&json!(REASON), &json!(1)));
        told["lastTransitionTime"] = "2027-01-15T08:00:05Z".into();
        let told = pod("v", &json!({ "status": { "conditions": [told] } }));
        assert_eq!(condition(&told, "for another", at(9)), None);
        let other = condition(&told, "for yet another", at(9)).unwrap();
        assert_eq!(other["conditions"][0]["lastTransitionTime"], "2027-01-15T08:00:05Z");
    }
}
