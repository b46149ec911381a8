use super::*;
use crate::fixtures::{self, T0, at, discovered, object};
use evenkeel_api::time::seconds;
use evenkeel_runtime::plan::{Action, Failure, Outcome, Reply};
use serde_json::json;

fn migration(name: &str, conditions: &[&str]) -> Arc<Migration> {
    let condition = |type_: &&str| json!({"type": type_, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": seconds(T0)});
    let conditions: Vec<Value> = conditions.iter().map(condition).collect();
    Arc::new(object(&json!({
        "metadata": {"name": name, "creationTimestamp": seconds(T0)},
        "spec": {"resource": {"group": "g", "resource": "r"}}, "status": {"conditions": conditions},
    })))
}

fn replied(body: &Value) -> Outcome {
    Outcome { reply: Some(Reply::json(body.to_string())), ..Outcome::success() }
}

fn failed(code: u16, reason: &str) -> Outcome {
    Outcome::failure(Failure { code, reason: reason.to_owned(), ..Failure::local("down") })
}

fn action_summaries(plan: &Plan) -> Vec<String> {
    let summaries = plan.actions.iter().map(|action| match action {
        Action::Read(read) if read.is_discovery() => "discover".to_owned(),
        Action::Read(read) => format!("read {}", read.path()),
        Action::Patch(patch) => format!("apply {}", patch.target.name),
        Action::Update(update) => {
            let body: Value = serde_json::from_slice(&update.body).unwrap();
            let status = &body["status"];
            let condition = |one: &Value| format!("{}={}", one["type"], one["status"]);
            let conditions = status["conditions"].as_array().into_iter().flatten().map(condition);
            let version = status["resourceVersion"].as_str().map(str::to_owned);
            let fields: Vec<String> = conditions.chain(version).collect();
            format!("{} {}", update.target.name, fields.join(" ")).replace('"', "")
        }
        other => panic!("{other:?}"),
    });
    summaries.collect()
}

const DEFINITION: &str = "read /apis/apiextensions.k8s.io/v1/customresourcedefinitions/r.g";

#[test]
fn finished_migration_is_closed_before_the_next_starts() {
    let ended = migration("old", &["Running", "Succeeded"]);
    let migrations = vec![ended, migration("new", &[])];
    let observed = ResourceMigrations { definition: "r.g".to_owned(), migrations };
    let after = |outcomes: &[Outcome]| start_next(&observed, &Outcomes(outcomes.to_vec()), T0);
    let crd = || replied(&json!({"metadata": {"name": "r.g", "resourceVersion": "7"}}));
    let mut outcomes = Vec::new();
    for (step, outcome) in [
        (DEFINITION, crd()),
        ("apply r.g", failed(409, "Conflict")),
        (DEFINITION, crd()),
        ("apply r.g", Outcome::success()),
        ("old Running=False Succeeded=True", Outcome::success()),
        // NotFound: another client deleted the definition in the meantime.
        (DEFINITION, failed(404, "NotFound")),
        ("new Running=True", Outcome::success()),
    ] {
        assert_eq!(action_summaries(&after(&outcomes).unwrap()), [step]);
        outcomes.push(outcome);
    }
    assert_eq!(after(&outcomes), Some(Plan::nothing()));
    assert_eq!(after(&[crd(), failed(500, "")]), Some(Plan::failure("down")));
    let conflicts: Vec<Outcome> =
        (0..MAX_UPDATE_ATTEMPTS).flat_map(|_| [crd(), failed(409, "Conflict")]).collect();
    assert_eq!(after(&conflicts), Some(Plan::failure("down")));
}

fn resource(verbs: &[&str]) -> Outcome {
    discovered(vec![Resource {
        verbs: verbs.iter().map(|verb| (*verb).into()).collect(),
        ..fixtures::resource(Kind::new("g", "v1", "R", "r", true))
    }])
}

#[test]
fn resource_version_of_a_list_is_recorded() {
    let running = migration("m", &["Running"]);
    let after =
        |outcomes: &[Outcome], now| record_version(&running, &Outcomes(outcomes.to_vec()), now);
    assert_eq!(action_summaries(&after(&[], T0).unwrap()), ["discover"]);
    let served = resource(&REQUIRED_VERBS);
    assert_eq!(
        action_summaries(&after(std::slice::from_ref(&served), T0).unwrap()),
        ["read /apis/g/v1/namespaces/@fake:svm_ns!/r?limit=1"]
    );
    let list = replied(&json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
        "metadata": {"resourceVersion": "42"}, "items": [],
    }));
    let recorded = after(&[served.clone(), list.clone()], T0).unwrap();
    assert_eq!(action_summaries(&recorded), ["m Running=True 42"]);
    assert_eq!(after(&[served.clone(), list, Outcome::success()], T0), Some(Plan::nothing()));
    assert_eq!(after(&[served, failed(404, "")], T0), Some(Plan::failure("down")));
    let readonly = after(&[resource(&["list"])], T0).unwrap();
    assert_eq!(action_summaries(&readonly), ["m Running=True Failed=True"]);
    let no_resources =
        Outcome { reply: Some(Reply::of_resources(Arc::default())), ..Outcome::success() };
    assert!(
        after(std::slice::from_ref(&no_resources), at(59)).unwrap().error.is_some(),
        "the kind may be new"
    );
    assert_eq!(
        action_summaries(&after(&[no_resources], at(60)).unwrap()),
        ["m Running=True Failed=True"]
    );
    for idle in [migration("m", &[]), migration("m", &["Running", "Failed"])] {
        assert_eq!(record_version(&idle, &Outcomes::default(), T0), Some(Plan::nothing()));
    }
}
