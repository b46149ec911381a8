//! The scheduler without its I/O: takes changes of nodes and pods in, says what to bind and what to tell.

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
        ActionType, Change, Edit, EventResource, Extender, ObjectChange, Profile, WaitingPods,
    },
    nodes::NodeTable,
    pod::PodInfo,
    queue::{BackoffPolicy, Counts, Event, SchedulingQueue},
    schedule::View,
};

pub(crate) use attempt::{Assigned, Attempted, Failure, NotBound, Step};

/// Queue, node table and profiles.
pub(crate) struct Core {
    profiles: Arc<[Profile]>,
    nodes: NodeTable,
    queue: SchedulingQueue,
    /// Pods that count on a node before the cache shows them there.
    assumed: HashSet<Box<str>>,
    waiting_pods: WaitingPods,
    extenders: Arc<[Arc<dyn Extender>]>,
    start: usize,
    seed: u64,
    /// What was taken in, in upstream's words, since that was last asked.
    seen: Seen,
}

/// Changes, each of what and how.
pub(crate) type Seen = SmallVec<[(EventResource, ActionType); 4]>;

impl Core {
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
            assumed: HashSet::new(),
            waiting_pods: WaitingPods::default(),
            extenders: options.extenders.clone().into(),
            start: 0,
            seed: options.seed,
            seen: Seen::new(),
        }
    }

    pub(crate) fn profile(&self, n: usize) -> &Profile {
        &self.profiles[n]
    }

    /// The profile that a pod is for, and what an attempt would look at.
    pub(crate) fn sight(&mut self, pod: &Pod) -> Option<(Profile, View<'_>)> {
        let profile = self.profiles.iter().find(|profile| serves(profile, pod))?;
        let nominator = self.queue.nominator();
        let view = View { profile, nodes: &mut self.nodes, nominator, start: self.start };
        Some((profile.clone(), view))
    }

    pub(crate) fn counts(&self) -> Counts {
        self.queue.counts()
    }

    /// The pods on their way to their nodes.
    pub(crate) fn waiting_pods(&self) -> &WaitingPods {
        &self.waiting_pods
    }

    pub(crate) fn profiles(&self) -> &Arc<[Profile]> {
        &self.profiles
    }

    pub(crate) fn extenders(&self) -> &Arc<[Arc<dyn Extender>]> {
        &self.extenders
    }

    pub(crate) fn queue(&self) -> &SchedulingQueue {
        &self.queue
    }

    pub(crate) fn queue_mut(&mut self) -> &mut SchedulingQueue {
        &mut self.queue
    }

    pub(crate) fn nodes(&self) -> &NodeTable {
        &self.nodes
    }

    pub(crate) fn n_assumed(&self) -> usize {
        self.assumed.len()
    }

    /// When [`Core::attempt`] may have something to do even if nothing happens.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.queue.next_due()
    }

    /// What was taken in since this was last asked.
    pub(crate) fn take_seen(&mut self) -> Seen {
        std::mem::take(&mut self.seen)
    }

    /// A node came or changed.
    pub(crate) fn node_seen(&mut self, node: &Arc<Node>, now: Timestamp) {
        let known = self.nodes.get(&node.meta.name).map(|known| Arc::clone(known.object()));
        self.nodes.set_node(Arc::clone(node));
        let Some(old) = known else {
            let change = Change::Node(Edit::Added(Arc::clone(node)));
            return self.happened(EventResource::Node, ActionType::Add, change, now);
        };
        for action in changes::of_node(&old, node) {
            let change =
                Change::Node(Edit::Updated { old: Arc::clone(&old), new: Arc::clone(node) });
            self.happened(EventResource::Node, action, change, now);
        }
    }

    /// A node is gone.
    pub(crate) fn node_gone(&mut self, node: &Arc<Node>, now: Timestamp) {
        self.nodes.remove_node(&node.meta.name);
        let change = Change::Node(Edit::Deleted(Arc::clone(node)));
        self.happened(EventResource::Node, ActionType::Delete, change, now);
    }

    /// A namespace came, changed or went; pods may be meant by its labels.
    pub(crate) fn namespace_seen(&mut self, event: &CacheEvent<Namespace>) {
        let meta = &event.object().meta;
        let gone = matches!(event, CacheEvent::Deleted(_));
        self.nodes.set_namespace(&meta.name, (!gone).then_some(&meta.labels));
    }

    /// An object beside pods and nodes came, changed or went.
    pub(crate) fn object_seen(&mut self, change: ObjectChange, now: Timestamp) {
        let (resource, action) = change.event();
        self.happened(resource, action, Change::Object(change), now);
    }

    /// A pod came or changed.
    pub(crate) fn pod_seen(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        if matches!(&*pod.status.phase, "Succeeded" | "Failed") {
            return self.pod_gone(&pod.meta.uid, now);
        }
        if pod.spec.node_name.is_empty() {
            self.unassigned(pod, now);
        } else {
            self.assigned(pod, now);
        }
    }

    /// A pod is gone or has ended.
    pub(crate) fn pod_gone(&mut self, uid: &str, now: Timestamp) {
        let waiting = self.queue.get(uid).cloned();
        let nominated = self.queue.nominator().nominated_node(uid).is_some();
        self.queue.remove(uid);
        self.withdraw(uid);
        if let Some((pod, _)) = self.nodes.remove(uid) {
            self.seen.push((EventResource::AssignedPod, ActionType::Delete));
            self.left(pod, now, |_| true);
            return;
        }
        let Some(pod) = waiting else { return };
        self.seen.push((EventResource::UnscheduledPod, ActionType::Delete));
        if nominated {
            self.released(pod, now);
        }
    }

    fn assigned(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let (uid, node) = (&*pod.meta.uid, &*pod.spec.node_name);
        let waited = self.queue.get(uid).is_some();
        self.queue.remove(uid);
        let confirmed = self.assumed.remove(uid);
        if waited || confirmed {
            self.seen.push((EventResource::UnscheduledPod, ActionType::Delete));
        }
        let known = self.nodes.pod(uid).map(|(known, _)| known.clone());
        let info = match &known {
            Some(known) => known.updated(Arc::clone(pod)),
            None => PodInfo::new(Arc::clone(pod)),
        };
        if !self.nodes.refresh(&info, node) {
            self.nodes.place(info.clone(), node);
        }
        match known.filter(|_| !confirmed) {
            None => {
                let change = Change::AssignedPod(Edit::Added(info));
                self.happened(EventResource::AssignedPod, ActionType::Add, change, now);
            }
            Some(known) if known.pod.meta.resource_version == pod.meta.resource_version => {}
            Some(known) => {
                let actions = changes::of_pod(&known, &info);
                if !actions.contains(&ActionType::Update) {
                    self.seen.push((EventResource::AssignedPod, ActionType::Update));
                }
                for action in actions {
                    let (old, new) = (known.clone(), info.clone());
                    let change = Change::AssignedPod(Edit::Updated { old, new });
                    self.happened(EventResource::AssignedPod, action, change, now);
                }
            }
        }
    }

    fn unassigned(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let uid = &*pod.meta.uid;
        let Some(profile) = self.profiles.iter().position(|profile| serves(profile, pod)) else {
            return;
        };
        let Some(known) = self.queue.get(uid).cloned() else {
            if !self.assumed.contains(uid) {
                self.seen.push((EventResource::UnscheduledPod, ActionType::Add));
                self.queue.add(PodInfo::new(Arc::clone(pod)), profile, now);
            }
            return;
        };
        let same = &known.pod.meta.resource_version;
        if !same.is_empty() && *same == pod.meta.resource_version {
            return;
        }
        let info = known.updated(Arc::clone(pod));
        let actions = changes::of_pod(&known, &info);
        self.seen.push((EventResource::UnscheduledPod, ActionType::Update));
        let named = actions.iter().filter(|action| **action != ActionType::Update);
        self.seen.extend(named.map(|action| (EventResource::UnscheduledPod, *action)));
        self.queue.update(&info, &actions, now);
        if pod.meta.deleting() && self.withdraw(uid) {
            // It will not be bound; others need not wait until that has become apparent.
            if let Some((pod, _)) = self.nodes.remove(uid) {
                self.left(pod, now, |_| true);
            }
            return;
        }
        let before = &known.pod.status.nominated_node_name;
        if !before.is_empty() && *before != pod.status.nominated_node_name {
            self.released(known, now);
        }
    }

    /// No longer assumes that the pod will be on its node; whether it did.
    fn withdraw(&mut self, uid: &str) -> bool {
        if let Some(waiting) = self.waiting_pods.get(uid) {
            waiting.reject("", "the pod is being deleted");
        }
        self.assumed.remove(uid)
    }

    /// A pod no longer counts on a node.
    fn left(&mut self, pod: PodInfo, now: Timestamp, only: impl Fn(&PodInfo) -> bool) {
        let change = Change::AssignedPod(Edit::Deleted(pod));
        let event = Event::new(EventResource::AssignedPod, ActionType::Delete, change);
        self.queue.move_all_to_active_or_backoff_queue(&event, now, only);
    }

    /// A node no longer is kept free for a pod; that helps those that must yield to it.
    fn released(&mut self, pod: PodInfo, now: Timestamp) {
        let priority = pod.priority();
        self.left(pod, now, |other| other.priority() <= priority);
    }

    fn happened(
        &mut self,
        resource: EventResource,
        action: ActionType,
        change: Change,
        now: Timestamp,
    ) {
        self.seen.push((resource, action));
        self.queue.move_all_to_active_or_backoff_queue(
            &Event::new(resource, action, change),
            now,
            |_| true,
        );
    }
}

fn serves(profile: &Profile, pod: &Pod) -> bool {
    let wanted = &*pod.spec.scheduler_name;
    profile.name() == if wanted.is_empty() { crate::DEFAULT_SCHEDULER } else { wanted }
}
