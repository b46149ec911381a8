//! The node table, which stores each property of all nodes in a column, and its updates.

use evenkeel_api::{
    StrMap, Text,
    views::{Node, Taint},
};
use hashbrown::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    images::{Image, Images},
    labels::{LabelColumn, Labels},
    order::{self, Order},
    pod_index::{EquivalenceClassId, PodIndex},
    taints::TaintSets,
};
use crate::{
    pod::{HostPort, NonzeroRequests, PodInfo, PodRequirements},
    resources::{Resources, Scalars, scalar, scalar_mut},
};

/// Index of a node in every column of the table.
pub type Slot = u32;

/// All nodes, with the pods that are bound to them or assumed on them.
#[derive(Debug, Default)]
pub struct NodeTable {
    /// Slot of each node, by name.
    by_name: HashMap<Arc<str>, Slot>,
    /// Slots without a node or pods.
    free_slots: Vec<Slot>,
    /// Order in which attempts evaluate the nodes.
    order: Order,
    /// Slot and equivalence class of each pod, by uid.
    pod_locations: HashMap<Text, PodLocation>,
    /// Pods by equivalence class and node. It needs a mutex, because attempts add scopes to it although they only read
    /// the table.
    pod_index: Mutex<PodIndex>,
    labels: Labels,
    /// Distinct lists of taints. Many nodes share the same list.
    taint_sets: TaintSets,
    /// Images by node.
    images: Images,
    /// Number of cordoned nodes.
    n_unschedulable: usize,
    /// Number of pods on nodes that refer to each PersistentVolumeClaim, by `namespace/name`.
    claim_users: HashMap<Text, u32>,
    // The fields below have one entry for each slot.
    names: Vec<Arc<str>>,
    nodes: Vec<Option<Arc<Node>>>,
    allocatable: ResourceColumns,
    requested: ResourceColumns,
    nonzero_requested: Vec<NonzeroRequests>,
    /// Allocatable number of pods.
    pods_allowed: Vec<u32>,
    /// Index of the node's taint list in `taint_sets`.
    taint_set_indexes: Vec<u32>,
    /// Host ports in use.
    ports: Vec<Vec<HostPort>>,
    pods: Vec<Vec<PodInfo>>,
}

/// Slot and equivalence class of a pod.
#[derive(Debug, Clone, Copy)]
struct PodLocation {
    slot: Slot,
    class: EquivalenceClassId,
}

/// Amounts of resources, by slot.
#[derive(Debug, Default)]
struct ResourceColumns {
    cpu: Vec<i64>,
    memory: Vec<i64>,
    ephemeral_storage: Vec<i64>,
    scalars: Vec<Scalars>,
}

impl ResourceColumns {
    /// Adds a node without resources.
    fn push_zero(&mut self) {
        self.cpu.push(0);
        self.memory.push(0);
        self.ephemeral_storage.push(0);
        self.scalars.push(Scalars::new());
    }

    /// Sets the amounts of the node in this slot.
    fn set(&mut self, slot: usize, amounts: Resources) {
        let Resources { cpu, memory, ephemeral_storage, scalars } = amounts;
        self.cpu[slot] = cpu;
        self.memory[slot] = memory;
        self.ephemeral_storage[slot] = ephemeral_storage;
        self.scalars[slot] = scalars;
    }

    /// Adds the amounts if `sign` is 1, or subtracts them if it is -1.
    fn add(&mut self, slot: usize, amounts: &Resources, sign: i64) {
        self.cpu[slot] += sign * amounts.cpu;
        self.memory[slot] += sign * amounts.memory;
        self.ephemeral_storage[slot] += sign * amounts.ephemeral_storage;
        for (name, amount) in &amounts.scalars {
            *scalar_mut(&mut self.scalars[slot], name) += sign * amount;
        }
    }
}

