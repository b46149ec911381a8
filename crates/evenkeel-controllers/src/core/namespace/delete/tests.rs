//! Tests of the steps that delete a namespace. A scripted server responds to each action.

use super::*;
use crate::fixtures::{self, T0, at, meta};
use evenkeel_api::{Kind, Meta};
use evenkeel_runtime::{
    discovery::{FailedGroup, Resource},
    introspect,
    plan::{Action, Outcome, Outcomes, Reply},
};
use serde_json::json;

const PERIOD: Duration = Duration::from_secs(300);

/// Returns the cached namespace `n`, deleted at `T0`.
fn terminating() -> Namespace {
    let meta = Meta { namespace: "".into(), deletion: Some(T0), ..meta("n") };
    Namespace { meta, ..Namespace::default() }
}

/// Returns the live namespace `n` with uid `u`, which has the finalizer `kubernetes`.
fn live_namespace(phase: &str, version: &str) -> Value {
    json!({
        "metadata": {"name": "n", "uid": "u", "resourceVersion": version, "deletionTimestamp": T0.to_string()},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": phase},
    })
}

fn resource(kind: &'static str, plural: &'static str, verbs: &[&str]) -> Resource {
    Resource {
        verbs: verbs.iter().map(|verb| Box::from(*verb)).collect(),
        ..fixtures::resource(Kind::new("", "v1", kind, plural, true))
    }
}

/// Returns the discovered resources: pods, secrets, keys that can only be deleted one by one, and reviews that cannot
/// be deleted.
fn discovered() -> ServerResources {
    let all = ["delete", "deletecollection", "list"];
    let resources = vec![
        resource("Secret", "secrets", &all),
        resource("Pod", "pods", &all),
        resource("Key", "keys", &["delete", "list"]),
        resource("Review", "reviews", &["create"]),
    ];
    ServerResources { resources, failed: Vec::new() }
}

fn reply(body: &Value) -> Outcome {
    Outcome { reply: Some(Reply::json(body.to_string())), ..Outcome::success() }
}

fn failed(code: u16) -> Outcome {
    Outcome::failure(Failure { code, reason: "Reason".to_owned(), ..Failure::local("no") })
}

/// A server whose namespace `n` holds these pods and keys after each deletion.
struct ScriptedServer {
    pods: Value,
    keys: Value,
}

/// Returns a list of objects with these names and finalizers.
fn items(names: &[(&str, &[&str])]) -> Value {
    let item = |(name, finalizers): &(&str, &[&str])| json!({"metadata": {"name": name, "finalizers": finalizers}});
    json!({"items": names.iter().map(item).collect::<Vec<_>>()})
}

impl ScriptedServer {
    fn empty() -> Self {
        Self { pods: items(&[]), keys: items(&[]) }
    }

    fn answer(&self, action: &Action) -> Outcome {
        match action {
            Action::Read(read) if read.is_discovery() => Outcome {
                reply: Some(Reply::of_resources(Arc::new(discovered()))),
                ..Outcome::success()
            },
            Action::Read(read) => match read.path() {
                "/api/v1/namespaces/n" => reply(&live_namespace("Active", "1")),
                "/api/v1/namespaces/n/pods" => reply(&self.pods),
                "/api/v1/namespaces/n/keys" => reply(&self.keys),
                _ => reply(&items(&[])),
            },
            Action::Update(_) => {
                Outcome { resource_version: Some("9".into()), ..Outcome::success() }
            }
            _ => Outcome::success(),
        }
    }
}

/// Executes the steps at 10 s after the deletion. Returns summaries of their actions, and the result.
fn run(mut answer: impl FnMut(&Action) -> Outcome) -> (Vec<String>, SyncResult) {
    let (mut summaries, mut outcomes) = (Vec::new(), Outcomes::default());
    loop {
        let steps = &mut Steps::of(&outcomes);
        let step = match sync_namespace(&terminating(), PERIOD, at(10), steps) {
            Ok(result) => return (summaries, result),
            Err(step) => step,
        };
        for action in &step.actions {
            summaries.push(action_summary(action));
            outcomes.0.push(answer(action));
        }
    }
}

fn action_summary(action: &Action) -> String {
    match action {
        Action::Update(update) => {
            let body: Value = serde_json::from_slice(&update.body).expect("JSON");
            let version = body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            let conditions =
                if body["status"]["conditions"].is_null() { "" } else { " conditions" };
            format!("{}{conditions} {version}", update.subresource)
        }
        other => introspect::action(other),
    }
}

const NAMESPACE: &str = "read /api/v1/namespaces/n live";
const PODS: &str = "read /api/v1/namespaces/n/pods live";
const SECRETS: &str = "read /api/v1/namespaces/n/secrets live";
const KEYS: &str = "read /api/v1/namespaces/n/keys live";
const DISCOVER: &str = "discover the API's resources";

#[test]
fn pods_are_deleted_first_and_the_finalizer_removed_last() {
    let server = ScriptedServer::empty();
    let (summaries, result) = run(|action| server.answer(action));
    let want = [
        NAMESPACE,
        "status 1",
        DISCOVER,
        PODS,
        "delete all pods in n",
        PODS,
        "delete all secrets in n",
        SECRETS,
        KEYS,
        KEYS,
        "status conditions 9",
        "finalize 9",
    ];
    assert_eq!(summaries, want);
    assert_eq!(result, SyncResult::default());
}

