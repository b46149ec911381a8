//! The condition of a pod that found no node.

use evenkeel_api::{time::Timestamp, views::Pod};
use serde_json::json;

/// The longest message of an event.
const NOTE_LENGTH: usize = 1024;

/// The patch that sets `PodScheduled=False`, unless the pod says so already.
pub(crate) fn patch(
    pod: &Pod,
    reason: &str,
    message: &str,
    nominated: Option<&str>,
    now: Timestamp,
) -> Option<String> {
    let found = pod.status.conditions.iter().find(|condition| &*condition.type_ == "PodScheduled");
    let same = found.is_some_and(|found| {
        &*found.status == "False" && &*found.reason == reason && &*found.message == message
    });
    let renominated = nominated.is_some_and(|node| *node != *pod.status.nominated_node_name);
    if same && !renominated {
        return None;
    }
    let since = found
        .filter(|found| &*found.status == "False")
        .and_then(|found| found.last_transition_time);
    let mut condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message,
        "lastProbeTime": null,
        "lastTransitionTime": evenkeel_api::time::seconds(since.unwrap_or(now)),
    });
    if pod.meta.generation != 0 {
        condition["observedGeneration"] = pod.meta.generation.into();
    }
    let mut status = json!({ "conditions": [condition] });
    if let Some(node) = nominated.filter(|_| renominated) {
        status["nominatedNodeName"] = node.into();
    }
    Some(json!({ "metadata": { "uid": pod.meta.uid }, "status": status }).to_string())
}

/// A message cut to what an event may hold.
pub(crate) fn limited(message: &str) -> String {
    const MORE: &str = " ...";
    if message.len() <= NOTE_LENGTH {
        return message.to_owned();
    }
    let mut end = NOTE_LENGTH - MORE.len();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MORE}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, merge, pod};

    #[test]
    fn the_condition_is_written_once_for_each_change() {
        let fresh = json!({ "status": { "conditions": [] } });
        let first = patch(&pod("p", &fresh), "Unschedulable", "no room", None, at(5)).unwrap();
        let mut told = fresh;
        merge(&mut told, &serde_json::from_str(&first).unwrap());
        let told = pod("p", &told);
        assert_eq!(patch(&told, "Unschedulable", "no room", None, at(9)), None);
        let other = patch(&told, "Unschedulable", "still no room", None, at(9)).unwrap();
        assert!(
            other.contains("2027-01-15T08:00:05Z"),
            "the status did not change, nor does its time: {other}"
        );
        assert!(
            patch(&told, "Unschedulable", "no room", Some("a"), at(9))
                .unwrap()
                .contains("\"nominatedNodeName\":\"a\"")
        );
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(limited("short"), "short");
        let cut = limited(&"ü".repeat(1000));
        assert!(cut.len() <= NOTE_LENGTH && cut.ends_with("..."));
    }
}
