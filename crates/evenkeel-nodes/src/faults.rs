//! Faults of simulated nodes and pods, by annotations of their objects.
//!
//! | documented effect | implemented in |
//! |---|---|
//! | values of the annotations | `parse`, `errors` |
//! | faults in effect, including those of Behaviors | `node_faults::NodeFaults` |
//! | a fault ends by itself at its time | `FaultEnd` |
//! | containers crash | `Crash` |

use evenkeel_api::{
    StrMap,
    time::{self, Timestamp},
    views::Node,
};
use evenkeel_runtime::cache::CacheEvent;
use evenkeel_shell::later;
use std::{fmt, time::Duration};

use crate::annotations::{DISK_PRESSURE, MEMORY_PRESSURE, NOT_READY, PID_PRESSURE, SILENT};

/// Run time of a container of a crashing pod before it crashes.
const CRASH_DELAY: Duration = Duration::from_secs(1);

/// Prefix of a value that ends the fault at a time.
const UNTIL: &str = "until ";

/// Prefix of a value that crashes the containers once.
const AT: &str = "at ";

/// End of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultEnd {
    /// The fault lasts until the annotation is removed.
    Open,
    /// The fault ends at this time of the cluster.
    At(Timestamp),
}

impl FaultEnd {
    /// Parses the value of a fault's annotation: `true`, or `until` and a time (RFC 3339). Returns `None` for any other
    /// value, which means no fault.
    pub fn parse(value: &str) -> Option<Self> {
        if value == "true" {
            return Some(Self::Open);
        }
        time::parse(value.strip_prefix(UNTIL)?).ok().map(Self::At)
    }

    /// Returns whether the fault is over at this time.
    pub fn is_over(self, now: Timestamp) -> bool {
        self.remaining(now).is_some_and(|remaining| remaining.is_zero())
    }

    /// Returns the time until the end; `None` without an end, and zero if it is over.
    pub fn remaining(self, now: Timestamp) -> Option<Duration> {
        match self {
            Self::Open => None,
            Self::At(end) => {
                Some(Duration::try_from(end.duration_since(now)).unwrap_or(Duration::ZERO))
            }
        }
    }

    /// Returns the later one of two ends.
    pub(crate) fn max(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(one), Self::At(two)) => Self::At(one.max(two)),
            _ => Self::Open,
        }
    }
}

impl fmt::Display for FaultEnd {
    /// Formats the value of the annotation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("true"),
            Self::At(end) => write!(f, "{UNTIL}{end}"),
        }
    }
}

/// Returns the end of the fault whose annotation has this full name; `None` if it is not in effect.
pub fn fault(annotations: &StrMap, name: &str, now: Timestamp) -> Option<FaultEnd> {
    FaultEnd::parse(annotations.get(name)?).filter(|end| !end.is_over(now))
}

/// Returns the node if this event changes when its kubelet resumes the sync of pods: now, or at another time than
/// before.
pub(crate) fn resumed_node(event: &CacheEvent<Node>, now: Timestamp) -> Option<&Node> {
    let is_over = |end: &FaultEnd| end.is_over(now);
    match event {
        CacheEvent::Updated { old, new } => {
            let has_none = pauses(new).iter().flatten().all(is_over);
            let is_other = has_pause(old) && pauses(old) != pauses(new);
            // A value that means no fault also ends the fault of a Behavior.
            let may_end = has_pause(old) || values(old) != values(new);
            (is_other || may_end && has_none).then_some(&**new)
        }
        _ => None,
    }
}

/// Returns the values of the annotations that pause the sync of the node's pods.
fn values(node: &Node) -> [Option<&str>; 2] {
    [SILENT, NOT_READY].map(|name| node.meta.annotations.get(name))
}

/// Returns the ends of the node's faults that pause the sync of its pods, including faults that are over.
fn pauses(node: &Node) -> [Option<FaultEnd>; 2] {
    values(node).map(|value| value.and_then(FaultEnd::parse))
}

/// Returns whether an event changes annotations of the node that set faults.
pub(crate) fn has_other_faults(event: &CacheEvent<Node>) -> bool {
    let CacheEvent::Updated { old, new } = event else { return false };
    let [old, new] = [old, new].map(|node| &node.meta.annotations);
    FAULTS.into_iter().any(|name| old.get(name) != new.get(name))
}

