//! The columns, and how they are kept.

use evenkeel_api::{
    StrMap, Text,
    views::{Node, Taint},
};
use hashbrown::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    census::{Census, ClassId},
    images::{Image, Images},
    labels::{LabelColumn, Labels},
    order::{self, Order},
    taints::TaintSets,
};
use crate::{
    pod::{HostPort, PodInfo},
    resources::{Resources, Scalars, scalar, scalar_mut},
};

/// Where a node's figures are in each column.
pub type Slot = u32;

/// All nodes, and all pods that are on one or assumed to be.
#[derive(Debug, Default)]
pub struct NodeTable {
    by_name: HashMap<Arc<str>, Slot>,
    free: Vec<Slot>,
    order: Order,
    /// Where each pod is, by uid.
    homes: HashMap<Text, Home>,
    /// Which kinds of pods are where. Attempts, which read the table, add to it what they ask for.
    census: Mutex<Census>,
    labels: Labels,
    /// Distinct taint lists; nodes mostly share a few.
    taint_sets: TaintSets,
    /// Which images are where.
    images: Images,
    /// How many nodes are cordoned.
    unschedulable: usize,
    /// How often each claim, by `namespace/name`, is named by pods.
    claims: HashMap<Text, u32>,
    // Columns, one entry a slot.
    names: Vec<Arc<str>>,
    nodes: Vec<Option<Arc<Node>>>,
    allocatable: Columns,
    requested: Columns,
    /// CPU and memory with a floor for containers that do not say.
    scored: Vec<(i64, i64)>,
    pods_allowed: Vec<u32>,
    taints: Vec<u32>,
    ports: Vec<Vec<HostPort>>,
    pods: Vec<Vec<PodInfo>>,
}

/// Where a pod is.
#[derive(Debug, Clone, Copy)]
struct Home {
    slot: Slot,
    class: ClassId,
}

#[derive(Debug, Default)]
struct Columns {
    cpu: Vec<i64>,
    memory: Vec<i64>,
    ephemeral_storage: Vec<i64>,
    scalars: Vec<Scalars>,
}

impl Columns {
    fn push(&mut self) {
        self.cpu.push(0);
        self.memory.push(0);
        self.ephemeral_storage.push(0);
        self.scalars.push(Scalars::new());
    }

    fn set(&mut self, slot: usize, to: Resources) {
        let Resources { cpu, memory, ephemeral_storage, scalars } = to;
        self.cpu[slot] = cpu;
        self.memory[slot] = memory;
        self.ephemeral_storage[slot] = ephemeral_storage;
        self.scalars[slot] = scalars;
    }

    fn add(&mut self, slot: usize, by: &Resources, sign: i64) {
        self.cpu[slot] += sign * by.cpu;
        self.memory[slot] += sign * by.memory;
        self.ephemeral_storage[slot] += sign * by.ephemeral_storage;
        for (name, amount) in &by.scalars {
            *scalar_mut(&mut self.scalars[slot], name) += sign * amount;
        }
    }
}

impl NodeTable {
    /// Adds a node, or takes over its newer version.
    pub fn set_node(&mut self, node: Arc<Node>) -> Slot {
        let slot = self.slot_for(&node.meta.name);
        let at = slot as usize;
        let before = self.nodes[at].take();
        let mut allocatable = Resources::default();
        for (name, amount) in node.status.allocatable.iter() {
            allocatable.set(name, *amount);
        }
        self.allocatable.set(at, allocatable);
        let pods = node.status.allocatable.get("pods").map_or(0, |amount| amount.value());
        self.pods_allowed[at] = u32::try_from(pods).unwrap_or(if pods < 0 { 0 } else { u32::MAX });
        if before.is_some() {
            self.taint_sets.leave(self.taints[at]);
        }
        self.taints[at] = self.taint_sets.enter(&node.spec.taints);
        let cordoned = before.as_ref().is_some_and(|before| before.spec.unschedulable);
        self.unschedulable -= usize::from(cordoned);
        self.unschedulable += usize::from(node.spec.unschedulable);
        self.images.set(slot, before.as_deref(), Some(&node));
        if before.as_ref().is_none_or(|before| before.meta.labels != node.meta.labels) {
            self.labels.set(slot, Some(&node.meta.labels));
        }
        if before.as_ref().is_none_or(|before| !order::same_place(before, &node)) {
            before.iter().for_each(|before| self.order.remove(before));
            self.order.insert(&node, &self.names[at], slot);
        }
        self.nodes[at] = Some(node);
        slot
    }

