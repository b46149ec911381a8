use serde_json::json;

use super::super::config::AuthenticationConfiguration;
use super::super::validation::compile;
use super::*;

/// Returns the mapper of an issuer with these mappings and rules.
fn mapper(mappings: &Value, claim_rules: &Value, user_rules: &Value) -> Mapper {
    let document = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": "https://issuer", "audiences": ["a"]},
            "claimMappings": mappings,
            "claimValidationRules": claim_rules,
            "userValidationRules": user_rules,
        }],
    });
    let config = AuthenticationConfiguration::parse(document.to_string().as_bytes());
    let mut mappers = compile(&config.expect("decoded"), &[]).expect("valid");
    mappers.remove(0)
}

/// Formats a user as `name uid [groups] {extra}`, or the error.
fn shown(user: &Result<User, String>) -> String {
    match user {
        Ok(user) => {
            let extra: Vec<String> = user
                .extra
                .iter()
                .map(|(key, values)| format!("{key}={}", values.join(",")))
                .collect();
            let groups = user.groups.join(" ");
            format!("{} {} [{groups}] {{{}}}", user.name, user.uid, extra.join(" "))
        }
        Err(why) => why.clone(),
    }
}

#[test]
fn claims_map_to_a_user() {
    let sub = || json!({"username": {"claim": "sub", "prefix": "oidc:"}});
    let with = |field: &str, value: Value| {
        let mut mappings = sub();
        mappings[field] = value;
        mappings
    };
    let expression = |text: &str| json!({"expression": text});
    let email = || json!({"username": {"claim": "email", "prefix": ""}});
    let table = [
        (sub(), json!({"sub": "ann"}), "oidc:ann  [system:authenticated] {}"),
        (sub(), json!({}), "oidc: parse username claims \"sub\": claim not present"),
        (sub(), json!({"sub": 1}), "oidc: parse username claims \"sub\": it is not a string"),
        (email(), json!({"email": "a@b"}), "a@b  [system:authenticated] {}"),
        (
            email(),
            json!({"email": "a@b", "email_verified": true}),
            "a@b  [system:authenticated] {}",
        ),
        (email(), json!({"email": "a@b", "email_verified": false}), "oidc: email not verified"),
        (
            email(),
            json!({"email": "a@b", "email_verified": "true"}),
            "oidc: parse 'email_verified' claim: it is not a bool",
        ),
        (
            with("username", expression("claims.a.b + '!'")),
            json!({"a": {"b": "c"}}),
            "c!  [system:authenticated] {}",
        ),
        (
            with("username", expression("claims.a__dot__b")),
            json!({"a.b": "c"}),
            "c  [system:authenticated] {}",
        ),
        (
            with("username", expression("claims.sub")),
            json!({"sub": ""}),
            "oidc: empty username via CEL expression is not allowed",
        ),
        (
            with("username", expression("claims.sub")),
            json!({"sub": 1}),
            "oidc: error evaluating username claim expression: username claim expression must return a string",
        ),
        (
            with("username", expression("claims.sub")),
            json!({}),
            "oidc: error evaluating username claim expression: no such key: sub",
        ),
        (
            with("groups", json!({"claim": "roles", "prefix": "r:"})),
            json!({"sub": "a", "roles": ["x", "y"]}),
            "oidc:a  [r:x r:y system:authenticated] {}",
        ),
        (
            with("groups", json!({"claim": "roles", "prefix": ""})),
            json!({"sub": "a", "roles": "x"}),
            "oidc:a  [x system:authenticated] {}",
        ),
        (
            with("groups", json!({"claim": "roles", "prefix": ""})),
            json!({"sub": "a"}),
            "oidc:a  [system:authenticated] {}",
        ),
        (
            with("groups", json!({"claim": "roles", "prefix": ""})),
            json!({"sub": "a", "roles": [1]}),
            "oidc: parse groups claim \"roles\": it is neither a string nor a list of strings",
        ),
        (
            with("groups", expression("claims.roles.split(',')")),
            json!({"sub": "a", "roles": "x,,y"}),
            "oidc:a  [x y system:authenticated] {}",
        ),
        (
            with("groups", expression("claims.roles")),
            json!({"sub": "a", "roles": ["x", 1]}),
            "oidc: error evaluating group claim expression: expression must return a string or a list of strings",
        ),
        (
            with("groups", expression("claims.?roles.orValue([])")),
            json!({"sub": "a"}),
            "oidc:a  [system:authenticated] {}",
        ),
        (
            with("uid", json!({"claim": "id"})),
            json!({"sub": "a", "id": "7"}),
            "oidc:a 7 [system:authenticated] {}",
        ),
        (
            with("uid", json!({"claim": "id"})),
            json!({"sub": "a"}),
            "oidc: parse uid claim \"id\": claim not present",
        ),
        (
            with("uid", expression("string(claims.id)")),
            json!({"sub": "a", "id": "7"}),
            "oidc:a 7 [system:authenticated] {}",
        ),
        (
            with(
                "extra",
                json!([{"key": "example.org/a", "valueExpression": "claims.a"}, {"key": "example.org/b", "valueExpression": "''"}]),
            ),
            json!({"sub": "a", "a": ["x", "y"], "jti": "1"}),
            "oidc:a  [system:authenticated] {authentication.kubernetes.io/credential-id=JTI=1 example.org/a=x,y}",
        ),
        // An anonymous user does not get `system:authenticated`.
        (
            json!({"username": {"claim": "sub", "prefix": ""}}),
            json!({"sub": "system:anonymous"}),
            "system:anonymous  [] {}",
        ),
    ];
    for (mappings, claims, expected) in table {
        let user = mapper(&mappings, &json!([]), &json!([])).user(&claims);
        assert_eq!(shown(&user), expected, "{mappings} {claims}");
    }
}

