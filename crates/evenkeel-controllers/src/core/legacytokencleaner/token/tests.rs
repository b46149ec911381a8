use super::*;
use evenkeel_api::{Encoding, Meta, views::ObjectReference};
use serde_json::json;

const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0); // 2026-01-01
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn cutoff() -> Cutoff {
    Cutoff::new(NOW, YEAR, "2020-01-01").expect("a day").expect("long enough")
}

fn secret(made: &str, labels: &Value) -> Full<Secret> {
    let object = json!({
        "metadata": {
            "name": "t", "namespace": "ns", "creationTimestamp": made, "labels": labels,
            "annotations": {"kubernetes.io/service-account.name": "robot"},
        },
        "type": "kubernetes.io/service-account-token",
    });
    Full::decode(object.to_string().as_bytes(), Encoding::Json).expect("a Secret")
}

fn account(secrets: &[&str]) -> Arc<ServiceAccount> {
    let reference =
        |name: &&str| ObjectReference { name: (*name).into(), ..ObjectReference::default() };
    let meta = Meta { name: "robot".into(), namespace: "ns".into(), ..Meta::default() };
    let secrets = secrets.iter().map(reference).collect();
    Arc::new(ServiceAccount { meta, secrets, ..ServiceAccount::default() })
}

#[test]
fn cleanup_needs_tracking_for_the_whole_period() {
    let cleans = |since| Cutoff::new(NOW, YEAR, since).map(|cutoff| cutoff.is_some());
    assert_eq!(cleans("2024-12-30"), Ok(true));
    // The date has no time of day: tracking may have begun at the end of 2024-12-31.
    assert_eq!(cleans("2024-12-31"), Ok(true));
    assert_eq!(cleans("2025-01-01"), Ok(false));
    assert!(cleans("yesterday").is_err());
}

#[test]
fn candidates_are_old_unused_auto_generated_tokens() {
    let (old, new) = ("2024-01-01T00:00:00Z", "2025-06-01T00:00:00Z");
    // Creation time and labels of the Secret, its ServiceAccount, and whether the Secret is a candidate.
    let table = [
        (old, json!({}), account(&["t"]), true),
        (new, json!({}), account(&["t"]), false),
        (old, json!({}), account(&["other"]), false),
        (old, json!({LAST_USED: "2024-12-31"}), account(&["t"]), true),
        (old, json!({LAST_USED: "2025-01-01"}), account(&["t"]), false),
        (old, json!({LAST_USED: "never"}), account(&["t"]), false),
    ];
    for (creation, labels, account, wanted) in table {
        let secret = secret(creation, &labels);
        assert_eq!(is_candidate(&secret, Some(&account), &cutoff()), wanted, "{creation} {labels}");
        assert!(!is_candidate(&secret, None, &cutoff()));
    }
}

#[test]
fn unused_token_is_marked_and_a_period_later_deleted() {
    let after = |labels: &Value| verdict(&secret("2024-01-01T00:00:00Z", labels), &cutoff());
    let today = Date::constant(2026, 1, 1);
    assert_eq!(after(&json!({})), Some(Verdict::Mark(today)));
    assert_eq!(after(&json!({INVALID_SINCE: "soon"})), Some(Verdict::Mark(today)));
    assert_eq!(after(&json!({INVALID_SINCE: "2025-01-01"})), None);
    assert_eq!(after(&json!({INVALID_SINCE: "2024-12-31"})), Some(Verdict::Delete));
    assert_eq!(Verdict::Mark(today), Verdict::Mark("2026-01-01".parse().expect("a date")));
}

#[test]
fn pod_refers_to_secrets_in_volumes_environment_and_image_pulls() {
    let pod = json!({"spec": {
        "imagePullSecrets": [{"name": "pull"}],
        "containers": [{
            "envFrom": [{"secretRef": {"name": "all"}}],
            "env": [{"valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}}],
        }],
        "volumes": [
            {"secret": {"secretName": "plain"}},
            {"projected": {"sources": [{"secret": {"name": "projected"}}]}},
            {"csi": {"nodePublishSecretRef": {"name": "csi"}}},
            {"azureFile": {"secretName": "azure"}},
        ],
    }});
    let mut found = Vec::new();
    visit_secret_names(&pod, &mut |name| found.push(name.to_owned()));
    found.sort_unstable();
    assert_eq!(found, ["all", "azure", "csi", "one", "plain", "projected", "pull"]);
}
