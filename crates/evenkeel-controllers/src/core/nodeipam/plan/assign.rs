//! Assignment of pod CIDRs to one node, step by step. Upstream: `updateCIDRsAllocation`.

use super::allocator::Verdict;
use crate::wire;
use evenkeel_api::{View, cidr::Cidr, views::Node};
use evenkeel_runtime::{
    client::ListOptions,
    plan::{
        EventRecord, Failure, LiveRead, OnError, Outcomes, Patch, PatchType, Plan, PlanError, Steps,
    },
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// Maximum number of attempts to write a node's CIDRs. Upstream: `cidrUpdateRetries`.
const MAX_ATTEMPTS: usize = 3;

/// Delay of a node's retry while another reconciliation lists all nodes.
const LIST_WAIT: Duration = Duration::from_millis(10);

/// A node, and the allocator's verdict about it.
pub(crate) struct Observed {
    /// The node. `None` if it is deleted.
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) allocations: Allocations,
}

/// State of the record of allocations. A live list of all nodes fills it, because the cache may lack allocations that a
/// former leader made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Allocations {
    /// No reconciliation has listed the nodes.
    Unlisted,
    /// Another reconciliation lists them.
    Listing,
    /// The allocations are recorded, and this is the decision about the node.
    Recorded(Verdict),
}

/// Lists all nodes, or writes the node's CIDRs. Upstream: `syncNode`.
pub(crate) fn sync_node(observed: &Observed, steps: &mut Steps<'_>) -> Result<Plan, Plan> {
    let requeue_after = |after| Plan { requeue: Some(after), ..Plan::nothing() };
    let verdict = match &observed.allocations {
        Allocations::Listing => return Ok(requeue_after(LIST_WAIT)),
        Allocations::Unlisted => {
            return Ok(match list_nodes(steps)? {
                Ok(_) => requeue_after(Duration::ZERO),
                Err(error) => Plan::failure(error.message),
            });
        }
        Allocations::Recorded(verdict) => verdict,
    };
    match (verdict, &observed.node) {
        (Verdict::Allocate { cidrs, .. } | Verdict::Repeat(cidrs), Some(node)) => {
            update_cidrs_allocation(node, cidrs, steps)
        }
        (Verdict::Exhausted(range), Some(node)) => Ok(Plan {
            error: Some(PlanError::new(format!(
                "CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range {range}"
            ))),
            ..Plan::one(status_event(node, "CIDRNotAvailable"))
        }),
        (Verdict::Invalid(problem), _) => {
            Ok(Plan { error: Some(PlanError::terminal(&**problem)), ..Plan::nothing() })
        }
        _ => Ok(Plan::nothing()),
    }
}

/// Lists all nodes live. The inner result is the failure of the list.
pub(crate) fn list_nodes(steps: &mut Steps<'_>) -> Result<Result<Vec<Node>, Failure>, Plan> {
    let read = LiveRead::list::<Node>(&Node::kind(), "", &ListOptions::default());
    let read = steps.one(LiveRead { on_error: OnError::Ignore, ..read })?;
    Ok(match (&read.reply, &read.error) {
        (Some(reply), _) => reply.list().map(|list| list.items),
        (None, Some(error)) => Err(error.clone()),
        (None, None) => Ok(Vec::new()),
    })
}

/// Writes the CIDRs, in up to [`MAX_ATTEMPTS`] attempts. A missing node counts as a failure, like any other error.
/// Upstream: `updateCIDRsAllocation`.
fn update_cidrs_allocation(
    node: &Node,
    cidrs: &[Cidr],
    steps: &mut Steps<'_>,
) -> Result<Plan, Plan> {
    let cidrs: Vec<String> = cidrs.iter().map(ToString::to_string).collect();
    let spec = json!({"podCIDR": cidrs.first(), "podCIDRs": cidrs});
    let body = json!({"metadata": {"uid": &*node.meta.uid}, "spec": spec}).to_string();
    let patch = Patch {
        fails_if_missing: true,
        on_error: OnError::Ignore,
        ..Patch::new(wire::target(node), PatchType::Strategic, body)
    };
    let mut last_error = None;
    for _ in 0..MAX_ATTEMPTS {
        let Some(error) = &steps.one(patch.clone())?.error else { return Ok(Plan::nothing()) };
        last_error = Some(PlanError::new(&*error.message));
    }
    Ok(Plan { error: last_error, ..Plan::one(status_event(node, "CIDRAssignmentFailed")) })
}

/// Returns whether the API server rejected the last attempt to write the CIDRs. A write without a response may have
/// succeeded, so its allocation is kept.
pub(crate) fn is_rejected(observed: &Observed, outcomes: &Outcomes) -> bool {
    let assigns_cidrs = matches!(
        observed.allocations,
        Allocations::Recorded(Verdict::Allocate { .. } | Verdict::Repeat(_))
    );
    let last_error = outcomes.0.get(MAX_ATTEMPTS - 1).and_then(|outcome| outcome.error.as_ref());
    assigns_cidrs && last_error.is_some_and(|error| (400..500).contains(&error.code))
}

