//! Folds the events of a recording into the state of a cluster.

use super::{
    BudgetReport, Eviction, NodeReport, Part, Pending, Placement, Shortage,
    charts::{BudgetSpans, Charts, ReadyPods},
};
use crate::recording::{Amounts, EventKind, NodeRecord, PodRecord, RecordedEvent, Recording};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Names the first pod, and counts the others; `None` for no pod.
fn named(pods: &[&str]) -> Option<String> {
    match pods {
        [] => None,
        [only] => Some((*only).to_owned()),
        [first, others @ ..] => Some(format!("{first} and {} more", others.len())),
    }
}

/// Returns a part of the change that has not started.
fn part_of(description: &str, began: Duration) -> Part {
    Part {
        description: description.to_owned(),
        began,
        started: false,
        completed: None,
        error: String::new(),
        waits: String::new(),
    }
}

/// State of the cluster at a time of the recording.
#[derive(Default)]
pub(super) struct Fold<'a> {
    pods: BTreeMap<&'a str, PodState<'a>>,
    /// Names of all pods of Jobs.
    job_pods: BTreeSet<&'a str>,
    nodes: BTreeMap<&'a str, NodeState>,
    workloads: BTreeMap<&'a str, Readiness>,
    budgets: BTreeMap<&'a str, BudgetState>,
    pub(super) parts: Vec<Part>,
    pub(super) evicted: Vec<Eviction>,
}

/// Pod at a time of the recording.
struct PodState<'a> {
    workload: &'a str,
    node: &'a str,
    requests: Amounts,
    ready: bool,
    ended: bool,
    message: &'a str,
    since: Duration,
    before: bool,
}

/// Node at a time of the recording.
#[derive(Default)]
struct NodeState {
    allocatable: Amounts,
    requests: Amounts,
    peak: Amounts,
    pods: usize,
    peak_pods: usize,
    not_ready: Interval,
    removed: bool,
}

/// Ready pods of a workload.
#[derive(Default)]
struct Readiness {
    before: usize,
    now: usize,
    /// Numbers of ready pods, each with the time from which it holds. The events of one instant have no order, so their final
    /// number counts. The first number holds from the change on.
    history: Vec<(Duration, usize)>,
}

impl Readiness {
    /// Adds the current number to the history.
    fn record(&mut self, now: Duration) {
        let is_first = self.history.len() <= 1;
        match self.history.last_mut() {
            Some(last) if last.0 == now && !(is_first && now.is_zero()) => last.1 = self.now,
            _ => self.history.push((now, self.now)),
        }
    }

    /// Returns the lowest number.
    fn lowest(&self) -> usize {
        self.history.iter().map(|(_, ready)| *ready).fold(self.before, usize::min)
    }

    /// Returns the total time until the end for which the number was lower than before the change.
    fn short(&self, end: Duration) -> Duration {
        let ends = self.history.iter().skip(1).map(|(time, _)| *time).chain([end]);
        let spans = self.history.iter().zip(ends);
        let short = spans.filter(|((_, ready), _)| *ready < self.before);
        short.map(|((since, _), end)| end.saturating_sub(*since)).sum()
    }
}

/// Budget at a time of the recording.
#[derive(Default)]
struct BudgetState {
    allows: i32,
    before: bool,
    exhausted: Interval,
    refused: Vec<String>,
}

/// Total time for which a condition held, and the spans in which it held.
#[derive(Default)]
struct Interval {
    total: Duration,
    since: Option<Duration>,
    /// Start and end of each completed span.
    spans: Vec<(Duration, Duration)>,
}

impl Interval {
    /// Records whether the condition holds from `now`.
    fn set(&mut self, holds: bool, now: Duration) {
        match (holds, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(since)) => {
                self.total += now.saturating_sub(since);
                self.since = None;
                if now > since {
                    self.spans.push((since, now));
                }
            }
            _ => {}
        }
    }

    /// Returns the total time for which the condition held until `end`.
    fn until(&self, end: Duration) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| end.saturating_sub(since))
    }
}