impl NodeTable {
    /// Adds or replaces a node.
    pub fn set_node(&mut self, node: Arc<Node>) -> Slot {
        let slot = self.slot_for(&node.meta.name);
        let index = slot as usize;
        let old = self.nodes[index].take();
        let mut allocatable = Resources::default();
        for (name, amount) in node.status.allocatable.iter() {
            allocatable.set(name, *amount);
        }
        self.allocatable.set(index, allocatable);
        let pods = node.status.allocatable.get("pods").map_or(0, |amount| amount.value());
        self.pods_allowed[index] =
            u32::try_from(pods).unwrap_or(if pods < 0 { 0 } else { u32::MAX });
        if old.is_some() {
            self.taint_sets.release(self.taint_set_indexes[index]);
        }
        self.taint_set_indexes[index] = self.taint_sets.acquire(&node.spec.taints);
        let was_unschedulable = old.as_ref().is_some_and(|old| old.spec.unschedulable);
        self.n_unschedulable -= usize::from(was_unschedulable);
        self.n_unschedulable += usize::from(node.spec.unschedulable);
        self.images.set(slot, old.as_deref(), Some(&node));
        if old.as_ref().is_none_or(|old| old.meta.labels != node.meta.labels) {
            self.labels.set(slot, Some(&node.meta.labels));
        }
        if old.as_ref().is_none_or(|old| !order::have_same_position(old, &node)) {
            old.iter().for_each(|old| self.order.remove(old));
            self.order.insert(&node, &self.names[index], slot);
        }
        self.nodes[index] = Some(node);
        slot
    }

    /// Removes a node. Its pods keep their slot until they are removed as well.
    pub fn remove_node(&mut self, name: &str) {
        let Some(slot) = self.by_name.get(name).copied() else { return };
        let Some(old) = self.nodes[slot as usize].take() else { return };
        self.taint_sets.release(self.taint_set_indexes[slot as usize]);
        self.n_unschedulable -= usize::from(old.spec.unschedulable);
        self.images.set(slot, Some(&old), None);
        self.labels.set(slot, None);
        self.order.remove(&old);
        self.release_if_empty(slot);
    }

    /// Replaces the labels of a namespace. `None` means that the namespace was deleted.
    pub fn set_namespace(&mut self, name: &str, labels: Option<&StrMap>) {
        self.pod_index_mut().set_namespace(name, labels);
    }

    /// Removes a pod from its former node, if any, and adds it to this node.
    pub fn place(&mut self, pod: PodInfo, node: &str) {
        self.remove(pod.uid());
        let slot = self.slot_for(node);
        self.add_usage(slot as usize, &pod, 1);
        let class = self.pod_index_mut().add_pod(&pod.pod, slot);
        self.pod_locations.insert(pod.uid().into(), PodLocation { slot, class });
        self.pods[slot as usize].push(pod);
    }

    /// Replaces a pod by a newer version on the same node. Returns `false`, and changes nothing, if the version has
    /// other requirements or another node.
    pub(crate) fn try_update(&mut self, pod: &PodInfo, node: &str) -> bool {
        let Some(PodLocation { slot, class }) = self.pod_locations.get(pod.uid()).copied() else {
            return false;
        };
        if &*self.names[slot as usize] != node {
            return false;
        }
        let old = self.pods[slot as usize].iter_mut().find(|old| old.uid() == pod.uid());
        let Some(old) = old.filter(|old| old.requirements == pod.requirements) else {
            return false;
        };
        old.pod = Arc::clone(&pod.pod);
        let pod_index = self.pod_index.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !pod_index.is_in_class(class, &pod.pod) {
            pod_index.remove_pod(class, slot);
            let class = pod_index.add_pod(&pod.pod, slot);
            self.pod_locations.insert(pod.uid().into(), PodLocation { slot, class });
        }
        true
    }

    /// Removes a pod and returns it with the name of its node.
    pub fn remove(&mut self, uid: &str) -> Option<(PodInfo, Arc<str>)> {
        let PodLocation { slot, class } = self.pod_locations.remove(uid)?;
        self.pod_index_mut().remove_pod(class, slot);
        let pods = &mut self.pods[slot as usize];
        let index = pods.iter().position(|pod| pod.uid() == uid)?;
        let pod = pods.swap_remove(index);
        self.add_usage(slot as usize, &pod, -1);
        let name = Arc::clone(&self.names[slot as usize]);
        self.release_if_empty(slot);
        Some((pod, name))
    }

    /// Returns the pod with this uid and the name of its node.
    pub fn pod(&self, uid: &str) -> Option<(&PodInfo, &Arc<str>)> {
        let slot = self.pod_locations.get(uid)?.slot as usize;
        let pod = self.pods[slot].iter().find(|pod| pod.uid() == uid)?;
        Some((pod, &self.names[slot]))
    }

