//! Condition `Ready` of pods on a node that is not ready. Upstream: `MarkPodsNotReady`.

use super::health::Ready;
use crate::wire;
use evenkeel_api::{
    View,
    time::{Timestamp, seconds},
    views::Pod,
};
use evenkeel_runtime::plan::{EventRecord, LiveRead, OnError, Plan, Steps, Update};
use serde_json::{Value, json};
use std::sync::Arc;

/// A pod, and the condition `Ready` of its node as the monitor last observed it.
pub(crate) struct PodOnNode {
    pub(crate) pod: Arc<Pod>,
    /// `None` before the monitor's first observation of the node.
    pub(crate) node_ready: Option<Ready>,
}

impl PodOnNode {
    /// Returns whether the pod claims to be ready although its node is not. A node that the monitor has not observed
    /// yet is skipped: the monitor's next pass observes it, and marks its pods.
    fn is_wrongly_ready(&self) -> bool {
        self.node_ready.is_some_and(|ready| ready != Ready::Yes) && claims_ready(&self.pod)
    }
}

/// Marks a pod as not ready if its node is not ready. Reads the pod live and writes it back whole, so that
/// no field is dropped. Returns the plan that ends the reconciliation.
///
/// # Errors
/// `Err` contains the plan of a step that the runtime has not executed yet.
///
/// Upstream: `processPod`, `MarkPodsNotReady`.
pub(crate) fn process_pod(
    observed: &PodOnNode,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<Plan, Plan> {
    if !observed.is_wrongly_ready() {
        return Ok(Plan::nothing());
    }
    let pod = &*observed.pod;
    let path = format!("{}/{}", Pod::kind().path(&pod.meta.namespace), pod.meta.name);
    let read = steps.one(LiveRead::json(&path))?;
    // The runtime retries a failed read, unless the pod is gone.
    let Some(reply) = &read.reply else { return Ok(Plan::nothing()) };
    let mut live: Value = match serde_json::from_slice(reply.body()) {
        Ok(live) => live,
        Err(error) => return Ok(Plan::failure(format!("cannot read {path}: {error}"))),
    };
    if !mark_not_ready(&mut live, &pod.meta.uid, now) {
        return Ok(Plan::nothing());
    }
    let update = Update {
        // Event to record if the update succeeds.
        done: Some(node_not_ready_event(pod)),
        // A deleted pod is not a failure. Other errors are returned below.
        on_error: OnError::Ignore,
        ..Update::status(wire::target(pod), live.to_string())
    };
    Ok(match &steps.one(update)?.error {
        Some(error) if !error.is_not_found() => Plan::failure(&*error.message),
        _ => Plan::nothing(),
    })
}

/// Returns the event of a pod that was marked as not ready.
pub(crate) fn node_not_ready_event(pod: &Pod) -> EventRecord {
    EventRecord::warning(wire::target(pod), "NodeNotReady", "Node is not ready")
}

/// Returns whether the pod has the condition `Ready` with another status than `False`.
pub(crate) fn claims_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.conditions.iter();
    conditions.any(|condition| &*condition.type_ == "Ready" && &*condition.status != "False")
}

/// Sets the condition `Ready` to `False` in the JSON of the pod with this uid. Returns whether it changed.
pub(crate) fn mark_not_ready(pod: &mut Value, uid: &str, now: Timestamp) -> bool {
    if pod["metadata"]["uid"] != uid {
        return false;
    }
    let mut conditions = pod["status"]["conditions"].as_array_mut().into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    let Some(ready) = ready.filter(|ready| ready["status"] != "False") else { return false };
    ready["status"] = json!("False");
    ready["lastTransitionTime"] = json!(seconds(now));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, pod};
    use evenkeel_runtime::plan::{Action, Failure, Outcome, Outcomes, Reply};

    #[test]
    fn only_ready_pods_are_marked_not_ready() {
        let (ready_since, not_ready) = (Some(T0), None);
        assert!(claims_ready(&pod("a", ready_since)) && !claims_ready(&pod("a", not_ready)));
        let mut ready = json!({"metadata": {"uid": "u"}, "status": {"phase": "Running", "conditions": [
            {"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True", "reason": "x"},
        ]}});
        assert!(!mark_not_ready(&mut ready, "another", at(0)), "another pod of the same name");
        assert!(mark_not_ready(&mut ready, "u", at(0)));
        let want = json!({"type": "Ready", "status": "False", "reason": "x", "lastTransitionTime": seconds(at(0))});
        assert_eq!(ready["status"]["conditions"][1], want);
        assert_eq!(ready["status"]["conditions"][0]["status"], "True");
        assert!(!mark_not_ready(&mut ready, "u", at(1)), "already not ready");
        assert!(!mark_not_ready(&mut json!({"metadata": {"uid": "u"}}), "u", at(1)));
    }

    #[test]
    fn live_pod_is_marked_not_ready() {
        let observed = |node_ready| PodOnNode { pod: Arc::new(pod("p", Some(T0))), node_ready };
        let next = |node_ready, outcomes: Vec<Outcome>| {
            let outcomes = Outcomes(outcomes);
            Steps::next(&outcomes, |steps| process_pod(&observed(node_ready), at(9), steps))
        };
        for node_ready in [None, Some(Ready::Yes)] {
            assert_eq!(next(node_ready, Vec::new()), Some(Plan::nothing()), "{node_ready:?}");
        }
        let node_ready = Some(Ready::Unknown);
        let read = LiveRead::json("/api/v1/namespaces/ns/pods/p");
        assert_eq!(next(node_ready, Vec::new()), Some(Plan::one(read)));
        let found = |uid: &str| {
            let ready = json!([{"type": "Ready", "status": "True"}]);
            let live = json!({"metadata": {"uid": uid}, "status": {"conditions": ready}});
            Outcome { reply: Some(Reply::json(live.to_string())), ..Outcome::success() }
        };
        let failed = |code| Outcome::failure(Failure { code, ..Failure::local("no") });
        let written = next(node_ready, vec![found("p")]).expect("a step");
        let [Action::Update(update)] = &written.actions[..] else { panic!("{written:?}") };
        let body: Value = serde_json::from_slice(&update.body).expect("JSON");
        assert_eq!(body["status"]["conditions"][0]["status"], "False");
        assert_eq!(update.done, Some(node_not_ready_event(&pod("p", None))));
        // Outcomes of the steps so far, and the next plan.
        let table = [
            (vec![failed(404)], Some(Plan::nothing())),
            (vec![found("another")], Some(Plan::nothing())),
            (vec![found("p"), Outcome::success()], Some(Plan::nothing())),
            (vec![found("p"), failed(404)], Some(Plan::nothing())),
            (vec![found("p"), failed(409)], Some(Plan::failure("no"))),
        ];
        for (number, (outcomes, want)) in table.into_iter().enumerate() {
            assert_eq!(next(node_ready, outcomes), want, "{number}");
        }
    }
}
