//! The scheduler without its I/O: takes changes of nodes and pods in, says what to bind and what to tell.

mod changes;
#[cfg(test)]
mod tests;

use evenkeel_api::{
    time::Timestamp,
    views::{Node, Pod},
};
use hashbrown::HashSet;
use std::sync::Arc;

use crate::{
    SchedulerOptions,
    framework::{
        Action, Change, CycleState, Edit, ObjectChange, Permitted, Point, Profile, Resource,
        Severity,
    },
    nodes::NodeTable,
    pod::PodInfo,
    queue::{Counts, Event, PluginSet, Popped, SchedulingQueue, Waits},
    schedule::{Outcome, Unfit, View, schedule},
};

/// What one attempt led to.
pub(crate) enum Step {
    /// Bind the pod; answer with [`Core::bound`].
    Bind(Assigned),
    /// Tell that the pod has no node.
    Failed(Failure),
    /// The pod is not tried: it is being deleted.
    Deleting(PodInfo),
    /// Nothing to do: the pod has its node already.
    Dropped,
}

/// A pod that is assumed to be on a node.
pub(crate) struct Assigned {
    pub(crate) popped: Popped,
    pub(crate) node: Arc<str>,
    /// What must be waited for before binding, for each plugin that said so.
    pub(crate) permits: Vec<Permitted>,
    state: CycleState,
}

/// A pod that was not placed.
pub(crate) struct Failure {
    pub(crate) info: PodInfo,
    pub(crate) profile: usize,
    pub(crate) message: String,
    /// Something went wrong, rather than no node having room.
    pub(crate) error: bool,
    /// Node on which room is being made.
    pub(crate) nominated: Option<Arc<str>>,
}

/// Queue, node table and profiles.
pub(crate) struct Core {
    profiles: Arc<[Profile]>,
    nodes: NodeTable,
    queue: SchedulingQueue,
    /// Pods that count on a node before the cache shows them there.
    assumed: HashSet<Box<str>>,
    start: usize,
    seed: u64,
}

impl Core {
    pub(crate) fn new(options: &SchedulerOptions) -> Self {
        let waits = Waits {
            initial_backoff: options.pod_initial_backoff,
            max_backoff: options.pod_max_backoff,
            max_unschedulable: options.max_in_unschedulable,
        };
        let profiles: Arc<[Profile]> = options.profiles.clone().into();
        Self {
            queue: SchedulingQueue::new(waits, Arc::clone(&profiles)),
            profiles,
            nodes: NodeTable::default(),
            assumed: HashSet::new(),
            start: 0,
            seed: options.seed,
        }
    }

    pub(crate) fn profile(&self, n: usize) -> &Profile {
        &self.profiles[n]
    }

    /// The profile that a pod is for.
    pub(crate) fn profile_of(&self, pod: &Pod) -> Option<&Profile> {
        self.profiles.iter().find(|profile| serves(profile, pod))
    }

    pub(crate) fn counts(&self) -> Counts {
        self.queue.counts()
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

    /// A node came or changed.
    pub(crate) fn node_seen(&mut self, node: &Arc<Node>, now: Timestamp) {
        let known = self.nodes.get(&node.meta.name).map(|known| Arc::clone(known.object()));
        self.nodes.set_node(Arc::clone(node));
        let Some(old) = known else {
            let change = Change::Node(Edit::Added(Arc::clone(node)));
            return self.happened(Resource::Node, Action::Add, change, now);
        };
        for action in changes::of_node(&old, node) {
            let change =
                Change::Node(Edit::Updated { old: Arc::clone(&old), new: Arc::clone(node) });
            self.happened(Resource::Node, action, change, now);
        }
    }

    /// A node is gone.
    pub(crate) fn node_gone(&mut self, node: &Arc<Node>, now: Timestamp) {
        self.nodes.remove_node(&node.meta.name);
        let change = Change::Node(Edit::Deleted(Arc::clone(node)));
        self.happened(Resource::Node, Action::Delete, change, now);
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
        let nominated = self.queue.nominated().node_of(uid).is_some();
        self.queue.remove(uid);
        self.assumed.remove(uid);
        if let Some((pod, _)) = self.nodes.remove(uid) {
            self.left(pod, now, |_| true);
        } else if let Some(pod) = waiting.filter(|_| nominated) {
            self.released(pod, now);
        }
    }

    fn assigned(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let (uid, node) = (&*pod.meta.uid, &*pod.spec.node_name);
        self.queue.remove(uid);
        let confirmed = self.assumed.remove(uid);
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
                self.happened(Resource::AssignedPod, Action::Add, change, now);
            }
            Some(known) if known.pod.meta.resource_version == pod.meta.resource_version => {}
            Some(known) => {
                for action in changes::of_pod(&known, &info) {
                    let (old, new) = (known.clone(), info.clone());
                    let change = Change::AssignedPod(Edit::Updated { old, new });
                    self.happened(Resource::AssignedPod, action, change, now);
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
                self.queue.add(PodInfo::new(Arc::clone(pod)), profile, now);
            }
            return;
        };
        let same = &known.pod.meta.resource_version;
        if !same.is_empty() && *same == pod.meta.resource_version {
            return;
        }
        let info = known.updated(Arc::clone(pod));
        self.queue.update(&info, &changes::of_pod(&known, &info), now);
        let before = &known.pod.status.nominated_node_name;
        if !before.is_empty() && *before != pod.status.nominated_node_name {
            self.released(known, now);
        }
    }

