use super::*;
use crate::fixtures::object;
use evenkeel_runtime::plan::Action;
use serde_json::json;

const KEY: &[u8] = include_bytes!("../testdata/p256.pem");

fn sources() -> DataSources {
    DataSources { ca: Some("ca".into()), signer: Signer::from_pem(KEY).unwrap() }
}

fn account_json() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "robot", "namespace": "ns", "uid": "u1"},
        "secrets": [{"name": "t"}, {"name": "other"}],
    })
}

fn secret_json(data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": token_secret::SECRET_TYPE, "data": data,
        "metadata": {
            "name": "t", "namespace": "ns", "uid": "s", "resourceVersion": "7",
            "annotations": {"kubernetes.io/service-account.name": "robot", "kubernetes.io/service-account.uid": "u1"},
        },
    })
}

/// Returns the token Secret `t` with this data, and its account if the cache has it.
fn observed(data: &Value, account: bool) -> Observed {
    let account = account.then(|| Arc::new(object(&account_json())));
    Observed::Secret { secret: Arc::new(object(&secret_json(data))), account }
}

fn replied(body: &Value) -> Outcome {
    Outcome { reply: Some(Reply::json(body.to_string())), ..Outcome::success() }
}

fn failed(code: u16, reason: &str) -> Outcome {
    let (reason, message) = (reason.to_owned(), "down".to_owned());
    Outcome::failure(Failure { code, reason, message, namespace_terminating: false })
}

fn after(observed: &Observed, done: &[Outcome]) -> Option<Plan> {
    next(observed, &sources(), &Outcomes(done.to_vec()))
}

fn path(plan: &Plan) -> &str {
    let [Action::Read(read)] = &plan.actions[..] else { panic!("{plan:?}") };
    assert_eq!(read.on_error, OnError::Abort);
    read.path()
}

fn written(plan: Option<Plan>) -> Value {
    let plan = plan.unwrap();
    let [Action::Update(update)] = &plan.actions[..] else { panic!("{plan:?}") };
    serde_json::from_slice(&update.body).unwrap()
}

const SECRET: &str = "/api/v1/namespaces/ns/secrets/t";
const ACCOUNT: &str = "/api/v1/namespaces/ns/serviceaccounts/robot";

#[test]
fn incomplete_secret_is_completed_from_a_live_read() {
    let observed = observed(&json!({"user": "eA=="}), true);
    assert_eq!(path(&plan(&observed, &sources())), SECRET);
    let mut live = secret_json(&json!({"user": "eA=="}));
    live["metadata"]["labels"] = json!({"kept": "yes"});
    let filled = written(after(&observed, &[replied(&live)]));
    assert_eq!(filled["metadata"]["labels"]["kept"], "yes");
    assert_eq!(
        (&filled["data"]["user"], &filled["data"]["ca.crt"]),
        (&json!("eA=="), &json!("Y2E="))
    );
    assert!(filled["data"]["token"].is_string());
    live["metadata"]["resourceVersion"] = json!("8");
    assert_eq!(after(&observed, &[replied(&live)]), None, "the next event enqueues it");
    assert_eq!(after(&observed, &[failed(404, "NotFound")]), None);
    let after_write = |last| after(&observed, &[replied(&live), last]);
    for ignored in [Outcome::success(), failed(404, "NotFound"), failed(409, "Conflict")] {
        assert_eq!(after_write(ignored), None);
    }
    assert_eq!(after_write(failed(500, "")), Some(Plan::failure("down")));
}

#[test]
fn secret_is_deleted_after_a_live_read_of_its_account() {
    let observed = observed(&json!({}), false);
    assert_eq!(path(&plan(&observed, &sources())), ACCOUNT);
    let mut other = account_json();
    other["metadata"]["uid"] = json!("u2");
    for gone in [failed(404, "NotFound"), replied(&other)] {
        let deleted = after(&observed, std::slice::from_ref(&gone)).unwrap();
        assert!(
            matches!(&deleted.actions[..], [Action::Delete(delete)] if &*delete.target.uid == "s"),
            "{deleted:?}"
        );
        assert_eq!(after(&observed, &[gone, Outcome::success()]), None);
    }
    // The account exists: the Secret is filled.
    let live_account = replied(&account_json());
    assert_eq!(path(&after(&observed, std::slice::from_ref(&live_account)).unwrap()), SECRET);
    let live = replied(&secret_json(&json!({})));
    let filled = written(after(&observed, &[live_account, live]));
    assert!(filled["data"]["namespace"].is_string());
}

#[test]
fn complete_and_foreign_secrets_are_unchanged() {
    let complete = observed(&json!({"token": "eA==", "namespace": "eA==", "ca.crt": "Y2E="}), true);
    let foreign =
        json!({"metadata": {"name": "t", "namespace": "ns"}, "type": token_secret::SECRET_TYPE});
    let foreign = Observed::Secret { secret: Arc::new(object(&foreign)), account: None };
    for observed in [complete, foreign] {
        assert_eq!(plan(&observed, &sources()), Plan::nothing());
        assert_eq!(after(&observed, &[]), None);
    }
}

#[test]
fn references_to_a_deleted_secret_are_removed() {
    let account: Arc<ServiceAccount> = Arc::new(object(&account_json()));
    let referrers = vec![Arc::clone(&account), account];
    let observed = Observed::Gone { name: "t".into(), referrers };
    let reads = plan(&observed, &sources());
    assert_eq!(reads.actions.len(), 2);
    let answers = [failed(404, "NotFound"), replied(&account_json())];
    let written_account = written(after(&observed, &answers));
    assert_eq!(written_account["secrets"], json!([{"name": "other"}]));
    let mut another = account_json();
    another["metadata"]["uid"] = "another".into();
    let answers_of_another = [failed(404, "NotFound"), replied(&another)];
    assert_eq!(after(&observed, &answers_of_another), Some(Plan::nothing()));
    let [gone, live_account] = answers;
    let after_write = |last| after(&observed, &[gone.clone(), live_account.clone(), last]);
    assert_eq!(
        (after_write(Outcome::success()), after_write(failed(404, "NotFound"))),
        (None, None)
    );
    assert_eq!(after_write(failed(409, "Conflict")), Some(Plan::failure("down")));
}
