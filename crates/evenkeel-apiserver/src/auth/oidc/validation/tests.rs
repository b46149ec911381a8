use serde_json::{Value, json};

use super::*;

/// Returns a valid configuration of one issuer with changes at JSON pointers.
fn config(changes: &[(&str, Value)]) -> AuthenticationConfiguration {
    let mut document = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": "https://issuer", "audiences": ["a"]},
            "claimValidationRules": [],
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}, "groups": {}, "uid": {}, "extra": []},
            "userValidationRules": [],
        }],
    });
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        document.pointer_mut(parent).expect("a parent")[key] = value.clone();
    }
    AuthenticationConfiguration::parse(document.to_string().as_bytes()).expect("decoded")
}

/// Returns the errors of the changed configuration, each with its field.
fn errors(changes: &[(&str, Value)]) -> Vec<String> {
    let disallowed = ["https://kubernetes".to_owned()];
    compile(&config(changes), &disallowed)
        .err()
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn each_invalid_field_is_reported() {
    assert_eq!(errors(&[]), [""; 0]);
    let expression = |text: &str| json!({"expression": text});
    let table: [(&str, Value, &str); 33] = [
        ("/jwt/0/issuer/url", json!(""), "jwt[0].issuer.url: Required value"),
        ("/jwt/0/issuer/url", json!("http://a"), "URL scheme must be https"),
        ("/jwt/0/issuer/url", json!("https://a@b"), "URL must not contain a username or password"),
        ("/jwt/0/issuer/url", json!("https://b?c=d"), "URL must not contain a query"),
        ("/jwt/0/issuer/url", json!("https://b#c"), "URL must not contain a fragment"),
        ("/jwt/0/issuer/url", json!("nonsense"), "URL scheme must be https"),
        ("/jwt/0/issuer/url", json!("https://kubernetes"), "disallowed issuers"),
        (
            "/jwt/0/issuer/discoveryURL",
            json!("https://issuer/"),
            "discoveryURL must be different from URL",
        ),
        (
            "/jwt/0/issuer/discoveryURL",
            json!("http://a"),
            "jwt[0].issuer.discoveryURL: Invalid value",
        ),
        ("/jwt/0/issuer/audiences", json!([]), "jwt[0].issuer.audiences: Required value"),
        (
            "/jwt/0/issuer/audiences",
            json!(["a", "b"]),
            "audienceMatchPolicy must be MatchAny for multiple",
        ),
        ("/jwt/0/issuer/audiences", json!([""]), "jwt[0].issuer.audiences[0]: Required value"),
        ("/jwt/0/issuer/audienceMatchPolicy", json!("MatchAll"), "must be empty or MatchAny"),
        (
            "/jwt/0/issuer/certificateAuthority",
            json!("nonsense"),
            "jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\"",
        ),
        ("/jwt/0/issuer/egressSelectorType", json!("cluster"), "there is no egress selector"),
        ("/jwt/0/claimMappings/username", json!({}), "claim or expression is required"),
        (
            "/jwt/0/claimMappings/username",
            json!({"claim": "sub"}),
            "prefix is required when claim is set",
        ),
        (
            "/jwt/0/claimMappings/username",
            json!({"claim": "sub", "expression": "claims.sub"}),
            "claim and expression can't both be set",
        ),
        (
            "/jwt/0/claimMappings/username",
            json!({"prefix": "a", "expression": "claims.sub"}),
            "may not be specified when expression is set",
        ),
        (
            "/jwt/0/claimMappings/username",
            expression("claims.("),
            "jwt[0].claimMappings.username.expression: Invalid value",
        ),
        (
            "/jwt/0/claimMappings/username",
            expression("user.name"),
            "undeclared reference to 'user'",
        ),
        (
            "/jwt/0/claimMappings/username",
            expression("claims.email"),
            "claims.email_verified must be used",
        ),
        (
            "/jwt/0/claimMappings/uid",
            json!({"claim": "a", "expression": "'b'"}),
            "claim and expression can't both be set",
        ),
        (
            "/jwt/0/claimMappings/extra",
            json!([{"key": "foo", "valueExpression": "'a'"}]),
            "must be a domain-prefixed path",
        ),
        (
            "/jwt/0/claimMappings/extra",
            json!([{"key": "example.org/Foo", "valueExpression": "'a'"}]),
            "must be lowercase",
        ),
        (
            "/jwt/0/claimMappings/extra",
            json!([{"key": "a.k8s.io/foo", "valueExpression": "'a'"}]),
            "reserved for Kubernetes use",
        ),
        (
            "/jwt/0/claimMappings/extra",
            json!([{"key": "example.org/foo"}]),
            "jwt[0].claimMappings.extra[0].valueExpression: Required value",
        ),
        ("/jwt/0/claimValidationRules", json!([{}]), "claim or expression is required"),
        (
            "/jwt/0/claimValidationRules",
            json!([{"claim": "hd", "message": "a"}]),
            "may not be specified when claim is set",
        ),
        (
            "/jwt/0/claimValidationRules",
            json!([{"expression": "claims.a == 'b'", "requiredValue": "a"}]),
            "may not be specified when expression is set",
        ),
        ("/jwt/0/claimValidationRules", json!([expression("'a'")]), "must evaluate to bool"),
        (
            "/jwt/0/userValidationRules",
            json!([expression("user.nothing == 'a'")]),
            "jwt[0].userValidationRules[0].expression: Invalid value",
        ),
        (
            "/anonymous",
            json!({"enabled": false, "conditions": [{"path": "/livez"}]}),
            "enabled should be set to true",
        ),
    ];
    for (pointer, value, why) in table {
        let found = errors(&[(pointer, value.clone())]);
        assert!(found.iter().any(|error| error.contains(why)), "{pointer} {value}: {found:?}");
    }
}

#[test]
fn an_expression_that_reads_email_needs_one_that_reads_email_verified() {
    let email = ("/jwt/0/claimMappings/username", json!({"expression": "claims.email"}));
    let verified = "claims.?email_verified.orValue(true) == true";
    for (pointer, value) in [
        (
            "/jwt/0/claimMappings/username",
            json!({"expression": "claims.email_verified ? claims.email : ''"}),
        ),
        ("/jwt/0/claimValidationRules", json!([{"expression": verified}])),
        (
            "/jwt/0/claimMappings/extra",
            json!([{"key": "example.org/verified", "valueExpression": "has(claims.email_verified) ? 'a' : 'b'"}]),
        ),
    ] {
        assert_eq!(
            errors(&[email.clone(), (pointer, value.clone())]),
            [""; 0],
            "{pointer} {value}"
        );
    }
}

#[test]
fn two_issuers_may_not_have_the_same_urls() {
    let one = serde_json::to_value(json!({
        "issuer": {"url": "https://a", "discoveryURL": "https://b", "audiences": ["a"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
    }));
    let one = one.expect("JSON");
    let found = errors(&[("/jwt", json!([one, one]))]);
    let duplicates: Vec<bool> =
        found.iter().map(|error| error.contains("Duplicate value")).collect();
    assert_eq!(duplicates, [true, true], "{found:?}");
}

#[test]
fn files_with_unknown_fields_or_another_kind_are_refused() {
    let parse = |text: &str| AuthenticationConfiguration::parse(text.as_bytes()).map(drop);
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    for (text, why) in [
        (head.to_owned(), None),
        (
            format!("{head}jwt: []\nanonymous: {{enabled: true, conditions: [{{path: /livez}}]}}"),
            None,
        ),
        (format!("{head}jwts: []"), Some("unknown field `jwts`")),
        (format!("{head}jwt: []\njwt: []"), Some("already set")),
        (head.replace("v1", "v2"), Some("must be an AuthenticationConfiguration")),
        (head.replace("kind: Auth", "kind: Other"), Some("must be an AuthenticationConfiguration")),
        (format!("{head}jwt: {{"), Some("yaml")),
    ] {
        match (parse(&text), why) {
            (Ok(()), None) => {}
            (Err(error), Some(why)) => assert!(error.contains(why), "{text}: {error}"),
            (found, _) => panic!("{text}: {found:?}"),
        }
    }
}