    /// A pod no longer counts on a node.
    fn left(&mut self, pod: PodInfo, now: Timestamp, only: impl Fn(&PodInfo) -> bool) {
        let change = Change::AssignedPod(Edit::Deleted(pod));
        let event = Event::new(Resource::AssignedPod, Action::Delete, change);
        self.queue.happened(&event, now, only);
    }

    /// A node no longer is kept free for a pod; that helps those that must yield to it.
    fn released(&mut self, pod: PodInfo, now: Timestamp) {
        let priority = pod.priority();
        self.left(pod, now, |other| other.priority() <= priority);
    }

    fn happened(&mut self, resource: Resource, action: Action, change: Change, now: Timestamp) {
        self.queue.happened(&Event::new(resource, action, change), now, |_| true);
    }

    /// Tries the next pod, if one's turn has come.
    pub(crate) fn attempt(&mut self, now: Timestamp) -> Option<Step> {
        let popped = self.queue.pop(now)?;
        if popped.info.pod.meta.deleting() {
            self.queue.remove(&popped.uid);
            return Some(Step::Deleting(popped.info));
        }
        if self.assumed.contains(&*popped.uid) {
            self.queue.remove(&popped.uid);
            return Some(Step::Dropped);
        }
        self.seed = self.seed.wrapping_add(1);
        let mut state = CycleState::default();
        let profile = &self.profiles[popped.profile];
        let view = View { profile, nodes: &self.nodes, start: self.start };
        let Outcome { choice, next_start, .. } =
            schedule(view, &popped.info, self.seed, &mut state);
        self.start = next_start;
        Some(match choice {
            Ok(choice) => self.assume(popped, choice.node, state, now),
            Err(unfit) => Step::Failed(self.unfit(&popped, &unfit, &mut state, now)),
        })
    }

    fn assume(
        &mut self,
        popped: Popped,
        node: Arc<str>,
        mut state: CycleState,
        now: Timestamp,
    ) -> Step {
        let uid: Box<str> = (&*popped.uid).into();
        self.nodes.place(popped.info.clone(), &node);
        self.assumed.insert(uid);
        let profile = &self.profiles[popped.profile];
        let mut refused = None;
        for (n, plugin) in profile.at(Point::Reserve) {
            let reserved = plugin
                .as_reserve()
                .map_or(Ok(()), |plugin| plugin.reserve(&mut state, &popped.info, &node));
            if let Err(why) = reserved {
                refused = Some((n, why));
                break;
            }
        }
        let mut permits = Vec::new();
        for (n, plugin) in profile.at(Point::Permit) {
            if refused.is_some() {
                break;
            }
            match plugin
                .as_permit()
                .map_or(Permitted::Yes, |plugin| plugin.permit(&state, &popped.info, &node))
            {
                Permitted::Yes => {}
                Permitted::No(why) => refused = Some((n, why)),
                wait @ Permitted::Wait(..) => permits.push(wait),
            }
        }
        if permits.is_empty() {
            // From here on it is tried again whatever happens.
            self.queue.done(&popped.uid);
        }
        let assigned = Assigned { popped, node, permits, state };
        let Some((plugin, why)) = refused else { return Step::Bind(assigned) };
        let message = why.reasons.join(", ");
        let popped = self.give_up(assigned, now);
        let rejector: PluginSet = [plugin].into_iter().collect();
        let pending =
            if why.severity == Severity::Pending { rejector } else { PluginSet::default() };
        self.queue.returned(&popped.uid, rejector, pending, now);
        let Popped { info, profile, .. } = popped;
        Step::Failed(Failure { info, profile, message, error: false, nominated: None })
    }

