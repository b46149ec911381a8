//! What one attempt works with: plugins, nodes, and the pods that were promised room on some of them.

use hashbrown::HashSet;
use smallvec::SmallVec;
use std::sync::Arc;

use super::{Found, Rejected, Unfit, View, enough_nodes, trace::Trace};
use crate::{
    framework::{
        Code, CycleState, Extender, Filter, Point, PreFilter, PreFilterResult, Profile, Status,
        StatusResult,
    },
    metrics::Metrics,
    nodes::{NodeRef, NodeTable, Slot},
    pod::PodInfo,
    queue::Nominator,
};

/// One attempt to place a pod. Pods can be put on nodes and taken off to see what would be, as long as that is undone.
pub struct Cycle<'a> {
    pub(super) profile: &'a Profile,
    pub(super) nodes: &'a mut NodeTable,
    nominator: &'a Nominator,
    /// Nodes on which pods were promised room.
    promised: HashSet<Slot>,
    pub(super) pod: &'a PodInfo,
    pub(super) start: usize,
    pub(super) seed: u64,
    filters: SmallVec<[(usize, &'a dyn Filter); 16]>,
    /// Plugins that were not skipped, to be told when pods are put on nodes or taken off.
    extensions: SmallVec<[&'a dyn PreFilter; 8]>,
    only: Option<Vec<Arc<str>>>,
    pub(super) only_by: Vec<usize>,
    pub(super) extenders: &'a [Arc<dyn Extender>],
    /// Where it is noted who is being asked, if anywhere.
    pub(super) metrics: Option<&'a Metrics>,
    pub(super) trace: Trace,
}

/// Why a node was rejected, and by which plugin.
pub(crate) type Asked = Result<(), (usize, Status)>;

impl<'a> Cycle<'a> {
    pub(crate) fn new(
        view: View<'a>,
        pod: &'a PodInfo,
        seed: u64,
        extenders: &'a [Arc<dyn Extender>],
    ) -> Self {
        let View { profile, nodes, nominator, start } = view;
        let promised = nominator.nodes().filter_map(|node| Some(nodes.get(node)?.slot()));
        Self {
            promised: promised.collect(),
            profile,
            nodes,
            nominator,
            pod,
            start,
            seed,
            filters: SmallVec::new(),
            extensions: SmallVec::new(),
            only: None,
            only_by: Vec::new(),
            extenders,
            metrics: None,
            trace: Trace::new(seed, profile.len()),
        }
    }

    /// Notes which extenders are being asked.
    pub(crate) fn measure(&mut self, metrics: Option<&'a Metrics>) {
        self.metrics = metrics;
    }

    pub(crate) fn profile(&self) -> &'a Profile {
        self.profile
    }

    pub(crate) fn trace_mut(&mut self) -> &mut Trace {
        &mut self.trace
    }

    pub(crate) fn into_trace(self) -> Trace {
        self.trace
    }

    /// The pod that is to be placed.
    pub fn pod(&self) -> &'a PodInfo {
        self.pod
    }

    /// The nodes.
    pub fn nodes(&self) -> &NodeTable {
        self.nodes
    }

    /// Pods that were promised room.
    pub fn nominator(&self) -> &'a Nominator {
        self.nominator
    }

    /// What chance is made of in this attempt.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Those that have a say beside the plugins.
    pub fn extenders(&self) -> &'a [Arc<dyn Extender>] {
        self.extenders
    }

    /// Takes a pod off its node, for the sake of seeing what would be.
    pub fn remove_pod(&mut self, state: &mut CycleState, other: &PodInfo, slot: Slot) {
        self.nodes.remove(other.uid());
        let node = self.nodes.at(slot);
        for plugin in &self.extensions {
            plugin.remove_pod(state, self.pod, other, node);
        }
    }

    /// Puts a pod on a node, for the sake of seeing what would be.
    pub fn add_pod(&mut self, state: &mut CycleState, other: &PodInfo, slot: Slot) {
        let name = Arc::clone(self.nodes.at(slot).name());
        self.nodes.place(other.clone(), &name);
        let node = self.nodes.at(slot);
        for plugin in &self.extensions {
            plugin.add_pod(state, self.pod, other, node);
        }
    }

    /// Puts back what [`Self::remove_pod`] took away, when the state it was taken from is of no more use.
    pub(crate) fn put_back(&mut self, other: &PodInfo, slot: Slot) {
        let name = Arc::clone(self.nodes.at(slot).name());
        self.nodes.place(other.clone(), &name);
    }

    /// Whether the pod can run on the node: with the pods there that were promised room and come first, and without them.
    pub fn fits(&mut self, state: &CycleState, slot: Slot) -> StatusResult {
        self.ask(state, slot).map_err(|(_, why)| why)
    }

    pub(crate) fn ask(&mut self, state: &CycleState, slot: Slot) -> Asked {
        if !self.promised.is_empty() && self.promised.contains(&slot) {
            self.ask_with_nominated(state, slot)?;
        }
        self.filter(state, slot)
    }

    /// Filters such as affinity fail without the promised pods, others (room) with them; the pod must pass in both cases.
    fn ask_with_nominated(&mut self, state: &CycleState, slot: Slot) -> Asked {
        let name = Arc::clone(self.nodes.at(slot).name());
        let first = |other: &&PodInfo| {
            other.priority() >= self.pod.priority()
                && other.uid() != self.pod.uid()
                && self.nodes.pod(other.uid()).is_none()
        };
        let promised: SmallVec<[PodInfo; 2]> =
            self.nominator.nominated_pods_for_node(&name).iter().filter(first).cloned().collect();
        if promised.is_empty() {
            return Ok(());
        }
        let mut state = state.clone();
        for other in &promised {
            self.add_pod(&mut state, other, slot);
        }
        let answer = self.filter(&state, slot);
        for other in &promised {
            self.nodes.remove(other.uid());
        }
        answer
    }

    fn filter(&mut self, state: &CycleState, slot: Slot) -> Asked {
        let node = self.nodes.at(slot);
        let timed = self.trace.times_node(slot);
        for (n, plugin) in &self.filters {
            let began = timed.then(Trace::now);
            let answer = plugin.filter(state, self.pod, node);
            self.trace.asked(Point::Filter, *n, began, answer.as_ref().err());
            if let Err(mut why) = answer {
                if why.code == Code::Error {
                    let name = self.profile.plugin(*n).name();
                    let reason = why.reasons.join(", ");
                    why = Status::error(format!("running \"{name}\" filter plugin: {reason}"));
                }
                return Err((*n, why));
            }
        }
        Ok(())
    }

    /// Asks the pre-filters, and keeps what they leave.
    pub(crate) fn pre_filter(&mut self, state: &mut CycleState) -> Result<(), Rejected> {
        let began = Trace::now();
        let answer = self.pre_filters(state);
        let why = answer.as_ref().err().map(|rejected| &rejected.why);
        self.trace.ran(Point::PreFilter, began, why);
        answer
    }

    fn pre_filters(&mut self, state: &mut CycleState) -> Result<(), Rejected> {
        let (mut skipped, mut hopeful) = (SmallVec::<[usize; 16]>::new(), None);
        for (n, plugin) in self.profile.at(Point::PreFilter) {
            let (name, Some(plugin)) = (plugin.name(), plugin.as_pre_filter()) else { continue };
            let began = self.trace.times_plugins().then(Trace::now);
            let answer = plugin.pre_filter(state, self.pod, self.nodes);
            match answer {
                Ok(PreFilterResult::Skip) => self.trace.skipped(Point::PreFilter, n, began),
                _ => self.trace.asked(Point::PreFilter, n, began, answer.as_ref().err()),
            }
            match answer {
                Ok(PreFilterResult::All) => {}
                Ok(PreFilterResult::Skip) => {
                    skipped.push(n);
                    continue;
                }
                Ok(PreFilterResult::Only(names)) => self.leave_only(n, names)?,
                // Preemption may help: the others are asked all the same, since it needs what they work out.
                Err(why) if why.code == Code::Unschedulable => {
                    hopeful = Some(Rejected { slot: 0, plugin: n, why });
                }
                Err(why) if why.code == Code::UnschedulableAndUnresolvable => {
                    return Err(Rejected { slot: 0, plugin: n, why });
                }
                Err(why) => {
                    let reason = why.reasons.join(", ");
                    let why =
                        Status::error(format!("running PreFilter plugin \"{name}\": {reason}"));
                    return Err(Rejected { slot: 0, plugin: n, why });
                }
            }
            self.extensions.push(plugin);
        }
        let filters = self.profile.at(Point::Filter).filter(|(n, _)| !skipped.contains(n));
        self.filters = filters.filter_map(|(n, plugin)| Some((n, plugin.as_filter()?))).collect();
        hopeful.map_or(Ok(()), Err)
    }

    fn leave_only(&mut self, plugin: usize, names: Vec<Arc<str>>) -> Result<(), Rejected> {
        self.only_by.push(plugin);
        match &mut self.only {
            None => self.only = Some(names),
            Some(left) => left.retain(|name| names.contains(name)),
        }
        if self.only.as_ref().is_some_and(|left| !left.is_empty()) {
            return Ok(());
        }
        let names = self.only_names();
        let reason = match names.as_slice() {
            [one] => format!("node(s) didn't satisfy plugin {one}"),
            several => {
                format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", several.join(" "))
            }
        };
        Err(Rejected { slot: 0, plugin, why: Status::unresolvable(reason) })
    }

    /// The plugins that left only some nodes, by name.
    pub(super) fn only_names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> =
            self.only_by.iter().map(|n| self.profile.plugin(*n).name()).collect();
        names.sort_unstable();
        names
    }

    /// Whether pre-filters left this node.
    pub(crate) fn is_left(&self, name: &Arc<str>) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(name))
    }

    /// No node was found.
    pub(crate) fn unfit(&self, overall: Option<Rejected>, rejected: Vec<Rejected>) -> Unfit {
        Unfit {
            n_nodes: self.nodes.len(),
            overall,
            rejected,
            only_by: self.only_by.clone(),
            only_named: self.only_names(),
        }
    }

    /// Looks at one node, which is likely to do.
    pub(super) fn try_one(&mut self, state: &CycleState, name: &str) -> Found {
        let mut found = Found::default();
        if let Some(slot) = self.nodes.get(name).map(NodeRef::slot) {
            self.look_at(state, slot, &mut found);
        }
        found
    }

    /// Looks at nodes until there are enough.
    pub(super) fn search(&mut self, state: &CycleState) -> Found {
        let began = Trace::now();
        let mut found = Found::default();
        let only: Option<Vec<Slot>> = self.only.as_ref().map(|names| {
            names.iter().filter_map(|name| self.nodes.get(name)).map(NodeRef::slot).collect()
        });
        let n = only.as_ref().map_or(self.nodes.len(), Vec::len);
        let enough = if self.has_choice() { enough_nodes(n, self.profile.percentage()) } else { 1 };
        for at in 0..n {
            let at = (self.start + at) % n;
            let slot = only.as_ref().map_or_else(|| self.nodes.nth(at).slot(), |only| only[at]);
            self.look_at(state, slot, &mut found);
            if found.feasible.len() >= enough {
                break;
            }
        }
        self.trace.ran(Point::Filter, began, None);
        found
    }

    /// Whether it matters which node is chosen.
    fn has_choice(&self) -> bool {
        self.profile.at(Point::Score).next().is_some()
            || self.extenders.iter().any(|extender| extender.filters() || extender.prioritizes())
    }

    fn look_at(&mut self, state: &CycleState, slot: Slot, found: &mut Found) {
        found.evaluated += 1;
        match self.ask(state, slot) {
            Ok(()) => found.feasible.push(slot),
            Err((plugin, why)) => found.rejected.push(Rejected { slot, plugin, why }),
        }
    }
}