/// Returns the event for a node whose CIDRs cannot be assigned.
fn status_event(node: &Node, status: &'static str) -> EventRecord {
    let message = format!("Node {} status is now: {status}", node.meta.name);
    EventRecord::normal(wire::target(node), status, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::meta;
    use evenkeel_api::Meta;
    use evenkeel_runtime::plan::{Action, Outcome, Reply};

    fn observed(allocations: Allocations) -> Observed {
        let meta = Meta { namespace: "".into(), ..meta("n") };
        Observed { node: Some(Arc::new(Node { meta, ..Node::default() })), allocations }
    }

    /// Returns a node whose allocated CIDR is not yet written.
    fn unwritten() -> Observed {
        let ranges = vec![Cidr::parse("10.0.0.0/24").expect("a CIDR")];
        observed(Allocations::Recorded(Verdict::Repeat(ranges)))
    }

    fn next(observed: &Observed, outcomes: &[Outcome]) -> Option<Plan> {
        let outcomes = Outcomes(outcomes.to_vec());
        Steps::next(&outcomes, |steps| sync_node(observed, steps))
    }

    fn failed(code: u16) -> Outcome {
        Outcome::failure(Failure { code, ..Failure::local("no") })
    }

    #[test]
    fn no_cidr_is_assigned_before_all_nodes_are_listed() {
        let requeue = |after| Some(Plan { requeue: Some(after), ..Plan::nothing() });
        assert_eq!(next(&observed(Allocations::Listing), &[]), requeue(LIST_WAIT));
        let first = observed(Allocations::Unlisted);
        let step = next(&first, &[]).expect("a step");
        let [Action::Read(read)] = &step.actions[..] else { panic!("{step:?}") };
        assert_eq!(read.path(), "/api/v1/nodes");
        let listed = Outcome { reply: Some(Reply::json(r#"{"items":[]}"#)), ..Outcome::success() };
        assert_eq!(next(&first, &[listed]), requeue(Duration::ZERO));
        assert_eq!(next(&first, &[failed(500)]), Some(Plan::failure("no")));
    }

    #[test]
    fn patch_is_attempted_three_times() {
        let unwritten = unwritten();
        let step = next(&unwritten, &[]).expect("a step");
        let [Action::Patch(patch)] = &step.actions[..] else { panic!("{step:?}") };
        let body: serde_json::Value = serde_json::from_slice(&patch.body).expect("JSON");
        assert!(patch.fails_if_missing, "the patch of a missing node fails");
        assert_eq!(body["spec"], json!({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}));
        assert_eq!(next(&unwritten, &[failed(500)]), Some(step));
        assert_eq!(next(&unwritten, &[failed(500), Outcome::success()]), Some(Plan::nothing()));
        let last_plan =
            next(&unwritten, &[failed(500), failed(500), failed(422)]).expect("the event");
        assert_eq!(last_plan.error, Some(PlanError::new("no")));
        assert!(
            matches!(&last_plan.actions[..], [Action::Event(event)] if event.reason == "CIDRAssignmentFailed")
        );
    }

    #[test]
    fn cidrs_are_released_only_if_the_last_patch_is_rejected() {
        let unwritten = unwritten();
        let rejected = |codes: [u16; 3]| {
            is_rejected(&unwritten, &Outcomes(codes.map(failed).into_iter().collect()))
        };
        assert!(rejected([404, 404, 404]), "the node is gone");
        assert!(rejected([500, 500, 422]) && !rejected([422, 422, 500]) && !rejected([0, 0, 0]));
        assert!(!is_rejected(&unwritten, &Outcomes(vec![failed(422), Outcome::success()])));
    }

    #[test]
    fn exhausted_range_is_reported() {
        let range = Cidr::parse("10.0.0.0/16").expect("a CIDR");
        let exhausted = next(&observed(Allocations::Recorded(Verdict::Exhausted(range))), &[]);
        let exhausted = exhausted.expect("the event");
        assert!(
            matches!(&exhausted.actions[..], [Action::Event(event)] if event.reason == "CIDRNotAvailable")
        );
        assert_eq!(
            exhausted.error,
            Some(PlanError::new(
                "CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range 10.0.0.0/16"
            ))
        );
        let invalid = Allocations::Recorded(Verdict::Invalid("x".to_owned()));
        let invalid = next(&observed(invalid), &[]).expect("an error");
        assert_eq!(invalid.error, Some(PlanError::terminal("x")));
        let settled = observed(Allocations::Recorded(Verdict::Settled));
        assert_eq!(next(&settled, &[]), Some(Plan::nothing()));
    }
}