impl<'a> Fold<'a> {
    /// Returns whether a pod of a Job has this name.
    pub(super) fn is_of_job(&self, pod: &str) -> bool {
        self.job_pods.contains(pod)
    }

    /// Returns the state at the start of a recording.
    pub(super) fn of(recording: &'a Recording) -> Self {
        let mut fold = Self::default();
        for (name, node) in &recording.nodes {
            fold.add_node(name, node, Duration::ZERO);
        }
        for (name, pod) in &recording.pods {
            fold.add_pod(name, pod, Duration::ZERO, true);
        }
        for readiness in fold.workloads.values_mut() {
            readiness.before = readiness.now;
            readiness.history = vec![(Duration::ZERO, readiness.now)];
        }
        for (name, allows) in &recording.budgets {
            let budget = fold.budgets.entry(name).or_default();
            budget.before = *allows <= 0;
            fold.budget(name, *allows, Duration::ZERO);
        }
        fold
    }

    /// Returns the state at the end of a recording.
    pub(super) fn after(recording: &'a Recording) -> Self {
        let mut fold = Self::of(recording);
        for event in &recording.happened {
            fold.event(event);
        }
        fold
    }

    pub(super) fn event(&mut self, event: &'a RecordedEvent) {
        let (object, now) = (&*event.object, event.after);
        match (event.kind, &event.what) {
            ("Pod", what) => self.pod(object, what, now),
            ("Node", what) => self.node(object, what, now),
            (_, EventKind::Allows { disruptions }) => self.budget(object, *disruptions, now),
            (_, EventKind::Refused { pod }) => {
                self.budgets.entry(object).or_default().refused.push(pod.clone());
            }
            ("PodDisruptionBudget", EventKind::Removed) => {
                self.budgets.entry(object).or_default().exhausted.set(false, now);
            }
            ("Change", what) => self.part(object, what, now),
            _ => {}
        }
    }

    fn part(&mut self, description: &str, what: &EventKind, now: Duration) {
        if *what == EventKind::Planned {
            self.parts.push(part_of(description, Duration::MAX));
            return;
        }
        // Parts may have the same description: objects of one name in two namespaces.
        let mut same = self.parts.iter_mut().filter(|part| part.description == description);
        let found = match what {
            EventKind::Began => same.find(|part| !part.started),
            _ => same.rfind(|part| part.started),
        };
        let part = match found {
            Some(part) => part,
            None => {
                self.parts.push(part_of(description, now));
                let Some(part) = self.parts.last_mut() else { return };
                part
            }
        };
        match what {
            EventKind::Began => (part.began, part.started) = (now, true),
            EventKind::Completed => part.completed = Some(now),
            EventKind::Failed { message } => {
                part.started = true;
                part.error.clone_from(message);
            }
            _ => {}
        }
    }

    fn pod(&mut self, name: &'a str, what: &'a EventKind, now: Duration) {
        if let EventKind::Created { pod } = what {
            self.add_pod(name, pod, now, false);
            return;
        }
        let Some(pod) = self.pods.get_mut(name) else { return };
        match what {
            EventKind::Bound { node } => {
                pod.node = node;
                let requests = pod.requests;
                self.add_requests(node, requests);
            }
            EventKind::Unschedulable { message } => pod.message = message,
            EventKind::Ready | EventKind::NotReady => {
                self.change_ready(name, *what == EventKind::Ready, now);
            }
            EventKind::Evicted { reason } => {
                let eviction = Eviction {
                    pod: name.to_owned(),
                    workload: pod.workload.to_owned(),
                    node: pod.node.to_owned(),
                    reason: reason.clone(),
                    after: now,
                };
                self.evicted.push(eviction);
            }
            EventKind::Ended { .. } => {
                self.change_ready(name, false, now);
                self.remove_requests(name);
            }
            EventKind::Removed => {
                self.change_ready(name, false, now);
                self.remove_requests(name);
                self.pods.remove(name);
            }
            _ => {}
        }
    }