    /// Forgets a node. Pods on it stay counted until they are removed.
    pub fn remove_node(&mut self, name: &str) {
        let Some(slot) = self.by_name.get(name).copied() else { return };
        let Some(before) = self.nodes[slot as usize].take() else { return };
        self.taint_sets.leave(self.taints[slot as usize]);
        self.unschedulable -= usize::from(before.spec.unschedulable);
        self.images.set(slot, Some(&before), None);
        self.labels.set(slot, None);
        self.order.remove(&before);
        self.release_if_empty(slot);
    }

    /// Takes over the labels of a namespace; `None` when it is gone.
    pub fn set_namespace(&mut self, name: &str, labels: Option<&StrMap>) {
        self.census_mut().set_namespace(name, labels);
    }

    /// Counts a pod on a node; where it was counted before, it no longer is.
    pub fn place(&mut self, pod: PodInfo, node: &str) {
        self.remove(pod.uid());
        let slot = self.slot_for(node);
        self.count(slot as usize, &pod, 1);
        let class = self.census_mut().enter(&pod.pod, slot);
        self.homes.insert(pod.uid().into(), Home { slot, class });
        self.pods[slot as usize].push(pod);
    }

    /// Takes over a newer version of a pod without counting again, if it is known on this node with the same asks.
    pub(crate) fn refresh(&mut self, pod: &PodInfo, node: &str) -> bool {
        let Some(Home { slot, class }) = self.homes.get(pod.uid()).copied() else { return false };
        if &*self.names[slot as usize] != node {
            return false;
        }
        let known = self.pods[slot as usize].iter_mut().find(|known| known.uid() == pod.uid());
        let Some(known) = known.filter(|known| known.asks == pod.asks) else { return false };
        known.pod = Arc::clone(&pod.pod);
        let census = self.census.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !census.is_of(class, &pod.pod) {
            census.leave(class, slot);
            let class = census.enter(&pod.pod, slot);
            self.homes.insert(pod.uid().into(), Home { slot, class });
        }
        true
    }

    /// No longer counts a pod; what it was, and where.
    pub fn remove(&mut self, uid: &str) -> Option<(PodInfo, Arc<str>)> {
        let Home { slot, class } = self.homes.remove(uid)?;
        self.census_mut().leave(class, slot);
        let pods = &mut self.pods[slot as usize];
        let at = pods.iter().position(|pod| pod.uid() == uid)?;
        let pod = pods.swap_remove(at);
        self.count(slot as usize, &pod, -1);
        let name = Arc::clone(&self.names[slot as usize]);
        self.release_if_empty(slot);
        Some((pod, name))
    }

    /// The pod with this uid, if it is counted.
    pub fn pod(&self, uid: &str) -> Option<(&PodInfo, &Arc<str>)> {
        let slot = self.homes.get(uid)?.slot as usize;
        let pod = self.pods[slot].iter().find(|pod| pod.uid() == uid)?;
        Some((pod, &self.names[slot]))
    }

