//! What happened while pods were on their way, so that a pod that comes back is asked about it.

use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::Event;

/// Pods that were popped and are not done with, and what happened since the longest of them was.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// For each pod, the number of the first event that it has not seen.
    started: HashMap<Arc<str>, u64>,
    /// How many pods started at each number.
    starts: BTreeMap<u64, usize>,
    events: VecDeque<Event>,
    /// Number of the first of `events`.
    first: u64,
}

impl Flights {
    pub(super) fn start(&mut self, uid: Arc<str>) {
        let at = self.first + self.events.len() as u64;
        if let Some(before) = self.started.insert(uid, at) {
            self.ended(before);
        }
        *self.starts.entry(at).or_default() += 1;
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.started.contains_key(uid)
    }

    /// Keeps the event if there is somebody who may have to be asked about it.
    pub(super) fn record(&mut self, event: &Event) {
        if !self.started.is_empty() {
            self.events.push_back(event.clone());
        }
    }

    /// What happened since the pod was popped.
    pub(super) fn since(&self, uid: &str) -> impl Iterator<Item = &Event> {
        let end = self.first + self.events.len() as u64;
        let start = self.started.get(uid).copied().unwrap_or(end);
        self.events.iter().skip((start - self.first) as usize)
    }

    /// The pod came back, or nothing that happens can matter to it any more.
    pub(super) fn done(&mut self, uid: &str) {
        if let Some(start) = self.started.remove(uid) {
            self.ended(start);
        }
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.started.len()
    }

    /// Forgets what the remaining pods have all seen.
    fn ended(&mut self, start: u64) {
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

    fn seen(flights: &Flights, uid: &str) -> Vec<String> {
        let name = |event: &Event| match event {
            Event::Activate(n) => n.to_string(),
            Event::Change { .. } => unreachable!("not recorded here"),
        };
        flights.since(uid).map(name).collect()
    }

    #[test]
    fn each_pod_sees_what_happened_since_it_was_popped() {
        let mut flights = Flights::default();
        flights.record(&event(0));
        flights.start("p".into());
        flights.record(&event(1));
        flights.start("q".into());
        flights.record(&event(2));
        assert_eq!(seen(&flights, "p"), ["1", "2"]);
        assert_eq!(seen(&flights, "q"), ["2"]);
        flights.done("p");
        assert_eq!((flights.events().count(), seen(&flights, "q")), (1, vec!["2".to_owned()]));
        flights.done("q");
        assert_eq!((flights.events().count(), flights.len()), (0, 0));
    }
}
