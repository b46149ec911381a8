//! Annotation `endpoints.kubernetes.io/last-change-trigger-time`, from which clients compute the latency of network
//! programming. Upstream: `endpointslice/util/trigger_time_tracker.go`.

use evenkeel_api::{
    StrMap,
    time::Timestamp,
    views::{Pod, Service},
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Name of the annotation. Upstream: `EndpointsLastChangeTriggerTime`.
pub(super) const TRIGGER_TIME_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Times that a reconciliation observes: the creation of the Service, and the last transition of each pod's condition
/// `Ready`. Upstream: `ServiceState` of `TriggerTimeTracker`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TriggerTimes {
    /// Creation of the Service, in seconds, which is the precision of the API.
    service: Option<i64>,
    /// Sorted by the hash.
    pods: Box<[PodTime]>,
}

/// Last transition of a pod's condition `Ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PodTime {
    /// Hash of the pod's name. It takes less memory than the name.
    name_hash: u64,
    /// Time of the transition, in seconds.
    ready_transition: i64,
}

impl TriggerTimes {
    /// Collects the times of a Service and its pods.
    pub(super) fn of(service: &Service, pods: &[Arc<Pod>]) -> Self {
        let pod_time = |pod: &Arc<Pod>| {
            Some(PodTime { name_hash: name_hash(pod), ready_transition: ready_transition(pod)? })
        };
        let mut pods: Vec<PodTime> = pods.iter().filter_map(pod_time).collect();
        pods.sort_unstable();
        Self { service: service.meta.creation.map(Timestamp::as_second), pods: pods.into() }
    }

    /// Returns the time of the change since `before`: the earliest new time, or the creation time of a new Service.
    /// Returns `None` if no time is new. Upstream: `ComputeEndpointLastChangeTriggerTime`.
    pub(super) fn trigger_time(&self, before: Option<&Self>) -> Option<Timestamp> {
        let Some(before) = before else { return self.service.and_then(to_timestamp) };
        let is_new = |pod: &&PodTime| {
            let found = before.pods.binary_search_by_key(&pod.name_hash, |old| old.name_hash);
            match found {
                Ok(index) => pod.ready_transition > before.pods[index].ready_transition,
                Err(_) => true,
            }
        };
        let pods = self.pods.iter().filter(is_new).map(|pod| pod.ready_transition);
        let service = self.service.filter(|_| self.service > before.service);
        pods.chain(service).min().and_then(to_timestamp)
    }
}

/// Returns a hash of the pod's name, which takes less memory than the name.
fn name_hash(pod: &Pod) -> u64 {
    let mut hasher = DefaultHasher::new();
    pod.meta.name.hash(&mut hasher);
    hasher.finish()
}

/// Returns the last transition of the pod's condition `Ready`, in seconds.
fn ready_transition(pod: &Pod) -> Option<i64> {
    let condition = pod.status.conditions.iter().find(|condition| &*condition.type_ == "Ready")?;
    condition.last_transition_time.map(Timestamp::as_second)
}

/// Returns the time at this Unix second.
fn to_timestamp(seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(seconds).ok()
}

/// Returns the annotations with this trigger time. `None` removes its annotation.
pub(super) fn with_trigger_time(annotations: &StrMap, trigger_time: Option<Timestamp>) -> StrMap {
    match trigger_time {
        Some(time) => annotations.with(TRIGGER_TIME_ANNOTATION, &time.to_string()),
        None => annotations.iter().filter(|(key, _)| *key != TRIGGER_TIME_ANNOTATION).collect(),
    }
}

/// Times of a Service's last successful reconciliation and of its current reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TriggerTimeTracker {
    last: Option<Arc<TriggerTimes>>,
    running: Option<Arc<TriggerTimes>>,
}

impl TriggerTimeTracker {
    /// Returns the times of the last successful reconciliation.
    pub(super) fn last(&self) -> Option<Arc<TriggerTimes>> {
        self.last.clone()
    }

    /// Returns the state after a reconciliation with these times has begun.
    pub(super) fn begin(&self, times: &Arc<TriggerTimes>) -> Self {
        Self { last: self.last.clone(), running: Some(Arc::clone(times)) }
    }

    /// Returns the state after a reconciliation has ended. A failed reconciliation leaves the times of the last
    /// successful one, so that the next reconciliation reports the same change.
    pub(super) fn end(&self, succeeded: bool) -> Self {
        let running = self.running.as_ref().filter(|_| succeeded);
        Self { last: running.or(self.last.as_ref()).cloned(), running: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, meta, pod};

    /// Returns the trigger times of a Service and of its pods, which became ready at these seconds.
    fn times(pods: &[(&str, i64)]) -> TriggerTimes {
        let service = Service { meta: meta("web"), ..Service::default() };
        let pods: Vec<Arc<Pod>> =
            pods.iter().map(|(name, seconds)| Arc::new(pod(name, Some(at(*seconds))))).collect();
        TriggerTimes::of(&service, &pods)
    }

    #[test]
    fn trigger_time_is_the_earliest_new_time() {
        type Pods = &'static [(&'static str, i64)];
        // What changes, the trigger times of the pods before and now, and the trigger time of the Service.
        let table: [(&str, Option<Pods>, Pods, Option<i64>); 6] = [
            ("an unknown Service", None, &[("a", 5)], Some(0)),
            ("nothing new", Some(&[("a", 5)]), &[("a", 5)], None),
            ("a pod removed", Some(&[("a", 5), ("b", 6)]), &[("a", 5)], None),
            ("a pod added", Some(&[("a", 5)]), &[("a", 5), ("b", 3)], Some(3)),
            ("two changed", Some(&[("a", 5), ("b", 6)]), &[("a", 9), ("b", 8)], Some(8)),
            ("an earlier time", Some(&[("a", 5)]), &[("a", 4)], None),
        ];
        for (what, before, now, want) in table {
            let before = before.map(times);
            assert_eq!(times(now).trigger_time(before.as_ref()), want.map(at), "{what}");
        }
    }

    #[test]
    fn trigger_time_annotation_is_set_and_removed() {
        let others: StrMap = [("a", "b")].into_iter().collect();
        let with = with_trigger_time(&others, Some(T0));
        assert_eq!(with.get(TRIGGER_TIME_ANNOTATION), Some("2026-09-21T14:13:20Z"));
        assert_eq!(with_trigger_time(&with, None), others);
    }
}
