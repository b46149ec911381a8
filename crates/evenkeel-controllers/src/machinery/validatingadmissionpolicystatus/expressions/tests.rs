use super::*;
use evenkeel_cel::check::DeclType;
use serde_json::{Value, json};

/// Returns a kind whose objects have the field `foo` of this type.
fn kind(name: &str, foo: Type) -> TypedKind {
    let object = DeclType::object(Some(name), [("foo", DeclType::of(foo))]).kind;
    let kind = GroupVersionKind { group: "g".into(), version: "v1".into(), kind: name.into() };
    TypedKind { kind, object }
}

fn check(spec: &Value, kinds: &[TypedKind], params: Option<&Type>) -> Vec<(String, String)> {
    let spec: ValidatingAdmissionPolicySpec = serde_json::from_value(spec.clone()).unwrap();
    let warnings = warnings(&spec, kinds, params);
    warnings.into_iter().map(|warning| (warning.field_ref, warning.warning)).collect()
}

#[test]
fn warning_names_the_field_the_kind_and_the_place() {
    let spec = json!({"validations": [
        {"expression": "object.foo > 1", "messageExpression": "object.bar"},
        {"expression": "object.foo == 'a'", "messageExpression": ""},
    ]});
    let kinds = [kind("A", Type::Int), kind("B", Type::Str)];
    let mismatch = "found no matching overload for";
    let want = [
        (
            "spec.validations[0].expression",
            format!(
                "g/v1, Kind=B: ERROR: <input>:1:12: {mismatch} '_>_' applied to '(string, int)'\n \
                 | object.foo > 1\n | ...........^\n"
            ),
        ),
        (
            "spec.validations[0].messageExpression",
            "g/v1, Kind=A: ERROR: <input>:1:7: undefined field 'bar'\n | object.bar\n | ......^\n\n\
             g/v1, Kind=B: ERROR: <input>:1:7: undefined field 'bar'\n | object.bar\n | ......^\n"
                .to_owned(),
        ),
        (
            "spec.validations[1].expression",
            format!(
                "g/v1, Kind=A: ERROR: <input>:1:12: {mismatch} '_==_' applied to '(int, string)'\n \
                 | object.foo == 'a'\n | ...........^\n"
            ),
        ),
    ];
    let found = check(&spec, &kinds, None);
    let found: Vec<_> = found.iter().map(|(field, text)| (field.as_str(), text.clone())).collect();
    assert_eq!(found, want);
    assert_eq!(check(&spec, &[], None), [], "no kind is known");
}

#[test]
fn expressions_have_the_variables_of_policies() {
    let variables = json!([
        {"name": "text", "expression": "'a'"},
        {"name": "two", "expression": "variables.text + variables.text"},
        {"name": "broken", "expression": "object.foo == 'a'"},
        {"name": "user", "expression": "request.userInfo"},
    ]);
    let params = kind("P", Type::Str).object;
    for (expression, has_params, want) in [
        ("object.foo == oldObject.foo", false, None),
        ("has(object.foo)", false, None),
        // The result may have any type.
        ("object.foo", false, None),
        ("request.operation == 'CREATE' && namespaceObject.metadata.name == 'a'", false, None),
        ("request.nope", false, Some("undefined field 'nope'")),
        ("authorizer.group('').resource('endpoints').check('create').allowed()", false, None),
        (
            "authorizer.allowed()",
            false,
            Some(
                "found no matching overload for 'allowed' applied to 'kubernetes.authorization.Authorizer",
            ),
        ),
        ("params.foo == 'a'", false, Some("undeclared reference to 'params'")),
        ("params.foo == 'a'", true, None),
        ("params.foo == object.foo", true, Some("'_==_' applied to '(string, int)'")),
        ("variables.two == 'aa'", false, None),
        ("variables.text == object.foo", false, Some("'_==_' applied to '(string, int)'")),
        ("variables.nope", false, Some("undefined field 'nope'")),
        // A variable that does not compile, and an object, are dynamic.
        ("variables.broken == object.foo && variables.user.nope == 1", false, None),
        ("object.foo >", false, Some("Syntax error")),
    ] {
        let spec = json!({"variables": variables, "validations": [{"expression": expression}]});
        let params = has_params.then_some(&params);
        let found = check(&spec, &[kind("A", Type::Int)], params);
        match want {
            None => assert_eq!(found, [], "{expression}"),
            Some(part) => {
                assert!(found.len() == 1 && found[0].1.contains(part), "{expression}: {found:?}");
            }
        }
    }
    let alone = json!({"validations": [{"expression": "variables.nope"}]});
    let found = check(&alone, &[kind("A", Type::Int)], None);
    assert!(found[0].1.contains("undefined field 'nope'"), "{found:?}");
}