/// Returns whether the node has an annotation that pauses the sync of its pods, even if the pause may have just ended.
fn has_pause(node: &Node) -> bool {
    pauses(node).iter().any(Option::is_some)
}

/// Annotations of nodes that set faults.
pub(crate) const FAULTS: [&str; 5] =
    [SILENT, NOT_READY, MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE];

/// Value that means no fault, like an absent annotation.
pub(crate) const NO_FAULT: &str = "false";

/// Returns one sentence per fault annotation of a node with an invalid value, for events on the node.
pub(crate) fn errors(annotations: &StrMap) -> Vec<String> {
    let invalid = FAULTS.into_iter().filter_map(|name| {
        let value = annotations.get(name)?;
        (FaultEnd::parse(value).is_none() && value != NO_FAULT).then(|| {
            format!(
                "annotation {name} is ignored: {value:?} is neither \"true\" nor \"until\" with a time such as \
                 2026-01-02T03:04:05Z"
            )
        })
    });
    invalid.collect()
}

/// Returns the errors that this event of a node adds.
pub(crate) fn new_errors(event: &CacheEvent<Node>) -> Vec<String> {
    match event {
        CacheEvent::Added { object, .. } => errors(&object.meta.annotations),
        CacheEvent::Updated { old, new } => {
            let known = errors(&old.meta.annotations);
            let mut found = errors(&new.meta.annotations);
            found.retain(|error| !known.contains(error));
            found
        }
        CacheEvent::Deleted(_) => Vec::new(),
    }
}

/// Health of a node as its kubelet reports it in conditions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) not_ready: bool,
    pub(crate) memory_pressure: bool,
    pub(crate) disk_pressure: bool,
    pub(crate) pid_pressure: bool,
}

/// Rounds a time up to a whole second.
pub fn next_second(time: Timestamp) -> Timestamp {
    let seconds = time.as_second();
    let whole = if time.subsec_nanosecond() > 0 { seconds.saturating_add(1) } else { seconds };
    Timestamp::from_second(whole).unwrap_or(time)
}

/// When containers of a pod crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// Each run crashes after a second, until the end.
    Repeated(FaultEnd),
    /// A run that began before this time crashes at this time. It is a whole second, like the start of a run in the
    /// pod's status. Therefore, after a restart of the kubelet, the run after the crash still began at or after this
    /// time.
    Once(Timestamp),
}

