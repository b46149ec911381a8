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
        "lastTransitionTime": since.unwrap_or(now).strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
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