    /// Locks the pod index. The caller must drop the guard before the next call.
    pub(crate) fn pod_index(&self) -> MutexGuard<'_, PodIndex> {
        // A poisoned lock is safe to use, because only `pod_index_mut` changes counts, and lost scopes are added again.
        let mut pod_index = self.pod_index.lock().unwrap_or_else(PoisonError::into_inner);
        pod_index.sweep();
        pod_index
    }

    /// Returns the pod index without locking it.
    fn pod_index_mut(&mut self) -> &mut PodIndex {
        self.pod_index.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the column of a node label, built on first use.
    pub fn label(&self, key: &str) -> Arc<LabelColumn> {
        let nodes = self.nodes.iter().zip(0..);
        self.labels.column(
            key,
            nodes.filter_map(|(node, slot)| Some((slot, &node.as_deref()?.meta.labels))),
        )
    }

    /// Returns the number of slots, including free ones.
    pub fn n_slots(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether the slot has a node. A slot without a node may still have pods whose node does not exist.
    pub(crate) fn has_node(&self, slot: Slot) -> bool {
        self.nodes.get(slot as usize).is_some_and(Option::is_some)
    }

    /// Returns the slots of all nodes, round robin over zones.
    pub(crate) fn slots(&self) -> &[Slot] {
        self.order.slots()
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.order.len() == 0
    }

    /// Returns the number of pods on nodes.
    pub fn n_pods(&self) -> usize {
        self.pod_locations.len()
    }

    /// Returns the nodes, round robin over zones.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = NodeRef<'_>> {
        self.order.slots().iter().map(|slot| NodeRef { table: self, slot: *slot })
    }

    /// Returns the `n`th node of [`Self::iter`].
    pub fn nth(&self, n: usize) -> NodeRef<'_> {
        NodeRef { table: self, slot: self.order.slots()[n] }
    }

    /// Returns a reference to the node in this slot. If the slot has no node, [`NodeRef::node`] panics.
    pub fn at(&self, slot: Slot) -> NodeRef<'_> {
        NodeRef { table: self, slot }
    }

    /// Returns the node with this name.
    pub fn get(&self, name: &str) -> Option<NodeRef<'_>> {
        let slot = *self.by_name.get(name)?;
        self.nodes[slot as usize].is_some().then_some(NodeRef { table: self, slot })
    }

    /// Returns the distinct lists of taints. [`NodeRef::taint_set`] is an index into them.
    pub fn taint_sets(&self) -> &[Arc<[Taint]>] {
        self.taint_sets.all()
    }

    /// Returns an image if at least one node has it.
    pub fn image(&self, name: &str) -> Option<&Image> {
        self.images.get(name)
    }

    /// Returns the number of cordoned nodes.
    pub fn n_unschedulable(&self) -> usize {
        self.n_unschedulable
    }

    /// Returns whether a bound or assumed pod refers to the PersistentVolumeClaim.
    pub fn uses_claim(&self, namespace: &str, name: &str) -> bool {
        !self.claim_users.is_empty()
            && self.claim_users.contains_key(&*format!("{namespace}/{name}"))
    }

    /// Returns the slot of a node name. A new name gets a free slot.
    fn slot_for(&mut self, name: &str) -> Slot {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let name: Arc<str> = name.into();
        let slot = self.free_slots.pop().unwrap_or_else(|| self.push_slot());
        self.names[slot as usize] = Arc::clone(&name);
        self.by_name.insert(name, slot);
        slot
    }

    /// Adds an empty slot at the end.
    fn push_slot(&mut self) -> Slot {
        let slot = Slot::try_from(self.names.len()).unwrap_or(Slot::MAX);
        self.names.push(Arc::from(""));
        self.nodes.push(None);
        self.allocatable.push_zero();
        self.requested.push_zero();
        self.nonzero_requested.push(NonzeroRequests::default());
        self.pods_allowed.push(0);
        self.taint_set_indexes.push(0);
        self.ports.push(Vec::new());
        self.pods.push(Vec::new());
        slot
    }

    /// Frees the slot if it has neither a node nor pods.
    fn release_if_empty(&mut self, slot: Slot) {
        let index = slot as usize;
        if self.nodes[index].is_none() && self.pods[index].is_empty() {
            self.by_name.remove(&self.names[index]);
            self.allocatable.set(index, Resources::default());
            self.requested.set(index, Resources::default());
            self.free_slots.push(slot);
        }
    }

    /// Adds the pod's requests, ports and claims to the slot if `sign` is 1, or subtracts them if it is -1.
    fn add_usage(&mut self, slot: usize, pod: &PodInfo, sign: i64) {
        let PodRequirements { requests, nonzero_requests, ports, claims } = &*pod.requirements;
        for claim in claims {
            self.count_claim_user(claim, sign);
        }
        self.requested.add(slot, requests, sign);
        let nonzero_requested = &mut self.nonzero_requested[slot];
        nonzero_requested.cpu += sign * nonzero_requests.cpu;
        nonzero_requested.memory += sign * nonzero_requests.memory;
        if ports.is_empty() {
            return;
        }
        let ports_in_use = &mut self.ports[slot];
        if sign > 0 {
            ports_in_use.extend(ports.iter().cloned());
            return;
        }
        for port in ports {
            if let Some(index) = ports_in_use.iter().position(|in_use| in_use == port) {
                ports_in_use.swap_remove(index);
            }
        }
    }

    /// Adds a user of a claim if `sign` is positive, or removes one.
    fn count_claim_user(&mut self, claim: &str, sign: i64) {
        if sign > 0 {
            *self.claim_users.entry_ref(claim).or_insert(0) += 1;
        } else if let Some(count) = self.claim_users.get_mut(claim) {
            *count -= 1;
            if *count == 0 {
                self.claim_users.remove(claim);
            }
        }
    }
}

