//! Record of writes: writer, request and outcome.

use super::Part;
use bytes::Bytes;
use evenkeel_api::time::{SignedDuration, Timestamp};
use http::Method;
use serde_json::Value;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// No response yet.
    Open,
    /// The server responded with this status code.
    Answered(u16),
    /// The server responded with this status code, but the writer did not receive the response.
    Unheard(u16),
    /// The write never reached the server.
    Lost,
    /// A fault rejected the write with this status code; it never reached the server.
    Refused(u16),
}

/// One request that changes objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Time at which the part sent the request.
    pub at: Timestamp,
    /// Time from the start of the run until the part sent the request.
    pub since: SignedDuration,
    /// Part that sent the request.
    pub part: Part,
    /// User agent of the request.
    pub actor: Box<str>,
    /// HTTP method of the write.
    pub method: Method,
    /// Path and query.
    pub target: Box<str>,
    /// Body of the request.
    pub body: Bytes,
    /// Outcome of the write.
    pub outcome: Outcome,
    /// Name of the object in a JSON response, such as a name that the server generated.
    pub name: Option<Box<str>>,
}

impl Write {
    /// Returns whether the request writes a Lease.
    pub fn is_lease(&self) -> bool {
        is_lease(&self.target)
    }

    /// Returns whether the request writes an Event.
    pub fn is_event(&self) -> bool {
        is_event(&self.target)
    }

    /// Returns whether the server executed the request successfully.
    pub fn is_executed(&self) -> bool {
        matches!(self.outcome, Outcome::Answered(200..300) | Outcome::Unheard(200..300))
    }

    /// Returns the path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Returns whether the request writes the final state of an event series that was last observed before `time`.
    /// A recorder finishes a series up to 12 minutes after its last observation.
    ///
    /// Upstream: `finishSeries`.
    pub fn finishes_series_of_before(&self, time: Timestamp) -> bool {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let last_observed = body.pointer("/series/lastObservedTime").and_then(Value::as_str);
        let last_observed = last_observed.and_then(|text| text.parse::<Timestamp>().ok());
        self.is_event() && last_observed.is_some_and(|observed| observed < time)
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { since, actor, method, target, outcome, .. } = self;
        let actor = actor.rsplit('/').next().unwrap_or_default();
        let body = String::from_utf8_lossy(&self.body);
        let body: String = body.chars().take(300).collect();
        write!(f, "{:10.3} {actor} {method} {target} {outcome:?} {body}", since.as_secs_f64())
    }
}

pub(super) fn is_lease(target: &str) -> bool {
    target.starts_with("/apis/coordination.k8s.io/")
}

pub(super) fn is_event(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    path.split('/').rev().take(2).any(|segment| segment == "events")
}

/// Log of all writes of a run, in the order of sending. Clones share it.
#[derive(Debug, Clone)]
pub struct Log {
    start: Timestamp,
    state: Arc<Mutex<State>>,
}

/// Recorded writes.
#[derive(Debug)]
struct State {
    writes: Vec<Write>,
    /// Time of the last write that is not of a Lease.
    last: Timestamp,
}

impl Log {
    pub(super) fn new(start: Timestamp) -> Self {
        let state = State { writes: Vec::new(), last: start };
        Self { start, state: Arc::new(Mutex::new(state)) }
    }

    /// Appends a write and returns its index.
    pub(super) fn record(
        &self,
        at: Timestamp,
        part: Part,
        actor: &str,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> usize {
        let mut state = self.lock();
        if !is_lease(target) {
            state.last = at;
        }
        let since = at.duration_since(self.start);
        let (actor, target, outcome) = (actor.into(), target.into(), Outcome::Open);
        let name = None;
        state.writes.push(Write { at, since, part, actor, method, target, body, outcome, name });
        state.writes.len() - 1
    }

    /// Sets the outcome of the write with this index.
    pub(super) fn set_outcome(&self, index: usize, outcome: Outcome) {
        self.lock().writes[index].outcome = outcome;
    }

    /// Sets the name of the object in the response to the write with this index.
    pub(super) fn set_name(&self, index: usize, name: &str) {
        self.lock().writes[index].name = Some(name.into());
    }

    /// Returns the time of the last write that is not of a Lease.
    pub fn last(&self) -> Timestamp {
        self.lock().last
    }

    /// Returns the number of writes.
    pub fn len(&self) -> usize {
        self.lock().writes.len()
    }

    /// Returns whether the log has no writes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the writes from this index on, without writes of Leases.
    pub fn since(&self, index: usize) -> Vec<Write> {
        self.lock().writes.iter().skip(index).filter(|write| !write.is_lease()).cloned().collect()
    }

    /// Returns whether a part of this name, or a replica of it, has written a Lease.
    pub fn has_leases(&self, name: &str) -> bool {
        self.lock().writes.iter().any(|write| write.part.name() == name && write.is_lease())
    }

    /// Returns the last `n` writes as lines, without writes of Leases.
    pub fn tail(&self, n: usize) -> String {
        let writes = self.since(0);
        let lines: Vec<String> =
            writes.iter().skip(writes.len().saturating_sub(n)).map(ToString::to_string).collect();
        lines.join("\n")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_series_last_observed_before_the_time_is_finished() {
        let time = |second| Timestamp::from_second(second).expect("it is in range");
        let write = |target: &str, body: &str| Write {
            at: time(100),
            since: SignedDuration::ZERO,
            part: Part::new("scheduler"),
            actor: "scheduler".into(),
            method: Method::PATCH,
            target: target.into(),
            body: Bytes::copy_from_slice(body.as_bytes()),
            outcome: Outcome::Answered(200),
            name: None,
        };
        let events = "/apis/events.k8s.io/v1/namespaces/default/events/web.1";
        let series = r#"{"series":{"count":2,"lastObservedTime":"1970-01-01T00:00:50.000000Z"}}"#;
        let finishes =
            |target, body, second| write(target, body).finishes_series_of_before(time(second));
        assert!(finishes(events, series, 60));
        assert!(!finishes(events, series, 50), "the series was observed since");
        assert!(!finishes(events, r#"{"note":"new"}"#, 60), "the event has no series");
        assert!(
            !finishes("/api/v1/namespaces/default/pods/web", series, 60),
            "the object is not an event"
        );
    }
}