    /// Which kinds of pods are where. To be given back before the table is asked for it again.
    pub(crate) fn census(&self) -> MutexGuard<'_, Census> {
        // Counts are changed in `census_mut` only; what attempts add is found out again when it is lost.
        let mut census = self.census.lock().unwrap_or_else(PoisonError::into_inner);
        census.sweep();
        census
    }

    fn census_mut(&mut self) -> &mut Census {
        self.census.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The values of a node label.
    pub fn label(&self, key: &str) -> Arc<LabelColumn> {
        let nodes = self.nodes.iter().zip(0..);
        self.labels.column(
            key,
            nodes.filter_map(|(node, slot)| Some((slot, &node.as_deref()?.meta.labels))),
        )
    }

    /// One more than the highest slot.
    pub fn n_slots(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is a node, rather than only pods that say they are on it.
    pub(crate) fn has_node(&self, slot: Slot) -> bool {
        self.nodes.get(slot as usize).is_some_and(Option::is_some)
    }

    /// The slots that have a node, in no particular order.
    pub(crate) fn slots(&self) -> &[Slot] {
        self.order.slots()
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.order.len() == 0
    }

    /// How many pods are counted.
    pub fn n_pods(&self) -> usize {
        self.homes.len()
    }

    /// The nodes, zones taking turns.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = NodeRef<'_>> {
        self.order.slots().iter().map(|slot| NodeRef { table: self, slot: *slot })
    }

    /// The `n`th node in that order.
    pub fn nth(&self, n: usize) -> NodeRef<'_> {
        NodeRef { table: self, slot: self.order.slots()[n] }
    }

    /// The node in a slot. There must be one.
    pub fn at(&self, slot: Slot) -> NodeRef<'_> {
        NodeRef { table: self, slot }
    }

    /// The node with this name.
    pub fn get(&self, name: &str) -> Option<NodeRef<'_>> {
        let slot = *self.by_name.get(name)?;
        self.nodes[slot as usize].is_some().then_some(NodeRef { table: self, slot })
    }

    /// Distinct lists of taints; [`NodeRef::taint_set`] is an index into it.
    pub fn taint_sets(&self) -> &[Arc<[Taint]>] {
        self.taint_sets.all()
    }

    /// An image, if it is on some node.
    pub fn image(&self, name: &str) -> Option<&Image> {
        self.images.get(name)
    }

    /// How many nodes are cordoned.
    pub fn n_unschedulable(&self) -> usize {
        self.unschedulable
    }

    /// Whether a pod that is on a node or assumed to be names the claim.
    pub fn uses_claim(&self, namespace: &str, name: &str) -> bool {
        !self.claims.is_empty() && self.claims.contains_key(&*format!("{namespace}/{name}"))
    }

    fn slot_for(&mut self, name: &str) -> Slot {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let name: Arc<str> = name.into();
        let slot = self.free.pop().unwrap_or_else(|| self.push());
        self.names[slot as usize] = Arc::clone(&name);
        self.by_name.insert(name, slot);
        slot
    }

    fn push(&mut self) -> Slot {
        let slot = Slot::try_from(self.names.len()).unwrap_or(Slot::MAX);
        self.names.push(Arc::from(""));
        self.nodes.push(None);
        self.allocatable.push();
        self.requested.push();
        self.scored.push((0, 0));
        self.pods_allowed.push(0);
        self.taints.push(0);
        self.ports.push(Vec::new());
        self.pods.push(Vec::new());
        slot
    }

    fn release_if_empty(&mut self, slot: Slot) {
        let at = slot as usize;
        if self.nodes[at].is_none() && self.pods[at].is_empty() {
            self.by_name.remove(&self.names[at]);
            self.allocatable.set(at, Resources::default());
            self.requested.set(at, Resources::default());
            self.free.push(slot);
        }
    }

    fn count(&mut self, slot: usize, pod: &PodInfo, sign: i64) {
        let asks = &pod.asks;
        for claim in &asks.claims {
            self.count_claim(claim, sign);
        }
        self.requested.add(slot, &asks.requests, sign);
        self.scored[slot].0 += sign * asks.scored.0;
        self.scored[slot].1 += sign * asks.scored.1;
        if asks.ports.is_empty() {
            return;
        }
        let taken = &mut self.ports[slot];
        if sign > 0 {
            taken.extend(asks.ports.iter().cloned());
            return;
        }
        for port in &asks.ports {
            if let Some(at) = taken.iter().position(|own| own == port) {
                taken.swap_remove(at);
            }
        }
    }

    fn count_claim(&mut self, claim: &str, sign: i64) {
        if sign > 0 {
            *self.claims.entry_ref(claim).or_insert(0) += 1;
        } else if let Some(count) = self.claims.get_mut(claim) {
            *count -= 1;
            if *count == 0 {
                self.claims.remove(claim);
            }
        }
    }
}