#[test]
fn a_token_is_refused_if_a_validation_rule_fails() {
    let claim_rules = json!([
        {"claim": "hd", "requiredValue": "example.org"},
        {"expression": "claims.exp - claims.nbf <= 86400.0", "message": "total token lifetime must not exceed 24 hours"},
    ]);
    let user_rules = json!([
        {"expression": "!user.username.startsWith('system:')", "message": "username cannot use reserved system: prefix"},
        {"expression": "user.groups.all(group, !group.startsWith('system:'))"},
    ]);
    let mappings = json!({
        "username": {"claim": "sub", "prefix": ""},
        "groups": {"claim": "groups", "prefix": ""},
    });
    let mapper = mapper(&mappings, &claim_rules, &user_rules);
    let base =
        json!({"sub": "ann", "hd": "example.org", "nbf": 0, "exp": 86_400, "groups": ["dev"]});
    for (claim, value, why) in [
        ("sub", json!("ann"), None),
        (
            "hd",
            json!("example.com"),
            Some(
                "oidc: required claim hd value does not match. Got = example.com, want = example.org",
            ),
        ),
        ("hd", json!(1), Some("oidc: parse claim hd: it is not a string")),
        ("exp", json!(86_401), Some("total token lifetime must not exceed 24 hours")),
        ("exp", json!("later"), Some("oidc: error evaluating claim validation expression")),
        ("sub", json!("system:admin"), Some("username cannot use reserved system: prefix")),
        ("groups", json!(["system:masters"]), Some("user.groups.all")),
    ] {
        let mut claims = base.clone();
        claims[claim] = value.clone();
        match (mapper.user(&claims), why) {
            (Ok(user), None) => assert!(user.is_in("dev")),
            (Err(error), Some(why)) => assert!(error.contains(why), "{claim} {value}: {error}"),
            (found, _) => panic!("{claim} {value}: {found:?}"),
        }
    }
    let mut without = base;
    without.as_object_mut().expect("an object").remove("hd");
    let why = "oidc: required claim hd not present in ID token".to_owned();
    assert_eq!(mapper.user(&without), Err(why));
}
