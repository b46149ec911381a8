//! Waiting pods: assumed pods in Permit and PreBind, which plugins can still reject or preempt.
//!
//! Upstream: `waitingPodsMap`, `podsInPreBindMap`.

use evenkeel_api::time::{Timestamp, saturating_add};
use evenkeel_runtime::clock::Clock;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::pod::PodInfo;

/// Assumed pods in Permit or PreBind, by uid. Clones share the map.
#[derive(Debug, Clone, Default)]
pub(crate) struct WaitingPods(Arc<Shared>);

/// State that all clones of [`WaitingPods`] share.
#[derive(Debug, Default)]
struct Shared {
    /// Stage of each pod, by uid.
    stages: Mutex<HashMap<Box<str>, Stage>>,
    /// Notified when a pod enters PreBind.
    pre_bind_started: Notify,
}

/// Stage of an assumed pod.
#[derive(Debug, Clone)]
enum Stage {
    Permit(WaitingPod),
    PreBind(PodInPreBind),
}

impl WaitingPods {
    /// Locks the stages of all pods.
    fn stages(&self) -> MutexGuard<'_, HashMap<Box<str>, Stage>> {
        self.0.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a pod that waits in Permit for these plugins, each with its timeout.
    pub(crate) fn add(
        &self,
        pod: PodInfo,
        node: Arc<str>,
        plugins: Vec<(&'static str, Duration)>,
        now: Timestamp,
    ) -> WaitingPod {
        let deadline_after =
            |timeout| PermitDeadline { deadline: saturating_add(now, timeout), timeout };
        let pending_plugins =
            plugins.into_iter().map(|(plugin, timeout)| (plugin, deadline_after(timeout)));
        let state = WaitState { pending_plugins: pending_plugins.collect(), decision: None };
        let uid = pod.uid().into();
        let waiting = WaitingPod(Arc::new(PodInPermit {
            pod,
            node,
            state: Mutex::new(state),
            changed: Notify::new(),
        }));
        self.stages().insert(uid, Stage::Permit(waiting.clone()));
        waiting
    }

    /// Moves the pod to PreBind, where a preemption can still cancel it.
    pub(crate) fn start_pre_bind(&self, uid: &str) -> PodInPreBind {
        let pod_in_pre_bind = PodInPreBind::default();
        self.stages().insert(uid.into(), Stage::PreBind(pod_in_pre_bind.clone()));
        self.0.pre_bind_started.notify_one();
        pod_in_pre_bind
    }

    /// Waits until a pod enters PreBind. Returns immediately if a pod entered PreBind since the last call.
    pub(crate) async fn pre_bind_started(&self) {
        self.0.pre_bind_started.notified().await;
    }

    /// Removes a pod, because it was bound, requeued or deleted.
    pub(crate) fn remove(&self, uid: &str) {
        self.stages().remove(uid);
    }

    /// Returns the pod if it waits in Permit.
    pub(crate) fn get(&self, uid: &str) -> Option<WaitingPod> {
        match self.stages().get(uid)? {
            Stage::Permit(waiting) => Some(waiting.clone()),
            Stage::PreBind(_) => None,
        }
    }

    /// Returns the number of pods in Permit or PreBind.
    pub(crate) fn len(&self) -> usize {
        self.stages().len()
    }

    /// Returns the pods that wait in Permit.
    pub(crate) fn list(&self) -> Vec<WaitingPod> {
        let stages = self.stages();
        let waiting = stages.values().filter_map(|stage| match stage {
            Stage::Permit(waiting) => Some(waiting.clone()),
            Stage::PreBind(_) => None,
        });
        waiting.collect()
    }

    /// Preempts an assumed pod unless its binding has begun. Returns whether the pod was preempted, so that it need not
    /// be deleted.
    pub(crate) fn preempt_pod(&self, uid: &str, plugin: &'static str) -> bool {
        let stage = self.stages().get(uid).cloned();
        match stage {
            Some(Stage::Permit(waiting)) => waiting.preempt(plugin, "preempted"),
            Some(Stage::PreBind(pod_in_pre_bind)) => {
                pod_in_pre_bind.cancel_pod(&format!("preempted by {plugin}"))
            }
            None => false,
        }
    }
}

/// A pod that waits in Permit ([`PermitResult::Wait`](super::PermitResult::Wait)).
#[derive(Debug, Clone)]
pub struct WaitingPod(Arc<PodInPermit>);

/// A pod whose binding Permit plugins delay.
#[derive(Debug)]
struct PodInPermit {
    pod: PodInfo,
    node: Arc<str>,
    state: Mutex<WaitState>,
    /// Notified when the state changes.
    changed: Notify,
}

/// Plugins that delay the binding, and the decision about it.
#[derive(Debug)]
struct WaitState {
    /// Plugins that have not allowed the pod yet.
    pending_plugins: BTreeMap<&'static str, PermitDeadline>,
    decision: Option<PermitDecision>,
}

/// End of the time that a plugin has to allow the pod.
#[derive(Debug, Clone, Copy)]
struct PermitDeadline {
    deadline: Timestamp,
    /// Time that the plugin had when the wait began.
    timeout: Duration,
}

/// Progress of the wait in Permit.
enum PermitProgress {
    Decided(PermitDecision),
    /// The pending plugin with the earliest deadline.
    Pending(&'static str, PermitDeadline),
}

/// Result of the wait in Permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PermitDecision {
    Allowed,
    /// A plugin rejected the pod.
    Rejected {
        plugin: &'static str,
        message: String,
    },
    /// A plugin preempted the pod for this reason.
    Preempted(String),
}

impl WaitingPod {
    /// Returns the waiting pod.
    pub fn pod(&self) -> &PodInfo {
        &self.0.pod
    }

