use super::*;
use crate::fixtures::{T0, at, object};
use evenkeel_api::time::seconds;
use evenkeel_runtime::plan::Reply;
use serde_json::{Value, json};

/// Returns a StorageVersion as JSON, with entries `server=version`.
fn version(name: &str, entries: &[&str], status: &Value) -> Value {
    let entries = entries.iter().map(|entry| {
        let (server, version) = entry.split_once('=').unwrap();
        json!({
            "apiServerID": server, "encodingVersion": version,
            "decodableVersions": [version], "servedVersions": [version],
        })
    });
    let mut status = status.clone();
    status["storageVersions"] = entries.collect();
    json!({
        "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": name, "uid": "u", "resourceVersion": "7", "generation": 3},
        "spec": {}, "status": status,
    })
}

fn replied(body: &Value) -> Outcome {
    Outcome { reply: Some(Reply::json(body.to_string())), ..Outcome::success() }
}

fn lease(component: &str) -> Outcome {
    let labels = json!({COMPONENT_LABEL: component});
    replied(&json!({"metadata": {"name": "l", "namespace": "kube-system", "labels": labels}}))
}

fn not_found() -> Outcome {
    Outcome::failure(Failure { code: 404, reason: "NotFound".into(), ..Failure::local("gone") })
}

fn summaries(plan: &Plan) -> Vec<String> {
    let summary = |action: &Action| match action {
        Action::Read(read) => format!("read {}", read.path().rsplit('/').next().unwrap()),
        Action::Delete(delete) => format!("delete {}", delete.target.name),
        Action::Update(update) => {
            assert_eq!(update.subresource, "status");
            let body: Value = serde_json::from_slice(&update.body).unwrap();
            assert_eq!(body["metadata"]["resourceVersion"], "7");
            let entries = body["status"]["storageVersions"].as_array().unwrap();
            let servers: Vec<&str> =
                entries.iter().map(|entry| entry["apiServerID"].as_str().unwrap()).collect();
            format!("update {} to {}", update.target.name, servers.join(" "))
        }
        other => panic!("{other:?}"),
    };
    plan.actions.iter().map(summary).collect()
}

#[test]
fn deleted_lease_takes_its_entries_along() {
    let list = json!({"items": [
        version("a.r", &["gone=v1", "other=v1"], &json!({})),
        version("b.r", &["other=v1"], &json!({})),
        version("c.r", &["gone=v1", "gone=v2"], &json!({})),
    ]});
    let after = |outcomes: &[Outcome]| {
        remove_server("gone", &Outcomes(outcomes.to_vec()), T0).map(|plan| summaries(&plan))
    };
    let step = |actions: &[&str]| Some(actions.iter().map(|&action| action.to_owned()).collect());
    assert_eq!(after(&[]), step(&["read gone"]));
    assert_eq!(after(&[lease("another component")]), step(&[]), "the lease is not deleted");
    assert_eq!(after(&[not_found()]), step(&["read storageversions"]));
    let changes = step(&["update a.r to other", "delete c.r"]);
    assert_eq!(after(&[not_found(), replied(&list)]), changes);
    let ok = Outcome::success;
    assert_eq!(after(&[not_found(), replied(&list), ok(), ok()]), None);
}