impl Crash {
    /// Parses the value of the annotation `crash`. The error is the end of a sentence about the value.
    pub(crate) fn parse(value: &str) -> Result<Self, &'static str> {
        const INVALID: &str =
            "is neither \"true\" nor \"until\" or \"at\" with a time such as 2026-01-02T03:04:05Z";
        if let Some(at) = value.strip_prefix(AT) {
            return time::parse(at).map(next_second).map(Self::Once).map_err(|_| INVALID);
        }
        FaultEnd::parse(value).map(Self::Repeated).ok_or(INVALID)
    }

    /// Returns when a run that began at `since` crashes; `None` if it does not.
    pub(crate) fn time(self, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Repeated(end) if end.is_over(now) => None,
            Self::Repeated(FaultEnd::Open) => Some(later(since, CRASH_DELAY)),
            Self::Repeated(FaultEnd::At(end)) => {
                Some(later(since, CRASH_DELAY)).filter(|crash| *crash < end)
            }
            Self::Once(at) => (since < at).then_some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn node(annotations: &[(&str, &str)]) -> Node {
        let annotations: serde_json::Map<_, _> =
            annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        let node = serde_json::json!({ "metadata": { "name": "n", "annotations": annotations } });
        Node::decode(node.to_string().as_bytes(), Encoding::Json).unwrap()
    }

    #[test]
    fn values_of_faults_are_parsed_and_formatted() {
        for (value, end) in [
            ("true", Some(FaultEnd::Open)),
            ("until 2027-01-15T08:00:05Z", Some(FaultEnd::At(at(5)))),
            ("false", None),
            ("", None),
            ("until", None),
            ("until soon", None),
            ("2027-01-15T08:00:05Z", None),
        ] {
            assert_eq!(FaultEnd::parse(value), end, "{value:?}");
            assert_eq!(end.map(|end| end.to_string()).as_deref().unwrap_or(value), value);
        }
    }

    #[test]
    fn a_node_resumes_when_its_fault_is_removed_or_ends() {
        let silent = std::sync::Arc::new(node(&[(SILENT, "true")]));
        let until = std::sync::Arc::new(node(&[(SILENT, "until 2027-01-15T08:00:05Z")]));
        let sooner = std::sync::Arc::new(node(&[(SILENT, "until 2027-01-15T08:00:04Z")]));
        let well = std::sync::Arc::new(node(&[]));
        let kept = std::sync::Arc::new(node(&[(SILENT, "false")]));
        for (old, new, now, resumes) in [
            (&silent, &well, 0, true),
            (&until, &well, 0, true),
            (&until, &until, 5, true),
            (&until, &until, 4, false),
            (&silent, &until, 4, true),
            (&until, &sooner, 2, true),
            (&sooner, &until, 2, true),
            (&well, &well, 0, false),
            (&well, &silent, 0, false),
            (&well, &kept, 0, true),
            (&kept, &kept, 0, false),
            (&kept, &silent, 0, false),
        ] {
            let event = CacheEvent::Updated { old: old.clone(), new: new.clone() };
            let case = format!("{:?} {:?} {now}", old.meta.annotations, new.meta.annotations);
            assert_eq!(resumed_node(&event, at(now)).is_some(), resumes, "{case}");
        }
    }

    #[test]
    fn changes_of_any_fault_are_noticed() {
        for (old, new, is_other) in [
            (vec![], vec![(DISK_PRESSURE, "true")], true),
            (vec![(SILENT, "true")], vec![(SILENT, "until 2027-01-15T08:00:05Z")], true),
            (vec![(SILENT, "true")], vec![(SILENT, "true"), ("other", "x")], false),
            (vec![(SILENT, "true")], vec![], true),
        ] {
            let [old, new] = [old, new].map(|values| std::sync::Arc::new(node(&values)));
            let event = CacheEvent::Updated { old, new };
            assert_eq!(has_other_faults(&event), is_other, "{event:?}");
        }
    }

    #[test]
    fn values_that_are_no_fault_are_reported_once() {
        let wrong = std::sync::Arc::new(node(&[(SILENT, "yes"), (NOT_READY, "until noon")]));
        let other = std::sync::Arc::new(node(&[(SILENT, "yes"), (DISK_PRESSURE, "1")]));
        let right = std::sync::Arc::new(node(&[(SILENT, "false"), (NOT_READY, "true")]));
        let added = |object: &std::sync::Arc<Node>| {
            new_errors(&CacheEvent::Added { object: object.clone(), initial: true })
        };
        let found = added(&wrong);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("annotation sim.evenkeel.dev/silent is ignored: \"yes\""));
        assert_eq!(added(&right), [""; 0]);
        let updated = |old: &std::sync::Arc<Node>, new: &std::sync::Arc<Node>| {
            new_errors(&CacheEvent::Updated { old: old.clone(), new: new.clone() })
        };
        assert_eq!(updated(&wrong, &wrong), [""; 0]);
        let found = updated(&wrong, &other);
        assert!(found.len() == 1 && found[0].contains("disk-pressure"), "{found:?}");
    }

    #[test]
    fn runs_crash_once_or_until_the_end() {
        let parse = |value: &str| Crash::parse(value).unwrap();
        let until = parse("until 2027-01-15T08:00:10Z");
        let once = parse("at 2027-01-15T08:00:10Z");
        for (crash, since, now, want) in [
            (parse("true"), 0, 100, Some(1)),
            (until, 0, 5, Some(1)),
            // The run would crash exactly at the end of the fault, and therefore does not.
            (until, 9, 9, None),
            (until, 0, 10, None),
            (once, 0, 5, Some(10)),
            (once, 0, 20, Some(10)),
            (once, 10, 10, None),
            (once, 12, 20, None),
            (parse("at 2027-01-15T08:00:09.2Z"), 9, 9, Some(10)),
        ] {
            assert_eq!(crash.time(at(since), at(now)), want.map(at), "{crash:?} {since} {now}");
        }
        assert!(Crash::parse("false").is_err() && Crash::parse("at noon").is_err());
    }
}