/// One node of a [`NodeTable`].
#[derive(Debug, Clone, Copy)]
pub struct NodeRef<'a> {
    table: &'a NodeTable,
    slot: Slot,
}

impl<'a> NodeRef<'a> {
    fn at(self) -> usize {
        self.slot as usize
    }

    /// The table it is in.
    pub(crate) fn table(self) -> &'a NodeTable {
        self.table
    }

    /// Its slot.
    pub fn slot(self) -> Slot {
        self.slot
    }

    /// Its name.
    pub fn name(self) -> &'a Arc<str> {
        &self.table.names[self.at()]
    }

    /// The object.
    pub fn node(self) -> &'a Node {
        self.table.nodes[self.at()]
            .as_deref()
            .expect("references are only made to slots with a node")
    }

    /// The object, shared.
    pub fn object(self) -> &'a Arc<Node> {
        self.table.nodes[self.at()].as_ref().expect("references are only made to slots with a node")
    }

    /// Allocatable CPU in thousandths.
    pub fn cpu(self) -> i64 {
        self.table.allocatable.cpu[self.at()]
    }

    /// Allocatable memory in bytes.
    pub fn memory(self) -> i64 {
        self.table.allocatable.memory[self.at()]
    }

    /// Allocatable local storage in bytes.
    pub fn ephemeral_storage(self) -> i64 {
        self.table.allocatable.ephemeral_storage[self.at()]
    }

    /// How much there is of an extended resource.
    pub fn scalar(self, name: &str) -> i64 {
        scalar(&self.table.allocatable.scalars[self.at()], name)
    }

    /// CPU, in thousandths, that pods on it ask for.
    pub fn requested_cpu(self) -> i64 {
        self.table.requested.cpu[self.at()]
    }

    /// Memory in bytes that pods on it ask for.
    pub fn requested_memory(self) -> i64 {
        self.table.requested.memory[self.at()]
    }

    /// Local storage in bytes that pods on it ask for.
    pub fn requested_ephemeral_storage(self) -> i64 {
        self.table.requested.ephemeral_storage[self.at()]
    }

    /// How much of an extended resource pods on it ask for.
    pub fn requested_scalar(self, name: &str) -> i64 {
        scalar(&self.table.requested.scalars[self.at()], name)
    }

    /// CPU and memory that pods on it ask for, with a floor for containers that do not say.
    pub fn scored(self) -> (i64, i64) {
        self.table.scored[self.at()]
    }

    /// How many pods it takes.
    pub fn pods_allowed(self) -> usize {
        self.table.pods_allowed[self.at()] as usize
    }

    /// The pods on it or assumed to be.
    pub fn pods(self) -> &'a [PodInfo] {
        &self.table.pods[self.at()]
    }

    /// The ports of it that are taken.
    pub fn ports(self) -> &'a [HostPort] {
        &self.table.ports[self.at()]
    }

    /// Which of [`NodeTable::taint_sets`] it has.
    pub fn taint_set(self) -> usize {
        self.table.taints[self.at()] as usize
    }

    /// Its taints.
    pub fn taints(self) -> &'a [Taint] {
        &self.table.taint_sets.all()[self.taint_set()]
    }
}
