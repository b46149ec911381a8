//! An attempt and what follows from it: the pod is assumed to be on its node until it is bound, or waits again.

use evenkeel_api::time::Timestamp;
use std::{sync::Arc, time::Duration};

use super::Core;
use crate::{
    framework::{Code, CycleState, PermitResult, Point, Profile, Status, WaitingPod},
    pod::PodInfo,
    queue::{PluginSet, Popped},
    schedule::{Cycle, Outcome, Trace, Unfit, View, attempt},
};

/// The longest that a plugin can make a pod wait.
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);

/// An attempt, and how it went.
pub(crate) struct Attempted {
    pub(crate) step: Step,
    pub(crate) trace: Trace,
    pub(crate) profile: usize,
}

/// What one attempt led to.
pub(crate) enum Step {
    /// Bind the pod; answer with [`Core::bound`] or [`Core::not_bound`].
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
    /// Plugins want to be waited for.
    pub(crate) waiting: Option<WaitingPod>,
    /// Whether plugins are timed one by one.
    pub(crate) sampled: bool,
    state: CycleState,
}

/// A pod that was not placed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The newest version of it that is known.
    pub(crate) info: PodInfo,
    pub(crate) profile: usize,
    pub(crate) message: String,
    /// Something went wrong, rather than no node having room.
    pub(crate) error: bool,
    /// Node on which room is being made; empty for none any more.
    pub(crate) nominated: Option<Arc<str>>,
}

/// Why a pod that was assumed was not bound.
#[derive(Debug)]
pub(crate) enum NotBound {
    /// A plugin found, in the end, that it cannot run there.
    Rejected(usize, Status),
    /// Something went wrong.
    Failed(String),
}

impl Core {
    /// Tries the next pod, if one's turn has come. Waits for nothing but extenders.
    pub(crate) async fn attempt(&mut self, now: Timestamp) -> Option<Attempted> {
        let popped = self.queue.pop(now)?;
        let profile = popped.profile;
        let skipped = |step| Some(Attempted { step, trace: Trace::default(), profile });
        if popped.info.pod.meta.deleting() {
            self.queue.remove(&popped.uid);
            return skipped(Step::Deleting(popped.info));
        }
        if self.assumed.contains(&*popped.uid) {
            self.queue.remove(&popped.uid);
            return skipped(Step::Dropped);
        }
        self.seed = self.seed.wrapping_add(1);
        let mut state = CycleState::default();
        let view = View {
            profile: &self.profiles[profile],
            nodes: &mut self.nodes,
            nominator: self.queue.nominator(),
            start: self.start,
        };
        let mut cycle = Cycle::new(view, &popped.info, self.seed, &self.extenders);
        cycle.measure(self.queue.metrics());
        let Outcome { choice, next_start, .. } = attempt(&mut cycle, &mut state).await;
        self.start = next_start;
        let (step, trace) = match choice {
            Ok(choice) => {
                let mut trace = cycle.into_trace();
                (self.assume(popped, choice.node, state, now, &mut trace), trace)
            }
            Err(unfit) => {
                let (message, nominated) = way_out(&mut cycle, &state, &unfit).await;
                let trace = cycle.into_trace();
                (Step::Failed(self.unfit(&popped, &unfit, message, nominated, now)), trace)
            }
        };
        Some(Attempted { step, trace, profile })
    }

    fn assume(
        &mut self,
        popped: Popped,
        node: Arc<str>,
        mut state: CycleState,
        now: Timestamp,
        trace: &mut Trace,
    ) -> Step {
        self.nodes.place(popped.info.clone(), &node);
        self.assumed.insert((&*popped.uid).into());
        self.queue.nominator_mut().delete_nominated_pod(&popped.uid);
        let profile = &self.profiles[popped.profile];
        let began = Trace::now();
        let reserved = reserve(profile, &mut state, &popped.info, &node, trace);
        trace.ran(Point::Reserve, began, reserved.as_ref().err().map(|(_, why)| why));
        let permitted = reserved.and_then(|()| {
            let began = Trace::now();
            let permitted = permit(profile, &state, &popped.info, &node, trace);
            trace.ran(Point::Permit, began, permitted.as_ref().err().map(|(_, why)| why));
            permitted
        });
        let sampled = trace.times_plugins();
        let mut assigned = Assigned { popped, node, waiting: None, sampled, state };
        match permitted {
            Err((plugin, why)) => {
                let popped = self.give_up(assigned);
                // It was never more than an assumption of this attempt: nobody was kept out by it.
                self.nodes.remove(&popped.uid);
                Step::Failed(self.rejected(&popped, plugin, &why, now))
            }
            Ok(waits) if waits.is_empty() => {
                // From here on it is tried again whatever happens.
                self.queue.done(&assigned.popped.uid);
                Step::Bind(assigned)
            }
            Ok(waits) => {
                let (info, node) = (assigned.popped.info.clone(), Arc::clone(&assigned.node));
                assigned.waiting = Some(self.waiting_pods.add(info, node, waits, now));
                Step::Bind(assigned)
            }
        }
    }

