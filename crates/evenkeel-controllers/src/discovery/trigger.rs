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
pub(super) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Times that a pass observes: the creation of the Service, and the last transition of each pod's condition `Ready`.
/// Upstream: `ServiceState` of `TriggerTimeTracker`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Times {
    service: i64,
    /// Pods by the hash of their name, which saves memory. Times are in seconds, which is the precision of the API.
    pods: Box<[(u64, i64)]>,
}

impl Times {
    /// Collects the times of a Service and its pods.
    pub(super) fn of(service: &Service, pods: &[Arc<Pod>]) -> Self {
        let mut times: Vec<(u64, i64)> =
            pods.iter().filter_map(|pod| Some((name(pod), readiness(pod)?))).collect();
        times.sort_unstable();
        let service = service.meta.creation.map_or(i64::MIN, Timestamp::as_second);
        Self { service, pods: times.into() }
    }

    /// Returns the time of the change since `before`: the earliest new time, or the creation time of a new Service.
    /// Returns `None` if no time is new. Upstream: `ComputeEndpointLastChangeTriggerTime`.
    pub(super) fn trigger(&self, before: Option<&Self>) -> Option<Timestamp> {
        let Some(before) = before else { return time(self.service) };
        let is_new = |(pod, time): &&(u64, i64)| {
            let known = before.pods.binary_search_by_key(pod, |(pod, _)| *pod);
            known.is_ok_and(|index| *time > before.pods[index].1) || known.is_err()
        };
        let pods = self.pods.iter().filter(is_new).map(|(_, time)| *time);
        let service = Some(self.service).filter(|time| *time > before.service);
        pods.chain(service).min().and_then(time)
    }
}

fn name(pod: &Pod) -> u64 {
    let mut hasher = DefaultHasher::new();
    pod.meta.name.hash(&mut hasher);
    hasher.finish()
}

fn readiness(pod: &Pod) -> Option<i64> {
    let condition = pod.status.conditions.iter().find(|c| &*c.type_ == "Ready")?;
    condition.last_transition_time.map(Timestamp::as_second)
}

fn time(seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(seconds).ok().filter(|_| seconds != i64::MIN)
}

/// Sets the annotation to the time of the change; removes it without a time.
pub(super) fn annotated(annotations: &StrMap, trigger: Option<Timestamp>) -> StrMap {
    match trigger {
        Some(time) => annotations.with(TRIGGER_TIME, &time.to_string()),
        None => annotations.iter().filter(|(key, _)| *key != TRIGGER_TIME).collect(),
    }
}

/// Trigger times of a Service's last successful pass and of its current pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TriggerTimes {
    last: Option<Arc<Times>>,
    running: Option<Arc<Times>>,
}

impl TriggerTimes {
    /// Returns the times of the last successful pass.
    pub(super) fn last(&self) -> Option<Arc<Times>> {
        self.last.clone()
    }

    /// Returns the state after a pass with these times has begun.
    pub(super) fn begin(&self, times: &Arc<Times>) -> Self {
        Self { last: self.last.clone(), running: Some(Arc::clone(times)) }
    }

    /// Returns the state after a pass has ended. After a failed pass, the next pass reports the same change.
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
    fn times(pods: &[(&str, i64)]) -> Times {
        let service = Service { meta: meta("web"), ..Service::default() };
        let pods: Vec<Arc<Pod>> =
            pods.iter().map(|(name, seconds)| Arc::new(pod(name, Some(at(*seconds))))).collect();
        Times::of(&service, &pods)
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
            assert_eq!(times(now).trigger(before.as_ref()), want.map(at), "{what}");
        }
    }

    #[test]
    fn trigger_time_annotation_is_set_and_removed() {
        let others: StrMap = [("a", "b")].into_iter().collect();
        let with = annotated(&others, Some(T0));
        assert_eq!(with.get(TRIGGER_TIME), Some("2026-09-21T14:13:20Z"));
        assert_eq!(annotated(&with, None), others);
    }
}
