use super::*;
use crate::fixtures::object;
use evenkeel_runtime::plan::{Failure, Outcome, ReadRequest};

const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0); // 2026-01-01

/// Returns an unused token of this namespace, marked as invalid since this day, if any.
fn token(namespace: &str, name: &str, marked: Option<&str>) -> Token {
    let labels = marked.map_or(json!({}), |day| json!({INVALID_SINCE: day}));
    let secret = object(&json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": name, "resourceVersion": "7", "labels": labels,
            "creationTimestamp": "2020-01-01T00:00:00Z",
            "annotations": {"kubernetes.io/service-account.name": "robot"},
        },
        "type": "kubernetes.io/service-account-token",
    }));
    let account = object(&json!({
        "metadata": {"name": "robot", "namespace": namespace}, "secrets": [{"name": name}],
    }));
    Token { secret: Arc::new(secret), account: Some(Arc::new(account)) }
}

fn observed() -> Observed {
    let tokens = vec![
        token("a", "used", None),
        token("a", "unused", None),
        token("b", "marked", Some("2024-01-01")),
    ];
    Observed { tokens, period: Duration::from_secs(365 * 24 * 3600) }
}

fn replied(body: &Value) -> Outcome {
    Outcome { reply: Some(Reply::json(body.to_string())), ..Outcome::success() }
}

fn tracking(since: &str) -> Outcome {
    replied(
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t"}, "data": {"since": since}}),
    )
}

fn failed(code: u16) -> Outcome {
    let (reason, message) = (String::new(), "down".to_owned());
    Outcome::failure(Failure { code, reason, message, namespace_terminating: false })
}

fn action_summaries(plan: &Plan) -> Vec<String> {
    let words = plan.actions.iter().map(|action| match action {
        Action::Read(read) => {
            let is_shared = matches!(read.request, ReadRequest::GetShared { .. });
            format!("{} read {}", if is_shared { "shared" } else { "own" }, read.path())
        }
        Action::Patch(patch) => format!("mark {}", patch.target.name),
        Action::Delete(delete) => {
            assert_eq!(delete.resource_version.as_deref(), Some("7"));
            assert_eq!(delete.tolerates, [409]);
            format!("delete {}", delete.target.name)
        }
        other => panic!("{other:?}"),
    });
    words.collect()
}

fn after(observed: &Observed, done: &[Outcome]) -> Option<Plan> {
    next(observed, &Outcomes(done.to_vec()), NOW)
}

#[test]
fn namespaces_are_cleaned_in_order() {
    let (observed, since) = (observed(), tracking("2020-01-01"));
    let map = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    assert_eq!(action_summaries(&plan()), [format!("own read {map}")]);
    let mut done = vec![since];
    assert_eq!(
        action_summaries(&after(&observed, &done).unwrap()),
        ["shared read /api/v1/namespaces/a/pods"]
    );
    done.push(replied(
        &json!({"items": [{"spec": {"volumes": [{"secret": {"secretName": "used"}}]}}]}),
    ));
    assert_eq!(
        action_summaries(&after(&observed, &done).unwrap()),
        ["mark unused", "shared read /api/v1/namespaces/b/pods"]
    );
    for marked in [Outcome::success(), failed(500)] {
        let mut done = done.clone();
        done.extend([marked, replied(&json!({"items": []}))]);
        assert_eq!(action_summaries(&after(&observed, &done).unwrap()), ["delete marked"]);
        for deleted in [Outcome::success(), failed(409)] {
            done.truncate(4);
            done.push(deleted);
            assert_eq!(after(&observed, &done), None);
        }
    }
}

#[test]
fn unknown_tracking_date_or_pods_end_the_pass() {
    let observed = observed();
    assert_eq!(after(&observed, &[failed(404)]), Some(Plan::failure("down")));
    assert_eq!(after(&observed, &[tracking("2025-12-31")]), None, "not tracked for long enough");
    assert!(after(&observed, &[tracking("soon")]).unwrap().error.is_some());
    let since = || tracking("2020-01-01");
    assert_eq!(after(&observed, &[since(), failed(404)]), Some(Plan::failure("down")));
    assert!(after(&observed, &[since(), replied(&json!([]))]).is_some());
    let without_tokens = Observed { tokens: vec![], ..observed };
    assert_eq!(after(&without_tokens, &[since()]), Some(Plan::nothing()));
}