    /// Undoes an assumption.
    fn give_up(&mut self, assigned: Assigned, now: Timestamp) -> Popped {
        let Assigned { popped, node, mut state, .. } = assigned;
        for (_, plugin) in self.profiles[popped.profile].at(Point::Reserve).rev() {
            if let Some(plugin) = plugin.as_reserve() {
                plugin.unreserve(&mut state, &popped.info, &node);
            }
        }
        // The cache may have shown the pod on its node meanwhile; then it is there, whatever the answer to the binding was.
        if self.assumed.remove(&*popped.uid)
            && let Some((pod, _)) = self.nodes.remove(&popped.uid)
        {
            self.left(pod, now, |_| true);
        }
        popped
    }

    fn unfit(
        &mut self,
        popped: &Popped,
        unfit: &Unfit,
        state: &mut CycleState,
        now: Timestamp,
    ) -> Failure {
        let profile = &self.profiles[popped.profile];
        let (uid, error) = (&popped.uid, unfit.is_error());
        let mut message = if unfit.n_nodes == 0 { NO_NODES.to_owned() } else { unfit.to_string() };
        let mut nominated = None;
        for (_, plugin) in profile.at(Point::PostFilter).filter(|_| !error) {
            let Some(plugin) = plugin.as_post_filter() else { continue };
            let done = plugin.post_filter(state, &popped.info, &self.nodes, &unfit.rejected);
            if !done.message.is_empty() {
                message.push(' ');
                message.push_str(&done.message);
            }
            if done.nominated.is_some() {
                nominated = done.nominated;
                break;
            }
        }
        state.clear();
        let (rejectors, pending) = if error { Default::default() } else { rejectors(unfit) };
        self.queue.returned(uid, rejectors, pending, now);
        Failure { info: popped.info.clone(), profile: popped.profile, message, error, nominated }
    }

    /// The pod is bound.
    pub(crate) fn bound(&mut self, assigned: &Assigned) {
        let Assigned { popped, node, .. } = assigned;
        self.queue.remove(&popped.uid);
        for (_, plugin) in self.profiles[popped.profile].at(Point::PostBind) {
            if let Some(plugin) = plugin.as_post_bind() {
                plugin.post_bind(&popped.info, node);
            }
        }
    }

    /// The pod was not bound; whether it still waits for a node, and goes on waiting.
    pub(crate) fn not_bound(&mut self, assigned: Assigned, now: Timestamp) -> bool {
        let popped = self.give_up(assigned, now);
        if self.queue.get(&popped.uid).is_none() {
            return false;
        }
        self.queue.returned(&popped.uid, PluginSet::default(), PluginSet::default(), now);
        true
    }

    /// The pod turned out to be gone or to be somebody else's; the cache will tell.
    pub(crate) fn binding_is_moot(&mut self, assigned: Assigned, now: Timestamp) {
        let popped = self.give_up(assigned, now);
        self.queue.remove(&popped.uid);
    }
}

const NO_NODES: &str = "no nodes available to schedule pods";

fn serves(profile: &Profile, pod: &Pod) -> bool {
    let wanted = &*pod.spec.scheduler_name;
    profile.name() == if wanted.is_empty() { crate::DEFAULT_SCHEDULER } else { wanted }
}

/// Who rejected the pod, and who of them waits for something.
fn rejectors(unfit: &Unfit) -> (PluginSet, PluginSet) {
    if unfit.n_nodes == 0 {
        return ([PluginSet::NO_NODES].into_iter().collect(), PluginSet::default());
    }
    let rejected = unfit.rejected.iter().chain(&unfit.overall);
    let pending = rejected.filter(|rejected| rejected.why.severity == Severity::Pending);
    (unfit.plugins().into_iter().collect(), pending.map(|rejected| rejected.plugin).collect())
}