    /// Undoes what plugins set aside. The pod is still on its node in the table.
    fn give_up(&mut self, assigned: Assigned) -> Popped {
        let Assigned { popped, node, mut state, .. } = assigned;
        self.waiting_pods.remove(&popped.uid);
        for (_, plugin) in self.profiles[popped.profile].at(Point::Reserve).rev() {
            if let Some(plugin) = plugin.as_reserve() {
                plugin.unreserve(&mut state, &popped.info, &node);
            }
        }
        popped
    }

    /// A plugin rejected the one node that was left.
    fn rejected(&mut self, popped: &Popped, n: usize, why: &Status, now: Timestamp) -> Failure {
        let reasons = why.reasons.join(", ");
        let set: PluginSet = [n].into_iter().collect();
        let none = PluginSet::default();
        let (rejectors, pending) = match why.code {
            Code::Error => (none, none),
            Code::Pending => (set, set),
            Code::Unschedulable | Code::UnschedulableAndUnresolvable => (set, none),
        };
        let message = match why.code {
            Code::Error => reasons,
            _ => format!("0/1 nodes are available: 1 {reasons}."),
        };
        self.back(popped, rejectors, pending, message, Some("".into()), now)
    }

    fn unfit(
        &mut self,
        popped: &Popped,
        unfit: &Unfit,
        message: String,
        nominated: Option<Arc<str>>,
        now: Timestamp,
    ) -> Failure {
        let (rejectors, pending) = match unfit.error() {
            Some(_) => Default::default(),
            None => rejectors(unfit),
        };
        self.back(popped, rejectors, pending, message, nominated, now)
    }

    /// Back into the queue.
    fn back(
        &mut self,
        popped: &Popped,
        rejectors: PluginSet,
        pending: PluginSet,
        message: String,
        nominated: Option<Arc<str>>,
        now: Timestamp,
    ) -> Failure {
        let error = rejectors.union(pending).is_empty();
        self.assumed.remove(&*popped.uid);
        self.queue.add_unschedulable_pod(&popped.uid, rejectors, pending, now);
        let info = self.queue.get(&popped.uid).unwrap_or(&popped.info).clone();
        if self.queue.get(&popped.uid).is_some() {
            let node = nominated.as_deref().unwrap_or(&info.pod.status.nominated_node_name);
            self.queue.nominator_mut().add_nominated_pod(&info, node);
        }
        Failure { info, profile: popped.profile, message, error, nominated }
    }

    /// The pod is bound.
    pub(crate) fn bound(&mut self, assigned: &Assigned) {
        let Assigned { popped, node, .. } = assigned;
        self.waiting_pods.remove(&popped.uid);
        self.queue.remove(&popped.uid);
        for (_, plugin) in self.profiles[popped.profile].at(Point::PostBind) {
            if let Some(plugin) = plugin.as_post_bind() {
                plugin.post_bind(&popped.info, node);
            }
        }
    }

    /// The pod was not bound; what to tell, if it still waits for a node.
    pub(crate) fn not_bound(
        &mut self,
        assigned: Assigned,
        cause: NotBound,
        now: Timestamp,
    ) -> Option<Failure> {
        let popped = self.give_up(assigned);
        // The cache may have shown the pod on its node meanwhile; then it is there, whatever the answer to the binding was.
        let left = match self.assumed.remove(&*popped.uid) {
            true => self.nodes.remove(&popped.uid).map(|(pod, _)| pod),
            false => None,
        };
        let waits = self.queue.get(&popped.uid).is_some();
        match cause {
            NotBound::Rejected(plugin, why) => {
                // First it comes back, and then others hear of the room: that it left is no reason to try it again.
                let failure = waits.then(|| self.rejected(&popped, plugin, &why, now));
                if let Some(left) = left {
                    let uid = Arc::clone(&popped.uid);
                    self.left(left, now, |other| *other.uid() != *uid);
                }
                failure
            }
            NotBound::Failed(message) => {
                if let Some(left) = left {
                    self.left(left, now, |_| true);
                }
                let (none, clear) = (PluginSet::default(), Some("".into()));
                waits.then(|| self.back(&popped, none, none, message, clear, now))
            }
        }
    }
}

