//! The scheduler without its I/O: takes changes of nodes and pods in, says what to bind and what to tell.

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
    framework::{Change, CycleState, NodeAspects, Permitted, Point, Profile},
    nodes::NodeTable,
    pod::PodInfo,
    queue::{Counts, Popped, SchedulingQueue, Waits},
    schedule::{Outcome, Unfit, View, schedule},
};

/// What one attempt led to.
pub(crate) enum Step {
    /// Bind the pod; answer with [`Core::bound`].
    Bind(Assigned),
    /// Tell that the pod has no node.
    Failed(Failure),
    /// Nothing to do: the pod went away.
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
    profiles: Vec<Profile>,
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
        Self {
            profiles: options.profiles.clone(),
            nodes: NodeTable::default(),
            queue: SchedulingQueue::new(waits),
            assumed: HashSet::new(),
            start: 0,
            seed: options.seed,
        }
    }

    pub(crate) fn profile(&self, n: usize) -> &Profile {
        &self.profiles[n]
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
        let aspects = self.nodes.get(&node.meta.name).map(|known| aspects(known.node(), node));
        self.nodes.set_node(Arc::clone(node));
        let Self { nodes, queue, profiles, .. } = self;
        let Some(known) = nodes.get(&node.meta.name) else { return };
        let change = match aspects {
            None => Change::NodeAdded(known),
            Some(aspects) if aspects.is_empty() => return,
            Some(aspects) => Change::NodeUpdated(known, aspects),
        };
        queue
            .moved(now, |pod, profile, plugin| profiles[profile].plugin(plugin).hint(pod, &change));
    }

    /// A node is gone.
    pub(crate) fn node_gone(&mut self, name: &str) {
        self.nodes.remove_node(name);
    }

    /// An object beside pods and nodes came, changed or went.
    pub(crate) fn object_seen(&mut self, change: &Change<'_>, now: Timestamp) {
        self.moved(now, change);
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
        self.queue.remove(uid);
        self.assumed.remove(uid);
        if let Some((pod, _)) = self.nodes.remove(uid) {
            self.moved(now, &Change::PodGone(&pod));
        }
    }

    fn assigned(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let uid = &*pod.meta.uid;
        let node = &*pod.spec.node_name;
        self.queue.remove(uid);
        self.assumed.remove(uid);
        let known = self.nodes.pod(uid).map(|(known, _)| known.clone());
        let info = match &known {
            Some(known) => known.updated(Arc::clone(pod)),
            None => PodInfo::new(Arc::clone(pod)),
        };
        if self.nodes.refresh(&info, node) {
            return;
        }
        let freed = known.is_some();
        self.nodes.place(info.clone(), node);
        self.moved(now, &if freed { Change::PodGone(&info) } else { Change::PodAssigned(&info) });
    }

    fn unassigned(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let uid = &*pod.meta.uid;
        let Some(profile) = self.profiles.iter().position(|profile| serves(profile, pod)) else {
            return;
        };
        let Some(known) = self.queue.get(uid) else {
            // Being deleted, it needs no node any more.
            if !pod.meta.deleting() && !self.assumed.contains(uid) {
                let info = PodInfo::new(Arc::clone(pod));
                let gate = gate(&self.profiles[profile], &info);
                self.queue.add(info, profile, gate, now);
            }
            return;
        };
        if pod.meta.deleting() {
            self.queue.remove(uid);
            return;
        }
        let before = &known.pod;
        let same =
            before.meta.generation == pod.meta.generation && before.meta.labels == pod.meta.labels;
        let info = known.updated(Arc::clone(pod));
        self.queue.update(&info);
        if same {
            return;
        }
        let gate = gate(&self.profiles[profile], &info);
        let profiles = &self.profiles;
        self.queue.changed_itself(uid, gate, now, |pod, profile, plugin| {
            profiles[profile].plugin(plugin).hint(pod, &Change::OwnUpdate)
        });
    }

    fn moved(&mut self, now: Timestamp, change: &Change<'_>) {
        let Self { queue, profiles, .. } = self;
        queue.moved(now, |pod, profile, plugin| profiles[profile].plugin(plugin).hint(pod, change));
    }

    /// Tries the next pod, if one's turn has come.
    pub(crate) fn attempt(&mut self, now: Timestamp) -> Option<Step> {
        let popped = self.queue.pop(now)?;
        if popped.info.pod.meta.deleting() {
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
        let assigned = Assigned { popped, node, permits, state };
        let Some((plugin, why)) = refused else { return Step::Bind(assigned) };
        let message = why.reasons.join(", ");
        let popped = self.give_up(assigned, now);
        self.queue.unschedulable(&popped.uid, vec![plugin], now);
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
            self.moved(now, &Change::PodGone(&pod));
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
        if error {
            self.queue.failed(uid, now);
        } else {
            self.queue.unschedulable(uid, unfit.plugins(), now);
        }
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
        self.queue.failed(&popped.uid, now);
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

/// The plugin that keeps the pod out of the queue.
fn gate(profile: &Profile, pod: &PodInfo) -> Option<usize> {
    profile
        .at(Point::PreEnqueue)
        .find_map(|(n, plugin)| plugin.as_pre_enqueue()?.pre_enqueue(pod).is_err().then_some(n))
}

fn aspects(old: &Node, new: &Node) -> NodeAspects {
    NodeAspects {
        allocatable: old.status.allocatable != new.status.allocatable,
        labels: old.meta.labels != new.meta.labels,
        taints: old.spec.taints != new.spec.taints
            || old.spec.unschedulable != new.spec.unschedulable,
        declared_features: old.status.declared_features != new.status.declared_features,
    }
}
