use super::*;
use crate::fixtures::{T0, deployments, discovered, object};
use evenkeel_runtime::{discovery::Resource, plan::Failure};
use std::sync::Arc;

fn policy(generation: i64, observed: i64, spec: &Value) -> Arc<Policy> {
    Arc::new(object(&json!({
        "metadata": {"name": "p", "uid": "u", "generation": generation},
        "spec": spec, "status": {"observedGeneration": observed},
    })))
}

/// Returns the spec of a policy that matches Deployments.
fn spec(expression: &str, params: &Value) -> Value {
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]});
    json!({
        "matchConstraints": {"resourceRules": [rule]}, "paramKind": params,
        "validations": [{"expression": expression}],
    })
}

fn replied(body: &Value) -> Outcome {
    Outcome { reply: Some(Reply::json(body.to_string())), ..Outcome::success() }
}

fn failed(code: u16) -> Outcome {
    Outcome::failure(Failure { code, ..Failure::local("down") })
}

/// Returns the index of documents of these groups and versions.
fn index(paths: &[&str]) -> Outcome {
    let entry = |path: &&str| {
        let url = format!("/openapi/v3/{path}?hash=7");
        ((*path).to_owned(), json!({"serverRelativeURL": url}))
    };
    let paths: serde_json::Map<String, Value> = paths.iter().map(entry).collect();
    replied(&json!({"paths": paths}))
}

/// Returns the document of a kind whose spec has the number `replicas`.
fn document(group: &str, kind: &str) -> Outcome {
    let spec = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let schema = json!({
        "type": "object", "properties": {"spec": spec},
        "x-kubernetes-group-version-kind": [{"group": group, "version": "v1", "kind": kind}],
    });
    replied(&json!({"components": {"schemas": {"it": schema}}}))
}

fn summaries(plan: &Plan) -> Vec<String> {
    let summary = |action: &Action| match action {
        Action::Read(read) if read.is_discovery() => "discover".to_owned(),
        Action::Read(read) => format!("read {}", read.path()),
        Action::Patch(patch) => {
            assert_eq!(
                (patch.subresource, patch.form),
                ("status", PatchType::Apply(FIELD_MANAGER))
            );
            let body: Value = serde_json::from_slice(&patch.body).unwrap();
            let status = &body["status"];
            let checking = &status["typeChecking"];
            assert!(checking.is_object(), "it says that the check is over");
            let warnings = checking["expressionWarnings"].as_array().into_iter().flatten();
            let warnings: Vec<&str> =
                warnings.map(|one| one["warning"].as_str().unwrap()).collect();
            format!("{}: {}", status["observedGeneration"], warnings.join(", "))
        }
        other => panic!("{other:?}"),
    };
    let error = plan.error.iter().map(|error| format!("fail: {}", error.message));
    plan.actions.iter().map(summary).chain(error).collect()
}

/// Runs the steps of a check with these outcomes, and returns all of them.
fn run(policy: &Policy, outcomes: &[Outcome]) -> Vec<String> {
    let mut all = Vec::new();
    let mut given = 0;
    while let Some(plan) = check(policy, &Outcomes(outcomes[..given].to_vec()), T0) {
        all.extend(summaries(&plan));
        given += plan.actions.len();
        if plan.actions.is_empty() || given > outcomes.len() {
            break;
        }
    }
    all
}

#[test]
fn policy_is_checked_once_for_each_generation() {
    let apps = || index(&["apis/apps/v1", "api/v1"]);
    let replicas = policy(2, 1, &spec("object.spec.replicas > 1", &Value::Null));
    let outcomes = [
        discovered(vec![deployments()]),
        apps(),
        document("apps", "Deployment"),
        Outcome::success(),
    ];
    let reads = ["discover", "read /openapi/v3", "read /openapi/v3/apis/apps/v1?hash=7"];
    assert_eq!(run(&replicas, &outcomes), [&reads[..], &["2: "]].concat());
    let wrong = policy(2, 1, &spec("object.spec.replicas > '1'", &Value::Null));
    let warning = "2: apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for \
                   '_>_' applied to '(int, string)'\n | object.spec.replicas > '1'\n \
                   | .....................^\n";
    assert_eq!(run(&wrong, &outcomes), [&reads[..], &[warning]].concat());
    let checked = policy(2, 2, &spec("object.spec.replicas > '1'", &Value::Null));
    assert_eq!(run(&checked, &[]), Vec::<String>::new());
    assert!(is_unchecked(&wrong) && !is_unchecked(&checked));
}

#[test]
fn unknown_resources_are_discovered_once_more() {
    let policy = policy(1, 0, &spec("object.spec.nope", &Value::Null));
    let none = || discovered(Vec::<Resource>::new());
    let twice = ["discover", "discover", "1: "];
    assert_eq!(run(&policy, &[none(), none(), Outcome::success()]), twice, "none is matched");
    let found = run(&policy, &[none(), discovered(vec![deployments()])]);
    assert_eq!(found, ["discover", "discover", "read /openapi/v3"]);
}

#[test]
fn policy_without_rules_has_no_warnings() {
    let policy = policy(1, 0, &json!({"validations": [{"expression": "nope"}]}));
    assert_eq!(run(&policy, &[Outcome::success()]), ["1: "]);
}

#[test]
fn kinds_without_a_document_are_left_out() {
    let policy = policy(1, 0, &spec("object.spec.nope", &Value::Null));
    let found = || discovered(vec![deployments()]);
    let (read, document) = ("read /openapi/v3", "read /openapi/v3/apis/apps/v1?hash=7");
    let apps = || index(&["apis/apps/v1"]);
    for (outcomes, want) in [
        (vec![found(), failed(404), Outcome::success()], &["discover", read, "1: "][..]),
        (vec![found(), index(&["api/v1"]), Outcome::success()], &["discover", read, "1: "]),
        (
            vec![found(), apps(), failed(503), Outcome::success()],
            &["discover", read, document, "1: "],
        ),
        (
            vec![found(), apps(), replied(&json!([])), Outcome::success()],
            &["discover", read, document, "1: "],
        ),
        // The response was lost, so the pass is repeated.
        (vec![found(), apps(), failed(0)], &["discover", read, document, "fail: down"]),
        (
            vec![found(), replied(&json!({"paths": {"apis/apps/v1": {"serverRelativeURL": "x"}}}))],
            &["discover", read, "1: "],
        ),
    ] {
        assert_eq!(run(&policy, &outcomes), want);
    }
}

#[test]
fn parameters_have_the_type_of_their_kind() {
    let params = json!({"apiVersion": "rules.example.com/v1", "kind": "Limit"});
    let expression = "params.spec.replicas > '1' || object == params";
    let policy = policy(1, 0, &spec(expression, &params));
    let found = || discovered(vec![deployments()]);
    let both = || index(&["apis/apps/v1", "apis/rules.example.com/v1"]);
    let deployment = || document("apps", "Deployment");
    let run = |index: Outcome, documents: Vec<Outcome>| {
        let outcomes = [vec![found(), index], documents].concat();
        run(&policy, &outcomes).pop().unwrap()
    };
    let typed = run(both(), vec![deployment(), document("rules.example.com", "Limit")]);
    assert!(typed.contains("'_>_' applied to '(int, string)'"), "{typed}");
    assert!(typed.contains("'_==_' applied to '(Deployment0, Limit1)'"), "{typed}");
    assert_eq!(run(both(), vec![deployment(), failed(503)]), "1: ");
    assert_eq!(run(index(&["apis/apps/v1"]), vec![deployment()]), "1: ");
}
