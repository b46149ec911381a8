//! Events that arrive while pods are in flight. When a pod's attempt fails, the queue replays them for it.
//!
//! Upstream: `inFlightPods` and `inFlightEvents` in `pkg/scheduler/backend/queue/active_queue.go`.

use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::Event;

/// Pods in flight, and the events since the oldest of these pods was popped.
#[derive(Debug, Default)]
pub(super) struct InFlightEvents {
    /// Sequence number of the first event after a pod's pop, by pod uid.
    first_event_of_pod: HashMap<Arc<str>, u64>,
    /// Number of pods in flight whose first event has this sequence number.
    pods_by_first_event: BTreeMap<u64, usize>,
    events: VecDeque<Event>,
    /// Sequence number of the first of `events`.
    first_sequence: u64,
}

impl InFlightEvents {
    /// Starts to record events for a pod that was popped.
    pub(super) fn start(&mut self, uid: Arc<str>) {
        let sequence = self.next_sequence();
        if let Some(old_sequence) = self.first_event_of_pod.insert(uid, sequence) {
            self.release_events_from(old_sequence);
        }
        *self.pods_by_first_event.entry(sequence).or_default() += 1;
    }

    /// Returns whether the pod is in flight.
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.first_event_of_pod.contains_key(uid)
    }

    /// Records the event if a pod is in flight.
    pub(super) fn record(&mut self, event: &Event) {
        if !self.first_event_of_pod.is_empty() {
            self.events.push_back(event.clone());
        }
    }

    /// Returns the events since the pod was popped, in order.
    pub(super) fn since_pop_of(&self, uid: &str) -> impl Iterator<Item = &Event> {
        let start =
            self.first_event_of_pod.get(uid).copied().unwrap_or_else(|| self.next_sequence());
        self.events.iter().skip((start - self.first_sequence) as usize)
    }

    /// Stops recording events for the pod, because its attempt failed or because it can no longer be rejected.
    pub(super) fn done(&mut self, uid: &str) {
        if let Some(start) = self.first_event_of_pod.remove(uid) {
            self.release_events_from(start);
        }
    }

    /// Returns all recorded events.
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// Returns the number of pods in flight.
    pub(super) fn n_pods(&self) -> usize {
        self.first_event_of_pod.len()
    }

    /// Returns the sequence number of the next event.
    fn next_sequence(&self) -> u64 {
        self.first_sequence + self.events.len() as u64
    }

    /// Releases the events from `start` on for one pod. Drops those that no other pod in flight needs.
    fn release_events_from(&mut self, start: u64) {
        if let Some(count) = self.pods_by_first_event.get_mut(&start) {
            *count -= 1;
            if *count == 0 {
                self.pods_by_first_event.remove(&start);
            }
        }
        let oldest = self.pods_by_first_event.first_key_value();
        let first_needed = oldest.map_or_else(|| self.next_sequence(), |(sequence, _)| *sequence);
        self.events.drain(..(first_needed - self.first_sequence) as usize);
        self.first_sequence = first_needed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: usize) -> Event {
        Event::Activate(n.to_string().into())
    }

    /// Returns the names of the events since the pod is in flight.
    fn events_of(in_flight_events: &InFlightEvents, uid: &str) -> Vec<String> {
        let name = |event: &Event| match event {
            Event::Activate(n) => n.to_string(),
            Event::Change { .. } => unreachable!("not recorded here"),
        };
        in_flight_events.since_pop_of(uid).map(name).collect()
    }

    #[test]
    fn events_since_its_pop_are_replayed_for_each_pod() {
        let mut in_flight_events = InFlightEvents::default();
        in_flight_events.record(&event(0));
        in_flight_events.start("p".into());
        in_flight_events.record(&event(1));
        in_flight_events.start("q".into());
        in_flight_events.record(&event(2));
        assert_eq!(events_of(&in_flight_events, "p"), ["1", "2"]);
        assert_eq!(events_of(&in_flight_events, "q"), ["2"]);
        in_flight_events.done("p");
        assert_eq!(
            (in_flight_events.events().count(), events_of(&in_flight_events, "q")),
            (1, vec!["2".to_owned()])
        );
        in_flight_events.done("q");
        assert_eq!((in_flight_events.events().count(), in_flight_events.n_pods()), (0, 0));
    }
}
