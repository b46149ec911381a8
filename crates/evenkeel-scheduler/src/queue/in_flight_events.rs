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
    started: HashMap<Arc<str>, u64>,
    /// Number of pods that were popped at a sequence number.
    starts: BTreeMap<u64, usize>,
    events: VecDeque<Event>,
    /// Sequence number of the first of `events`.
    first: u64,
}

impl InFlightEvents {
    /// Starts to record events for a pod that was popped.
    pub(super) fn start(&mut self, uid: Arc<str>) {
        let sequence = self.first + self.events.len() as u64;
        if let Some(before) = self.started.insert(uid, sequence) {
            self.drop_unneeded_events(before);
        }
        *self.starts.entry(sequence).or_default() += 1;
    }

    /// Reports whether the pod is in flight.
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.started.contains_key(uid)
    }

    /// Records the event if a pod is in flight.
    pub(super) fn record(&mut self, event: &Event) {
        if !self.started.is_empty() {
            self.events.push_back(event.clone());
        }
    }

    /// Returns the events since the pod was popped, in order.
    pub(super) fn since(&self, uid: &str) -> impl Iterator<Item = &Event> {
        let end = self.first + self.events.len() as u64;
        let start = self.started.get(uid).copied().unwrap_or(end);
        self.events.iter().skip((start - self.first) as usize)
    }

    /// Stops recording events for the pod, because its attempt failed or because it can no longer be rejected.
    pub(super) fn done(&mut self, uid: &str) {
        if let Some(start) = self.started.remove(uid) {
            self.drop_unneeded_events(start);
        }
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// Returns the number of pods in flight.
    pub(super) fn len(&self) -> usize {
        self.started.len()
    }

    /// Drops the events that no pod in flight needs any longer.
    fn drop_unneeded_events(&mut self, start: u64) {
        if let Some(count) = self.starts.get_mut(&start) {
            *count -= 1;
            if *count == 0 {
                self.starts.remove(&start);
            }
        }
        let end = self.first + self.events.len() as u64;
        let oldest = self.starts.first_key_value().map_or(end, |(start, _)| *start);
        self.events.drain(..(oldest - self.first) as usize);
        self.first = oldest;
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
        in_flight_events.since(uid).map(name).collect()
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
        assert_eq!((in_flight_events.events().count(), in_flight_events.len()), (0, 0));
    }
}
