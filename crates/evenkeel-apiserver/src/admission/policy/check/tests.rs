use serde_json::json;

use super::*;
use crate::resource::Table;

fn messages(plural: &str, object: &Value) -> Vec<String> {
    let row = Table::builtin().get("admissionregistration.k8s.io/v1", plural).expect("it is there");
    expression_errors(&row, object).iter().map(ToString::to_string).collect()
}

fn fields(plural: &str, object: &Value) -> Vec<String> {
    let row = Table::builtin().get("admissionregistration.k8s.io/v1", plural).expect("it is there");
    expression_errors(&row, object).into_iter().map(|error| error.field).collect()
}

#[test]
fn bad_expressions_are_found() {
    let policy = json!({"spec": {"matchConditions": [{"name": "a", "expression": "object.x == 1"}, {"name": "b", "expression": "'a'"}],
        "variables": [{"name": "v", "expression": "object.y.z"}], "validations": [{"expression": "variables.v > 1 &&"}, {"expression": "nope"}]}});
    assert_eq!(
        fields("validatingadmissionpolicies", &policy),
        [
            "spec.matchConditions[1].expression",
            "spec.validations[0].expression",
            "spec.validations[1].expression"
        ]
    );
    let hooks = json!({"webhooks": [{"matchConditions": [{"name": "a", "expression": "request.operation == 'CREATE'"}, {"name": "b", "expression": "..."}]}]});
    assert_eq!(
        fields("mutatingwebhookconfigurations", &hooks),
        ["webhooks[0].matchConditions[1].expression"]
    );
    let many = json!({"webhooks": [{"matchConditions": vec![json!({"expression": "true"}); 65]}]});
    assert_eq!(
        messages("mutatingwebhookconfigurations", &many),
        ["webhooks[0].matchConditions: Too many: 65: must have at most 64 items"]
    );
}

#[test]
fn each_expression_has_its_variables_and_its_type() {
    let ok = [
        "true",
        "request.dryRun",
        "request.userInfo.groups.exists(g, g == 'a')",
        "'a' in request.userInfo.extra",
        "namespaceObject == null || namespaceObject.metadata.labels['a'] == 'b'",
        "has(object.a) && object.a",
        "authorizer.group('').resource('pods').check('get').allowed()",
        "variables.n > 0 && variables.s != ''",
        "namespaceObject.metadata.creationTimestamp < timestamp('2026-01-01T00:00:00Z')",
        "object.a.all(x, x > 1)",
        "object.?a.orValue(false) == true",
        "request.options.a == 1",
        "variables.l.size() == 1",
        "variables.u.nope == ''",
    ];
    let policy = |params: bool, expression: &str| {
        let mut policy = json!({"spec": {"validations": [{"expression": expression}],
            "variables": [{"name": "n", "expression": "1"}, {"name": "s", "expression": "string(variables.n)"},
                {"name": "l", "expression": "[1, 2]"}, {"name": "u", "expression": "request.userInfo"}]}});
        if params {
            policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        }
        policy
    };
    let plural = "validatingadmissionpolicies";
    for expression in ok {
        assert_eq!(messages(plural, &policy(false, expression)), Vec::<String>::new());
    }
    assert_eq!(messages(plural, &policy(true, "params.a == 1")), Vec::<String>::new());
    for (expression, part) in [
        ("1", "must evaluate to bool but got int"),
        ("object.a", "must evaluate to bool but got dyn"),
        ("object.?a.orValue(false)", "must evaluate to bool but got dyn"),
        ("params.a == 1", "undeclared reference to 'params'"),
        ("request.nope == 1", "undefined field 'nope'"),
        ("variables.nope", "undefined field 'nope'"),
        ("variables.n == ''", "no matching overload"),
    ] {
        let found = messages(plural, &policy(false, expression));
        assert!(found.len() == 1 && found[0].contains(part), "{expression}: {found:?}");
    }
    let rest = json!({"spec": {
        "validations": [{"expression": "true", "messageExpression": "1"},
            {"expression": "variables.v", "messageExpression": "authorizer.a"}],
        "auditAnnotations": [{"key": "k", "valueExpression": "true"}, {"key": "l", "valueExpression": " null"}]}});
    assert_eq!(
        messages(plural, &rest),
        [
            r#"spec.validations[0].messageExpression: Invalid value: "1": must evaluate to string but got int"#,
            "spec.validations[1].expression: Invalid value: \"variables.v\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')\n | variables.v\n | ^",
            "spec.validations[1].messageExpression: Invalid value: \"authorizer.a\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in container '')\n | authorizer.a\n | ^",
            r#"spec.auditAnnotations[0].valueExpression: Invalid value: "true": must evaluate to one of [string null_type] but got bool"#,
        ]
    );
}