    /// Returns the name of the pod's node.
    pub fn node(&self) -> &str {
        &self.0.node
    }

    /// Returns the names of the plugins that have not allowed the pod yet.
    pub fn pending_plugins(&self) -> Vec<&'static str> {
        self.state().pending_plugins.keys().copied().collect()
    }

    /// Records that the plugin allows the pod. The pod is bound once every plugin allows it.
    pub fn allow(&self, plugin: &str) {
        let mut state = self.state();
        state.pending_plugins.remove(plugin);
        if state.pending_plugins.is_empty() {
            state.decision.get_or_insert(PermitDecision::Allowed);
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// Rejects the pod. Returns false if the wait had already ended.
    pub fn reject(&self, plugin: &'static str, message: &str) -> bool {
        self.decide(PermitDecision::Rejected { plugin, message: message.to_owned() })
    }

    /// Preempts the pod, which the scheduler then retries. Returns false if the wait had already ended. The name of the
    /// preempting plugin is not recorded, because no plugin counts as the one that rejected the pod.
    pub fn preempt(&self, _plugin: &'static str, message: &str) -> bool {
        self.decide(PermitDecision::Preempted(message.to_owned()))
    }

    /// Records the decision unless there is one. Returns whether it was recorded.
    fn decide(&self, decision: PermitDecision) -> bool {
        let mut state = self.state();
        let is_first = state.decision.is_none();
        state.decision.get_or_insert(decision);
        drop(state);
        self.0.changed.notify_one();
        is_first
    }

    /// Locks the state of the wait. A panic under the lock does not invalidate the state.
    fn state(&self) -> MutexGuard<'_, WaitState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the decision, or the next deadline while a plugin still has to allow the pod.
    fn progress(&self) -> PermitProgress {
        let state = self.state();
        if let Some(decision) = &state.decision {
            return PermitProgress::Decided(decision.clone());
        }
        let next = state.pending_plugins.iter().min_by_key(|(_, pending)| pending.deadline);
        match next {
            Some((plugin, deadline)) => PermitProgress::Pending(plugin, *deadline),
            None => PermitProgress::Decided(PermitDecision::Allowed),
        }
    }

    /// Waits for the decision. The first plugin whose timeout expires rejects the pod.
    ///
    /// Upstream: `WaitOnPermit`.
    pub(crate) async fn wait_on_permit(&self, clock: &Clock) -> PermitDecision {
        loop {
            let (plugin, PermitDeadline { deadline, timeout }) = match self.progress() {
                PermitProgress::Decided(decision) => return decision,
                PermitProgress::Pending(plugin, deadline) => (plugin, deadline),
            };
            let remaining = Duration::try_from(deadline.duration_since(clock.now()));
            tokio::select! {
                biased;
                () = self.0.changed.notified() => {}
                () = clock.sleep(remaining.unwrap_or_default()) => {
                    let timeout = go_duration(timeout);
                    let message =
                        format!("rejected due to timeout after waiting {timeout} at plugin {plugin}");
                    self.reject(plugin, &message);
                }
            }
        }
    }
}

/// Formats a duration of whole milliseconds as Go does: `15m0s`, `1.5s`.
fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let millis = duration.subsec_millis();
    if seconds == 0 {
        return if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") };
    }
    let fraction = match millis {
        0 => String::new(),
        millis => format!(".{millis:03}").trim_end_matches('0').to_owned(),
    };
    let hours = seconds / 3600;
    let minutes = seconds / 60 % 60;
    let seconds = seconds % 60;
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, minutes) => format!("{minutes}m{seconds}{fraction}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

/// A pod whose PreBind plugins are running.
///
/// Upstream: `podInPreBind`.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodInPreBind {
    /// Cancelled when the pod is preempted.
    pub(crate) cancelled: CancellationToken,
    state: Arc<Mutex<PreBindState>>,
}

/// Progress of a pod in PreBind.
#[derive(Debug, Default)]
enum PreBindState {
    #[default]
    Running,
    /// PreBind has ended, and the binding begins.
    Prebound,
    /// The pod was preempted for this reason.
    Cancelled(String),
}

impl PodInPreBind {
    /// Locks the state of the `PreBind` phase. A panic under the lock does not invalidate the state.
    fn state(&self) -> MutexGuard<'_, PreBindState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels PreBind. Returns false if PreBind has ended.
    fn cancel_pod(&self, message: &str) -> bool {
        let mut state = self.state();
        match &*state {
            PreBindState::Running => {
                *state = PreBindState::Cancelled(message.to_owned());
                self.cancelled.cancel();
                true
            }
            PreBindState::Cancelled(_) => true,
            PreBindState::Prebound => false,
        }
    }

