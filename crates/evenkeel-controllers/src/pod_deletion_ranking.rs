//! Pod deletion ranking: the pods that a ReplicaSet or a Job deletes first. Upstream: `ActivePodsWithRanks` and
//! `ActivePods` in `pkg/controller/controller_utils.go`.

use crate::pods;
use evenkeel_api::{time::Timestamp, views::Pod};
use std::{cmp::Ordering, collections::HashMap, sync::Arc};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Returns the `count` pods of a ReplicaSet to delete first. A pod comes earlier if more of the `related`
/// pods run on its node. `use_deletion_cost` is the feature gate `PodDeletionCost`: whether the annotation
/// `controller.kubernetes.io/pod-deletion-cost` counts.
///
/// Upstream: `getPodsToDelete`, `getPodsRankedByRelatedPodsOnSameNode`.
pub(crate) fn pods_to_delete(
    pods: &[Arc<Pod>],
    related: &[Arc<Pod>],
    count: usize,
    use_deletion_cost: bool,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    let mut related_per_node: HashMap<&str, u32> = HashMap::new();
    if count < pods.len() {
        for pod in related.iter().filter(|pod| pods::is_active(pod)) {
            *related_per_node.entry(&pod.spec.node_name).or_default() += 1;
        }
    }
    lowest_ranked(pods, count, |index, pod| Rank {
        cost: pod
            .meta
            .annotations
            .get(DELETION_COST)
            .filter(|_| use_deletion_cost)
            .map_or(0, deletion_cost),
        colocated: related_per_node.get(&*pod.spec.node_name).copied().unwrap_or(0),
        ..Rank::new(index, pod, |time| Age::logarithmic(time, now))
    })
}

/// Returns the `count` pods of a Job to delete first. Deletion cost and colocated pods do not count, and of equal pods
/// the younger comes first. Upstream: `activePodsForRemoval`.
pub(crate) fn pods_of_job_to_delete(pods: &[Arc<Pod>], count: usize) -> Vec<Arc<Pod>> {
    lowest_ranked(pods, count, |index, pod| Rank::new(index, pod, Age::exact))
}

/// Returns the `count` pods that rank first; if that is all of them, returns them by name.
fn lowest_ranked<'a>(
    pods: &'a [Arc<Pod>],
    count: usize,
    rank: impl Fn(usize, &'a Pod) -> Rank<'a>,
) -> Vec<Arc<Pod>> {
    if count >= pods.len() {
        let mut all = pods.to_vec();
        all.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        return all;
    }
    let mut ranked: Vec<Rank<'_>> =
        pods.iter().enumerate().map(|(index, pod)| rank(index, pod)).collect();
    ranked.sort_unstable_by(|a, b| a.uid.cmp(b.uid).then(a.index.cmp(&b.index)));
    merge_sort(&mut ranked).into_iter().take(count).map(|rank| pods[rank.index].clone()).collect()
}

/// Criteria that decide when a pod is deleted, in the order of [`Rank::compare`].
#[derive(Debug, Clone, Copy)]
struct Rank<'a> {
    /// Index of the pod in the input.
    index: usize,
    /// Decides between pods whose ages are in the same bucket.
    uid: &'a str,
    node: &'a str,
    /// 0 for Pending, 1 for Unknown, 2 for Running.
    phase: u8,
    ready: bool,
    cost: i32,
    /// Number of related pods on the node.
    colocated: u32,
    ready_since: Age,
    /// Highest restart count of a regular container, and of a sidecar.
    restarts: (i32, i32),
    created: Age,
}

/// A time with its age. On the logarithmic scale of the feature gate `LogarithmicScaleDown`, ages of one power of two are equal,
/// so that scaling down also deletes older pods.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Age {
    time: Option<Timestamp>,
    /// The age to compare by: a logarithm, or nanoseconds.
    bucket: i128,
}

impl Age {
    fn exact(time: Option<Timestamp>) -> Self {
        Self { time, bucket: time.map_or(0, |time| -time.as_nanosecond()) }
    }