/// A node of a [`NodeTable`].
///
/// Upstream: `NodeInfo`.
#[derive(Debug, Clone, Copy)]
pub struct NodeRef<'a> {
    table: &'a NodeTable,
    slot: Slot,
}

impl<'a> NodeRef<'a> {
    /// Returns the slot as an index.
    fn index(self) -> usize {
        self.slot as usize
    }

    pub(crate) fn table(self) -> &'a NodeTable {
        self.table
    }

    /// Returns the node's slot.
    pub fn slot(self) -> Slot {
        self.slot
    }

    /// Returns the node's name.
    pub fn name(self) -> &'a Arc<str> {
        &self.table.names[self.index()]
    }

    /// Returns the Node object.
    pub fn node(self) -> &'a Node {
        self.table.nodes[self.index()]
            .as_deref()
            .expect("references are only made to slots with a node")
    }

    /// Returns the Node object as an `Arc`, to be cloned.
    pub fn shared_node(self) -> &'a Arc<Node> {
        self.table.nodes[self.index()]
            .as_ref()
            .expect("references are only made to slots with a node")
    }

    /// Returns the allocatable CPU in millicores.
    pub fn allocatable_cpu(self) -> i64 {
        self.table.allocatable.cpu[self.index()]
    }

    /// Returns the allocatable memory in bytes.
    pub fn allocatable_memory(self) -> i64 {
        self.table.allocatable.memory[self.index()]
    }

    /// Returns the allocatable ephemeral storage in bytes.
    pub fn allocatable_ephemeral_storage(self) -> i64 {
        self.table.allocatable.ephemeral_storage[self.index()]
    }

    /// Returns the allocatable amount of an extended resource.
    pub fn allocatable_scalar(self, name: &str) -> i64 {
        scalar(&self.table.allocatable.scalars[self.index()], name)
    }

    /// Returns the requested CPU in millicores.
    pub fn requested_cpu(self) -> i64 {
        self.table.requested.cpu[self.index()]
    }

    /// Returns the requested memory in bytes.
    pub fn requested_memory(self) -> i64 {
        self.table.requested.memory[self.index()]
    }

    /// Returns the requested ephemeral storage in bytes.
    pub fn requested_ephemeral_storage(self) -> i64 {
        self.table.requested.ephemeral_storage[self.index()]
    }

    /// Returns the requested amount of an extended resource.
    pub fn requested_scalar(self, name: &str) -> i64 {
        scalar(&self.table.requested.scalars[self.index()], name)
    }

    /// Returns the requested CPU and memory, with defaults for containers without requests.
    ///
    /// Upstream: `NonZeroRequested`.
    pub fn nonzero_requested(self) -> NonzeroRequests {
        self.table.nonzero_requested[self.index()]
    }

    /// Returns the allocatable number of pods.
    pub fn pods_allowed(self) -> usize {
        self.table.pods_allowed[self.index()] as usize
    }

    /// Returns the pods that are bound to the node or assumed on it.
    pub fn pods(self) -> &'a [PodInfo] {
        &self.table.pods[self.index()]
    }

    /// Returns the host ports in use.
    pub fn ports(self) -> &'a [HostPort] {
        &self.table.ports[self.index()]
    }

    /// Returns the index of the node's taints in [`NodeTable::taint_sets`].
    pub fn taint_set(self) -> usize {
        self.table.taint_set_indexes[self.index()] as usize
    }

    /// Returns the taints of the node.
    pub fn taints(self) -> &'a [Taint] {
        &self.table.taint_sets.all()[self.taint_set()]
    }
}
