use super::*;

const NOW: &str = "2026-01-01T00:00:00Z";

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

/// Returns the claims of a token that was issued an hour ago for an hour and a half. `bound` are the claims of the
/// bound objects.
fn claims(bound: &Value) -> Value {
    let at = now().as_second();
    let mut private = json!({"namespace": "a", "serviceaccount": {"name": "web", "uid": "1"}});
    for (kind, reference) in bound.as_object().into_iter().flatten() {
        private[kind] = reference.clone();
    }
    json!({"iat": at - 3600, "nbf": at - 3600, "exp": at + 1800, "jti": "t", "kubernetes.io": private})
}

/// Returns a stored object with this UID and deletion timestamp.
fn stored(uid: &str, deleted: Option<&str>) -> Value {
    json!({"metadata": {"uid": uid, "deletionTimestamp": deleted}})
}

/// Validates claims against these stored objects.
fn outcome(claims: &Value, objects: &[(&str, &str, Value)]) -> Result<ServiceAccountInfo, String> {
    let lookup = |prefix: &str, key: &str| {
        objects.iter().find(|(p, k, _)| (*p, *k) == (prefix, key)).map(|(.., o)| o.clone())
    };
    validate(claims, now(), &lookup)
}

#[test]
fn a_token_is_valid_in_its_period_with_a_minute_of_tolerance() {
    let account = [("/serviceaccounts", "a/web", stored("1", None))];
    let at = now().as_second();
    let changed = |claim: &str, value: Value| {
        let mut claims = claims(&json!({}));
        claims[claim] = value;
        outcome(&claims, &account).err()
    };
    let (expired, early, future) = (
        Some("service account token has expired".to_owned()),
        Some("service account token is not valid yet".to_owned()),
        Some("service account token is issued in the future".to_owned()),
    );
    for (claim, value, why) in [
        ("exp", json!(at - 60), None),
        ("exp", json!(at - 61), expired),
        ("nbf", json!(at + 60), None),
        ("nbf", json!(at + 61), early),
        ("iat", json!(at + 60), None),
        ("iat", json!(at + 61), future),
    ] {
        assert_eq!(changed(claim, value.clone()), why, "{claim} {value}");
    }
}

#[test]
fn a_token_is_invalid_without_its_account_or_a_bound_object() {
    let pod = || json!({"pod": {"name": "p", "uid": "2"}, "node": {"name": "n", "uid": "3"}});
    let account = || ("/serviceaccounts", "a/web", stored("1", None));
    let long_ago = Some("2025-12-31T23:58:59Z");
    let just_now = Some("2025-12-31T23:59:00Z");
    let invalidated = "service account token has been invalidated";
    let table = [
        (json!({}), vec![account()], None),
        (json!({}), vec![], Some("serviceaccounts \"web\" not found")),
        (
            json!({}),
            vec![("/serviceaccounts", "a/web", stored("9", None))],
            Some("service account UID (9) does not match claim (1)"),
        ),
        (
            json!({}),
            vec![("/serviceaccounts", "a/web", stored("1", long_ago))],
            Some("service account a/web has been deleted"),
        ),
        (json!({}), vec![("/serviceaccounts", "a/web", stored("1", just_now))], None),
        // A pod's token needs the pod, but not the node that it names.
        (pod(), vec![account(), ("/pods", "a/p", stored("2", None))], None),
        (pod(), vec![account()], Some(invalidated)),
        (
            pod(),
            vec![account(), ("/pods", "a/p", stored("9", None))],
            Some("pod UID (9) does not match service account pod ref claim (2)"),
        ),
        (pod(), vec![account(), ("/pods", "a/p", stored("2", long_ago))], Some(invalidated)),
        (pod(), vec![account(), ("/pods", "a/p", stored("2", Some("2026-01-01T00:00:30Z")))], None),
        (
            json!({"secret": {"name": "s", "uid": "4"}}),
            vec![account(), ("/secrets", "a/s", stored("4", None))],
            None,
        ),
        (json!({"secret": {"name": "s", "uid": "4"}}), vec![account()], Some(invalidated)),
        (
            json!({"node": {"name": "n", "uid": "3"}}),
            vec![account(), ("/nodes", "n", stored("3", None))],
            None,
        ),
        (json!({"node": {"name": "n", "uid": "3"}}), vec![account()], Some(invalidated)),
        (
            json!({"node": {"name": "n", "uid": "3"}}),
            vec![account(), ("/nodes", "n", stored("9", None))],
            Some("node UID (9) does not match service account node ref claim (3)"),
        ),
    ];
    for (bound, objects, why) in table {
        let found = outcome(&claims(&bound), &objects);
        assert_eq!(found.err().as_deref(), why, "{bound} {objects:?}");
    }
    assert!(outcome(&json!({}), &[account()]).is_err());
}

#[test]
fn the_user_names_the_account_and_the_bound_objects() {
    let bound = json!({"pod": {"name": "p", "uid": "2"}, "node": {"name": "n", "uid": "3"}});
    let objects =
        [("/serviceaccounts", "a/web", stored("1", None)), ("/pods", "a/p", stored("2", None))];
    let user = outcome(&claims(&bound), &objects).expect("valid").user();
    assert_eq!((&*user.name, &*user.uid), ("system:serviceaccount:a:web", "1"));
    let groups: Vec<&str> = user.groups.iter().map(|group| &**group).collect();
    let expected = ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"];
    assert_eq!(groups, expected);
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| {
            format!("{}={}", key.rsplit('/').next().unwrap_or(key), values.join(","))
        })
        .collect();
    let expected = ["credential-id=JTI=t", "node-name=n", "node-uid=3", "pod-name=p", "pod-uid=2"];
    assert_eq!(extra, expected);
}