#[test]
fn entries_without_an_identity_lease_are_removed() {
    for (entries, leases, want) in [
        (&["a=v1", "b=v1", "a=v2"][..], &[lease(API_SERVER), lease(API_SERVER)][..], &[][..]),
        (&["a=v1", "b=v1"], &[lease(API_SERVER), not_found()], &["update x to a"]),
        (&["a=v1", "b=v1"], &[lease("kubelet"), lease(API_SERVER)], &["update x to b"]),
        (&["a=v1", "b=v1"], &[not_found(), not_found()], &["delete x"]),
        (&["a/b=v1", "c=v1", "=v1"], &[lease(API_SERVER)], &["update x to c"]),
        (&["..=v1"], &[], &["delete x"]),
    ] {
        let observed = Observed { name: "x".into(), unknown_servers: Vec::new() };
        let live = replied(&version("x", entries, &json!({})));
        let outcomes: Vec<Outcome> = [live].into_iter().chain(leases.iter().cloned()).collect();
        let after =
            |n: usize| remove_unknown_servers(&observed, &Outcomes(outcomes[..n].to_vec()), T0);
        assert_eq!(summaries(&after(0).unwrap()), ["read x"]);
        if !leases.is_empty() {
            assert_eq!(after(1).unwrap().actions.len(), leases.len(), "{entries:?}");
        }
        assert_eq!(summaries(&after(outcomes.len()).unwrap()), want, "{entries:?}");
    }
    let observed = Observed { name: "x".into(), unknown_servers: vec!["b".to_owned()] };
    let gone = remove_unknown_servers(&observed, &Outcomes(vec![not_found()]), T0).unwrap();
    assert!(gone.is_nothing(), "the StorageVersion is gone");
}

#[test]
fn status_has_the_version_that_all_servers_encode_in() {
    let condition = |status: &str, reason: &str, message: &str| {
        json!({
            "type": ALL_EQUAL, "status": status, "reason": reason, "message": message,
            "observedGeneration": 1, "lastTransitionTime": seconds(T0),
        })
    };
    let set = condition("True", "CommonEncodingVersionSet", "Common encoding version set");
    let unset = condition("False", "CommonEncodingVersionUnset", "Common encoding version unset");
    let other = json!({"type": "Other", "status": "True", "reason": "R", "message": "m"});
    for (common, conditions, kept, want_common, want_status, n_conditions, moves) in [
        // Without a condition, one is added.
        (None, json!([other]), &["b=v1"][..], Some("v1"), "True", 2, true),
        // The remaining servers agree.
        (None, json!([unset, other]), &["b=v1", "c=v1"], Some("v1"), "True", 2, true),
        (Some("v1"), json!([set]), &["b=v1"], Some("v1"), "True", 1, false),
        // The common version is another one: a transition, although the condition's status stays.
        (Some("v1"), json!([set]), &["b=v2"], Some("v2"), "True", 1, true),
        (Some("v1"), json!([set]), &["b=v2", "c=v1"], None, "False", 1, true),
        (None, json!([unset]), &["b=v2", "c=v1"], None, "False", 1, false),
    ] {
        let old = json!({"commonEncodingVersion": common, "conditions": conditions});
        let entries: Vec<&str> = ["gone=v3"].iter().chain(kept).copied().collect();
        let version: StorageVersion = object(&version("x", &entries, &old));
        let keep = |entry: &ServerStorageVersion| entry.api_server_id != "gone";
        let Some(Action::Update(update)) = keep_entries(&version, keep, at(60)) else { panic!() };
        let body: Value = serde_json::from_slice(&update.body).unwrap();
        let status = &body["status"];
        assert_eq!(status["commonEncodingVersion"].as_str(), want_common, "{old}");
        let conditions = status["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), n_conditions, "{old}");
        let condition = conditions.iter().find(|one| one["type"] == ALL_EQUAL).unwrap();
        assert_eq!(condition["status"], want_status, "{old}");
        assert_eq!(condition["observedGeneration"], 3, "{old}");
        let time = if moves { at(60) } else { T0 };
        assert_eq!(condition["lastTransitionTime"], seconds(time), "{old}");
    }
}

#[test]
fn identity_leases_are_those_of_api_servers() {
    for (namespace, label, want) in [
        ("kube-system", API_SERVER, true),
        ("kube-system", "apiextensions-apiserver", false),
        ("default", API_SERVER, false),
    ] {
        let lease: Metadata = object(&json!({
            "metadata": {"name": "l", "namespace": namespace, "labels": {COMPONENT_LABEL: label}},
        }));
        assert_eq!(is_identity_lease(lease.meta()), want, "{namespace} {label}");
    }
}