    fn add_pod(&mut self, name: &'a str, pod: &'a PodRecord, now: Duration, before: bool) {
        let workload = &*pod.workload;
        if workload.starts_with("Job ") {
            self.job_pods.insert(name);
        }
        let state = PodState {
            workload,
            node: &pod.node,
            requests: pod.requests,
            ready: false,
            ended: pod.ended,
            message: &pod.unschedulable,
            since: now,
            before,
        };
        self.pods.insert(name, state);
        if !pod.ended && !pod.node.is_empty() {
            self.add_requests(&pod.node, pod.requests);
        }
        self.change_ready(name, pod.ready, now);
    }

    /// Records whether a pod is ready, and counts the ready pods of its workload. Leaves out Jobs, which do not maintain a
    /// number of ready pods.
    fn change_ready(&mut self, name: &'a str, ready: bool, now: Duration) {
        let Some(pod) = self.pods.get_mut(name).filter(|pod| pod.ready != ready) else { return };
        pod.ready = ready;
        if self.job_pods.contains(name) {
            return;
        }
        let workload = if pod.workload.is_empty() { name } else { pod.workload };
        let readiness = self.workloads.entry(workload).or_default();
        readiness.now = if ready { readiness.now + 1 } else { readiness.now.saturating_sub(1) };
        readiness.record(now);
    }

    /// Adds the requests of a pod to its node.
    fn add_requests(&mut self, node: &'a str, requests: Amounts) {
        let node = self.nodes.entry(node).or_default();
        node.requests.add(requests);
        node.pods += 1;
        node.peak.cpu_millis = node.peak.cpu_millis.max(node.requests.cpu_millis);
        node.peak.memory = node.peak.memory.max(node.requests.memory);
        node.peak_pods = node.peak_pods.max(node.pods);
    }

    /// Removes the requests of a pod that has ended from its node.
    fn remove_requests(&mut self, name: &str) {
        let Some(pod) = self.pods.get_mut(name).filter(|pod| !pod.ended) else { return };
        pod.ended = true;
        if let Some(node) = self.nodes.get_mut(pod.node) {
            node.requests.subtract(pod.requests);
            node.pods = node.pods.saturating_sub(1);
        }
    }

    fn add_node(&mut self, name: &'a str, node: &NodeRecord, now: Duration) {
        let state = self.nodes.entry(name).or_default();
        state.allocatable = node.allocatable;
        state.removed = false;
        state.not_ready.set(!node.ready, now);
    }

    fn node(&mut self, name: &'a str, what: &EventKind, now: Duration) {
        match what {
            EventKind::Added { node } => self.add_node(name, node, now),
            EventKind::Ready => self.nodes.entry(name).or_default().not_ready.set(false, now),
            EventKind::NotReady => self.nodes.entry(name).or_default().not_ready.set(true, now),
            EventKind::Removed => {
                let node = self.nodes.entry(name).or_default();
                node.not_ready.set(false, now);
                node.removed = true;
            }
            _ => {}
        }
    }

    fn budget(&mut self, name: &'a str, allows: i32, now: Duration) {
        let budget = self.budgets.entry(name).or_default();
        budget.allows = allows;
        budget.exhausted.set(allows <= 0, now);
    }

    pub(super) fn pending(&self) -> Vec<Pending> {
        let waiting = self.pods.iter().filter(|(_, pod)| pod.node.is_empty() && !pod.ended);
        let pending = waiting.map(|(name, pod)| Pending {
            pod: (*name).to_owned(),
            workload: pod.workload.to_owned(),
            since: pod.since,
            before: pod.before,
            message: pod.message.to_owned(),
        });
        pending.collect()
    }

    /// Returns the parts of the change. An incomplete drain has the reasons why it waits.
    pub(super) fn parts(&self, end: Duration) -> Vec<Part> {
        let part = |part: &Part| Part {
            waits: self.waits_of(part),
            began: part.began.min(end),
            ..part.clone()
        };
        self.parts.iter().map(part).collect()
    }

