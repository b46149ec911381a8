//! Pod deletion ranking: the pods that a ReplicaSet or a Job deletes first. Upstream: `ActivePodsWithRanks` and
//! `ActivePods` in `pkg/controller/controller_utils.go`.

use crate::pods;
use evenkeel_api::{time::Timestamp, views::Pod};
use std::{cmp::Ordering, collections::HashMap, sync::Arc};

/// Annotation with the cost of a pod's deletion. Upstream: `PodDeletionCost`.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Returns the `count` pods of a ReplicaSet to delete first, by [`Rank::compare`]. `related` are the pods of all
/// ReplicaSets with the same owner; the ranking counts those on each pod's node. The annotation
/// `controller.kubernetes.io/pod-deletion-cost` has an effect if `use_deletion_cost` (the feature gate
/// `PodDeletionCost`) is on.
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
    let cost = |pod: &Pod| if use_deletion_cost { deletion_cost(pod) } else { 0 };
    lowest_ranked(pods, count, |index, pod| Rank {
        cost: cost(pod),
        colocated: related_per_node.get(&*pod.spec.node_name).copied().unwrap_or(0),
        ..Rank::new(index, pod, |time| Age::logarithmic(time, now))
    })
}

/// Returns the `count` pods of a Job to delete first. Deletion costs and colocated pods do not count, and ages are
/// compared exactly: the younger pod comes first. Upstream: `activePodsForRemoval`.
pub(crate) fn pods_of_job_to_delete(pods: &[Arc<Pod>], count: usize) -> Vec<Arc<Pod>> {
    lowest_ranked(pods, count, |index, pod| Rank::new(index, pod, Age::exact))
}

/// Returns the `count` pods that rank first. If `count` covers all pods, returns them sorted by name.
fn lowest_ranked<'a>(
    pods: &'a [Arc<Pod>],
    count: usize,
    rank: impl Fn(usize, &'a Pod) -> Rank<'a>,
) -> Vec<Arc<Pod>> {
    if count >= pods.len() {
        let mut by_name = pods.to_vec();
        by_name.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        return by_name;
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
    /// Decides between pods whose ages are in the same [bucket](Age::bucket).
    uid: &'a str,
    node: &'a str,
    /// 0 for Pending, 1 for Unknown, 2 for Running.
    phase: u8,
    ready: bool,
    cost: i32,
    /// Number of related pods on the node.
    colocated: u32,
    ready_since: Age,
    restarts: Restarts,
    created: Age,
}

/// Highest restart counts of a pod's containers. Those of regular containers are compared first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Restarts {
    regular: i32,
    sidecar: i32,
}

/// A time, ordered from the younger to the older. On the logarithmic scale (feature gate `LogarithmicScaleDown`), ages
/// between two powers of two share a bucket, so that scaling down also deletes older pods.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Age {
    time: Option<Timestamp>,
    /// The binary logarithm of the age in nanoseconds; on the exact scale, the negated time in nanoseconds.
    bucket: i128,
}

impl Age {
    /// Ranks by the exact time. Pods with later times are deleted first.
    fn exact(time: Option<Timestamp>) -> Self {
        Self { time, bucket: time.map_or(0, |time| -time.as_nanosecond()) }
    }

    /// Ranks by the logarithm of the age, so that pods of similar age are equal.
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

    /// Orders an unknown time first, then the younger before the older. In one bucket, the uids decide. They are
    /// random, so deletions spread over ages. Returns `Equal` only if the times are equal.
    fn compare(self, other: Self, (uid, other_uid): (&str, &str)) -> Ordering {
        match (self.time, other.time) {
            (a, b) if a == b => Ordering::Equal,
            (None, _) => Ordering::Less,
            (_, None) => Ordering::Greater,
            _ => self.bucket.cmp(&other.bucket).then(uid.cmp(other_uid)),
        }
    }
}

impl<'a> Rank<'a> {
    /// Returns the rank without deletion cost and colocated pods.
    fn new(index: usize, pod: &'a Pod, age: impl Fn(Option<Timestamp>) -> Age) -> Self {
        let ready_since = pods::ready_since(pod);
        Self {
            index,
            uid: &pod.meta.uid,
            node: &pod.spec.node_name,
            phase: match &*pod.status.phase {
                "Unknown" => 1,
                "Running" => 2,
                _ => 0,
            },
            ready: ready_since.is_some(),
            cost: 0,
            colocated: 0,
            ready_since: age(ready_since.flatten()),
            restarts: restarts(pod),
            created: age(pod.meta.creation),
        }
    }

    /// Returns `Less` if this pod is deleted before the other. The first criterion that differs decides. Deleted first
    /// are pods
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
        let has_node = |rank: &Self| !rank.node.is_empty();
        let by_ready_since = || match (self.ready, other.ready) {
            (true, true) => self.ready_since.compare(other.ready_since, uids),
            _ => Ordering::Equal,
        };
        has_node(self)
            .cmp(&has_node(other))
            .then(self.phase.cmp(&other.phase))
            .then(self.ready.cmp(&other.ready))
            .then(self.cost.cmp(&other.cost))
            .then(other.colocated.cmp(&self.colocated))
            .then_with(by_ready_since)
            .then(other.restarts.cmp(&self.restarts))
            .then_with(|| self.created.compare(other.created, uids))
    }
}

/// Returns the deletion cost from the annotation, a 32-bit integer. An invalid value, or one with a plus sign or
/// leading zeros, counts as 0. Upstream: `GetDeletionCostFromPodAnnotations`.
fn deletion_cost(pod: &Pod) -> i32 {
    let cost = pod.meta.annotations.get(DELETION_COST).unwrap_or_default();
    match cost.as_bytes() {
        [b'-' | b'1'..=b'9', ..] => cost.parse().unwrap_or(0),
        _ => 0,
    }
}

/// Returns the highest restart counts of the regular containers and of the sidecars. Upstream: `maxContainerRestarts`.
fn restarts(pod: &Pod) -> Restarts {
    let regular =
        pod.status.container_statuses.iter().map(|status| status.restart_count).max().unwrap_or(0);
    let is_sidecar = |name: &str| {
        pod.spec
            .init_containers
            .iter()
            .any(|container| *container.name == *name && &*container.restart_policy == "Always")
    };
    let statuses = pod.status.init_container_statuses.iter();
    let sidecar = statuses
        .filter(|status| is_sidecar(&status.name))
        .map(|status| status.restart_count)
        .max()
        .unwrap_or(0);
    Restarts { regular: regular.max(0), sidecar: sidecar.max(0) }
}

/// Sorts by [`Rank::compare`], which is not always transitive: pods of one bucket compare by uid, but pods with equal
/// times compare by restarts. The standard library's sorts may panic on such an order.
fn merge_sort<'a>(ranks: &mut [Rank<'a>]) -> Vec<Rank<'a>> {
    let mut from = ranks.to_vec();
    let mut to = Vec::with_capacity(ranks.len());
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
