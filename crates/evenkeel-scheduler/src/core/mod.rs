//! Scheduler without I/O: handles events of nodes and pods, schedules pods, and returns the pods to bind and the
//! failures to report.

mod attempt;
mod changes;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;

use evenkeel_api::{
    time::Timestamp,
    views::{Namespace, Node, Pod},
};
use evenkeel_runtime::cache::CacheEvent;
use hashbrown::HashSet;
use smallvec::SmallVec;
use std::sync::Arc;

use crate::{
    SchedulerOptions,
    framework::{
        ActionType, Change, Delta, EventResource, Extender, ObjectChange, Profile, WaitingPods,
    },
    metrics::Metrics,
    nodes::NodeTable,
    pod::PodInfo,
    queue::{BackoffPolicy, Event, QueueLengths, SchedulingQueue},
    schedule::View,
    stopwatch::Stopwatch,
};

pub(crate) use attempt::{
    AssumedPod, AttemptOutcome, AttemptResult, BindingFailure, SchedulingFailure,
};

/// State of the scheduler: queue, nodes, assumed pods, and profiles.
pub(crate) struct Core {
    profiles: Arc<[Profile]>,
    nodes: NodeTable,
    queue: SchedulingQueue,
    /// Whether resources of a whole pod count ([`SchedulerOptions::pod_level_resources`]).
    pod_level_resources: bool,
    /// Whether their resizes count ([`SchedulerOptions::pod_level_resize`]).
    pod_level_resize: bool,
    /// Uids of assumed pods. They use resources of their node before the pod cache shows that they are bound.
    assumed: HashSet<Box<str>>,
    waiting_pods: WaitingPods,
    extenders: Arc<[Arc<dyn Extender>]>,
    /// Index of the first node that the next attempt evaluates.
    start_node_index: usize,
    /// Seed of the last attempt's random choices. Each attempt increments it.
    seed: u64,
    /// Measures plugin calls.
    stopwatch: Stopwatch,
    /// Metrics of running extender calls. `None` in tests.
    metrics: Option<Metrics>,
    /// Events handled since the last `take_handled_events`, for metrics.
    handled_events: HandledEvents,
}

/// Resource and action type of each handled event.
pub(crate) type HandledEvents = SmallVec<[(EventResource, ActionType); 4]>;

impl Core {
    /// Returns a scheduler without nodes and pods.
    pub(crate) fn new(options: &SchedulerOptions) -> Self {
        let backoff_policy = BackoffPolicy {
            initial_backoff: options.pod_initial_backoff,
            max_backoff: options.pod_max_backoff,
            pop_from_backoff_q: options.pop_from_backoff_q,
            pod_max_in_unschedulable_pods: options.pod_max_in_unschedulable_pods,
        };
        let profiles: Arc<[Profile]> = options.profiles.clone().into();
        Self {
            queue: SchedulingQueue::new(backoff_policy, Arc::clone(&profiles)),
            profiles,
            nodes: NodeTable::default(),
            pod_level_resources: options.pod_level_resources,
            pod_level_resize: options.pod_level_resize,
            assumed: HashSet::new(),
            waiting_pods: WaitingPods::default(),
            extenders: options.extenders.clone().into(),
            start_node_index: 0,
            seed: options.seed,
            stopwatch: Stopwatch::default(),
            metrics: None,
            handled_events: HandledEvents::new(),
        }
    }

    /// Sets the stopwatch for plugin calls and the metrics of running extender calls.
    pub(crate) fn start_measuring(&mut self, stopwatch: Stopwatch, metrics: Metrics) {
        self.stopwatch = stopwatch;
        self.queue.set_stopwatch(stopwatch);
        self.metrics = Some(metrics);
    }

    /// Returns the profile with this index.
    pub(crate) fn profile(&self, index: usize) -> &Profile {
        &self.profiles[index]
    }

    /// Returns the pod's profile and the view of the cluster that a scheduling attempt would use. Returns `None` if no
    /// profile is responsible for the pod.
    pub(crate) fn view_for(&mut self, pod: &Pod) -> Option<(Profile, View<'_>)> {
        let profile = self.profiles.iter().find(|profile| responsible_for_pod(profile, pod))?;
        let nominator = self.queue.nominator();
        let view = View {
            profile,
            nodes: &mut self.nodes,
            nominator,
            start_node_index: self.start_node_index,
        };
        Some((profile.clone(), view))
    }

    /// Returns the number of pods in each part of the queue.
    pub(crate) fn queue_lengths(&self) -> QueueLengths {
        self.queue.lengths()
    }

    /// Returns the assumed pods in Permit or PreBind.
    pub(crate) fn waiting_pods(&self) -> &WaitingPods {
        &self.waiting_pods
    }

    /// Returns the profiles of the scheduler.
    pub(crate) fn profiles(&self) -> &Arc<[Profile]> {
        &self.profiles
    }

    /// Returns the extenders, in the order of their calls.
    pub(crate) fn extenders(&self) -> &Arc<[Arc<dyn Extender>]> {
        &self.extenders
    }