#[test]
fn remaining_pods_block_other_resources() {
    let mut pods = items(&[("p", &[])]);
    pods["items"][0]["spec"]["terminationGracePeriodSeconds"] = 30.into();
    let server = ScriptedServer { pods, ..ScriptedServer::empty() };
    let (summaries, result) = run(|action| server.answer(action));
    assert_eq!(summaries[3..], [PODS, "delete all pods in n", PODS, "status conditions 9"]);
    assert_eq!(result.plan.requeue, Some(Duration::from_secs(16)), "half of the grace period");
}

#[test]
fn resources_without_deletecollection_are_deleted_one_by_one() {
    let server =
        ScriptedServer { keys: items(&[("a", &[]), ("b", &["x/y"])]), ..ScriptedServer::empty() };
    let (summaries, result) = run(|action| server.answer(action));
    let (delete_a, delete_b) =
        ("delete Key n/a, then its dependents", "delete Key n/b, then its dependents");
    assert_eq!(summaries[8..11], [KEYS, delete_a, delete_b]);
    assert_eq!(result.plan.requeue, Some(Duration::from_secs(8)), "the wait for a finalizer");
    // The server does not support the verb, although discovery reports it.
    let (summaries, _) = run(|action| match action {
        Action::DeleteCollection(all) if all.kind.plural == "pods" => failed(405),
        other => server.answer(other),
    });
    assert_eq!(summaries[4..7], ["delete all pods in n", PODS, PODS]);
}

#[test]
fn failed_resource_does_not_block_the_others() {
    let server = ScriptedServer::empty();
    let (summaries, result) = run(|action| match action {
        Action::DeleteCollection(all) if all.kind.plural == "secrets" => failed(500),
        other => server.answer(other),
    });
    assert_eq!(summaries[6..], ["delete all secrets in n", KEYS, KEYS, "status conditions 9"]);
    assert_eq!(result.plan, Plan::failure("no"));
}

#[test]
fn conflicts_are_retried_for_the_same_uid() {
    let server = ScriptedServer::empty();
    let mut updates = 0;
    let (summaries, result) = run(|action| match action {
        Action::Update(_) if updates == 0 => {
            updates += 1;
            failed(409)
        }
        other => server.answer(other),
    });
    assert_eq!(summaries[1..4], ["status 1", NAMESPACE, "status 1"]);
    assert_eq!(result, SyncResult::default());
    let mut reads = 0;
    let (summaries, result) = run(|action| match action {
        Action::Update(_) => failed(409),
        Action::Read(read) if read.path() == "/api/v1/namespaces/n" && reads > 0 => {
            let mut another = live_namespace("Active", "5");
            another["metadata"]["uid"] = "another".into();
            reply(&another)
        }
        other => {
            reads += 1;
            server.answer(other)
        }
    });
    assert_eq!((summaries.len(), result), (3, SyncResult::default()));
    let mut conflicts = 0..30;
    let (summaries, result) = run(|action| match action {
        Action::Update(_) if conflicts.next().is_some() => failed(409),
        other => server.answer(other),
    });
    assert_eq!(summaries[61..63], ["status 1", DISCOVER]);
    assert_eq!(result, SyncResult::default(), "retries have no limit");
}

#[test]
fn failed_condition_update_does_not_block_finalization() {
    let (server, mut updates) = (ScriptedServer::empty(), 0);
    let (summaries, result) = run(|action| match action {
        Action::Update(update) if update.subresource == "status" => {
            updates += 1;
            if updates == 2 { failed(500) } else { server.answer(action) }
        }
        other => server.answer(other),
    });
    assert_eq!(summaries.last().map(String::as_str), Some("finalize 9"));
    assert_eq!(result.unwritten_conditions.as_deref(), Some("no"));
    assert_eq!(result.plan, Plan::nothing());
}

#[test]
fn missing_namespace_or_failed_discovery_is_not_finalized() {
    assert_eq!(run(|_| failed(404)), (vec![NAMESPACE.to_owned()], SyncResult::default()));
    let (_, result) = run(|_| failed(500));
    assert_eq!(result.plan, Plan::failure("no"));
    let server = ScriptedServer::empty();
    let (summaries, _) = run(|action| match action {
        Action::Read(read) if read.is_discovery() => {
            let (group, version, reason) = ("x.io".into(), "v1".into(), "stale".into());
            let failed = vec![FailedGroup { group, version, reason }];
            let all = ServerResources { failed, ..discovered() };
            Outcome { reply: Some(Reply::of_resources(Arc::new(all))), ..Outcome::success() }
        }
        other => server.answer(other),
    });
    assert_eq!(summaries.last().map(String::as_str), Some("status conditions 9"), "not finalized");
}

#[test]
fn deletion_of_content_waits_for_the_grace_period() {
    let next = |namespace: &Namespace, now| {
        sync_namespace(namespace, PERIOD, now, &mut Steps::of(&Outcomes::default()))
            .map(|result| result.plan.requeue)
            .map_err(|step| step.actions.len())
    };
    assert_eq!(next(&terminating(), at(3)), Ok(Some(Duration::from_secs(2))));
    assert_eq!(next(&terminating(), at(-3)), Ok(Some(GRACE_PERIOD)));
    assert_eq!(next(&terminating(), at(5)), Err(1));
    assert_eq!(next(&Namespace::default(), at(5)), Ok(None), "not terminating");
}