    fn logarithmic(time: Option<Timestamp>, now: Timestamp) -> Self {
        let nanoseconds = time.map_or(0, |time| now.duration_since(time).as_nanos());
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "buckets of a logarithm"
        )]
        let bucket = if nanoseconds > 0 { (nanoseconds as f64).log2() as i128 } else { -1 };
        Self { time, bucket }
    }

    /// Orders an unknown time first, then the younger before the older. Times of one bucket are ordered by uid, which is random,
    /// so deletions spread over ages. `Equal` only if the times are equal.
    fn compare(self, other: Self, uids: (&str, &str)) -> Ordering {
        match (self.time, other.time) {
            (a, b) if a == b => Ordering::Equal,
            (None, _) => Ordering::Less,
            (_, None) => Ordering::Greater,
            _ => self.bucket.cmp(&other.bucket).then(uids.0.cmp(uids.1)),
        }
    }
}

impl<'a> Rank<'a> {
    /// Returns the rank of a pod whose deletion cost and colocated pods do not count.
    fn new(index: usize, pod: &'a Pod, age: impl Fn(Option<Timestamp>) -> Age) -> Self {
        let ready = pods::ready(pod);
        Self {
            index,
            uid: &pod.meta.uid,
            node: &pod.spec.node_name,
            phase: match &*pod.status.phase {
                "Unknown" => 1,
                "Running" => 2,
                _ => 0,
            },
            ready: ready.is_some(),
            cost: 0,
            colocated: 0,
            ready_since: age(ready.flatten()),
            restarts: restarts(pod),
            created: age(pod.meta.creation),
        }
    }

    /// Orders a pod before the pods that are deleted after it. The first difference decides; deleted first are pods
    ///
    /// 1. without a node,
    /// 2. in phase Pending, then Unknown, then Running,
    /// 3. that are not ready,
    /// 4. with the lower deletion cost,
    /// 5. with more colocated pods on their node,
    /// 6. that became ready later,
    /// 7. with more container restarts,
    /// 8. that were created later.
    ///
    /// Upstream: `ActivePodsWithRanks.Less`.
    fn compare(&self, other: &Self) -> Ordering {
        let uids = (self.uid, other.uid);
        let unassigned_first = (!self.node.is_empty()).cmp(&!other.node.is_empty());
        unassigned_first
            .then(self.phase.cmp(&other.phase))
            .then(self.ready.cmp(&other.ready))
            .then(self.cost.cmp(&other.cost))
            .then(other.colocated.cmp(&self.colocated))
            .then_with(|| match self.ready && other.ready {
                true => self.ready_since.compare(other.ready_since, uids),
                false => Ordering::Equal,
            })
            .then(other.restarts.cmp(&self.restarts))
            .then_with(|| self.created.compare(other.created, uids))
    }
}

/// Parses the annotation, a 32-bit integer. An invalid value, or one with a plus sign or leading zeros, counts as 0.
/// Upstream: `GetDeletionCostFromPodAnnotations`.
fn deletion_cost(text: &str) -> i32 {
    match text.as_bytes() {
        [b'-' | b'1'..=b'9', ..] => text.parse().unwrap_or(0),
        _ => 0,
    }
}

/// Returns the highest restart count of a regular container, and that of a sidecar. Upstream: `maxContainerRestarts`.
fn restarts(pod: &Pod) -> (i32, i32) {
    let regular = pod.status.container_statuses.iter().map(|c| c.restart_count).max().unwrap_or(0);
    let is_sidecar = |name: &str| {
        pod.spec.init_containers.iter().any(|c| *c.name == *name && &*c.restart_policy == "Always")
    };
    let statuses = pod.status.init_container_statuses.iter();
    let sidecar =
        statuses.filter(|c| is_sidecar(&c.name)).map(|c| c.restart_count).max().unwrap_or(0);
    (regular.max(0), sidecar.max(0))
}

/// Merge sort, because the order is not always transitive: pods of one bucket compare by uid, but pods with
/// equal times compare by restarts. The standard library's sorts may panic on such an order.
fn merge_sort<'a>(ranks: &mut [Rank<'a>]) -> Vec<Rank<'a>> {
    let (mut from, mut to) = (ranks.to_vec(), Vec::with_capacity(ranks.len()));
    let mut width = 1;
    while width < from.len() {
        to.clear();
        for pair in from.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let ([a, left_rest @ ..], [b, right_rest @ ..]) = (left, right) {
                if b.compare(a) == Ordering::Less {
                    to.push(*b);
                    right = right_rest;
                } else {
                    to.push(*a);
                    left = left_rest;
                }
            }
            to.extend_from_slice(left);
            to.extend_from_slice(right);
        }
        std::mem::swap(&mut from, &mut to);
        width *= 2;
    }
    from
}
