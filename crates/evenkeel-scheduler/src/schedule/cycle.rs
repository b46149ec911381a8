//! State of one scheduling cycle: profile, nodes and nominated pods. The only side effect is that its [`Trace`]
//! measures durations.

use hashbrown::HashSet;
use smallvec::SmallVec;
use std::sync::Arc;

use super::{FilterOutcome, FitError, NodeStatus, View, num_feasible_nodes_to_find, trace::Trace};
use crate::{
    framework::{
        Code, CycleState, Extender, ExtensionPoint, Filter, PluginRejection, PreFilter,
        PreFilterResult, Profile, Status, StatusResult, catch_plugin_panic,
    },
    nodes::{NodeRef, NodeTable, Slot},
    pod::PodInfo,
    queue::Nominator,
    stopwatch::Stopwatch,
};

/// One scheduling cycle of a pod. Callers that move pods between nodes to evaluate alternatives must undo the moves.
pub struct Cycle<'a> {
    pub(super) profile: &'a Profile,
    pub(super) nodes: &'a mut NodeTable,
    nominator: &'a Nominator,
    /// Slots of nodes that have nominated pods.
    nodes_with_nominated_pods: HashSet<Slot>,
    pub(super) pod: &'a PodInfo,
    pub(super) start_node_index: usize,
    pub(super) seed: u64,
    filters: SmallVec<[(usize, &'a dyn Filter); 16]>,
    /// PreFilter plugins that did not skip the pod. The cycle calls their `add_pod` and `remove_pod`.
    pre_filter_extensions: SmallVec<[(usize, &'a dyn PreFilter); 8]>,
    /// Names of the nodes to which PreFilter plugins restrict the attempt. `None` means all nodes.
    pre_filter_nodes: Option<Vec<Arc<str>>>,
    /// Indexes of the PreFilter plugins that restricted the nodes.
    pub(super) pre_filter_plugins: Vec<usize>,
    pub(super) extenders: &'a [Arc<dyn Extender>],
    pub(super) trace: Trace,
    /// The plugin that panicked in `add_pod` or `remove_pod`. The state of the filters is no longer valid then.
    panicked_extension: Option<PluginRejection>,
    /// Changes of the nodes by the running PostFilter plugin. `None` while no PostFilter plugin runs.
    changes: Option<Vec<NodeChange>>,
}

/// A pod that was added to a node, or removed from it.
#[derive(Debug)]
enum NodeChange {
    Added(PodInfo),
    Removed { pod: PodInfo, slot: Slot },
}

/// Result of the filters on a node.
pub(crate) type FilterResult = Result<(), PluginRejection>;

impl<'a> Cycle<'a> {
    pub(crate) fn new(
        view: View<'a>,
        pod: &'a PodInfo,
        seed: u64,
        extenders: &'a [Arc<dyn Extender>],
    ) -> Self {
        let View { profile, nodes, nominator, start_node_index } = view;
        let nodes_with_nominated_pods =
            nominator.nodes().filter_map(|node| Some(nodes.get(node)?.slot()));
        Self {
            nodes_with_nominated_pods: nodes_with_nominated_pods.collect(),
            profile,
            nodes,
            nominator,
            pod,
            start_node_index,
            seed,
            filters: SmallVec::new(),
            pre_filter_extensions: SmallVec::new(),
            pre_filter_nodes: None,
            pre_filter_plugins: Vec::new(),
            extenders,
            trace: Trace::new(seed, profile.len()),
            panicked_extension: None,
            changes: None,
        }
    }

    /// Sets the stopwatch that measures durations.
    pub(crate) fn set_stopwatch(&mut self, stopwatch: Stopwatch) {
        self.trace.set_stopwatch(stopwatch);
    }

    /// Returns the pod's profile.
    pub(crate) fn profile(&self) -> &'a Profile {
        self.profile
    }

    /// Returns the trace, to record plugin calls.
    pub(crate) fn trace_mut(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// Ends the cycle and returns its trace.
    pub(crate) fn into_trace(self) -> Trace {
        self.trace
    }

    /// Returns the pod to schedule.
    pub fn pod(&self) -> &'a PodInfo {
        self.pod
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> &NodeTable {
        self.nodes
    }

    /// Returns the nominated pods.
    pub fn nominator(&self) -> &'a Nominator {
        self.nominator
    }

    /// Returns the seed of the attempt's random choices.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the extenders.
    pub fn extenders(&self) -> &'a [Arc<dyn Extender>] {
        self.extenders
    }

    /// Removes a pod from its node, and updates `state` accordingly.
    pub fn remove_pod(&mut self, state: &mut CycleState, other: &PodInfo, slot: Slot) {
        self.record_change(|| NodeChange::Removed { pod: other.clone(), slot });
        self.nodes.remove(other.uid());
        let node = self.nodes.at(slot);
        for (index, extension) in &self.pre_filter_extensions {
            let removed = catch_plugin_panic(|| extension.remove_pod(state, self.pod, other, node));
            if let Err(status) = removed {
                self.panicked_extension.get_or_insert(PluginRejection { plugin: *index, status });
            }
        }
    }

    /// Adds a pod to a node, and updates `state` accordingly.
    pub fn add_pod(&mut self, state: &mut CycleState, other: &PodInfo, slot: Slot) {
        self.restore_pod(other, slot);
        let node = self.nodes.at(slot);
        for (index, extension) in &self.pre_filter_extensions {
            let added = catch_plugin_panic(|| extension.add_pod(state, self.pod, other, node));
            if let Err(status) = added {
                self.panicked_extension.get_or_insert(PluginRejection { plugin: *index, status });
            }
        }
    }

    /// Adds a pod to a node again after [`Self::remove_pod`], without updating the state of the filters.
    pub(crate) fn restore_pod(&mut self, other: &PodInfo, slot: Slot) {
        self.record_change(|| NodeChange::Added(other.clone()));
        let name = Arc::clone(self.nodes.at(slot).name());
        self.nodes.place(other.clone(), &name);
    }

    /// Starts to record changes of the nodes, for [`Self::undo_changes`].
    pub(crate) fn record_changes(&mut self) {
        self.changes = Some(Vec::new());
    }

    /// Records a change of a node, if changes are recorded.
    fn record_change(&mut self, change: impl FnOnce() -> NodeChange) {
        if let Some(changes) = &mut self.changes {
            changes.push(change());
        }
    }

    /// Undoes all changes of the nodes since [`Self::record_changes`].
    pub(crate) fn undo_changes(&mut self) {
        for change in self.changes.take().unwrap_or_default().into_iter().rev() {
            match change {
                NodeChange::Added(pod) => drop(self.nodes.remove(pod.uid())),
                NodeChange::Removed { pod, slot } => self.restore_pod(&pod, slot),
            }
        }
    }

    /// Returns the message of the plugin that panicked in `add_pod` or `remove_pod`.
    pub(crate) fn extension_panic_message(&self) -> Option<String> {
        self.panicked_extension.as_ref().map(|panic| self.filter_error_message(panic))
    }

    /// Returns the message of an error of a Filter plugin.
    fn filter_error_message(&self, PluginRejection { plugin, status }: &PluginRejection) -> String {
        let name = self.profile.plugin(*plugin).name();
        format!("running \"{name}\" filter plugin: {}", status.reasons.join(", "))
    }

    /// Runs the filter plugins on a node, with and without its nominated pods. Returns an error if a plugin rejects the
    /// node.
    pub fn check_fit(&mut self, state: &CycleState, slot: Slot) -> StatusResult {
        let result = self.run_filter_plugins_with_nominated_pods(state, slot);
        result.map_err(|rejection| rejection.status)
    }

    /// Runs the filter plugins on a node, with and without the pods that are nominated to it.
    ///
    /// Upstream: `RunFilterPluginsWithNominatedPods`.
    pub(crate) fn run_filter_plugins_with_nominated_pods(
        &mut self,
        state: &CycleState,
        slot: Slot,
    ) -> FilterResult {
        if !self.nodes_with_nominated_pods.is_empty()
            && self.nodes_with_nominated_pods.contains(&slot)
        {
            self.filter_with_nominated_pods(state, slot)?;
        }
        self.run_filter_plugins(state, slot)
    }

    /// Runs the filters as if the nominated pods with at least this pod's priority ran on the node. The pod must pass
    /// both with them, because they use resources, and without them, because their absence may violate its affinity.
    fn filter_with_nominated_pods(&mut self, state: &CycleState, slot: Slot) -> FilterResult {
        let name = Arc::clone(self.nodes.at(slot).name());
        let takes_precedence = |other: &&PodInfo| {
            other.priority() >= self.pod.priority()
                && other.uid() != self.pod.uid()
                && self.nodes.pod(other.uid()).is_none()
        };
        let nominated_pods = self.nominator.nominated_pods_for_node(&name).iter();
        let nominated_pods: SmallVec<[PodInfo; 2]> =
            nominated_pods.filter(takes_precedence).cloned().collect();
        if nominated_pods.is_empty() {
            return Ok(());
        }
        let mut state = state.clone();
        for other in &nominated_pods {
            self.add_pod(&mut state, other, slot);
        }
        let result = self.run_filter_plugins(&state, slot);
        for other in &nominated_pods {
            self.nodes.remove(other.uid());
        }
        result
    }

    /// Runs the filter plugins on a node until one rejects it.
    ///
    /// Upstream: `RunFilterPlugins`.
    fn run_filter_plugins(&mut self, state: &CycleState, slot: Slot) -> FilterResult {
        if let Some(panic) = &self.panicked_extension {
            let status = Status::error(self.filter_error_message(panic));
            return Err(PluginRejection { plugin: panic.plugin, status });
        }
        let node = self.nodes.at(slot);
        let is_timed = self.trace.is_node_timed(slot);
        let mut running_plugin = 0;
        // The calls are many and short, so panics of all plugins are caught in one place.
        let result = catch_plugin_panic(|| {
            for (index, filter) in &self.filters {
                running_plugin = *index;
                let began = is_timed.then(|| self.trace.now());
                let result = filter.filter(state, self.pod, node);
                self.trace.record_call(
                    ExtensionPoint::Filter,
                    *index,
                    began,
                    result.as_ref().err(),
                );
                result?;
            }
            Ok(())
        });
        result.unwrap_or_else(Err).map_err(|status| {
            let mut rejection = PluginRejection { plugin: running_plugin, status };
            if rejection.status.code == Code::Error {
                rejection.status = Status::error(self.filter_error_message(&rejection));
            }
            rejection
        })
    }

    /// Runs the PreFilter plugins and merges their results.
    ///
    /// # Errors
    ///
    /// Returns the status that rejects the pod on all nodes.
    ///
    /// Upstream: `RunPreFilterPlugins`.
    pub(crate) fn run_pre_filter_plugins(
        &mut self,
        state: &mut CycleState,
    ) -> Result<(), NodeStatus> {
        let began = self.trace.now();
        let result = self.pre_filter_each(state);
        let status = result.as_ref().err().map(|rejected| &rejected.status);
        self.trace.record_point(ExtensionPoint::PreFilter, began, status);
        result
    }

    /// Runs the PreFilter plugins, and collects the filters of those that did not skip the pod.
    fn pre_filter_each(&mut self, state: &mut CycleState) -> Result<(), NodeStatus> {
        let mut skipped = SmallVec::<[usize; 16]>::new();
        let mut resolvable_rejection = None;
        for (index, plugin) in self.profile.at(ExtensionPoint::PreFilter) {
            let (name, Some(pre_filter)) = (plugin.name(), plugin.as_pre_filter()) else {
                continue;
            };
            let began = self.trace.now_if_sampled();
            let result = catch_plugin_panic(|| pre_filter.pre_filter(state, self.pod, self.nodes));
            let result = result.unwrap_or_else(Err);
            if matches!(result, Ok(PreFilterResult::Skip)) {
                self.trace.record_skip(ExtensionPoint::PreFilter, index, began);
            } else {
                let status = result.as_ref().err();
                self.trace.record_call(ExtensionPoint::PreFilter, index, began, status);
            }
            match result {
                Ok(PreFilterResult::All) => {}
                Ok(PreFilterResult::Skip) => {
                    skipped.push(index);
                    continue;
                }
                Ok(PreFilterResult::Only(names)) => self.merge_pre_filter_result(index, names)?,
                // Preemption may make the pod schedulable. It needs the state of all plugins, so the others still run.
                Err(status) if status.code == Code::Unschedulable => {
                    resolvable_rejection = Some(NodeStatus::without_node(index, status));
                }
                Err(status) if status.code == Code::UnschedulableAndUnresolvable => {
                    return Err(NodeStatus::without_node(index, status));
                }
                Err(error) => {
                    let reasons = error.reasons.join(", ");
                    let status =
                        Status::error(format!("running PreFilter plugin \"{name}\": {reasons}"));
                    return Err(NodeStatus::without_node(index, status));
                }
            }
            self.pre_filter_extensions.push((index, pre_filter));
        }
        self.filters = self
            .profile
            .at(ExtensionPoint::Filter)
            .filter(|(index, _)| !skipped.contains(index))
            .filter_map(|(index, plugin)| Some((index, plugin.as_filter()?)))
            .collect();
        resolvable_rejection.map_or(Ok(()), Err)
    }

    /// Restricts the nodes to those with these names. Fails if no node remains.
    fn merge_pre_filter_result(
        &mut self,
        plugin: usize,
        names: Vec<Arc<str>>,
    ) -> Result<(), NodeStatus> {
        self.pre_filter_plugins.push(plugin);
        match &mut self.pre_filter_nodes {
            None => self.pre_filter_nodes = Some(names),
            Some(remaining) => remaining.retain(|name| names.contains(name)),
        }
        if self.pre_filter_nodes.as_ref().is_some_and(|remaining| !remaining.is_empty()) {
            return Ok(());
        }
        let names = self.pre_filter_plugin_names();
        let reason = match names.as_slice() {
            [name] => format!("node(s) didn't satisfy plugin {name}"),
            names => {
                format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", names.join(" "))
            }
        };
        Err(NodeStatus::without_node(plugin, Status::unresolvable(reason)))
    }

    /// Returns the names of the plugins that restricted the nodes, sorted.
    pub(super) fn pre_filter_plugin_names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self
            .pre_filter_plugins
            .iter()
            .map(|plugin| self.profile.plugin(*plugin).name())
            .collect();
        names.sort_unstable();
        names
    }

    /// Returns whether no PreFilter plugin excluded this node.
    pub(crate) fn passes_pre_filter(&self, name: &Arc<str>) -> bool {
        self.pre_filter_nodes.as_ref().is_none_or(|names| names.contains(name))
    }

    /// Builds the error of an attempt that found no feasible node.
    pub(crate) fn fit_error(
        &self,
        overall: Option<NodeStatus>,
        rejected: Vec<NodeStatus>,
    ) -> FitError {
        FitError {
            n_nodes: self.nodes.len(),
            overall,
            rejected,
            pre_filter_plugins: self.pre_filter_plugins.clone(),
            pre_filter_plugin_names: self.pre_filter_plugin_names(),
        }
    }

    /// Evaluates the pod's nominated node alone.
    ///
    /// Upstream: `evaluateNominatedNode`.
    pub(super) fn evaluate_nominated_node(
        &mut self,
        state: &CycleState,
        name: &str,
    ) -> FilterOutcome {
        let mut found = FilterOutcome::default();
        if let Some(slot) = self.nodes.get(name).map(NodeRef::slot) {
            self.check_node(state, slot, &mut found);
        }
        found
    }

    /// Runs the filters on nodes until enough are feasible.
    ///
    /// Upstream: `findNodesThatPassFilters`.
    pub(super) fn find_nodes_that_pass_filters(&mut self, state: &CycleState) -> FilterOutcome {
        let began = self.trace.now();
        let mut found = FilterOutcome::default();
        let pre_filter_slots: Option<Vec<Slot>> = self.pre_filter_nodes.as_ref().map(|names| {
            names.iter().filter_map(|name| self.nodes.get(name)).map(NodeRef::slot).collect()
        });
        let node_count = pre_filter_slots.as_ref().map_or(self.nodes.len(), Vec::len);
        let n_to_find = if self.compares_feasible_nodes() {
            num_feasible_nodes_to_find(node_count, self.profile.percentage())
        } else {
            1
        };
        for offset in 0..node_count {
            let index = (self.start_node_index + offset) % node_count;
            let slot = match &pre_filter_slots {
                Some(slots) => slots[index],
                None => self.nodes.nth(index).slot(),
            };
            self.check_node(state, slot, &mut found);
            if found.feasible.len() >= n_to_find {
                break;
            }
        }
        self.trace.record_point(ExtensionPoint::Filter, began, None);
        found
    }

    /// Returns whether plugins or extenders score or filter the feasible nodes. Otherwise, the attempt needs only one
    /// feasible node.
    fn compares_feasible_nodes(&self) -> bool {
        self.profile.at(ExtensionPoint::Score).next().is_some()
            || self
                .extenders
                .iter()
                .any(|extender| extender.is_filter() || extender.is_prioritizer())
    }

    /// Runs the filters on a node and adds the result to `found`.
    ///
    /// Upstream: `checkNode` in `findNodesThatPassFilters`.
    fn check_node(&mut self, state: &CycleState, slot: Slot, found: &mut FilterOutcome) {
        found.evaluated += 1;
        match self.run_filter_plugins_with_nominated_pods(state, slot) {
            Ok(()) => found.feasible.push(slot),
            Err(PluginRejection { plugin, status }) => {
                found.rejected.push(NodeStatus { slot, plugin, status });
            }
        }
    }
}