    /// Returns the reasons why an incomplete drain waits; empty if there are none.
    fn waits_of(&self, part: &Part) -> String {
        let node = part.description.strip_prefix("drain ");
        let is_open = part.started && part.completed.is_none() && part.error.is_empty();
        let Some(node) = node.filter(|_| is_open) else {
            return String::new();
        };
        let is_left = |name: &str| self.pods.get(name).is_some_and(|pod| pod.node == node);
        let evicted: BTreeSet<&str> =
            self.evicted.iter().map(|eviction| &*eviction.pod).filter(|pod| is_left(pod)).collect();
        let mut waits: Vec<String> = Vec::new();
        for (budget, state) in &self.budgets {
            let refused = state.refused.iter().map(String::as_str);
            let refused: Vec<&str> =
                refused.filter(|pod| is_left(pod) && !evicted.contains(pod)).collect();
            if let Some(pods) = named(&refused) {
                waits.push(format!("the budget {budget} refuses to evict {pods}"));
            }
        }
        if let Some(pods) = named(&evicted.into_iter().collect::<Vec<_>>()) {
            waits.push(format!("{pods} evicted, but not gone"));
        }
        waits.join("; ")
    }

    pub(super) fn placements(&self) -> Vec<Placement> {
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (name, pod) in self.pods.iter().filter(|(_, pod)| !pod.node.is_empty() && !pod.ended) {
            let workload = if pod.workload.is_empty() { name } else { pod.workload };
            *counts.entry((workload, pod.node)).or_default() += 1;
        }
        let placement = |((workload, node), pods): ((&str, &str), usize)| Placement {
            workload: workload.to_owned(),
            node: node.to_owned(),
            pods,
        };
        counts.into_iter().map(placement).collect()
    }

    pub(super) fn shortages(&self, end: Duration) -> Vec<Shortage> {
        let short =
            self.workloads.iter().filter(|(_, readiness)| readiness.lowest() < readiness.before);
        let shortages = short.map(|(workload, readiness)| Shortage {
            workload: (*workload).to_owned(),
            before: readiness.before,
            lowest: readiness.lowest(),
            end: readiness.now,
            duration: readiness.short(end),
        });
        shortages.collect()
    }

    pub(super) fn budgets(&self, end: Duration) -> Vec<BudgetReport> {
        let reports = self.budgets.iter().map(|(name, budget)| BudgetReport {
            budget: (*name).to_owned(),
            exhausted: budget.exhausted.until(end),
            before: budget.before,
            allows: budget.allows,
            refused: budget.refused.clone(),
        });
        reports.filter(|budget| !budget.exhausted.is_zero() || !budget.refused.is_empty()).collect()
    }

    /// Returns the time series of the workloads and budgets that a report lists.
    pub(super) fn charts(self, end: Duration) -> Charts {
        let short = self.workloads.into_iter().filter(|(_, found)| found.lowest() < found.before);
        let workloads = short.map(|(workload, found)| ReadyPods {
            workload: workload.to_owned(),
            before: found.before,
            history: found.history,
        });
        let budgets = self.budgets.into_iter().map(|(budget, mut found)| {
            // A span that is open when the recording ends has no end yet. Close it there.
            found.exhausted.set(false, end);
            BudgetSpans { budget: budget.to_owned(), spans: found.exhausted.spans }
        });
        Charts {
            workloads: workloads.collect(),
            evictions: self.evicted.iter().map(|eviction| eviction.after).collect(),
            budgets: budgets.filter(|budget| !budget.spans.is_empty()).collect(),
        }
    }

    pub(super) fn nodes(&self, end: Duration) -> Vec<NodeReport> {
        let reports = self.nodes.iter().map(|(name, node)| NodeReport {
            node: (*name).to_owned(),
            allocatable: node.allocatable,
            peak: node.peak,
            end: node.requests,
            peak_pods: node.peak_pods,
            not_ready: node.not_ready.until(end),
            removed: node.removed,
        });
        reports.collect()
    }
}