    /// Ends PreBind, after which the pod cannot be cancelled.
    ///
    /// # Errors
    ///
    /// Returns the reason if the pod was cancelled before.
    ///
    /// Upstream: `MarkPrebound`.
    pub(crate) fn mark_prebound(&self) -> Result<(), String> {
        let mut state = self.state();
        match &*state {
            PreBindState::Cancelled(message) => Err(message.clone()),
            PreBindState::Running | PreBindState::Prebound => {
                *state = PreBindState::Prebound;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, info};
    use futures::FutureExt as _;
    use serde_json::json;

    /// Adds pod `p`, which waits 10 s for plugin A and 90 s for plugin B.
    fn add_waiting_pod(waiting_pods: &WaitingPods) -> WaitingPod {
        let plugins = vec![("A", Duration::from_secs(10)), ("B", Duration::from_secs(90))];
        waiting_pods.add(info("p", &json!({})), "n".into(), plugins, at(0))
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_allowed_once_every_plugin_allows_it() {
        let (waiting_pods, clock) = (WaitingPods::default(), Clock::starting_at(at(0)));
        let pod = add_waiting_pod(&waiting_pods);
        pod.allow("A");
        assert_eq!(pod.pending_plugins(), ["B"]);
        pod.allow("B");
        assert_eq!(pod.wait_on_permit(&clock).await, PermitDecision::Allowed);
        assert!(!pod.reject("B", "too late"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_plugin_to_time_out_rejects_the_pod() {
        let (waiting_pods, clock) = (WaitingPods::default(), Clock::starting_at(at(0)));
        let pod = add_waiting_pod(&waiting_pods);
        pod.allow("A");
        let message = "rejected due to timeout after waiting 1m30s at plugin B".to_owned();
        assert_eq!(
            pod.wait_on_permit(&clock).await,
            PermitDecision::Rejected { plugin: "B", message }
        );
    }

    #[test]
    fn pods_can_be_preempted_until_prebind_ends() {
        let waiting_pods = WaitingPods::default();
        add_waiting_pod(&waiting_pods);
        assert!(waiting_pods.get("p").is_some() && waiting_pods.preempt_pod("p", "X"));
        let pod_in_pre_bind = waiting_pods.start_pre_bind("q");
        assert!(waiting_pods.preempt_pod("q", "X"));
        assert_eq!(pod_in_pre_bind.mark_prebound(), Err("preempted by X".to_owned()));
        let pod_in_pre_bind = waiting_pods.start_pre_bind("q");
        assert_eq!(pod_in_pre_bind.mark_prebound(), Ok(()));
        assert!(!waiting_pods.preempt_pod("q", "X"));
        waiting_pods.remove("q");
        assert!(!waiting_pods.preempt_pod("q", "X"));
    }

    #[tokio::test]
    async fn pre_bind_started_wakes_its_waiter() {
        let waiting_pods = WaitingPods::default();
        add_waiting_pod(&waiting_pods);
        assert!(waiting_pods.pre_bind_started().now_or_never().is_none());
        waiting_pods.start_pre_bind("q");
        waiting_pods.pre_bind_started().await;
        assert_eq!(waiting_pods.len(), 2);
        waiting_pods.remove("q");
        assert_eq!(waiting_pods.len(), 1);
    }

    #[test]
    fn durations_are_formatted_as_in_go() {
        for (millis, expected) in
            [(0, "0s"), (20, "20ms"), (1500, "1.5s"), (90_000, "1m30s"), (3_600_000, "1h0m0s")]
        {
            assert_eq!(go_duration(Duration::from_millis(millis)), expected);
        }
    }
}