/// Has the post-filters look for a way out; what to tell, and which node is nominated.
async fn way_out(
    cycle: &mut Cycle<'_>,
    state: &CycleState,
    unfit: &Unfit,
) -> (String, Option<Arc<str>>) {
    let clear = Some(Arc::from(""));
    if let Some(hopeless) = unfit.hopeless() {
        return (hopeless.to_owned(), clear);
    }
    let plugins: Vec<_> = cycle.profile().at(Point::PostFilter).collect();
    if plugins.is_empty() {
        return (unfit.to_string(), clear);
    }
    let (began, mut nominated, mut messages) = (Trace::now(), None, Vec::new());
    let mut found = false;
    for (n, plugin) in plugins {
        let Some(plugin) = plugin.as_post_filter() else { continue };
        let asked = cycle.trace_mut().begin();
        let answer = plugin.post_filter(cycle, state, unfit).await;
        let why = (!answer.done).then(|| Status::unschedulable(""));
        cycle.trace_mut().took(Point::PostFilter, n, asked, why.as_ref());
        if answer.done {
            // Whatever others said before is settled by it.
            messages.clear();
            nominated = None;
            found = true;
        }
        if !answer.message.is_empty() {
            messages.push(answer.message);
        }
        nominated = answer.nominated.or(nominated);
        if found {
            break;
        }
    }
    let why = (!found).then(|| Status::unschedulable(""));
    cycle.trace_mut().ran(Point::PostFilter, began, why.as_ref());
    (unfit.told_with(&messages), nominated)
}

fn reserve(
    profile: &Profile,
    state: &mut CycleState,
    pod: &PodInfo,
    node: &str,
    trace: &mut Trace,
) -> Result<(), (usize, Status)> {
    for (n, plugin) in profile.at(Point::Reserve) {
        let (name, Some(plugin)) = (plugin.name(), plugin.as_reserve()) else { continue };
        let began = trace.begin();
        let reserved = plugin.reserve(state, pod, node);
        trace.took(Point::Reserve, n, began, reserved.as_ref().err());
        reserved.map_err(|why| (n, named(why, "Reserve", name)))?;
    }
    Ok(())
}

/// The plugins that want to be waited for, each with how long.
fn permit(
    profile: &Profile,
    state: &CycleState,
    pod: &PodInfo,
    node: &str,
    trace: &mut Trace,
) -> Result<Vec<(&'static str, Duration)>, (usize, Status)> {
    let mut waits = Vec::new();
    for (n, plugin) in profile.at(Point::Permit) {
        let (name, Some(plugin)) = (plugin.name(), plugin.as_permit()) else { continue };
        let began = trace.begin();
        let permitted = plugin.permit(state, pod, node);
        let why = match &permitted {
            PermitResult::Reject(why) => Some(why),
            PermitResult::Allow | PermitResult::Wait(_) => None,
        };
        trace.took(Point::Permit, n, began, why);
        match permitted {
            PermitResult::Allow => {}
            PermitResult::Reject(why) => return Err((n, named(why, "Permit", name))),
            PermitResult::Wait(limit) => waits.push((name, limit.min(LONGEST_WAIT))),
        }
    }
    Ok(waits)
}

/// Errors say where they come from.
fn named(why: Status, point: &str, plugin: &str) -> Status {
    if why.code != Code::Error {
        return why;
    }
    let reasons = why.reasons.join(", ");
    Status::error(format!("running {point} plugin \"{plugin}\": {reasons}"))
}

/// Who rejected the pod, and who of them waits for something.
fn rejectors(unfit: &Unfit) -> (PluginSet, PluginSet) {
    if unfit.n_nodes == 0 {
        return ([PluginSet::NO_NODES].into_iter().collect(), PluginSet::default());
    }
    let pending = unfit.all().filter(|rejected| rejected.why.code == Code::Pending);
    (unfit.plugins().into_iter().collect(), pending.map(|rejected| rejected.plugin).collect())
}