    /// Returns the queue of unscheduled pods.
    pub(crate) fn queue(&self) -> &SchedulingQueue {
        &self.queue
    }

    /// Returns the queue, to change it.
    pub(crate) fn queue_mut(&mut self) -> &mut SchedulingQueue {
        &mut self.queue
    }

    /// Returns the nodes with their pods, assumed ones included.
    pub(crate) fn nodes(&self) -> &NodeTable {
        &self.nodes
    }

    /// Returns the number of assumed pods.
    pub(crate) fn n_assumed(&self) -> usize {
        self.assumed.len()
    }

    /// Returns the next time at which [`Core::schedule_one`] may find a pod without a new event.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.queue.next_due()
    }

    /// Takes the events handled since the last call.
    pub(crate) fn take_handled_events(&mut self) -> HandledEvents {
        std::mem::take(&mut self.handled_events)
    }

    /// Handles a new or updated node.
    ///
    /// Upstream: `addNodeToCache`, `updateNodeInCache`.
    pub(crate) fn add_or_update_node(&mut self, node: &Arc<Node>, now: Timestamp) {
        let old = self.nodes.get(&node.meta.name).map(|old| Arc::clone(old.shared_node()));
        self.nodes.set_node(Arc::clone(node));
        let Some(old) = old else {
            let change = Change::Node(Delta::Added(Arc::clone(node)));
            return self.handle_event(EventResource::Node, ActionType::Add, change, now);
        };
        for action in changes::node_scheduling_properties_change(&old, node) {
            let change =
                Change::Node(Delta::Updated { old: Arc::clone(&old), new: Arc::clone(node) });
            self.handle_event(EventResource::Node, action, change, now);
        }
    }

    /// Handles a deleted node.
    ///
    /// Upstream: `deleteNodeFromCache`.
    pub(crate) fn delete_node(&mut self, node: &Arc<Node>, now: Timestamp) {
        self.nodes.remove_node(&node.meta.name);
        let change = Change::Node(Delta::Deleted(Arc::clone(node)));
        self.handle_event(EventResource::Node, ActionType::Delete, change, now);
    }

    /// Handles a namespace event. Affinity terms may select pods by the labels of their namespace.
    pub(crate) fn update_namespace(&mut self, event: &CacheEvent<Namespace>) {
        let meta = &event.object().meta;
        let labels = match event {
            CacheEvent::Deleted(_) => None,
            CacheEvent::Added { .. } | CacheEvent::Updated { .. } => Some(&meta.labels),
        };
        self.nodes.set_namespace(&meta.name, labels);
    }

    /// Handles a change of an object other than a node, pod or namespace.
    pub(crate) fn handle_object_change(&mut self, change: ObjectChange, now: Timestamp) {
        let (resource, action) = change.event();
        self.handle_event(resource, action, Change::Object(change), now);
    }

    /// Returns the pod without the resources that do not count.
    fn without_ignored_resources(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let ignores_spec = !self.pod_level_resources && pod.spec.resources.is_some();
        let ignores_status = !self.pod_level_resize && pod.status.resources.is_some();
        if !ignores_spec && !ignores_status {
            return Arc::clone(pod);
        }
        let mut pod = Pod::clone(pod);
        if ignores_spec {
            pod.spec.resources = None;
        }
        if ignores_status {
            pod.status.resources = None;
        }
        Arc::new(pod)
    }

    /// Handles a new or updated pod.
    pub(crate) fn add_or_update_pod(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let pod = &self.without_ignored_resources(pod);
        if matches!(&*pod.status.phase, "Succeeded" | "Failed") {
            return self.delete_pod(&pod.meta.uid, now);
        }
        if pod.spec.node_name.is_empty() {
            self.add_unscheduled_pod(pod, now);
        } else {
            self.add_assigned_pod(pod, now);
        }
    }

    /// Handles a pod that was deleted, succeeded or failed.
    pub(crate) fn delete_pod(&mut self, uid: &str, now: Timestamp) {
        let queued_pod = self.queue.get(uid).cloned();
        let was_nominated = self.queue.nominator().nominated_node(uid).is_some();
        self.queue.remove(uid);
        self.forget_assumed_pod(uid);
        if let Some((pod, _node)) = self.nodes.remove(uid) {
            self.handled_events.push((EventResource::AssignedPod, ActionType::Delete));
            self.requeue_after_pod_delete(pod, now, |_| true);
            return;
        }
        let Some(pod) = queued_pod else { return };
        self.handled_events.push((EventResource::UnscheduledPod, ActionType::Delete));
        if was_nominated {
            self.requeue_after_nomination_cleared(pod, now);
        }
    }

    /// Handles a new or updated pod on a node.
    ///
    /// Upstream: `addAssignedPodToCache`, `updateAssignedPodInCache`.
    fn add_assigned_pod(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let uid = &*pod.meta.uid;
        let node = &*pod.spec.node_name;
        let was_queued = self.queue.get(uid).is_some();
        self.queue.remove(uid);
        let was_assumed = self.assumed.remove(uid);
        if was_queued || was_assumed {
            self.handled_events.push((EventResource::UnscheduledPod, ActionType::Delete));
        }
        let old = self.nodes.pod(uid).map(|(old, _)| old.clone());
        let info = match &old {
            Some(old) => old.updated(Arc::clone(pod)),
            None => PodInfo::new(Arc::clone(pod)),
        };
        if !self.nodes.try_update(&info, node) {
            self.nodes.place(info.clone(), node);
        }
        match old {
            Some(old) if !was_assumed => {
                if old.pod.meta.resource_version == pod.meta.resource_version {
                    return;
                }
                let actions = changes::pod_scheduling_properties_change(&old, &info);
                if !actions.contains(&ActionType::Update) {
                    self.handled_events.push((EventResource::AssignedPod, ActionType::Update));
                }
                for action in actions {
                    let old = old.clone();
                    let new = info.clone();
                    let change = Change::AssignedPod(Delta::Updated { old, new });
                    self.handle_event(EventResource::AssignedPod, action, change, now);
                }
            }
            _ => {
                let change = Change::AssignedPod(Delta::Added(info));
                self.handle_event(EventResource::AssignedPod, ActionType::Add, change, now);
            }
        }
    }

    /// Handles a new or updated pod without a node.
    ///
    /// Upstream: `addPodToSchedulingQueue`, `updatePodInSchedulingQueue`.
    fn add_unscheduled_pod(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let uid = &*pod.meta.uid;
        let Some(profile) =
            self.profiles.iter().position(|profile| responsible_for_pod(profile, pod))
        else {
            return;
        };
        let Some(old) = self.queue.get(uid).cloned() else {
            if !self.assumed.contains(uid) {
                self.handled_events.push((EventResource::UnscheduledPod, ActionType::Add));
                self.queue.add(PodInfo::new(Arc::clone(pod)), profile, now);
            }
            return;
        };
        let old_version = &old.pod.meta.resource_version;
        if !old_version.is_empty() && *old_version == pod.meta.resource_version {
            return;
        }
        let info = old.updated(Arc::clone(pod));
        let actions = changes::pod_scheduling_properties_change(&old, &info);
        self.handled_events.push((EventResource::UnscheduledPod, ActionType::Update));
        let specific_actions = actions.iter().filter(|action| **action != ActionType::Update);
        self.handled_events
            .extend(specific_actions.map(|action| (EventResource::UnscheduledPod, *action)));
        self.queue.update(&info, &actions, now);
        if pod.meta.deleting() && self.forget_assumed_pod(uid) {
            // The assumed pod will not be bound. Other pods can use its resources before its binding fails.
            if let Some((pod, _node)) = self.nodes.remove(uid) {
                self.requeue_after_pod_delete(pod, now, |_| true);
            }
            return;
        }
        let old_nomination = &old.pod.status.nominated_node_name;
        if !old_nomination.is_empty() && *old_nomination != pod.status.nominated_node_name {
            self.requeue_after_nomination_cleared(old, now);
        }
    }

    /// Rejects the pod if it waits in Permit, and no longer treats it as assumed. Returns whether it was assumed.
    ///
    /// Upstream: `ForgetPod`.
    fn forget_assumed_pod(&mut self, uid: &str) -> bool {
        if let Some(waiting) = self.waiting_pods.get(uid) {
            waiting.reject("", "the pod is being deleted");
        }
        self.assumed.remove(uid)
    }

    /// Requeues the pods that pass `pre_check` and may fit after `pod` left its node.
    fn requeue_after_pod_delete(
        &mut self,
        pod: PodInfo,
        now: Timestamp,
        pre_check: impl Fn(&PodInfo) -> bool,
    ) {
        let change = Change::AssignedPod(Delta::Deleted(pod));
        let event = Event::new(EventResource::AssignedPod, ActionType::Delete, change);
        self.queue.move_all_to_active_or_backoff_queue(&event, now, pre_check);
    }

    /// Requeues the pods that may use the node to which `pod` was nominated. Only pods with at most its priority could
    /// not use the node before.
    fn requeue_after_nomination_cleared(&mut self, pod: PodInfo, now: Timestamp) {
        let priority = pod.priority();
        self.requeue_after_pod_delete(pod, now, |other| other.priority() <= priority);
    }

    /// Requeues the pods that the event may make schedulable.
    fn handle_event(
        &mut self,
        resource: EventResource,
        action: ActionType,
        change: Change,
        now: Timestamp,
    ) {
        self.handled_events.push((resource, action));
        self.queue.move_all_to_active_or_backoff_queue(
            &Event::new(resource, action, change),
            now,
            |_| true,
        );
    }
}

/// Returns whether the pod's `schedulerName` selects this profile.
///
/// Upstream: `responsibleForPod`.
fn responsible_for_pod(profile: &Profile, pod: &Pod) -> bool {
    let scheduler_name = match &*pod.spec.scheduler_name {
        "" => crate::DEFAULT_SCHEDULER,
        name => name,
    };
    profile.name() == scheduler_name
}
